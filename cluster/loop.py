"""The loop of one group: tick > flush > sync > release, a guard around each piece of work, and a timer.

It keeps the contract that the fields of `Ready` state. Everything runs in callbacks of the event loop's
thread, and each does a bounded piece of work:

    message or proposal -> tick -> messages leave -> commands are applied -> sync -> promises leave

What arrives while a tick or a sync runs shares the next one: that is the group commit. A sync runs in a
thread (sync_runner); everything else goes on meanwhile, and what was promised waits for it. A failure here is
final: the node stops; it never retries what broke and never answers from a broken state.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, ParamSpec

from cluster.consensus.log_digest import Difference
from cluster.consensus.messages import Message
from cluster.consensus.ready import Ready
from cluster.consensus.replica import Replica
from cluster.errors import IdentityRefused, NodeFailed, PeerFault, advice_on, is_explained
from cluster.peers.links import PeerLinks
from cluster.storage.journal import Journal, Sync
from cluster.storage.sync_runner import SyncRunner

logger = logging.getLogger(__name__)

P = ParamSpec("P")

_UNKNOWN_FAILURE: Final = NodeFailed("this node broke, and the memory to say how was missing")


def _failed_by(error: BaseException) -> NodeFailed:
    """Return the failure of a node for what somebody else raised."""
    failure = NodeFailed(repr(error))
    failure.__cause__ = error
    return failure


class LoopWork(NamedTuple):
    """What is done around the log: what is proposed, and what becomes of it."""

    has_entry: Callable[[], bool]
    """Whether there is anything to propose."""
    entries: Callable[[], Iterator[bytes]]
    """Yields the entries to propose, each stamped when it is asked for."""
    restore: Callable[[object], None]
    """Replaces the state machine by a decoded state."""
    apply: Callable[[int, bytes], None]
    """Applies one committed command. Must not raise for anything that it says."""
    encode_state: Callable[[], bytes]
    """Returns the state machine as bytes; called in a forked child."""
    parted: Callable[[str, Difference], None]
    """Finds out who is right: a leader's history differs from this node's log."""
    role_changed: Callable[[], None]
    """Takes over, or lets go: leader, term or own role changed."""
    members_changed: Callable[[], None]
    """Adjusts the links: another member list counts, or one is committed."""
    greet: Callable[[str], None]
    """Tells a peer that can be reached who speaks."""
    lost: Callable[[str], None]
    """Drops what a peer forwarded whose connection has ended."""
    ticked: Callable[[], None]
    """Goes on with what waits for the log: handovers, changes of members."""
    look: Callable[[], None]
    """Looks at clocks and deadlines. Called by the timer, before its tick."""
    takes_part: Callable[[], bool]
    """Whether this node may tick at all: its cluster must be founded."""
    failed: Callable[[], None]
    """Ends what clients wait for: this node stops."""


class Loop:
    """Drives one replica. Made inside the running event loop; `start` begins the timer."""

    def __init__(
        self,
        replica: Replica,
        journal: Journal,
        links: PeerLinks,
        work: LoopWork,
        *,
        period_s: float,
        on_sync_begun: Callable[[float], None],
        on_sync: Callable[[float], None],
        on_timer: Callable[[float], None],
        syncs: SyncRunner,
    ) -> None:
        """`period_s` is the time between ticks of an idle node.

        `on_sync_begun` is told when a sync begins, and `on_sync` how long it took;
        `on_timer` by how many seconds the timer came late.
        """
        self.failure: Final[asyncio.Future[BaseException]] = asyncio.get_running_loop().create_future()
        self._replica = replica
        self._journal = journal
        self._links = links
        self._work = work
        self._period_s = period_s
        self._on_sync_begun = on_sync_begun
        self._on_sync = on_sync
        self._on_timer_late = on_timer
        self._loop = asyncio.get_running_loop()
        self._syncs = syncs
        self._promises: list[tuple[str, Message]] = []
        self._present_sync: Sync | None = None
        self._present_promises: list[tuple[str, Message]] = []
        self._tick_is_due = self._sync_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = self._loop.time()
        self._news_timer: asyncio.TimerHandle | None = None
        self._is_stopped = self._has_failed = False

    def start(self) -> None:
        """Tick now and again even if nothing happens: heartbeats, elections, deadlines."""
        self.run(self._on_timer)
        self.run(self._set_timer)

    def stop(self) -> None:
        """Do nothing any more. Idempotent."""
        self._is_stopped = True
        for timer in (self._timer, self._news_timer):
            if timer is not None:
                timer.cancel()

    # -- what drives it -------------------------------------------------------------------------------------

    def receive(self, peer_id: str, message: Message) -> None:
        """Take a Raft message. Raises PeerFault, and nothing was done: its link is to be cut."""
        if self._is_stopped or self._has_failed:
            return
        ready = None
        try:
            ready = self._replica.receive(peer_id, message)
            if ready.difference is not None:
                self._work.parted(peer_id, ready.difference)
            if not self._has_failed:
                self.act(ready)
        except BaseException as error:
            if ready is None and isinstance(error, PeerFault):
                raise
            self.fail(error)
            if not isinstance(error, Exception):
                raise

    def peer_up(self, peer_id: str) -> None:
        """Record that a peer can be reached."""
        self.run(self._peer_up, peer_id)

    def _peer_up(self, peer_id: str) -> None:
        if self._replica.peer_up(peer_id):
            self.request_tick()
        self._work.greet(peer_id)

    def peer_down(self, peer_id: str, *, is_replaced: bool = False) -> None:
        """Record that the connection with a peer has ended; promises to it are dropped."""
        self._work.lost(peer_id)
        self._promises = [promise for promise in self._promises if promise[0] != peer_id]
        self._present_promises = [promise for promise in self._present_promises if promise[0] != peer_id]
        self.run(self._replica.peer_down, peer_id, is_replaced=is_replaced)

    def request_tick(self) -> None:
        """Tick at the end of this run of the event loop."""
        if not self._tick_is_due:
            self._loop.call_soon(self.run, self._tick)
            self._tick_is_due = True

    def request_sync(self) -> None:
        """Sync at the end of this run of the event loop, or when the sync that is under way has ended."""
        if not self._sync_is_due and self._present_sync is None:
            self._loop.call_soon(self.run, self._sync)
            self._sync_is_due = True

    def run(self, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Do a piece of work; whatever it raises ends this node, and goes on if it is to end the process."""
        if self._is_stopped or self._has_failed:
            return
        try:
            work(*args, **kwargs)
        except BaseException as error:
            self.fail(error)
            if not isinstance(error, Exception):
                raise

    def fail(self, error: BaseException) -> None:
        """Stop taking part, at once and for good."""
        if self._has_failed:
            return
        # Before anything that takes memory: that may be what is short.
        self._has_failed = True
        failure: BaseException = _UNKNOWN_FAILURE
        try:
            failure = error if isinstance(error, NodeFailed | IdentityRefused) else _failed_by(error)
            trace = None if is_explained(error) else error
            logger.critical(
                "event=node-failed error=%r advice=%r", str(failure), advice_on(error), exc_info=trace
            )
        finally:
            self.failure.set_result(failure)
            self._work.failed()

    @property
    def has_failed(self) -> bool:
        """Whether this node has stopped taking part because something broke."""
        return self._has_failed

    # -- what it does ---------------------------------------------------------------------------------------

    def act(self, ready: Ready) -> None:
        """Do what a message or a tick led to, in the order that `Ready` states."""
        work = self._work
        if ready.restored is not None:
            work.restore(ready.restored)
        if ready.is_role_changed:
            work.role_changed()
        if ready.messages:
            self._links.send_now(ready.messages)
        for index, entry in ready.committed:
            work.apply(index, entry)
        if ready.are_members_changed:
            work.members_changed()
        if ready.snapshot is not None:
            self._replica.write_snapshot(ready.snapshot, work.encode_state)
            # At once: a peer that is about to write as well waits.
            self._links.ping()
        self._promises += ready.promises
        if ready.needs_sync:
            self.request_sync()
        if ready.wants_tick:
            self.request_tick()

    def _tick(self) -> None:
        self._tick_is_due = False
        replica, work = self._replica, self._work
        has_entry = replica.role.is_leader and work.has_entry()
        self.act(replica.tick(has_entry=has_entry))
        # An entry is stamped by the state behind all that is committed, and for the present role.
        if replica.role.is_leader and (has_entry or work.has_entry() or replica.has_members_to_propose):
            self.act(replica.propose(work.entries()))
        work.ticked()
        if self._news_timer is None and replica.role.is_leader:
            self._await_news()

    def _await_news(self) -> None:
        """Tick again when followers have to hear of a commit that no entry has told them."""
        due_in_s = self._replica.engine.news_due_in_s()
        if due_in_s is not None:
            self._news_timer = self._loop.call_later(due_in_s, self.run, self._tell_news)

    def _tell_news(self) -> None:
        self._news_timer = None
        if self._replica.engine.news_due_in_s() == 0:
            self._tick()
        else:
            self._await_news()

    def _sync(self) -> None:
        """Begin a sync of all that has changed; its promises leave when it has ended."""
        self._sync_is_due = False
        promises, self._promises = self._promises, []
        sync = self._journal.begin_sync()
        if sync is None:
            self._links.send_now(promises)
            return
        self._present_sync, self._present_promises = sync, promises
        self._on_sync_begun(self._loop.time())
        self._syncs.start(sync, partial(self.run, self._end_sync))

    def _end_sync(self) -> None:
        """Go on behind the sync: called in place, or by the event loop."""
        sync, self._present_sync = self._present_sync, None
        assert sync is not None, "the end of a sync that was not begun"
        promises, self._present_promises = self._present_promises, []
        self._journal.end_sync(sync)
        if promises:
            # They are on disk, and somebody waits for them: they travel before this node does anything else.
            self._links.send_now(promises)
        self._on_sync(sync.took_s)
        if self._replica.engine.has_work:
            self.request_tick()
        if self._promises or self._journal.wants_sync:
            self.request_sync()

    def _set_timer(self) -> None:
        self._timer_due_s = self._loop.time() + self._period_s
        self._timer = self._loop.call_later(self._period_s, self.start)

    def _on_timer(self) -> None:
        self._on_timer_late(max(0.0, self._loop.time() - self._timer_due_s))
        self._work.look()
        if self._work.takes_part():
            self._tick()
