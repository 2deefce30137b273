"""The records of the state and the plain data structures that hold them. No rule about locks lives here."""

import bisect
import heapq
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from itertools import islice, repeat
from typing import Any, Final, TypeVar

import msgspec

from lockstate import modes
from lockstate.modes import NONE, Mode, ModeCounts

_Item = TypeVar("_Item")

RequestKey = tuple[str, str]
"""Scope and request id of a remembered request."""


counted = lru_cache(maxsize=4096)(modes.counted)
"""Equal counts are one tuple: nearly all locks have the same few."""

# A million locks have a million holders and no waiters. So what has at most one item is shared: it is
# replaced when it changes, and only larger dictionaries are changed in place.

EMPTY: Final[dict[str, Any]] = {}
"""What nearly every queue, label set and ticket table is. Never changed."""
_empty = repeat(EMPTY).__next__

ALONE: Final = {mode: counted(NONE, mode, 1) for mode in Mode}
"""The counts of a lock with a single holder, by its mode."""


def joined(items: dict[str, _Item], sole: dict[str, _Item]) -> dict[str, _Item]:
    """Return `items` with the one item of `sole` behind them; `sole` itself if there were none."""
    if not items:
        return sole
    if len(items) == 1:
        return items | sole
    items.update(sole)
    return items


def without(items: dict[str, _Item], key: str) -> dict[str, _Item]:
    """Return `items` without `key`, which must be there."""
    if len(items) > 2:  # noqa: PLR2004 - one would be left, which may become shared
        del items[key]
        return items
    left = {other: item for other, item in items.items() if other != key}
    assert len(left) < len(items), f"{key} is not there"
    return left or EMPTY


# No record refers to one that refers back to it, so reference counts free them all, and the garbage collector
# need not look at millions of them (gc=False): a full collection would stop the node for seconds.


class Timed(msgspec.Struct, kw_only=True, eq=False, gc=False, array_like=True):
    """Something that ends by itself when cluster time has passed `expires_at_ms`.

    `order` is its place among all creations: it breaks ties between equal deadlines.
    """

    order: int
    expires_at_ms: int


class Hold(msgspec.Struct, kw_only=True, eq=False, gc=False, array_like=True):
    """One granted right. It lives as long as its session."""

    hold_id: str
    token: int
    name: str
    mode: Mode
    owner: str
    note: str
    session_id: str
    lock_delay_ms: int
    attempt_id: str
    request: RequestKey | None


class Ticket(Timed, kw_only=True, eq=False, gc=False, array_like=True):
    """A waiter. `session_id` is empty for one that will get a lease of its own, of `ttl_ms`."""

    hold_id: str
    name: str
    mode: Mode
    owner: str
    note: str
    session_id: str
    ttl_ms: int
    lock_delay_ms: int
    queued_at_ms: int
    attempt_id: str
    request: RequestKey | None


class Session(Timed, kw_only=True, eq=False, gc=False, array_like=True):
    """A client's registered liveness. `is_own` marks the lease of a single hold, whose id it shares."""

    session_id: str
    ttl_ms: int
    owner: str
    labels: dict[str, str]
    is_own: bool
    holds: dict[str, Hold] = msgspec.field(default_factory=_empty)
    tickets: dict[str, Ticket] = msgspec.field(default_factory=_empty)


class Delay(Timed, kw_only=True, eq=False, gc=False, array_like=True):
    """A lock-delay: nobody gets the lock until it is over."""

    name: str


class Lock(msgspec.Struct, kw_only=True, eq=False, gc=False):
    """One active name. Holders in order of their tokens, waiters in order of arrival."""

    name: str
    holders: dict[str, Hold] = msgspec.field(default_factory=_empty)
    queue: dict[str, Ticket] = msgspec.field(default_factory=_empty)
    delay: Delay | None = None
    held_modes: ModeCounts = NONE
    waiting_modes: ModeCounts = NONE

    def add_holder(self, hold: Hold, sole: dict[str, Hold]) -> None:
        """Put `hold`, the one item of `sole`, behind the other holders."""
        self.holders = joined(self.holders, sole)
        self.held_modes = counted(self.held_modes, hold.mode, 1)

    def remove_holder(self, hold: Hold) -> None:
        """Take `hold` out."""
        self.holders = without(self.holders, hold.hold_id)
        self.held_modes = counted(self.held_modes, hold.mode, -1)

    def add_waiter(self, ticket: Ticket, sole: dict[str, Ticket]) -> None:
        """Put `ticket`, the one item of `sole`, at the end of the queue."""
        self.queue = joined(self.queue, sole)
        self.waiting_modes = counted(self.waiting_modes, ticket.mode, 1)

    def remove_waiter(self, ticket: Ticket) -> None:
        """Take `ticket` out, wherever it stands."""
        self.queue = without(self.queue, ticket.hold_id)
        self.waiting_modes = counted(self.waiting_modes, ticket.mode, -1)

    @property
    def is_idle(self) -> bool:
        """Whether nothing about this name needs to be remembered."""
        return not self.holders and not self.queue and self.delay is None


class Deadlines:
    """All records that end by themselves, by (deadline, order).

    The heap is lazy: a renewed record keeps its old place until that comes up, a removed one leaves a husk.
    Husks never outnumber the living by much, so memory follows the records and not the traffic. A place is
    one number, the deadline above the order: half the size of a pair, and compared faster.
    """

    _HUSKS_MIN = 1024
    _ORDER_BITS = 64
    _ORDER_MASK = (1 << _ORDER_BITS) - 1

    def __init__(self) -> None:
        self._live: dict[int, Timed] = {}
        self._scheduled_ms: dict[int, int] = {}
        self._heap: list[int] = []

    def __len__(self) -> int:
        """Return how many records are waiting for their end."""
        return len(self._live)

    def set(self, record: Timed) -> None:
        """Add `record`, or take note that its `expires_at_ms` has changed."""
        scheduled_ms = self._scheduled_ms.get(record.order)
        if scheduled_ms is None or record.expires_at_ms < scheduled_ms:
            self._live[record.order] = record
            self._push(record)
            if len(self._heap) > 2 * len(self._live) + self._HUSKS_MIN:
                self._rebuild()

    def load(self, records: Iterable[Timed]) -> None:
        """Add many records that are not there; `settle` must follow before anything else."""
        live, scheduled_ms, heap, bits = self._live, self._scheduled_ms, self._heap, self._ORDER_BITS
        for record in records:
            order, deadline_ms = record.order, record.expires_at_ms
            live[order] = record
            scheduled_ms[order] = deadline_ms
            heap.append(deadline_ms << bits | order)

    def settle(self) -> None:
        """Order what `load` added."""
        heapq.heapify(self._heap)

    def discard(self, record: Timed) -> None:
        """Forget `record`."""
        if self._live.pop(record.order, None) is not None:
            del self._scheduled_ms[record.order]

    def pop_due(self, now_ms: int) -> Timed | None:
        """Remove and return the first record whose end `now_ms` has passed, or None."""
        self._settle_top(now_ms)
        if not self._heap or self._heap[0] >> self._ORDER_BITS >= now_ms:
            return None
        order = heapq.heappop(self._heap) & self._ORDER_MASK
        del self._scheduled_ms[order]
        return self._live.pop(order)

    def next_ms(self) -> int | None:
        """Return the earliest deadline, or None when nothing will end by itself."""
        self._settle_top(None)
        return self._heap[0] >> self._ORDER_BITS if self._heap else None

    def _settle_top(self, now_ms: int | None) -> None:
        """Clear husks and outdated places off the top, as far as `now_ms` (None: until the top is right)."""
        heap = self._heap
        while heap and (now_ms is None or heap[0] >> self._ORDER_BITS < now_ms):
            deadline_ms, order = heap[0] >> self._ORDER_BITS, heap[0] & self._ORDER_MASK
            if self._scheduled_ms.get(order) != deadline_ms:
                heapq.heappop(heap)
                continue
            record = self._live[order]
            if record.expires_at_ms == deadline_ms:
                return
            heapq.heappop(heap)
            self._push(record)

    def _push(self, record: Timed) -> None:
        self._scheduled_ms[record.order] = record.expires_at_ms
        heapq.heappush(self._heap, self._place(record.expires_at_ms, record.order))

    def _rebuild(self) -> None:
        self._scheduled_ms = {order: record.expires_at_ms for order, record in self._live.items()}
        self._heap = [self._place(record.expires_at_ms, order) for order, record in self._live.items()]
        heapq.heapify(self._heap)

    def _place(self, deadline_ms: int, order: int) -> int:
        return deadline_ms << self._ORDER_BITS | order


class NameIndex:
    """A sorted set of names in short runs: adding, removing and finding a place touch one run only."""

    _RUN_MAX = 512
    _STEP = 4096

    def __init__(self) -> None:
        self._runs: list[list[str]] = []
        self._firsts: list[str] = []

    def load(self, names: Collection[str]) -> Iterator[None]:
        """Add many names to an empty index, in steps of a few milliseconds: sorted apart, range by range."""
        limits = sorted(islice(names, 0, None, 64))[63::64]
        ranges: list[list[str]] = [[] for _ in range(len(limits) + 1)]
        left = iter(names)
        while part := list(islice(left, self._STEP)):
            for name in part:
                ranges[bisect.bisect_right(limits, name)].append(name)
            yield
        for one in ranges:
            one.sort()
            half = self._RUN_MAX // 2
            self._runs += [one[first : first + half] for first in range(0, len(one), half)]
            yield
        self._firsts = [run[0] for run in self._runs]

    def add(self, name: str) -> None:
        """Add `name`, which must not be there."""
        if not self._runs:
            self._runs.append([name])
            self._firsts.append(name)
            return
        at = max(bisect.bisect_right(self._firsts, name) - 1, 0)
        run = self._runs[at]
        bisect.insort(run, name)
        self._firsts[at] = run[0]
        if len(run) > self._RUN_MAX:
            half = len(run) // 2
            self._runs[at : at + 1] = [run[:half], run[half:]]
            self._firsts[at : at + 1] = [run[0], run[half]]

    def remove(self, name: str) -> None:
        """Remove `name`, which must be there."""
        at = bisect.bisect_right(self._firsts, name) - 1
        run = self._runs[at]
        del run[bisect.bisect_left(run, name)]
        if run:
            self._firsts[at] = run[0]
        else:
            del self._runs[at]
            del self._firsts[at]

    def after(self, name: str, *, inclusive: bool) -> Iterator[str]:
        """Yield the names behind `name` in order, with `name` itself if `inclusive` and it is there."""
        at = max(bisect.bisect_right(self._firsts, name) - 1, 0)
        find = bisect.bisect_left if inclusive else bisect.bisect_right
        for run_at in range(at, len(self._runs)):
            run = self._runs[run_at]
            start = find(run, name) if run_at == at else 0
            yield from run[start:]
