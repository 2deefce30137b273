"""From the event log to many watchers, as Server-Sent Events that are encoded once for all of them.

A watcher that is up to date is fed: new events are sorted by the prefixes that are watched, and each prefix
gets one piece of text, which goes to all its watchers, a few at a time. A watcher that resumes, or reads more
slowly than things happen, is not fed: it reads the log at its own pace until it has caught up. So nothing is
kept for a watcher but what the log keeps anyway, and what its connection has buffered.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from api import answers, cells, cursors, views
from cluster.observing.event_log import AnyEvent, Block, Compacted, Cut, EventLog, Position, numbered
from lockstate.results import CellEvent, Event

WATCHERS_COUNT_MAX: Final = 1_000
"""Watchers of one node, at most. Each costs a write for every piece of news."""
FED_COUNT_MAX: Final = 500
"""Events handed out at a time, or one entry more: a few milliseconds of work."""
SLICE_S: Final = 0.005
"""Seconds for which watchers are fed at a time: a write to each of a thousand takes far longer."""
PAUSE_FACTOR: Final = 2
"""The pause after each piece of work, in times of its duration: most of the time is for Raft."""


LOOK_S: Final = 1.0
"""Seconds between two looks at whether watched sessions are still there: closing one tells nothing."""


class OfSession(NamedTuple):
    """What belongs to a session, or to a hold that lives without one: its secret id."""

    lease_id: str


Topic = str | OfSession
"""What is watched: the names that begin with a prefix, or a session."""


class Watcher(Protocol):
    """Wants to know what happens to its topic. `position` is where its next event begins."""

    topic: Topic
    position: Position

    def feed(self, text: bytes) -> bool:
        """Send news, without waiting; return whether it can take more."""
        ...

    def look(self) -> None:
        """See whether what is watched is still there; only asked of who watches a session."""
        ...

    def cut(self, reason: Cut) -> None:
        """End the watch, for `reason`."""
        ...


class _Piece(NamedTuple):
    """What is handed out at a time: the entries behind `before`, and their text for each prefix."""

    before: Position
    blocks: Sequence[Block]
    texts: Mapping[Topic, bytes]

    def text_for(self, watcher: Watcher) -> bytes:
        """Return what `watcher` does not have yet: the same text for nearly all watchers of its topic."""
        if watcher.position > Position(self.blocks[0][0].revision):
            return render(self.blocks, watcher.topic, watcher.position)
        return self.texts[watcher.topic]


class EventFeeds:
    """All watchers of one node. Those that are fed share `position`: it is behind what they were given.

    Those that are due get the last piece soon.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._watchers: dict[Watcher, None] = {}
        self._fed: dict[Topic, dict[Watcher, None]] = {}
        self._lengths: tuple[int, ...] = ()
        self._has_sessions = False
        self._look_timer: asyncio.TimerHandle | None = None
        self._due: dict[Watcher, None] = {}
        self._piece = _Piece(log.newest, (), {})
        self._timer: asyncio.TimerHandle | None = None
        self.position = log.newest
        self.turn = asyncio.Lock()
        """Held by a watcher that catches up, for one piece of work and its pause: many must not stop us."""

    @property
    def is_full(self) -> bool:
        """Whether there are as many watchers as there may be."""
        return len(self._watchers) >= WATCHERS_COUNT_MAX

    def add(self, watcher: Watcher) -> None:
        """Add a watcher, which is cut if this node stops. It is not fed yet."""
        if not self._watchers:
            self._log.follow(self)
        self._watchers[watcher] = None
        self._log.watchers += 1
        if self._look_timer is None and isinstance(watcher.topic, OfSession):
            self._look_timer = self._loop.call_later(LOOK_S, self._look)

    def remove(self, watcher: Watcher) -> None:
        """Forget a watcher."""
        self.stop_feeding(watcher)
        del self._watchers[watcher]
        self._log.watchers -= 1
        if not self._watchers:
            self._log.unfollow(self)

    def is_up_to_date(self, watcher: Watcher) -> bool:
        """Whether a watcher has everything that those that are fed have."""
        if not self._fed:
            self.position = self._log.newest
        return watcher.position >= self.position

    def start_feeding(self, watcher: Watcher) -> None:
        """Feed a watcher that is up to date from now on."""
        assert self.is_up_to_date(watcher)
        self._fed.setdefault(watcher.topic, {})[watcher] = None
        self._set_lengths()

    def stop_feeding(self, watcher: Watcher) -> None:
        """Stop feeding a watcher; it goes on from its own position."""
        fed = self._fed.get(watcher.topic, {})
        if watcher in fed:
            watcher.position = self.reached(watcher)
            del fed[watcher]
            self._due.pop(watcher, None)
            if not fed:
                del self._fed[watcher.topic]
                self._set_lengths()

    def reached(self, watcher: Watcher) -> Position:
        """Return the place up to which a fed watcher has everything."""
        return max(watcher.position, self._piece.before if watcher in self._due else self.position)

    def _set_lengths(self) -> None:
        self._lengths = tuple(sorted({len(topic) for topic in self._fed if isinstance(topic, str)}))
        self._has_sessions = any(isinstance(topic, OfSession) for topic in self._fed)

    def _look(self) -> None:
        """Have all that watch a session see whether it is still there, and again as long as there are any."""
        self._look_timer = None
        of_sessions = [watcher for watcher in self._watchers if isinstance(watcher.topic, OfSession)]
        if of_sessions:
            self._look_timer = self._loop.call_later(LOOK_S, self._look)
        for watcher in of_sessions:
            watcher.look()

    # -- event_log.Follower ---------------------------------------------------------------------------------

    def log_grew(self) -> None:
        """Hand out what is new, at once or after the pause that the last piece of work requires."""
        if self._timer is None and self._fed:
            self._hand_out()

    def log_restarted(self) -> None:
        """Cut the watchers that have missed something, and go on with the others."""
        for watcher in list(self._watchers):
            is_fed = watcher in self._fed.get(watcher.topic, {})
            position = self.reached(watcher) if is_fed else watcher.position
            if position.revision <= self._log.oldest:
                watcher.cut(Cut.FELL_BEHIND)
        self._due.clear()
        self.position = self._log.newest

    def log_ended(self) -> None:
        """Cut all watchers."""
        for watcher in list(self._watchers):
            watcher.cut(Cut.SHUTTING_DOWN)

    # -- handing out ----------------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        """Give new events to the watchers that are fed: one piece to a few of them, then pause."""
        self._timer = None
        began_s = time.perf_counter()
        if not self._due and not self._take_piece():
            return
        while self._due:
            watcher, _ = self._due.popitem()
            news = self._piece.text_for(watcher)
            if news and not watcher.feed(news):
                self.stop_feeding(watcher)
            if time.perf_counter() - began_s >= SLICE_S:
                break
        pause_s = PAUSE_FACTOR * (time.perf_counter() - began_s)
        self._timer = self._loop.call_later(pause_s, self._hand_out)

    def _take_piece(self) -> bool:
        """Take the next events and record which watchers are due; return False if there is nothing."""
        before = self.position
        try:
            blocks = self._log.read(before, FED_COUNT_MAX)
        except Compacted:
            self._cut_all_fed()
            return False
        if not blocks or not self._fed:
            return False
        self._piece = _Piece(before, blocks, self._sort(blocks))
        self._due = {watcher: None for topic in self._piece.texts for watcher in self._fed[topic]}
        self.position = Position.behind(blocks[-1][0].revision)
        return True

    def _sort(self, blocks: Iterable[Block]) -> dict[Topic, bytes]:
        """Return the text for each watched topic that matches something."""
        texts: dict[Topic, list[bytes]] = {}
        for block in blocks:
            matching: dict[Topic, list[tuple[int, bytes]]] = {}
            for number, event in numbered(block):
                body = b""
                for length in self._lengths:
                    if length > len(event.name):
                        break
                    prefix = event.name[:length]
                    if prefix in self._fed:
                        body = body or encode(event)
                        matching.setdefault(prefix, []).append((number, body))
                if self._has_sessions and isinstance(event, Event):
                    topic = OfSession(event.session_id)
                    if topic in self._fed:
                        matching.setdefault(topic, []).append((number, body or encode(event)))
            for found, bodies in matching.items():
                texts.setdefault(found, []).append(_with_ids(block[0].revision, bodies))
        return {topic: b"".join(parts) for topic, parts in texts.items()}

    def _cut_all_fed(self) -> None:
        """Cut all that are fed: more happened while this node handed out than the log keeps."""
        self.position = self._log.newest
        for watcher in [watcher for fed in self._fed.values() for watcher in fed]:
            watcher.cut(Cut.SLOW_READER)


# -- text ---------------------------------------------------------------------------------------------------


def _concerns(event: AnyEvent, topic: Topic) -> bool:
    if isinstance(topic, str):
        return event.name.startswith(topic)
    return isinstance(event, Event) and event.session_id == topic.lease_id


def render(blocks: Iterable[Block], topic: Topic, position: Position) -> bytes:
    """Return the events behind `position` that concern `topic`, as a piece of the stream."""
    parts: list[bytes] = []
    for block in blocks:
        revision = block[0].revision
        bodies = [
            (number, encode(event))
            for number, event in numbered(block)
            if _concerns(event, topic) and (revision, number) > position
        ]
        if bodies:
            parts.append(_with_ids(revision, bodies))
    return b"".join(parts)


def _with_ids(revision: int, bodies: Sequence[tuple[int, bytes]]) -> bytes:
    """Give events of one revision their ids. The last has the revision's own: nothing of it is missing."""
    cursor = cursors.of_event
    parts = [b"id: %b\n%b" % (cursor(revision, number).encode(), body) for number, body in bodies[:-1]]
    return b"".join([*parts, b"id: %b\n%b" % (cursor(revision).encode(), bodies[-1][1])])


def encode(event: AnyEvent) -> bytes:
    """Return an event as it is in the stream, without its id."""
    shown = cells.event_of(event) if isinstance(event, CellEvent) else views.event_of(event)
    return b"event: %b\ndata: %b\n\n" % (event.kind.encode(), answers.encode(shown))
