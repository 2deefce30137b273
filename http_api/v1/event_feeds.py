"""From the event log to many watchers, as Server-Sent Events that are encoded once for all of them.

A watcher that is up to date is fed: new events are sorted by the prefixes that are watched, and each prefix
gets one piece of text, which goes to all its watchers, a few at a time. A watcher that resumes, or reads more
slowly than things happen, is not fed: it reads the log at its own pace until it has caught up. So nothing is
kept for a watcher but what the log keeps anyway, and what its connection has buffered.

A write to a watcher costs more than the events in it. So after a piece has gone to many, the next one waits,
and has all that happened meanwhile: handing out takes a small part of a node's time, however much happens.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol

from cluster.observing.event_log import Block, EventLog, EventsCompacted, Position, WatchCut
from http_api.v1.event_text import OfSession, Piece, Topic, encode
from lockstate.words.events import Event

WATCHERS_COUNT_MAX: Final = 1_000
"""Watchers of one node, at most. Each costs a write for every piece of news."""
FED_COUNT_MAX: Final = 500
"""Events sorted at a time, or one entry more: a few milliseconds of work."""
SLICE_S: Final = 0.005
"""Seconds for which watchers are fed at a time: a write to each of a thousand takes far longer."""
PAUSE_FACTOR: Final = 2
"""The pause after each turn of work, in times of its duration: most of the time is for Raft.

It is shorter by the part of the log that is yet to be sorted: at its end all that are fed would be cut.
"""
REST_FACTOR: Final = 19
"""The rest after all have a piece that was not full, in times of what that took: a twentieth is enough."""
REST_S_MAX: Final = 0.2
"""Seconds of rest, at most: so much later than others the watchers of a busy node hear of what happens."""
NAMES_COUNT_MAX: Final = 10_000
"""Names of which it is remembered who watches them."""
LOOK_S: Final = 1.0
"""Seconds between two looks at whether watched sessions are still there: closing one tells nothing."""


class Watcher(Protocol):
    """Wants to know what happens to its topic. `position` is where its next event begins."""

    topic: Topic
    position: Position
    caller: str

    def feed(self, text: bytes) -> bool:
        """Send news, without waiting; return whether it can take more."""
        ...

    def look(self) -> None:
        """See whether what is watched is still there; only asked of who watches a session."""
        ...

    def cut(self, reason: WatchCut) -> None:
        """End the watch, for `reason`."""
        ...


class EventFeeds:
    """All watchers of one node. Those that are fed share `position`: it is behind what was sorted for them.

    A piece is first gathered, in some turns, and then handed out, in others: those that are due get it soon.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._watchers: dict[Watcher, None] = {}
        self._counts: Counter[str] = Counter()
        """How many watchers each caller has."""
        self._fed: dict[Topic, dict[Watcher, None]] = {}
        self._lengths: tuple[int, ...] = ()
        self._has_sessions = False
        self._look_timer: asyncio.TimerHandle | None = None
        self._due: dict[Watcher, None] = {}
        self._piece = Piece(log.newest)
        self._is_gathering, self._is_resting = True, False
        self._spent_s = self._free_at_s = self._rested_at_s = 0.0
        self._topics_of: dict[str, tuple[str, ...]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.position = log.newest
        self.turn = asyncio.Lock()
        """Held by a watcher that catches up, for one piece of work and its pause: many must not stop us."""

    def is_full_for(self, caller: str) -> bool:
        """Whether there are as many watchers as there may be, or half as many of a caller with a name."""
        is_full = len(self._watchers) >= WATCHERS_COUNT_MAX
        return is_full or (bool(caller) and self._counts[caller] >= WATCHERS_COUNT_MAX // 2)

    def add(self, watcher: Watcher) -> None:
        """Add a watcher, which is cut if this node stops. It is not fed yet."""
        if not self._watchers:
            self._log.follow(self)
        self._watchers[watcher] = None
        self._counts[watcher.caller] += 1
        self._log.watchers += 1
        if self._look_timer is None and isinstance(watcher.topic, OfSession):
            self._look_timer = self._loop.call_later(LOOK_S, self._look)

    def remove(self, watcher: Watcher) -> None:
        """Forget a watcher."""
        self.stop_feeding(watcher)
        del self._watchers[watcher]
        self._counts[watcher.caller] -= 1
        if not self._counts[watcher.caller]:
            del self._counts[watcher.caller]
        self._log.watchers -= 1
        if not self._watchers:
            self._log.unfollow(self)

    def is_up_to_date(self, watcher: Watcher) -> bool:
        """Whether a watcher has everything that those that are fed have."""
        if not self._fed:
            self._begin_piece(self._log.newest)
        return watcher.position >= self.position

    def start_feeding(self, watcher: Watcher) -> None:
        """Feed a watcher that is up to date from now on."""
        assert self.is_up_to_date(watcher)
        is_new = watcher.topic not in self._fed
        self._fed.setdefault(watcher.topic, {})[watcher] = None
        if is_new:
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
        is_due = self._is_gathering or watcher in self._due
        return max(watcher.position, self._piece.before if is_due else self.position)

    def _set_lengths(self) -> None:
        self._topics_of.clear()
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
        """Gather what is new, unless the pause after the last work is not over yet."""
        is_free = self._is_resting and time.perf_counter() >= self._free_at_s
        if self._fed and (self._timer is None or is_free):
            self._work()

    def log_restarted(self) -> None:
        """Cut the watchers that have missed something, and go on with the others."""
        for watcher in list(self._watchers):
            is_fed = watcher in self._fed.get(watcher.topic, {})
            position = self.reached(watcher) if is_fed else watcher.position
            if position.revision <= self._log.oldest:
                self._cut(watcher, WatchCut.FELL_BEHIND)
        self._begin_piece(self._log.newest)

    def log_ended(self) -> None:
        """Cut all watchers."""
        for watcher in list(self._watchers):
            watcher.cut(WatchCut.SHUTTING_DOWN)

    # -- handing out ----------------------------------------------------------------------------------------

    def _begin_piece(self, position: Position) -> None:
        """Begin to gather anew, behind `position`."""
        self._piece, self.position = Piece(position), position
        self._due.clear()
        self._is_gathering, self._spent_s = True, 0.0

    def _work(self) -> None:
        """Do one turn of work: gather what is new, and hand it out when it is time. Then pause."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._is_resting = None, False
        began_s = time.perf_counter()
        if self._is_gathering:
            if not self._gather() and not self._piece.blocks:
                return
            is_whole = self._piece.blocks and self.position >= self._log.newest
            if self._piece.is_full or (is_whole and began_s >= self._rested_at_s):
                self._is_gathering, fed = False, self._fed
                self._due = {watcher: None for topic in self._piece.topics for watcher in fed.get(topic, ())}
        if not self._is_gathering:
            self._hand_out(began_s)
        self._pause(time.perf_counter() - began_s)

    def _pause(self, used_s: float) -> None:
        """Go on later: what is gathered and waits for its time is a rest, which more news interrupt."""
        now_s = time.perf_counter()
        self._free_at_s = now_s + PAUSE_FACTOR * used_s * (1 - self._log.pressure(self.position))
        is_waiting = self._is_gathering and self._piece.blocks and self.position >= self._log.newest
        self._is_resting = bool(is_waiting)
        goes_on_s = max(self._free_at_s, self._rested_at_s) if is_waiting else self._free_at_s
        self._timer = self._loop.call_later(goes_on_s - now_s, self._work)

    def _gather(self) -> bool:
        """Sort the next events into the piece; return False if there are none."""
        try:
            blocks = self._log.read(self.position, FED_COUNT_MAX)
        except EventsCompacted:
            self._cut_all_fed()
            return False
        if not blocks or not self._fed:
            return False
        for block in blocks:
            self._sort(block)
        self.position = Position.behind(blocks[-1][0].revision)
        if not self._piece.blocks:
            self._begin_piece(self.position)
        return True

    def _sort(self, block: Block) -> None:
        """Add the events of an entry to the piece, for each watched topic that they concern."""
        matching: dict[Topic, list[tuple[int, bytes]]] = {}
        known = self._topics_of
        for number, event in enumerate(block, 1):
            topics: Sequence[Topic] | None = known.get(event.name)
            if topics is None:
                topics = self._find(event.name)
            if self._has_sessions and isinstance(event, Event):
                of_session = OfSession(event.session_id)
                topics = [*topics, of_session] if of_session in self._fed else topics
            if topics:
                told = number, encode(event)
                for topic in topics:
                    bodies = matching.get(topic)
                    if bodies is None:
                        matching[topic] = [told]
                    else:
                        bodies.append(told)
        self._piece.add(block, matching)

    def _find(self, name: str) -> tuple[str, ...]:
        """Return the prefixes of a name that are watched, and remember them."""
        if len(self._topics_of) >= NAMES_COUNT_MAX:
            self._topics_of.clear()
        fitting = [name[:length] for length in self._lengths if length <= len(name)]
        found = self._topics_of[name] = tuple([prefix for prefix in fitting if prefix in self._fed])
        return found

    def _hand_out(self, began_s: float) -> None:
        """Give the piece to some of those that are due. The last of them ends it, and a rest begins."""
        fed_s = time.perf_counter()
        while self._due:
            watcher, _ = self._due.popitem()
            news = self._piece.text_for(watcher.topic, watcher.position)
            if news and not watcher.feed(news):
                self.stop_feeding(watcher)
            if time.perf_counter() - began_s >= SLICE_S:
                break
        now_s = time.perf_counter()
        self._spent_s += now_s - fed_s
        if not self._due:
            rest_s = 0.0 if self._piece.is_full else min(REST_FACTOR * self._spent_s, REST_S_MAX)
            self._rested_at_s = now_s + rest_s
            self._begin_piece(self.position)

    def _cut_all_fed(self) -> None:
        """Cut all that are fed: more happened while this node handed out than the log keeps."""
        for watcher in [watcher for fed in self._fed.values() for watcher in fed]:
            self._cut(watcher, WatchCut.SLOW_READER)
        self._begin_piece(self._log.newest)

    def _cut(self, watcher: Watcher, reason: WatchCut) -> None:
        """Cut a watcher that misses something; what comes behind that it must not be told any more."""
        self.stop_feeding(watcher)
        watcher.cut(reason)
