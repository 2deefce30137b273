"""How many requests a second a node takes of one principal, or of one address if nobody says who they are.

Each has a bucket that fills as time passes, and that a request takes from. It has room for what may be asked
in a second, so short bursts pass. Some more is kept for what operators do: who has used up all that may be
asked can still end a hold by force, or set a quota.

The bound is that of one node, which keeps it in memory and asks nobody. Without one nothing is counted.
"""

import math
import time
from collections.abc import Callable, Iterable
from typing import Final

from cluster.observing.samples import Sample, counter
from holdfast.token_lines import Right
from http_api.server.connection_limits import Place
from lockapi.gateway import Gateway
from lockapi.needs import Need
from lockapi.problems import ProblemError

OPERATORS_SHARE: Final = 10
"""Of so many requests a second, one more is kept for what operators do; one at least."""
BUCKETS_COUNT_LEAST: Final = 1_000
"""Buckets that are kept before those that are full again are looked for."""

_OPERATORS: Final = frozenset({Right.ADMIN, Right.FORCE})
"""Who needs one of these for a call does it as an operator."""
_ROUNDING_S: Final = 1e-9
"""Seconds that sums of times may be wrong by."""


class TooManyRequests(ProblemError):
    """A principal, or an address, has asked more of this node than it may in so short a time."""

    def __init__(self, per_second: int, retry_after_ms: int) -> None:
        super().__init__(
            "too-many-requests",
            f"this node accepts {per_second} requests a second from one caller: try later, or ask another",
            retry_after_ms=retry_after_ms,
            facts={"limit": per_second},
        )


class RequestRates:
    """The buckets of all callers of one node."""

    def __init__(self, per_second: int = 0, now_s: Callable[[], float] = time.monotonic) -> None:
        """Take so many requests a second of each caller; 0 for any number. `now_s` never goes back."""
        self._per_second = per_second
        self._now_s = now_s
        self._full_at_s: dict[str, float] = {}
        """When the bucket of each caller is full again, of those whose bucket is not."""
        self._look_at_count = BUCKETS_COUNT_LEAST
        self._refused_count = 0

    def has_taken(self, caller: str) -> bool:
        """Whether there was room for a request, which is taken then. If not, others refuse it."""
        return not self._per_second or not self._wait_ms(caller, 1, 0)

    def take(self, caller: str, need: Need, count: int = 1) -> None:
        """Take `count` requests from a bucket that has room for one. Raises TooManyRequests.

        What they take beyond that has to be waited for by the next one.
        """
        if not self._per_second:
            return
        more = max(self._per_second // OPERATORS_SHARE, 1) if need.right in _OPERATORS else 0
        wait_ms = self._wait_ms(caller, count, more)
        if wait_ms:
            self._refused_count += 1
            raise TooManyRequests(self._per_second, wait_ms)

    def add(self, caller: str, count: int) -> None:
        """Take `count` more for a request that was taken: it has cost as much, and the next one waits."""
        if self._per_second:
            now_s = self._now_s()
            full_at_s = max(self._full_at_s.get(caller, now_s), now_s)
            self._full_at_s[caller] = full_at_s + count / self._per_second

    def _wait_ms(self, caller: str, count: int, more: int) -> int:
        """Take, or return after how many milliseconds there is room for one, with so many `more`."""
        now_s, each_s = self._now_s(), 1 / self._per_second
        full_at_s = max(self._full_at_s.get(caller, now_s), now_s)
        lacking_s = full_at_s - now_s + each_s * (1 - more) - 1
        if lacking_s > _ROUNDING_S:
            return max(math.ceil(lacking_s * 1000), 1)
        self._full_at_s[caller] = full_at_s + count * each_s
        if len(self._full_at_s) > self._look_at_count:
            self._forget_full(now_s)
        return 0

    def _forget_full(self, now_s: float) -> None:
        """Forget the buckets that are full again, and look again when there are twice as many."""
        self._full_at_s = {caller: at_s for caller, at_s in self._full_at_s.items() if at_s > now_s}
        self._look_at_count = max(2 * len(self._full_at_s), BUCKETS_COUNT_LEAST)

    def samples(self) -> Iterable[Sample]:
        """Yield what has been counted, if there is a bound."""
        if self._per_second:
            text = "Requests refused because their caller had made too many within a second."
            yield counter("http_too_many_requests_total", text, self._refused_count)


def caller_of(gateway: Gateway, place: Place) -> str:
    """Return by what the requests of a caller are counted: its name, or where its connection comes from."""
    return gateway.principal.name or place.origin
