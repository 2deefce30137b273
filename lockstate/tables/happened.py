"""What entries made happen. What a plain lock makes happen becomes an event only when somebody looks.

Every node applies every grant and every end, and mostly nobody reads either.
"""

from abc import ABCMeta
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, overload

import msgspec

from lockstate.tables.records import Hold
from lockstate.words.events import Event, EventKind
from lockstate.words.modes import Mode

_EXCLUSIVE: Final = Mode.EXCLUSIVE
_GRANTED: Final = EventKind.GRANTED
_RELEASED: Final = EventKind.RELEASED


class PlainGrant(msgspec.Struct, frozen=True, gc=False):
    """The grant of a plain lock. What may change of its hold is here as it was then."""

    hold: Hold
    name: str
    token: int
    value: str
    principal: str


class PlainEnd(msgspec.Struct, frozen=True, gc=False):
    """The end of a plain lock, of which nothing changes any more."""

    hold: Hold
    principal: str


Told = Event | PlainGrant | PlainEnd


class _SequenceMeta(msgspec.StructMeta, ABCMeta):
    """Of a Struct that is a Sequence."""


class Events(Sequence[Event], msgspec.Struct, metaclass=_SequenceMeta, gc=False, eq=False):
    """The events of one entry. `is_plain` says that all of them are of plain locks.

    `told` is what is to be told, for those who need no events of it. Nothing of all this can be part of a
    cycle, so that the garbage collector leaves out what a node keeps of it, a hundred thousand events.
    """

    revision: int
    now_ms: int
    told: tuple[Told, ...]
    is_plain: bool

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.told)

    @overload
    def __getitem__(self, place: int) -> Event: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Event]: ...
    def __getitem__(self, place: int | slice) -> Event | Sequence[Event]:
        """Return one event, or some."""
        if isinstance(place, slice):
            return [self._event(told) for told in self.told[place]]
        return self._event(self.told[place])

    def __iter__(self) -> Iterator[Event]:
        """Go through all, which are events from then on: who reads them has company."""
        self.told = events = tuple([self._event(told) for told in self.told])
        return iter(events)

    def __eq__(self, other: object) -> bool:
        """Whether others are the same events."""
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def _event(self, told: Any) -> Event:
        kind = told.__class__
        if kind is Event:
            return told  # type: ignore[no-any-return]
        hold: Hold = told.hold
        if kind is PlainGrant:
            what, name, token, lasted_ms, value = _GRANTED, told.name, told.token, 0, told.value
        else:
            what, name, token, lasted_ms = _RELEASED, hold.name, hold.token, self.now_ms - hold.since_ms
            value = "" if hold.rare is None or hold.rare.is_secret else hold.rare.value
        return Event(
            self.revision,
            self.now_ms,
            what,
            name,
            _EXCLUSIVE,
            hold.owner,
            token,
            hold.session_id or hold.hold_id,
            lasted_ms,
            value=value,
            principal=told.principal,
        )


def told_in(events: Sequence[Event]) -> Sequence[Told]:
    """Return what is to be told, for who needs no event of a plain lock."""
    return events.told if isinstance(events, Events) else events


class NewestEvents:
    """The newest events of all entries, the oldest first."""

    def __init__(self) -> None:
        self._blocks: deque[Sequence[Event]] = deque()
        self._ends: deque[int] = deque()
        """The number behind the last of each block, counted from the first that ever came."""
        self._gone = 0
        self.count = 0
        """How many there are."""

    def __len__(self) -> int:
        """Return how many there are."""
        return self.count

    def extend(self, events: Sequence[Event]) -> None:
        """Add those of an entry, if there are any: an empty block would never go."""
        added = len(events)
        if not added:
            return
        self.count += added
        self._blocks.append(events)
        self._ends.append(self._gone + self.count)

    def drop(self, count: int) -> None:
        """Forget so many of the oldest."""
        self._gone += count
        self.count -= count
        while self._ends and self._ends[0] <= self._gone:
            self._ends.popleft()
            self._blocks.popleft()

    def __getitem__(self, place: int) -> Event:
        """Return one by its place, as in any sequence."""
        number = place + self._gone + (0 if place >= 0 else self.count)
        at = bisect_right(self._ends, number)
        return self._blocks[at][number - self._ends[at]]

    def between(self, first: int, behind: int) -> Iterator[Event]:
        """Go through some by their places, from `first` on, and stop before `behind`."""
        number, behind = self._gone + first, self._gone + behind
        at = bisect_right(self._ends, number)
        while number < behind:
            block, end = self._blocks[at], self._ends[at]
            yield from block[number - end : min(behind - end, 0) or None]
            number, at = end, at + 1

    def __iter__(self) -> Iterator[Event]:
        """Go through all."""
        return islice(chain.from_iterable(self._blocks), self._hidden, None)

    def __reversed__(self) -> Iterator[Event]:
        """Go through all, the newest first."""
        return islice(chain.from_iterable(map(reversed, reversed(self._blocks))), len(self))

    def oldest_others(self, count: int) -> Iterator[tuple[int, Event]]:
        """Yield, with their places, those among so many of the oldest that are of no plain lock."""
        begin = -self._hidden
        for block in self._blocks:
            if begin >= count:
                return
            if not (isinstance(block, Events) and block.is_plain):
                told = told_in(block)
                for place in range(max(begin, 0), min(begin + len(told), count)):
                    one = told[place - begin]
                    if type(one) is Event:
                        yield place, one
            begin += len(block)

    @property
    def _hidden(self) -> int:
        """How many of the oldest block are gone."""
        return self._gone - self._ends[0] + len(self._blocks[0]) if self._ends else 0
