"""A queue in which everybody gets a turn: who asks for much does not keep waiting who asks for little.

Pure. Each item has a cost, and a place on a scale: as far behind where the queue is now as it costs, or
behind what its sharer has in the queue already. Who has the lowest place is next. An item that leaves moves
the queue on by its cost, divided by how many shared the time with it: sharers, and items without one. So one
that comes with something small passes those that have something large, however much of it is there; and while
n of these wait, something large is passed by no more of what comes later than n times what it costs itself.
"""

import heapq
from collections import Counter
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class QueueTurn(NamedTuple):
    """What decides when it is the turn of an item."""

    load: int = 0
    """What it costs, beyond the one that each costs."""
    lane: str = ""
    """Items of one lane keep their order; each without one is a lane of its own."""
    sharer: str = ""
    """Who has one share with everything that costs more than one; each without one has a share of its own."""


class FairQueue(Generic[T]):
    """Items that wait for their turns. Each call takes the logarithm of their number, but for `keep`."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, QueueTurn, T]] = []
        """Place, number, turn and item."""
        self._lanes: dict[str, float] = {}
        """The place of the last item of each lane that has any."""
        self._sharers: dict[str, float] = {}
        """Likewise of each sharer."""
        self._counts: dict[str, int] = {}
        """How many items each sharer has; "" stands for those without one."""
        self._now = 0.0
        """Where the queue is."""
        self._number = 0

    def __len__(self) -> int:
        """Return how many items wait."""
        return len(self._heap)

    def has(self, lane: str) -> bool:
        """Whether anything of a lane waits; not of "", which is none."""
        return lane in self._lanes

    def count_of(self, sharer: str) -> int:
        """Return how many items of a sharer wait; none of "", which is nobody."""
        return self._counts.get(sharer, 0) if sharer else 0

    def add(self, turn: QueueTurn, item: T) -> None:
        """Put an item behind those of its lane, and where its load and its sharer let it."""
        begin = max(self._now, self._lanes.get(turn.lane, 0.0))
        if turn.load and turn.sharer:
            begin = max(begin, self._sharers.get(turn.sharer, 0.0))
        place = begin + 1 + turn.load
        if turn.lane:
            self._lanes[turn.lane] = place
        if turn.load and turn.sharer:
            self._sharers[turn.sharer] = place
        self._number += 1
        self._counts[turn.sharer] = self._counts.get(turn.sharer, 0) + 1
        heapq.heappush(self._heap, (place, self._number, turn, item))

    def first(self) -> T:
        """Return the item that is next; there must be one."""
        return self._heap[0][3]

    def pop(self) -> T:
        """Take out the item that is next; there must be one."""
        alone_count = self._counts.get("", 0)
        share_count = alone_count + len(self._counts) - ("" in self._counts)
        place, _, turn, item = heapq.heappop(self._heap)
        self._now += (1 + turn.load) / share_count
        self._counts[turn.sharer] -= 1
        if not self._counts[turn.sharer]:
            del self._counts[turn.sharer]
        if self._lanes.get(turn.lane) == place:
            del self._lanes[turn.lane]
        if self._sharers.get(turn.sharer) == place:
            del self._sharers[turn.sharer]
        return item

    def keep(self, is_wanted: Callable[[T], bool]) -> None:
        """Take out all items but those that are wanted, which keep their places."""
        self._heap = [each for each in self._heap if is_wanted(each[3])]
        heapq.heapify(self._heap)
        self._counts = Counter(each[2].sharer for each in self._heap)
        lanes, sharers = {each[2].lane for each in self._heap}, {each[2].sharer for each in self._heap}
        self._lanes = {lane: place for lane, place in self._lanes.items() if lane in lanes}
        self._sharers = {sharer: place for sharer, place in self._sharers.items() if sharer in sharers}
