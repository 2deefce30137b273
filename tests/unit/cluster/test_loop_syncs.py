"""The loop while a sync is under way: it goes on, and what it promises meanwhile waits for the next sync."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from cluster.consensus.messages import Message, Vote
from cluster.consensus.ready import Ready
from cluster.consensus.replica import Replica, Role
from cluster.loop import Loop, LoopWork
from cluster.peers.links import PeerLinks
from cluster.storage.journal import Journal, Sync

PROMISES = Vote(term=1)


class _Sync:
    """A sync that somebody else runs."""

    def __init__(self) -> None:
        self.error: OSError | None = None
        self.took_s = 0.5


def _nothing(*_: object) -> None:
    """Do nothing: it makes no difference to syncs."""


class _Node:
    """Replica, journal, links and runner of syncs in one: syncs end when the test says so.

    `told` has what the peers hear, and where syncs begin and end.
    """

    def __init__(self) -> None:
        self.told: list[object] = []
        self.readies: deque[Ready] = deque()
        self.engine = self
        self.role = Role(None, 0, is_leader=False, is_candidate=False)
        self.wants_sync = self.has_work = False
        self.under_way: deque[tuple[_Sync, Callable[[], None]]] = deque()
        self.ticks = 0
        self.loop = Loop(
            cast("Replica", self),
            cast("Journal", self),
            cast("PeerLinks", self),
            LoopWork(*[cast("Any", getattr(self, name, _nothing)) for name in LoopWork._fields]),
            period_s=3_600.0,
            on_sync_begun=lambda _: None,
            on_timer=lambda _: None,
            on_sync=lambda took_s: self.told.append(("took", took_s)),
            syncs=self,
        )

    # -- the replica

    def receive(self, _peer_id: str, _message: Message) -> Ready:
        return self.readies.popleft()

    def tick(self, *, has_entry: bool) -> Ready:
        assert not has_entry
        self.ticks += 1
        return Ready()

    def ping(self) -> None:
        """Tell nobody."""

    def peer_up(self, _peer_id: str) -> bool:
        """Nothing depends on it."""
        return False

    def peer_down(self, _peer_id: str, *, is_replaced: bool) -> None:
        """Nothing depends on it."""

    has_members_to_propose = False

    # -- the journal, the links, the runner and the owner

    def begin_sync(self) -> _Sync | None:
        if not self.wants_sync:
            return None
        self.wants_sync = False
        return _Sync()

    def end_sync(self, sync: _Sync) -> None:
        self.told.append("end")
        if sync.error is not None:
            raise sync.error

    def start(self, sync: Sync, ended: Callable[[], None]) -> None:
        self.told.append("begin")
        self.under_way.append((cast("_Sync", sync), ended))

    def close(self) -> None:
        """Nothing is to be closed."""

    def send_now(self, messages: list[tuple[str, Message]]) -> None:
        self.told += [peer_id for peer_id, _ in messages]

    def has_entry(self) -> bool:
        return False

    def ticked(self) -> None:
        """Nothing waits for it."""

    def failed(self) -> None:
        self.told.append("failed")

    # -- the test

    async def promise(self, peer_id: str, *, changes: bool = True) -> None:
        """Promise something to a peer; with `changes` there is something for the disk, too."""
        self.wants_sync |= changes
        self.readies.append(Ready(promises=[(peer_id, PROMISES)], needs_sync=True))
        self.loop.receive(peer_id, PROMISES)
        await settle()

    async def let_end(self, error: OSError | None = None) -> None:
        """Let the sync that is under way end."""
        sync, ended = self.under_way.popleft()
        sync.error = error
        ended()
        await settle()


async def settle() -> None:
    """Let everything happen that is due."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_promise_made_during_a_sync_waits_for_the_next_one() -> None:
    """What it is about came too late for the block that is on its way."""
    node = _Node()
    await node.promise("n2")
    await node.promise("n3")
    await node.let_end()
    assert node.told == ["begin", "end", "n2", ("took", 0.5), "begin"]
    await node.let_end()
    assert node.told[5:] == ["end", "n3", ("took", 0.5)]
    assert not node.under_way


async def test_a_promise_of_nothing_new_waits_for_the_end_of_the_sync() -> None:
    """There is nothing for the disk behind the present sync: it leaves with its end, and not before."""
    node = _Node()
    await node.promise("n2")
    await node.promise("n3", changes=False)
    assert node.told == ["begin"]
    await node.let_end()
    assert node.told == ["begin", "end", "n2", ("took", 0.5), "n3"]
    assert not node.under_way


async def test_what_has_changed_meanwhile_is_synced_without_being_asked_for_again() -> None:
    """A leader's own entry promises nothing to anybody, and must not wait for the next message."""
    node = _Node()
    await node.promise("n2")
    node.wants_sync = True
    await node.let_end()
    assert node.told[-1] == "begin"
    assert len(node.under_way) == 1


async def test_the_end_of_a_sync_leads_to_a_tick_if_it_lets_something_be_committed() -> None:
    """A leader counts its own copy now: nobody else may be about to say anything."""
    node = _Node()
    await node.promise("n2")
    await node.let_end()
    assert node.ticks == 0
    node.has_work = True
    await node.promise("n2")
    await node.let_end()
    assert node.ticks == 1


async def test_promises_over_a_connection_that_broke_during_the_sync_are_dropped() -> None:
    """On the next connection to that peer they would be answers to what it has not said there."""
    node = _Node()
    await node.promise("n2")
    await node.promise("n3")
    for peer_id in ("n2", "n3"):
        node.loop.peer_down(peer_id)
        node.loop.peer_up(peer_id)
    await node.promise("n4", changes=False)
    await node.let_end()
    while node.under_way:
        await node.let_end()
    assert [told for told in node.told if told in {"n2", "n3", "n4"}] == ["n4"]


async def test_a_sync_that_fails_late_lets_no_promise_out() -> None:
    """Neither its own nor those made meanwhile; and no other sync is begun."""
    node = _Node()
    await node.promise("n2")
    await node.promise("n3")
    await node.let_end(OSError(5, "Input/output error"))
    assert node.told == ["begin", "end", "failed"]
    assert not node.under_way
    assert node.loop.has_failed


async def test_the_end_of_a_sync_of_a_stopped_node_lets_nothing_out() -> None:
    """It has said what it had to say."""
    node = _Node()
    await node.promise("n2")
    node.loop.stop()
    await node.let_end()
    assert node.told == ["begin"]
