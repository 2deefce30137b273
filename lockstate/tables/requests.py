"""The memory of requests: a repeated `request_id` gets the first outcome. Part of the replicated state."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from lockstate.tables import marks
from lockstate.tables.ledger import Ledger
from lockstate.tables.records import RequestKey
from lockstate.words import limits
from lockstate.words.ids import NO_HOLD, HoldId
from lockstate.words.refusals import Refused
from lockstate.words.results import CellRead, Granted, GrantedSeveral, Queued, RateTaken, Result, Transacted

_mark_of = marks.of_content


class Remembered(msgspec.Struct, array_like=True, gc=False):
    """One remembered request: a digest of what it asked, when its outcome came, and the outcome so far."""

    digest: bytes
    at_ms: int
    result: Result


_OF: Final = "\0"
"""Stands between a request id, in which it cannot be, and the principal whose it is."""


def key_of(principal: str, key: tuple[str, str]) -> tuple[str, str]:
    """Return a key as it is of a principal, "" for nobody: others may have the same request id."""
    return (key[0], f"{key[1]}{_OF}{principal}") if principal else key


def _hold_id(result: Result) -> HoldId:
    """Return the id of the hold that a result grants or queues for; NO_HOLD if neither."""
    return result.hold_id if isinstance(result, Granted | Queued) else NO_HOLD


def brief(result: Result) -> Result:
    """Return what is worth remembering of a result: what was in the way, or read, is out of date later.

    The owners and notes of holders could take 30 kB, a million times; the cells of a transaction 256 kB.
    """
    if isinstance(result, Transacted):
        nothing = CellRead(None)
        results = [nothing if isinstance(part, CellRead) else part for part in result.results]
        return msgspec.structs.replace(result, results=tuple(results))
    if isinstance(result, Refused) and (result.holders or result.cycle):
        return msgspec.structs.replace(result, holders=(), cycle=())
    return result


def rate_taken_later(taken: RateTaken, passed_ms: int) -> RateTaken:
    """Return what a rate limit answered, as it is `passed_ms` later. No wait becomes one of 0."""
    return msgspec.structs.replace(
        taken,
        retry_after_ms=max(taken.retry_after_ms - passed_ms, min(taken.retry_after_ms, 1)),
        reset_in_ms=max(taken.reset_in_ms - passed_ms, 0),
    )


def grant_later(granted: Granted, passed_ms: int) -> Granted:
    """Return what rate limits said of a grant of several kinds as it is `passed_ms` later."""
    if not (isinstance(granted, GrantedSeveral) and granted.rates):
        return granted
    later = [
        msgspec.structs.replace(one, reset_in_ms=max(one.reset_in_ms - passed_ms, 0)) for one in granted.rates
    ]
    return msgspec.structs.replace(granted, rates=tuple(later))


def _mark(key: RequestKey, remembered: Remembered) -> int:
    """Return the mark of an outcome. Of its key it has the length: the digest implies the rest."""
    return _mark_of(remembered, len(key[0]) + len(str(key[1])))


def _parts(key: RequestKey) -> tuple[RequestKey, str]:
    """Return a key as it is of nobody, and whose it is."""
    request_id, _, principal = str(key[1]).partition(_OF)
    return (key[0], request_id), principal


class RequestMemory:
    """Outcomes by request key, oldest first; bounded by age and count, see `limits`."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self._requests: OrderedDict[RequestKey, Remembered] = OrderedDict()
        self.askers: dict[RequestKey, set[str]] = {}
        """The principals that have a request under each key, as it would be of nobody. It is derived."""
        self._ledger = Ledger() if ledger is None else ledger
        self.get: Callable[[RequestKey], Remembered | None] = self._requests.get
        """Return what is remembered under a key. It is the table's own: every request with an id asks."""

    def __len__(self) -> int:
        """Return how many requests are remembered."""
        return len(self._requests)

    def __contains__(self, key: RequestKey) -> bool:
        """Whether anything is remembered under `key`."""
        return key in self._requests

    def askers_of(self, key: RequestKey) -> tuple[str, ...]:
        """Return the principals that have a request under `key`, in order of their names."""
        return tuple(sorted(self.askers.get(key, ())))

    def note_asker(self, key: RequestKey) -> None:
        """Note whose request is remembered now, if it is somebody's."""
        plain, principal = _parts(key)
        if principal:
            self.askers.setdefault(plain, set()).add(principal)

    def _leave(self, key: RequestKey) -> None:
        """Note whose request is remembered no more."""
        plain, principal = _parts(key)
        if principal:
            askers = self.askers[plain]
            askers.remove(principal)
            if not askers:
                del self.askers[plain]

    @property
    def is_full(self) -> bool:
        """Whether another request would push out one that must still be remembered."""
        return len(self._requests) >= limits.REQUESTS_COUNT_MAX

    def remember(self, key: tuple[str, str], digest: bytes, now_ms: int, result: Result) -> None:
        """Remember the first outcome of a request; if that is `Queued`, it is settled later.

        Whoever remembers that of a principal says so (`note_asker`).
        """
        if result.__class__ is Refused or result.__class__ is Transacted:
            result = brief(result)
        self._requests[key] = remembered = Remembered(digest, now_ms, result)
        # As `_mark` does, without the call: every outcome comes by here.
        self._ledger.settled_sum += _mark_of(remembered, len(key[0]) + len(key[1]))

    def settle(self, key: RequestKey | None, now_ms: int, result: Result) -> None:
        """Replace the outcome of a request that waited. Its age counts from now."""
        remembered = None if key is None else self._requests.get(key)
        if key is None or remembered is None:
            return
        self._ledger.settled_sum -= _mark_of(remembered)
        remembered.result = brief(result)
        remembered.at_ms = now_ms
        self._ledger.settled_sum += _mark_of(remembered)
        self._requests.move_to_end(key)

    def forget(self, key: RequestKey | None, hold_id: HoldId) -> None:
        """Forget the request that led to `hold_id` and was undone, so that a repetition starts afresh."""
        remembered = None if key is None else self._requests.get(key)
        if key is not None and remembered is not None and _hold_id(remembered.result) == hold_id:
            del self._requests[key]
            if self.askers:
                self._leave(key)
            self._ledger.settled_sum -= _mark(key, remembered)

    def next_ms(self) -> int | None:
        """Return the last millisecond for which the oldest outcome is remembered; None if there is none."""
        oldest = next(iter(self._requests.values()), None)
        return None if oldest is None else oldest.at_ms + limits.REQUEST_AGE_MS

    def prune(self, now_ms: int) -> None:
        """Forget a limited number of outcomes that are old enough. Requests that still wait stay."""
        if not self._requests:
            return
        for _ in range(min(len(self._requests), limits.REQUESTS_PER_ENTRY_MAX)):
            key, oldest = next(iter(self._requests.items()))
            if oldest.at_ms + limits.REQUEST_AGE_MS >= now_ms:
                return
            self._ledger.settled_sum -= _mark(key, oldest)
            waits = isinstance(oldest.result, Queued)
            if isinstance(oldest.result, RateTaken) and oldest.result.at_ms > now_ms:
                waits, oldest.result = True, rate_taken_later(oldest.result, now_ms - oldest.at_ms)
            if waits:
                oldest.at_ms = now_ms
                self._ledger.settled_sum += _mark(key, oldest)
                self._requests.move_to_end(key)
            else:
                del self._requests[key]
                if self.askers:
                    self._leave(key)

    def dump(self) -> list[tuple[RequestKey, Remembered]]:
        """Return everything, oldest first, for a snapshot."""
        return list(self._requests.items())

    def load(self, items: list[tuple[RequestKey, Remembered]]) -> None:
        """Add a part of what `dump` returned, after what is there."""
        self._requests.update(items)
        for key, _ in items:
            self.note_asker(key)
        self._ledger.settled_sum += sum([_mark(key, remembered) for key, remembered in items])

    def recomputed_sum(self) -> int:
        """Return the sum of the marks of all outcomes, and of the lengths of their keys (see `marks`)."""
        return sum([_mark(key, remembered) for key, remembered in self._requests.items()])
