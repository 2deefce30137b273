"""A whole node on a real disk, alone: what becomes of requests whose clients leave, and what it remembers."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from cluster.commands.clock import ClusterClock
from cluster.config import load
from cluster.errors import NodeFailed, OutcomeUnknown, ShuttingDown
from cluster.node import Node
from cluster.observing.event_log import Position
from cluster.storage.files import Files
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words import codec
from lockstate.words.commands.admin import HoldRules, PreferLeader
from lockstate.words.commands.holds import Acquire, AcquirePermits, Campaign, Convert, Release
from lockstate.words.commands.overrides import ForceRelease
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.events import EventKind
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.modes import Mode
from lockstate.words.results import Granted, Queued
from tests.support.replica_parts import FullDisk

DEADLINE_S = 20.0


@asynccontextmanager
async def running(directory: Path, files: Files | None = None) -> AsyncIterator[Node]:
    """Run a node of its own that leads and has moved to the newest rules."""
    config = load(["--data-dir", str(directory), "--http", "127.0.0.1:0", "--peer", "127.0.0.1:0"], {})
    node = Node(config, files=files)
    await node.start()
    try:
        await node.read(lambda machine: machine.revision, DEADLINE_S)
        yield node
    finally:
        await node.stop()


async def until(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - the state has no event to tell of it
            await asyncio.sleep(0.001)


def acquire(hold_id: str, *, wait_ms: int = 0, request_id: str = "", mode: Mode = Mode.EXCLUSIVE) -> Acquire:
    """Return an acquire of the one lock of these tests."""
    return Acquire(
        "a",
        mode,
        HoldId(hold_id),
        AttemptId(f"of-{hold_id}"),
        ttl_ms=60_000,
        wait_ms=wait_ms,
        request_id=request_id,
    )


def upgrade(hold_id: str, ticket_id: str) -> Convert:
    """Return a conversion to exclusive that waits."""
    return Convert(
        HoldId(hold_id), Mode.EXCLUSIVE, HoldId(ticket_id), AttemptId(f"of-{ticket_id}"), wait_ms=60_000
    )


async def hold_both(node: Node) -> None:
    """Let h1 and h2 hold the lock together."""
    for hold_id in ("h1", "h2"):
        held = await node.acquire(acquire(hold_id, mode=Mode.SHARED), DEADLINE_S)
        assert isinstance(held.result, Granted)


@pytest.mark.parametrize("wait_ms", [0, 60_000])
async def test_who_leaves_before_the_answer_holds_nothing(tmp_path: Path, wait_ms: int) -> None:
    """An acquire whose client left before it was answered is undone, whether it would have waited or not."""
    async with running(tmp_path) as node:
        task = asyncio.create_task(node.acquire(acquire("h1", wait_ms=wait_ms), DEADLINE_S))
        await asyncio.sleep(0)
        task.cancel()
        await until(lambda: node.machine.next_token == 2)
        await until(lambda: node.machine.lock("a").state == "free")
        assert len(node.parts.waiters) == 0


async def test_who_leaves_the_queue_is_gone_from_it(tmp_path: Path) -> None:
    """A waiter whose client left is cancelled, and nothing is kept for it on the node."""
    async with running(tmp_path) as node:
        held = await node.acquire(acquire("h1"), DEADLINE_S)
        assert isinstance(held.result, Granted)
        task = asyncio.create_task(node.acquire(acquire("h2", wait_ms=60_000), DEADLINE_S))
        await until(lambda: len(node.machine.lock("a").queue) == 1)
        task.cancel()
        await until(lambda: not node.machine.lock("a").queue)
        assert len(node.parts.waiters) == 0


async def test_the_later_attempt_leaves_and_the_earlier_one_waits_on(tmp_path: Path) -> None:
    """Two connections wait for one request: when the later one closes, the earlier one gets the lock."""
    async with running(tmp_path) as node:
        await node.acquire(acquire("h1"), DEADLINE_S)
        first = asyncio.create_task(node.acquire(acquire("h2", wait_ms=60_000, request_id="r"), DEADLINE_S))
        await until(lambda: len(node.machine.lock("a").queue) == 1)
        later = asyncio.create_task(node.acquire(acquire("h3", wait_ms=60_000, request_id="r"), DEADLINE_S))
        await until(lambda: node.machine.state.tickets[HoldId("h2")].attempt_id == "of-h3")
        later.cancel()
        await until(lambda: node.machine.state.tickets[HoldId("h2")].attempt_id == "of-h2")
        await node.submit(Release(HoldId("h1")), DEADLINE_S)
        answer = await asyncio.wait_for(first, DEADLINE_S)
        assert isinstance(answer.result, Granted)
        assert node.machine.lock("a").state == "held"


async def test_a_stopping_node_takes_tickets_back_that_nobody_can_ask_for(tmp_path: Path) -> None:
    """At shutdown a wait without a request id leaves no ticket; one with an id keeps its place."""
    async with running(tmp_path) as node:
        await node.acquire(acquire("h1"), DEADLINE_S)
        unnamed = asyncio.create_task(node.acquire(acquire("h2", wait_ms=60_000), DEADLINE_S))
        named = asyncio.create_task(node.acquire(acquire("h3", wait_ms=60_000, request_id="r"), DEADLINE_S))
        await until(lambda: len(node.machine.lock("a").queue) == 2)
        node.begin_shutdown()
        for task in (unnamed, named):
            with pytest.raises(OutcomeUnknown):
                await asyncio.wait_for(task, DEADLINE_S)
        await until(lambda: len(node.machine.lock("a").queue) == 1)
        assert isinstance(node.machine.attempt(HoldId("h3")), Queued)
        with pytest.raises(ShuttingDown):
            await node.submit(Release(HoldId("h1")), DEADLINE_S)


async def test_a_conversion_waits_under_its_ticket(tmp_path: Path) -> None:
    """A conversion that has to wait ends with the hold that it converted, once the other one is gone."""
    async with running(tmp_path) as node:
        await hold_both(node)
        waiting = asyncio.create_task(node.acquire(upgrade("h1", "t1"), DEADLINE_S))
        await until(lambda: len(node.parts.waiters) == 1)
        assert node.parts.waiters.hold_ids() == ["t1"]
        await node.submit(Release(HoldId("h2")), DEADLINE_S)
        answer = await asyncio.wait_for(waiting, DEADLINE_S)
        assert isinstance(answer.result, Granted)
        assert (answer.result.hold_id, answer.result.mode) == ("h1", Mode.EXCLUSIVE)


async def test_who_leaves_a_waiting_conversion_keeps_its_hold(tmp_path: Path) -> None:
    """The wait of a conversion is undone when its client leaves; the hold stays as it was."""
    async with running(tmp_path) as node:
        await hold_both(node)
        waiting = asyncio.create_task(node.acquire(upgrade("h1", "t1"), DEADLINE_S))
        await until(lambda: len(node.parts.waiters) == 1)
        waiting.cancel()
        await until(lambda: node.machine.attempt(HoldId("t1")) is None)
        assert [holder.mode for holder in node.machine.lock("a").holders] == [Mode.SHARED, Mode.SHARED]
        assert len(node.parts.waiters) == 0


async def test_a_conversion_that_came_through_is_not_undone(tmp_path: Path) -> None:
    """A client that leaves before it hears of its conversion has its hold, converted."""
    async with running(tmp_path) as node:
        await node.acquire(acquire("h1", mode=Mode.SHARED), DEADLINE_S)
        converting = asyncio.create_task(node.acquire(upgrade("h1", "t1"), DEADLINE_S))
        await asyncio.sleep(0)
        converting.cancel()
        await until(lambda: node.machine.lock("a").holders[0].mode is Mode.EXCLUSIVE)
        await node.read(lambda machine: machine.revision, DEADLINE_S)
        assert not node.parts.requests._cancels
        assert len(node.machine.lock("a").holders) == 1


def permits(hold_id: str, session_id: str) -> AcquirePermits:
    """Return an acquire of all permits of a semaphore."""
    return AcquirePermits(
        "p",
        1,
        1,
        HoldId(hold_id),
        AttemptId(f"of-{hold_id}"),
        session_id=SessionId(session_id),
        wait_ms=60_000,
    )


def campaign(hold_id: str, session_id: str) -> Campaign:
    """Return a candidacy."""
    return Campaign(
        "e", SessionId(session_id), "me", HoldId(hold_id), AttemptId(f"of-{hold_id}"), wait_ms=60_000
    )


@pytest.mark.parametrize("command", [permits, campaign])
async def test_permits_and_elections_are_waited_for_like_locks(
    tmp_path: Path, command: Callable[[str, str], AcquirePermits | Campaign]
) -> None:
    """A client that waits for permits, or to lead, is answered in its turn, and undone when it leaves."""
    async with running(tmp_path) as node:
        for session_id in ("s1", "s2"):
            await node.submit(OpenSession(SessionId(session_id), 60_000), DEADLINE_S)
        first = await node.acquire(command("h1", "s1"), DEADLINE_S)
        assert isinstance(first.result, Granted)
        leaves = asyncio.create_task(node.acquire(command("h2", "s2"), DEADLINE_S))
        await until(lambda: len(node.parts.waiters) == 1)
        leaves.cancel()
        await until(lambda: node.machine.attempt(HoldId("h2")) is None)
        stays = asyncio.create_task(node.acquire(command("h3", "s2"), DEADLINE_S))
        await until(lambda: len(node.parts.waiters) == 1)
        await node.submit(Release(HoldId("h1")), DEADLINE_S)
        answer = await asyncio.wait_for(stays, DEADLINE_S)
        assert isinstance(answer.result, Granted)
        assert answer.result.token > first.result.token


async def test_a_snapshot_without_the_ticket_of_a_conversion_leaves_its_outcome_open(tmp_path: Path) -> None:
    """Behind a snapshot a ticket that is gone may have ended either way: the client has to ask again."""
    async with running(tmp_path) as node:
        await hold_both(node)
        waiting = asyncio.create_task(node.acquire(upgrade("h1", "t1"), DEADLINE_S))
        await until(lambda: len(node.parts.waiters) == 1)
        elsewhere = LockMachine(snapshot.decode(snapshot.encode(node.machine.state)))
        node.parts.group.restore(elsewhere)
        await asyncio.sleep(0)
        assert not waiting.done(), "it still waits there"
        empty = LockMachine()
        empty.state.revision = elsewhere.revision + 1
        node.parts.group.restore(empty)
        with pytest.raises(OutcomeUnknown):
            await asyncio.wait_for(waiting, DEADLINE_S)
        assert node.events.oldest == empty.revision


async def test_a_lone_node_ends_leases_in_time_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leads and applies its log in one step: the alarm goes by the time that the log has reached."""
    start = ClusterClock.start
    monkeypatch.setattr(ClusterClock, "start", lambda clock, base_ms: start(clock, base_ms + 3_600_000))
    async with running(tmp_path) as node:
        await node.acquire(msgspec.structs.replace(acquire("h1"), ttl_ms=1000), DEADLINE_S)
    monkeypatch.setattr(ClusterClock, "start", start)
    async with running(tmp_path) as node:
        # Nobody asks for anything: only the alarm makes time pass.
        await until(lambda: node.machine.lock("a").state == "free")


async def test_shutdown_can_be_waited_for(tmp_path: Path) -> None:
    """Callers that wait for this node to shut down are told at once, also those that ask later."""
    async with running(tmp_path) as node:
        waiting = asyncio.create_task(node.wait_shutdown())
        await asyncio.sleep(0)
        assert not waiting.done()
        assert not node.is_shutting_down
        node.begin_shutdown()
        await asyncio.wait_for(waiting, DEADLINE_S)
        await asyncio.wait_for(node.wait_shutdown(), DEADLINE_S)
        assert node.is_shutting_down


async def test_events_are_remembered_across_a_restart(tmp_path: Path) -> None:
    """A node that starts again has the events of what it applies again, with the same revisions."""
    async with running(tmp_path) as node:
        await node.acquire(acquire("h1"), DEADLINE_S)
        await node.submit(Release(HoldId("h1")), DEADLINE_S)
        before = node.events.read(Position(1), 100)
        kinds = [[event.kind for event in block] for block in before]
        assert kinds == [[EventKind.GRANTED], [EventKind.RELEASED]]
    async with running(tmp_path) as node:
        assert node.events.read(Position(1), 100) == before
        assert node.metrics.events[EventKind.GRANTED] == 1


async def test_an_entry_of_another_version_stops_the_node(tmp_path: Path) -> None:
    """What another version wrote is not guessed at: the node stops, changes nothing, and says what to do."""
    async with running(tmp_path) as node:
        revision = node.machine.revision
        entry = msgspec.msgpack.encode((codec.FORMAT_NEWEST + 1, 0, []))
        with pytest.raises(NodeFailed, match="upgrade this node"):
            node.parts.group.apply(0, entry)
        assert node.machine.revision == revision


async def test_a_restart_does_not_tell_again_what_was_forced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The leader writes a line when it applies a forced release; a node that starts and leads writes none."""
    caplog.set_level(logging.INFO)

    def told() -> list[str]:
        return [line for line in caplog.messages if line.startswith("event=forced ")]

    async with running(tmp_path) as node:
        await node.acquire(acquire("h1"), DEADLINE_S)
        await node.submit(ForceRelease("a", "it hangs"), DEADLINE_S)
        assert len(told()) == 1
    async with running(tmp_path) as node:
        assert node.metrics.events[EventKind.FORCED] == 1, "it was applied again"
        assert len(told()) == 1
        await node.acquire(acquire("h2"), DEADLINE_S)
        await node.submit(ForceRelease("a", "again"), DEADLINE_S)
        assert [line.rpartition(" ")[2] for line in told()] == ["hangs'", "reason='again'"]


async def test_what_was_granted_is_there_after_a_restart(tmp_path: Path) -> None:
    """A hold survives the stop and start of its only node, with its token, and the next token is larger."""
    async with running(tmp_path) as node:
        first = await node.acquire(acquire("h1"), DEADLINE_S)
    async with running(tmp_path) as node:
        assert node.machine.lock("a").holders[0].token == first.result.token  # type: ignore[union-attr]
        await node.submit(Release(HoldId("h1")), DEADLINE_S)
        second = await node.acquire(acquire("h2"), DEADLINE_S)
        assert isinstance(second.result, Granted)
        assert second.result.token == 2


async def test_a_disk_that_fails_at_the_last_write(tmp_path: Path) -> None:
    """A node whose journal cannot be sealed while it stops says so, and lets its directory go."""
    files = FullDisk()
    async with running(tmp_path, files) as node:
        await node.acquire(acquire("h1"), DEADLINE_S)
        files.is_full = True
        with pytest.raises(NodeFailed, match="No space left"):
            await node.stop()
    async with running(tmp_path) as node:
        assert node.failure is None
        assert node.machine.lock("a").holders


async def test_a_disk_that_fails_while_the_node_stops(tmp_path: Path) -> None:
    """A node that breaks while it finishes what is under way is known to have broken, once closed, too."""
    files = FullDisk()
    async with running(tmp_path, files) as node:
        asking = asyncio.create_task(node.acquire(acquire("h1"), DEADLINE_S))
        await asyncio.sleep(0)
        files.is_full = True
        await node.stop()
        assert isinstance(node.failure, NodeFailed)
        with pytest.raises(OutcomeUnknown):
            await asking


async def test_a_cluster_of_one_takes_the_address_that_it_is_given_later(tmp_path: Path) -> None:
    """It was founded where nobody could reach it; before others join, its list says where it is now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for peers, listed in (([], "127.0.0.1:0"), (["--peers", f"n1=127.0.0.1:{port}"], f"127.0.0.1:{port}")):
        secret = ["--secret", "0123456789abcdef"] if peers else ["--peer", "127.0.0.1:0"]
        node = Node(load(["--data-dir", str(tmp_path), "--http", "127.0.0.1:0", *peers, *secret], {}))
        await node.start()
        try:
            membership = node.parts.replica.membership
            cluster_id = membership.latest.cluster_id
            await until(lambda: membership.committed.nodes["n1"].peer == listed)  # noqa: B023 - of this round
            assert membership.committed.cluster_id == cluster_id != ""
        finally:
            await node.stop()


async def test_a_node_tells_what_it_takes(tmp_path: Path) -> None:
    """Its disk is looked at when it starts, and an entry that it led to has a time to commit."""
    async with running(tmp_path) as node:
        await until(lambda: node.parts.space.space is not None)
        await node.acquire(acquire("h1"), DEADLINE_S)
        own = node.status().own
        assert own is not None
        assert own.directory_bytes is not None
        assert own.directory_bytes > 0
        assert own.free_bytes is not None
        assert own.free_bytes > 0
        assert (own.snapshot_bytes, own.snapshot_age_ms) == (0, None)
        values = {name: value for name, _, _, _, value in node.metrics.samples()}
        assert values["holdfast_directory_bytes"] == own.directory_bytes
        assert values["holdfast_disk_free_bytes"] > 0
        assert values["holdfast_commit_seconds_count"] >= 1
        assert values["holdfast_leader_changes_total"] == 1
        assert values["holdfast_leader_silence_seconds"] == 0
        assert values["holdfast_snapshot_failures_total"] == 0


async def test_wishes_of_operators_age_while_nothing_happens(tmp_path: Path) -> None:
    """Their age goes on between two entries, although cluster time stands still until the next one."""
    async with running(tmp_path) as node:
        await node.submit(PreferLeader(node_id="n1", reason="it is near"), DEADLINE_S)
        await node.submit(HoldRules(is_held=True, reason="we watch it"), DEADLINE_S)
        before = node.status()

        def ages_ms() -> tuple[int, int]:
            status = node.status()
            assert status.preferred is not None
            assert status.rules_hold is not None
            return status.preferred.for_ms, status.rules_hold.held_ms

        await until(lambda: min(ages_ms()) >= 50)
        after = node.status()
        assert (after.revision, after.now_ms) == (before.revision, before.now_ms)
