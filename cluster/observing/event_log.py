"""The events of the newest entries, as this node applied them: what watchers read, and resume from.

Kept are whole entries, the oldest dropped first. The log knows from which revision on it is complete: before
that it says Compacted and leaves out nothing in silence. Nobody who reads it is waited for, and nothing is
encoded here.
"""

import asyncio
import enum
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, Self

from lockstate.tables.happened import Events
from lockstate.words.events import CellEvent, Event

EVENTS_COUNT_MAX: Final = 100_000
"""Some 60 MB of short names. At a thousand grants a second that is the better part of a minute."""

EVENTS_COUNT_LEAST: Final = 1_000
"""Events that a node with little memory keeps: a watcher that was away for a moment can go on."""
_STATE_BYTES_PER_EVENT: Final = 10_000
"""Bytes of the bound on the state for which an event is kept. One has 600 bytes, or 3 KB with long texts."""


def events_count_max(state_bytes_max: int) -> int:
    """Return how many events are kept by a node that can bear a state of so many bytes."""
    return max(min(EVENTS_COUNT_MAX, state_bytes_max // _STATE_BYTES_PER_EVENT), EVENTS_COUNT_LEAST)


class WatchCut(enum.StrEnum):
    """Why somebody is told nothing more, though the watch has not ended."""

    SLOW_READER = "slow-reader"
    FELL_BEHIND = "fell-behind"
    NO_LEADER = "no-leader"
    SHUTTING_DOWN = "shutting-down"
    FORBIDDEN = "forbidden"
    SESSION_CLOSED = "session-closed"


AnyEvent = Event | CellEvent
Block = Sequence[AnyEvent]
"""The events of one entry, never empty. All have its revision."""


class Position(NamedTuple):
    """A place in the history: behind event `number` of `revision`; 0 is before its first, counted from 1.

    Clients know it as a cursor: see lockapi/cursors.py.
    """

    revision: int
    number: int = 0

    @classmethod
    def behind(cls, revision: int) -> Self:
        """Return the place behind everything that happened up to `revision`."""
        return cls(revision + 1)

    @property
    def known_revision(self) -> int:
        """Return the newest revision that something before this place belongs to."""
        return self.revision if self.number else self.revision - 1


class EventsCompacted(Exception):
    """The events behind a place are no longer all there. `oldest` is the lowest revision to resume behind."""

    def __init__(self, oldest: int) -> None:
        """Say from where on the log is complete."""
        super().__init__(f"the events up to revision {oldest} are gone")
        self.oldest = oldest


class Follower(Protocol):
    """Who wants to know that there is something new. The node waits for it: no work but notes."""

    def log_grew(self) -> None:
        """Take new events. Called by the loop, never from within an apply; several entries may have come."""
        ...

    def log_restarted(self) -> None:
        """Record that the history begins anew, behind a snapshot."""
        ...

    def log_ended(self) -> None:
        """Record that this node stops."""
        ...


class EventLog:
    """The newest events of one node, in order. `watchers` counts who is told of them, `cuts` who was."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count_max: int = EVENTS_COUNT_MAX) -> None:
        self._loop = loop
        self._count_max = count_max
        self._blocks: deque[Block] = deque()
        self._count = 0
        self._oldest = self._newest = 0
        self._followers: list[Follower] = []
        self._is_due = False
        self.watchers = 0
        self.cuts: Counter[WatchCut] = Counter(dict.fromkeys(WatchCut, 0))

    def __len__(self) -> int:
        """Return how many events are kept."""
        return self._count

    @property
    def oldest(self) -> int:
        """Return the revision behind which the log is complete: the lowest that one can resume from."""
        return self._oldest

    @property
    def newest(self) -> Position:
        """Return the place behind the newest event."""
        return Position.behind(self._newest)

    # -- what the node does ---------------------------------------------------------------------------------

    def append(self, events: Block) -> None:
        """Take the events of the next entry, if there are any."""
        count = len(events)
        if not count:
            return
        self._blocks.append(events)
        self._newest = revision_of(events)
        self._count += count
        while self._count > self._count_max and len(self._blocks) > 1:
            dropped = self._blocks.popleft()
            self._count -= len(dropped)
            self._oldest = revision_of(dropped)
        if self._followers and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._tell)

    def restart(self, revision: int) -> None:
        """Begin anew behind a state of `revision`: what led to it was not seen here."""
        self._blocks.clear()
        self._count = 0
        self._oldest = self._newest = revision
        for follower in list(self._followers):
            follower.log_restarted()

    def end(self) -> None:
        """Tell everybody that this node stops."""
        for follower in list(self._followers):
            follower.log_ended()

    def _tell(self) -> None:
        self._is_due = False
        for follower in list(self._followers):
            follower.log_grew()

    # -- what those who read it do --------------------------------------------------------------------------

    def follow(self, follower: Follower) -> None:
        """Tell `follower` of what comes from now on."""
        self._followers.append(follower)

    def unfollow(self, follower: Follower) -> None:
        """Tell it nothing more."""
        self._followers.remove(follower)

    def check(self, position: Position) -> None:
        """Raise EventsCompacted unless everything behind `position` is there, or yet to come."""
        if position.revision <= self._oldest:
            raise EventsCompacted(self._oldest)

    def pressure(self, position: Position) -> float:
        """Return how close what is behind `position` is to being dropped: 0 if it is new, 1 if it goes next.

        An estimate, for which each revision counts the same.
        """
        unread = self._newest + 1 - position.revision
        kept = max(self._newest - self._oldest, 1)
        return min(len(self) / self._count_max, 1.0) * min(max(unread / kept, 0.0), 1.0)

    def read(self, position: Position, count_max: int) -> list[Block]:
        """Return the next entries' events from that of `position` on: `count_max` events, or one entry more.

        The first may begin before `position`. Raises EventsCompacted.
        """
        self.check(position)
        blocks = self._blocks
        found: list[Block] = []
        for index in range(bisect_left(blocks, position.revision, key=revision_of), len(blocks)):
            if count_max <= 0:
                break
            found.append(blocks[index])
            count_max -= len(found[-1])
        return found


def revision_of(block: Block) -> int:
    """Return the revision of an entry's events, without making an event of what is none yet."""
    return block.revision if isinstance(block, Events) else block[0].revision
