"""One group: commands on their way to whoever leads, what the log says applied here, and who is told."""

import asyncio
import itertools
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cluster.commands.encoded_command import encode
from cluster.commands.forwarded import Forwarded
from cluster.commands.outbox import UNDER_WAY_LOAD_MAX
from cluster.commands.traces import Traces
from cluster.consensus import compaction
from cluster.consensus.compaction import LogSpace
from cluster.consensus.messages import NewerTerm
from cluster.errors import IdentityRefused, NodeFailed, NoLeader, OutcomeUnknown, ShuttingDown, WaitCutOff
from cluster.peers import objections
from cluster.peers.handshake import Objection, Particulars
from cluster.peers.link import FrameKind
from cluster.peers.peer_table import Ping
from cluster.storage.data_directory import DataDir
from cluster.storage.snapshot_store import SNAPSHOT_NAME
from cluster.tracing import Context, Span, Tracer
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words import codec, limits
from lockstate.words.commands.entries import Barrier, Command
from lockstate.words.commands.holds import Acquire, Release
from lockstate.words.commands.sessions import CloseSession, KeepAlive, OpenSession
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.modes import Mode
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, Released, SessionClosed, SessionOpened
from lockstate.words.versions import RULES_FIRST
from lockstate.words.wanted import Wanted
from tests.support.later_rules import RULES_LATER, later_rules
from tests.unit.cluster.one_group import (
    ALONE,
    AMONG_THREE,
    DEADLINE_S,
    SECRET,
    Node,
    following,
    leading_alone,
    made,
    settle,
    until,
)

OPEN = OpenSession(SessionId("s1"), 60_000)


def acquire(hold_id: str, *, wait_ms: int = 0) -> Acquire:
    """Return an acquire of the one lock of these tests."""
    return Acquire(
        "a", Mode.EXCLUSIVE, HoldId(hold_id), AttemptId(f"of-{hold_id}"), ttl_ms=60_000, wait_ms=wait_ms
    )


def batch(origin: str, term: int, *commands: Command, first: int = 1) -> Forwarded:
    """Return commands that a follower forwards to the leader of a term."""
    seqs = list(range(first, first + len(commands)))
    return Forwarded(term, origin, seqs, [encode(command, LockMachine()) for command in commands])


# -- a group that leads -------------------------------------------------------------------------------------


async def test_a_lone_nodes_group_answers_its_clients(tmp_path: Path) -> None:
    """From the request through log, disk and state machine to the answer; a read sees it then."""
    async with leading_alone(tmp_path) as node:
        requests, parts = node.parts.requests, node.parts
        answer = await requests.acquire(acquire("h1"), DEADLINE_S)
        assert isinstance(answer.result, Granted)
        assert answer.revision == parts.machine.revision
        assert await requests.read(lambda machine: machine.lock("a").state, DEADLINE_S) == "held"
        assert (await requests.submit(Release(HoldId("h1")), DEADLINE_S)).result == Released()
        assert parts.machine.lock("a").state == "free"
        assert parts.metrics.commands == {"granted": 1, "done": 1, "released": 1}
        assert len(parts.outbox) == 0
        assert node.links.sent == []


async def test_a_leader_moves_the_rules_on_once_all_know_them(tmp_path: Path) -> None:
    """Alone it does so by itself; somebody who joins keeps the rules where they are."""
    with later_rules():
        async with made(tmp_path / "alone", *ALONE) as node:
            parts = node.parts
            before = parts.machine.rules
            parts.loop.start()
            await until(lambda: parts.machine.rules == RULES_LATER)
            assert before < RULES_LATER
    async with leading_alone(tmp_path / "joined") as node:
        parts = node.parts
        known = parts._rare._rules_known_by_all()
        await parts.changes.change("n2", "127.0.0.1:2", DEADLINE_S)
        assert (known, parts._rare._rules_known_by_all()) == (RULES_FIRST, 0)


async def test_a_new_role_proposes_the_rules_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this node proposed in another role may be lost, so it does not count as under way any more."""
    async with made(tmp_path, *ALONE) as node:
        rules = node.parts._rare.rules_advance
        monkeypatch.setattr(rules, "_known_by_all", lambda: RULES_LATER)
        with later_rules():
            assert (rules.step(1), rules.step(1)) == (True, False)
            node.parts.upkeep.role_changed()
            assert rules.step(1)


async def test_one_voter_that_knows_less_holds_the_rules_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What all members know is what the one that knows least does; an unconnected one knows nothing."""
    async with leading_alone(tmp_path) as node:
        for known in (0, 1, RULES_LATER):
            monkeypatch.setattr(node.parts.peering, "rules_known", lambda _, known=known: known)
            assert node.parts._rare._rules_known_by_all() == known


@pytest.mark.parametrize(("ttl_ms", "waits"), [(60_000, True), (100, False)])
async def test_keepalives_wait_for_company_unless_something_ends_soon(
    tmp_path: Path, *, ttl_ms: int, waits: bool
) -> None:
    """A session that is kept alive in time does not end for an entry that is spared."""
    async with leading_alone(tmp_path) as node:
        parts = node.parts
        await parts.requests.submit(OpenSession(SessionId("s1"), ttl_ms), DEADLINE_S)
        parts.group._patience.proposed()
        keeping = batch("n2.run", parts.replica.role.term, KeepAlive(SessionId("s1")))
        parts._batcher.add(keeping.origin, keeping.seqs, keeping.commands)
        assert parts.group.has_entry() is not waits
        await until(lambda: parts.machine.applied_seq("n2.run") == 1)


async def test_what_has_no_room_in_the_log_is_not_looked_at_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer's ticks look: a node whose disk is full has other things to do."""
    async with leading_alone(tmp_path) as node:
        parts, looks = node.parts, 0
        has_entry = parts.group.has_entry

        def look() -> bool:
            nonlocal looks
            looks += 1
            return has_entry()

        monkeypatch.setattr(parts.group, "has_entry", look)
        parts.loop._work = parts.loop._work._replace(has_entry=look)
        monkeypatch.setattr(type(parts.replica.engine), "log_room", LogSpace.NOTHING)
        parts.group.forwarded(batch("n2.run", parts.replica.role.term, OPEN))
        for _ in range(100):
            await asyncio.sleep(0)
        assert 1 <= looks < 10


async def test_entries_are_of_the_format_of_the_active_rules(tmp_path: Path) -> None:
    """Behind the advance a leader writes the newest format."""
    async with leading_alone(tmp_path) as node:
        await node.parts.requests.submit(OPEN, DEADLINE_S)
        newest = node.parts.replica.engine.newest_command()
        assert newest is not None
        assert codec.entry_format(newest) == codec.FORMAT_NEWEST


def opening(number: int) -> OpenSession:
    """Return a request that is remembered."""
    return OpenSession(SessionId(f"s{number}"), 60_000, request_id=f"r{number}")


async def test_an_idle_leader_forgets_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cluster time passes though nobody asks for anything, and no further when there is nothing to forget."""
    monkeypatch.setattr("lockstate.words.limits.REQUEST_AGE_MS", 40)
    monkeypatch.setattr("cluster.commands.expiry.FORGET_PAUSE_MS", 20)
    async with leading_alone(tmp_path) as node:
        parts = node.parts
        await parts.requests.submit(opening(1), DEADLINE_S)
        assert parts.machine.counts()["requests"] == 1
        revision = parts.machine.revision
        await until(lambda: not parts.machine.counts()["requests"])
        assert parts.machine.revision == revision + 1
        assert parts.group._alarms._forgetting._deadline_ms is None, "there is nothing more to forget"


async def test_a_backlog_is_forgotten_at_leisure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry forgets some, and there is a pause before the next one."""
    monkeypatch.setattr("lockstate.words.limits.REQUESTS_PER_ENTRY_MAX", 2)
    monkeypatch.setattr("cluster.commands.expiry.FORGET_PAUSE_MS", 60)
    async with leading_alone(tmp_path) as node:
        parts = node.parts
        for number in range(6):
            await parts.requests.submit(opening(number), DEADLINE_S)
        # Only now, so that none is forgotten while the others are still asked for.
        monkeypatch.setattr("lockstate.words.limits.REQUEST_AGE_MS", 40)
        parts.group._alarms.arm(parts.machine)
        forgotten_ms: list[int] = []

        def is_empty() -> bool:
            if not forgotten_ms or forgotten_ms[-1] != parts.machine.now_ms:
                forgotten_ms.append(parts.machine.now_ms)
            return not parts.machine.counts()["requests"]

        await until(is_empty)
    pauses_ms = [later - earlier for earlier, later in itertools.pairwise(forgotten_ms)]
    assert len(pauses_ms) == 3
    assert min(pauses_ms[1:]) > 60


async def test_a_node_alone_listens_before_it_founds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its `peers` may be lost with its disk. Whoever knows it as a member of theirs keeps it from serving."""
    monkeypatch.setattr("cluster.peers.first_start.LONELY_S", 3600.0)
    async with made(tmp_path, *ALONE, is_new=True) as node:
        parts = node.parts
        parts.start()
        assert parts.peering.role() == "starting"
        theirs = Particulars("disk-n2", "http://n2", 7, cluster_id="bb" * 16, your_disk_id="the lost one")
        assert parts.peering.objection("n2", theirs, is_known=False) is not None
        assert isinstance(parts.loop.failure.result(), IdentityRefused)
        parts.peering.founding.begin()
        await settle()
        assert parts.peering.role() == "starting"
        assert "event=founded" not in caplog.text


async def test_a_node_that_nobody_knows_founds_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it has listened."""
    monkeypatch.setattr("cluster.peers.first_start.LONELY_S", 0.05)
    async with made(tmp_path, *ALONE, is_new=True) as node:
        node.parts.start()
        assert node.parts.peering.role() == "starting"
        await until(lambda: node.parts.peering.role() == "leader")


async def test_a_queued_request_is_answered_by_a_later_entry(tmp_path: Path) -> None:
    """Its wait begins at the very apply that queued it, and ends at the one that grants it."""
    async with leading_alone(tmp_path) as node:
        requests = node.parts.requests
        await requests.acquire(acquire("h1"), DEADLINE_S)
        waiting = asyncio.create_task(requests.acquire(acquire("h2", wait_ms=60_000), DEADLINE_S))
        await until(lambda: len(node.parts.waiters) == 1)
        await requests.submit(Release(HoldId("h1")), DEADLINE_S)
        answer = await asyncio.wait_for(waiting, DEADLINE_S)
        assert isinstance(answer.result, Granted)
        assert answer.result.hold_id == "h2"
        assert len(node.parts.waiters) == 0


async def test_a_followers_commands_are_applied_and_not_answered_here(tmp_path: Path) -> None:
    """The follower completes its own, from its own apply."""
    async with leading_alone(tmp_path) as node:
        parts = node.parts
        parts.group.forwarded(batch("n2.run", parts.replica.role.term, OPEN, acquire("h1")))
        await until(lambda: parts.machine.applied_seq("n2.run") == 2)
        assert parts.machine.lock("a").state == "held"
        assert parts.metrics.commands == {}


async def test_what_comes_again_after_it_was_applied_is_recorded_once(tmp_path: Path) -> None:
    """After a connection broke a follower sends what it has not seen applied; no entry tells of it again."""
    spans: list[Span] = []
    async with leading_alone(tmp_path) as node:
        parts = node.parts
        parts.group._traces = Traces(Tracer(spans.append), parts.outbox.origin)
        sent = batch("n2.run", parts.replica.role.term, OPEN)
        sent = msgspec.structs.replace(sent, traces={1: Context("a1" * 16, "b2" * 8).packed()})
        parts.group.forwarded(sent)
        await until(lambda: parts.machine.applied_seq("n2.run") == 1)
        parts.group.forwarded(sent)
        await parts.requests.submit(acquire("h1"), DEADLINE_S)
        assert [span.name for span in spans] == ["lead"]
        assert not parts.group._traces._open


async def test_commands_for_another_term_are_ignored(tmp_path: Path) -> None:
    """A batch that was under way since an earlier leadership could stand before what was sent again since."""
    async with leading_alone(tmp_path) as node:
        parts = node.parts
        term = parts.replica.role.term
        for other in (term - 1, term + 1, 0):
            parts.group.forwarded(batch("n2.run", other, acquire("h1")))
        assert not parts.group.has_entry()
        parts.group.forwarded(batch("n2.run", term, OPEN))
        await until(lambda: parts.machine.applied_seq("n2.run") == 1)
        assert parts.machine.lock("a").state == "free"


async def test_a_follower_takes_no_commands_of_others(tmp_path: Path) -> None:
    """Whoever believes that it leads finds out soon, and sends them again."""
    async with following(tmp_path) as node:
        node.parts.group.forwarded(batch("n3.run", 1, acquire("h1")))
        assert not node.parts.group.has_entry()


async def test_what_a_lost_peer_forwarded_is_dropped(tmp_path: Path) -> None:
    """It sends everything again on the next connection: nothing of it may come between."""
    async with leading_alone(tmp_path) as node:
        parts = node.parts
        term = parts.replica.role.term
        parts.group.forwarded(batch("n2.run", term, OPEN))
        parts.group.forwarded(batch("n3.run", term, OPEN))
        parts.loop.peer_down("n2")
        await until(lambda: parts.machine.applied_seq("n3.run") == 1)
        assert parts.machine.applied_seq("n2.run") == 0


async def test_a_lost_leadership_drops_what_was_forwarded(tmp_path: Path) -> None:
    """The followers send it again, to whoever leads next: this node must not propose it in a later term."""
    async with leading_alone(tmp_path) as node:
        parts = node.parts
        term = parts.replica.role.term
        parts.group.forwarded(batch("n2.run", term, OPEN))
        has_entry = parts.group.has_entry()
        parts.loop.receive("n2", NewerTerm(term=term + 1))
        assert (has_entry, parts.group.has_entry()) == (True, False)


async def test_what_arrives_together_shares_an_entry(tmp_path: Path) -> None:
    """This node's commands and those of others become one entry, stamped when it is proposed."""
    async with leading_alone(tmp_path) as node:
        parts = node.parts
        before = parts.metrics.entries_proposed
        own = [
            asyncio.create_task(
                parts.requests.submit(OpenSession(SessionId(f"o{number}"), 60_000), DEADLINE_S)
            )
            for number in range(3)
        ]
        await asyncio.sleep(0)
        parts.group.forwarded(batch("n2.run", parts.replica.role.term, OPEN))
        answers = await asyncio.gather(*own)
        assert not any(isinstance(answer.result, Refused) for answer in answers)
        assert len({answer.revision for answer in answers}) == 1
        assert parts.machine.applied_seq("n2.run") == 1
        assert parts.metrics.entries_proposed == before + 1


# -- a group that follows -----------------------------------------------------------------------------------


async def test_commands_go_to_the_leader_in_one_frame(tmp_path: Path) -> None:
    """With their numbers and the leader's term, when this run of the event loop ends."""
    async with following(tmp_path) as node:
        parts = node.parts
        asking = [asyncio.create_task(parts.requests.submit(OPEN, DEADLINE_S)) for _ in range(2)]
        await settle()
        assert node.links.take(FrameKind.FORWARD) == [("n1", batch(parts.outbox.origin, 1, OPEN, OPEN))]
        parts.outbox.close(ShuttingDown("stops"), OutcomeUnknown("stops"))
        await asyncio.gather(*asking, return_exceptions=True)


async def test_who_waits_for_what_is_given_up_has_its_turn_at_once(tmp_path: Path) -> None:
    """Nobody sends anything on a node without clients: what gets its number in the look is sent by it."""
    async with following(tmp_path) as node:
        parts = node.parts
        much = OpenSession(SessionId("s"), 60_000, {"much": "/" * UNDER_WAY_LOAD_MAX})
        asking = [asyncio.create_task(parts.requests.submit(much, timeout_s)) for timeout_s in (0.01, 5.0)]
        await settle()
        assert node.links.take(FrameKind.FORWARD) == [("n1", batch(parts.outbox.origin, 1, much))]
        given_up_s = asyncio.get_running_loop().time() + 0.01
        await until(lambda: asyncio.get_running_loop().time() > given_up_s)
        parts.upkeep.look()
        await settle()
        assert node.links.take(FrameKind.FORWARD) == [("n1", batch(parts.outbox.origin, 1, much, first=2))]
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def test_commands_wait_while_nobody_leads(tmp_path: Path) -> None:
    """They are sent when a leader is heard, with the term of that one."""
    async with made(tmp_path, *AMONG_THREE) as node:
        node.connect("n1", "n3")
        asking = asyncio.create_task(node.parts.requests.submit(OPEN, DEADLINE_S))
        await settle()
        node.links.sent.clear()
        node.hear("n3", term=4)
        await settle()
        assert node.links.take(FrameKind.FORWARD) == [("n3", batch(node.parts.outbox.origin, 4, OPEN))]
        asking.cancel()


async def test_a_change_of_role_sends_everything_again(tmp_path: Path) -> None:
    """To the new leader, in its term, from the lowest number on that has no outcome yet."""
    async with following(tmp_path) as node:
        parts = node.parts
        asking = [asyncio.create_task(parts.requests.submit(OPEN, DEADLINE_S)) for _ in range(2)]
        await settle()
        node.links.sent.clear()
        changes = parts.metrics.leader_changes
        node.hear("n3", term=2)
        await settle()
        assert node.links.take(FrameKind.FORWARD) == [("n3", batch(parts.outbox.origin, 2, OPEN, OPEN))]
        assert parts.metrics.commands_resent == 2
        assert parts.metrics.leader_changes == changes + 1
        for task in asking:
            task.cancel()


async def test_a_new_connection_with_the_leader_sends_everything_again(tmp_path: Path) -> None:
    """What was on the old one may be lost. First of all it is told which run of this process speaks."""
    async with following(tmp_path) as node:
        parts = node.parts
        asking = asyncio.create_task(parts.requests.submit(OPEN, DEADLINE_S))
        await settle()
        node.disconnect("n1")
        node.links.sent.clear()
        node.connect("n1")
        await settle()
        origin = parts.outbox.origin
        assert node.links.take(FrameKind.FORWARD) == [
            ("n1", batch(origin, 0)),
            ("n1", batch(origin, 1, OPEN)),
        ]
        node.connect("n3")
        await settle()
        assert node.links.take(FrameKind.FORWARD) == [("n3", batch(origin, 0))]
        asking.cancel()


async def test_a_follower_answers_from_its_own_apply(tmp_path: Path) -> None:
    """What was applied of its own commands completes them; what others asked for only changes the state."""
    async with following(tmp_path) as node:
        node.hear("n1", commands=(acquire("h1"),))
        await settle()
        assert node.parts.machine.lock("a").state == "held"
        assert node.parts.metrics.commands == {}


@pytest.mark.parametrize("rest_s_max", [0, 0.05])
async def test_what_waits_for_its_turn_is_sent_when_something_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest_s_max: float
) -> None:
    """Of what claims many names as much is under way as an entry takes; nothing else waits for that.

    Also when that rests, because something without a load came meanwhile.
    """
    monkeypatch.setattr("cluster.commands.outbox.REST_S_MAX", rest_s_max)
    async with following(tmp_path) as node:
        parts, asked = node.parts, [deep("h1"), deep("h2"), acquire("h3")]
        origin = parts.outbox.origin
        asking = [asyncio.create_task(parts.requests.acquire(each, DEADLINE_S)) for each in asked]
        await settle()
        sent = batch(origin, 1, asked[0], asked[2])
        assert node.links.take(FrameKind.FORWARD) == [("n1", sent)]
        node.hear("n1", commands=(asked[0],), origin=origin)
        await settle()
        assert isinstance((await asking[0]).result, Granted)
        then = node.links.take(FrameKind.FORWARD)
        async with asyncio.timeout(DEADLINE_S):
            while not then:
                await asyncio.sleep(0.001)
                then = node.links.take(FrameKind.FORWARD)
        ((_, forwarded),) = then
        assert forwarded == batch(origin, 1, asked[1], first=3)
        for task in asking[1:]:
            task.cancel()


def deep(hold_id: str) -> Acquire:
    """Return a request with about as many names as a request may have."""
    locks = tuple(Wanted(f"{hold_id}/{place}" + "/part" * 28) for place in range(64))
    return msgspec.structs.replace(acquire(hold_id), name="", locks=locks)


async def test_a_leader_that_cannot_be_reached_is_none(tmp_path: Path) -> None:
    """Clients are not sent to it, and it is not waited for."""
    async with following(tmp_path) as node:
        leaders = [node.parts.leadership.leader_id()]
        node.disconnect("n1")
        leaders.append(node.parts.leadership.leader_id())
        assert leaders == ["n1", None]


async def test_who_waits_for_leadership_is_woken(tmp_path: Path) -> None:
    """Each change wakes everybody once, and the peers are told by a ping."""
    async with following(tmp_path) as node:
        woken, pings = node.parts.leadership.changed, node.links.pings
        assert not woken.is_set()
        node.hear("n3", term=2)
        await settle()
        assert woken.is_set()
        assert node.links.pings > pings
        assert not node.parts.leadership.changed.is_set(), "the next change has an event of its own"


# -- snapshots ----------------------------------------------------------------------------------------------


def state_after(*batches: Forwarded) -> LockMachine:
    """Return the state of a cluster that has applied these batches, one entry each."""
    machine = LockMachine()
    for forwarded in batches:
        raw = [(forwarded.origin, forwarded.seqs, [command.data for command in forwarded.commands])]
        machine.apply(codec.decode_entry(codec.encode_entry(0, raw)))
    return machine


async def test_a_snapshot_ends_what_it_contains(tmp_path: Path) -> None:
    """The outcome of an applied command is lost, a read is answered from the new state, the rest waits on."""
    async with following(tmp_path) as node:
        parts = node.parts
        applied = asyncio.create_task(parts.requests.submit(OPEN, DEADLINE_S))
        await settle()
        reading = asyncio.create_task(parts.requests.read(lambda machine: machine.revision, DEADLINE_S))
        await settle()
        pending = asyncio.create_task(parts.requests.submit(OPEN, DEADLINE_S))
        await settle()
        machine = state_after(batch(parts.outbox.origin, 1, OPEN, Barrier()), batch("n3.run", 1, OPEN))
        parts.group.restore(machine)
        with pytest.raises(OutcomeUnknown, match="fell behind"):
            await applied
        assert await reading == machine.revision
        await settle()
        assert not pending.done()
        assert len(parts.outbox) == 1
        assert parts.machine is machine
        assert parts.events.oldest == machine.revision
        pending.cancel()


async def test_a_snapshot_tells_what_became_of_waits(tmp_path: Path) -> None:
    """Granted, still waiting, or gone: each waiter learns what the new state says of it."""
    async with following(tmp_path) as node:
        parts = node.parts
        waits = {hold_id: parts.waiters.add(HoldId(hold_id)) for hold_id in ("h1", "h2", "h3")}
        granted = acquire("h1")
        parts.group.restore(state_after(batch("n3.run", 1, granted, acquire("h2", wait_ms=60_000))))
        answer = await waits["h1"]
        assert isinstance(answer.result, Granted)
        assert not waits["h2"].done()
        with pytest.raises(OutcomeUnknown):
            await waits["h3"]


async def test_a_snapshot_of_the_disk_is_decoded(tmp_path: Path) -> None:
    """At the start there are only its bytes; a state goes out as it came in."""
    async with following(tmp_path) as node:
        machine = state_after(batch("n3.run", 1, acquire("h1")))
        node.parts.group.restore(snapshot.encode(machine.state))
        assert node.parts.machine.lock("a").state == "held"
        assert node.parts.group.encode_state() == snapshot.encode(machine.state)


async def test_nodes_that_write_tell_and_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has heard that a peer writes a snapshot waits until it has, and tells when it writes itself."""
    monkeypatch.setattr(compaction, "REPLAYED_BYTES", 3 * compaction.ENTRY_BYTES)
    async with following(tmp_path) as node:
        parts, peering = node.parts, node.parts.peering

        def has_written() -> bool:
            parts.loop.request_tick()  # in which it is seen what has become of the child
            return not peering.ping().is_writing

        peering.table.records["n3"].ping = Ping(7, "follower", is_writing=True)
        for number in range(2):  # and the list of the founding
            node.hear("n1", commands=(OpenSession(SessionId(f"s{number}"), 60_000),))
            await settle()
        assert not peering.ping().is_writing
        told = node.links.pings
        peering.table.records["n3"].ping = Ping(7, "follower")
        parts.loop.request_tick()
        await settle()
        assert peering.ping().is_writing
        assert node.links.pings == told + 1, "not with the next ping of the clock"
        await until(has_written)
        assert (tmp_path / SNAPSHOT_NAME).exists()


# -- members and roles --------------------------------------------------------------------------------------


async def test_links_follow_the_members(tmp_path: Path) -> None:
    """Who is added is dialled from the entry on; who is removed until that is committed."""
    async with leading_alone(tmp_path) as node:
        parts = node.parts
        await until(lambda: parts.replica.may_change_members)
        added = await parts.changes.change("n2", "127.0.0.1:2", DEADLINE_S)
        assert added.learners == {"n2"}
        assert {peer_id: str(address) for peer_id, address in node.links.peers.items()} == {
            "n2": "127.0.0.1:2"
        }
        removed = await parts.changes.change("n2", "", DEADLINE_S)
        assert list(removed.nodes) == ["n1"]
        await until(lambda: not node.links.peers)


async def test_a_node_says_what_it_is(tmp_path: Path) -> None:
    """Starting while not all have met, then follower; a lone one leads; one that is not a member joins."""
    async with made(tmp_path / "new", *AMONG_THREE, is_new=True) as node:
        told = [node.parts.peering.role()]
    async with following(tmp_path / "following") as node:
        told.append(node.parts.peering.role())
    async with leading_alone(tmp_path / "alone") as node:
        told.append(node.parts.peering.role())
    joining = ("--node-id", "n4", "--join", "--peers", "n1=127.0.0.1:1,n4=127.0.0.1:4", *SECRET)
    async with made(tmp_path / "joining", *joining) as node:
        told.append(node.parts.peering.role())
        assert set(node.links.peers) == {"n1"}, "it knows no list yet"
    assert told == ["starting", "follower", "leader", "joining"]


async def test_a_node_takes_part_when_its_cluster_is_founded(tmp_path: Path) -> None:
    """Not before."""
    async with made(tmp_path / "founded", *AMONG_THREE) as node:
        assert node.parts.peering.is_established
    async with made(tmp_path / "new", *AMONG_THREE, is_new=True) as node:
        assert not node.parts.peering.is_established


def grow_old(node: Node) -> None:
    """Let a node have started long ago, and have heard no leader since."""
    node.parts._refusals._started_s -= 60
    node.parts.replica.prevote._leader_heard_s -= 60


async def test_a_removed_disk_stops_the_node(tmp_path: Path) -> None:
    """That is for ever, whoever says it; but not while a leader is heard. The directory remembers it."""
    async with following(tmp_path) as node:
        node.parts._refusals.refused("n9", objections.removed("n2"), is_dialed=False)
        node.parts.upkeep.look()
        assert not node.parts.loop.failure.done()
        grow_old(node)
        node.parts.upkeep.look()
        failure = node.parts.loop.failure.result()
        assert isinstance(failure, IdentityRefused)
        assert "refused by n9: node n2 was removed from this cluster" in str(failure)
    with pytest.raises(IdentityRefused, match="does not take part again: refused by n9: node n2 was removed"):
        DataDir.open(tmp_path, "n2")


async def test_the_others_together_are_believed(tmp_path: Path) -> None:
    """A node stops when all that could make a majority know its id with another disk, and not before."""
    async with made(tmp_path, *AMONG_THREE) as node:
        grow_old(node)
        for peer_id in ("n1", "n3"):
            node.parts.upkeep.look()
            assert not node.parts.loop.failure.done()
            objection = objections.other_disk("n2", known="a", theirs="b")
            node.parts._refusals.refused(peer_id, objection, is_dialed=False)
        node.parts.upkeep.look()
        assert "refused by n1, n3: node n2 is known here with another" in str(
            node.parts.loop.failure.result()
        )


async def test_a_call_from_another_cluster_stops_nobody(tmp_path: Path) -> None:
    """Those whom a node dials itself may tell it that it is wrong; those who dial it are wrong themselves."""
    objection = objections.other_cluster("n2", theirs="a" * 32, ours="b" * 32)
    async with made(tmp_path, *AMONG_THREE) as node:
        grow_old(node)
        for is_dialed in (False, True):
            node.parts.upkeep.look()
            assert not node.parts.loop.failure.done()
            for peer_id in ("n1", "n3"):
                node.parts._refusals.refused(peer_id, objection, is_dialed=is_dialed)
        node.parts.upkeep.look()
        assert isinstance(node.parts.loop.failure.result(), IdentityRefused)
    DataDir.open(tmp_path, "n2").close()


async def test_one_peers_word_is_not_enough(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever lets this node in takes back what it said; what says nothing of the disk is for people."""
    async with following(tmp_path) as node:
        for peer_id in ("n1", "n3"):
            node.parts._refusals.refused(peer_id, Objection("not known", kind="later"), is_dialed=True)
        grow_old(node)
        node.parts.upkeep.look()
        node.parts._refusals.let_in("n1")
        node.parts._refusals.refused("n3", objections.other_disk("n2", known="a", theirs="b"), is_dialed=True)
        node.parts.upkeep.look()
        assert not node.parts.loop.failure.done()
        assert "event=not-let-in peer=n3 kind=later reason='not known'" in caplog.text


# -- the end ------------------------------------------------------------------------------------------------


async def test_a_group_is_open_until_it_shuts_down_or_breaks(tmp_path: Path) -> None:
    """Then it takes no request any more."""
    is_open = []
    for name in ("shut down", "broken"):
        async with leading_alone(tmp_path / name) as node:
            is_open.append(node.parts.is_open)
            if name == "broken":
                node.parts.loop.fail(NodeFailed("the disk"))
            else:
                node.parts.is_shutting_down = True
            is_open.append(node.parts.is_open)
            with pytest.raises(ShuttingDown):
                await node.parts.requests.submit(OPEN, DEADLINE_S)
    assert is_open == [True, False, True, False]


@pytest.mark.parametrize("how", ["stop", "broke"])
async def test_a_node_that_ends_ends_all_requests(tmp_path: Path, how: str) -> None:
    """What was sent is unknown, what was not is not applied, and waits are unknown, too."""
    async with following(tmp_path) as node:
        parts = node.parts
        sent = asyncio.create_task(parts.requests.submit(OPEN, DEADLINE_S))
        await settle()
        node.disconnect("n1")
        unsent = asyncio.create_task(parts.requests.submit(OPEN, DEADLINE_S))
        await settle()
        waiting = parts.waiters.add(HoldId("h1"))
        if how == "stop":
            parts.stop()
            parts.stop()
        else:
            parts.loop.fail(NodeFailed("the disk"))
        for future, error in ((sent, OutcomeUnknown), (unsent, ShuttingDown), (waiting, OutcomeUnknown)):
            with pytest.raises(error):
                await future


async def test_the_loss_of_the_leader_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """When the timer finds it gone; nothing else happens then."""
    caplog.set_level(logging.INFO)
    async with following(tmp_path) as node:
        node.parts.upkeep.look()
        node.disconnect("n1")
        for _ in range(3):
            node.parts.upkeep.look()
        assert caplog.text.count("event=leader-lost leader=n1") == 1


async def test_waits_end_when_no_leader_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits in a queue is told within three election timeouts, not at once: elections take a while."""
    async with following(tmp_path) as node:
        parts = node.parts
        election_s = 1.0
        now_s = asyncio.get_running_loop().time()
        monkeypatch.setattr(parts.upkeep, "_now_s", lambda: now_s)
        wait = parts.waiters.add(HoldId("h1"))
        parts.upkeep.look()
        node.disconnect("n1")
        parts.upkeep.look()
        now_s += election_s
        parts.upkeep.look()
        assert not wait.done()
        now_s += election_s
        parts.upkeep.look()
        with pytest.raises(WaitCutOff):
            await wait


async def test_the_leader_makes_the_bound_of_the_smallest_node_that_of_the_state(tmp_path: Path) -> None:
    """It is proposed behind the rules that know it; a state that has reached it refuses, and lets go."""
    async with made(tmp_path, *ALONE, "--state-bytes-max", str(limits.STATE_BYTES_LEAST)) as node:
        parts = node.parts
        parts.loop.start()
        await until(lambda: parts.machine.bytes_max == limits.STATE_BYTES_LEAST)
        parts.machine.state.bytes_max = 1
        answer = await parts.requests.submit(OPEN, DEADLINE_S)
        assert isinstance(answer.result, SessionOpened)
        answer = await parts.requests.submit(OpenSession(SessionId("s2"), 60_000), DEADLINE_S)
        assert isinstance(answer.result, Refused)
        assert answer.result.reason is Reason.OVERLOADED
        answer = await parts.requests.submit(CloseSession(SessionId("s1")), DEADLINE_S)
        assert isinstance(answer.result, SessionClosed)


async def test_a_node_says_whether_anybody_waits_for_news(tmp_path: Path) -> None:
    """A client with a command under way or in a queue, and who watches: for them a commit is told at once."""
    async with leading_alone(tmp_path) as node:
        parts = node.parts
        assert parts.group.may_wait()
        pending = parts.outbox.submit(encode(OPEN, parts.machine), DEADLINE_S)
        assert not parts.group.may_wait()
        parts.outgoing.request_flush()
        await pending.future
        assert parts.group.may_wait()
        wait = parts.waiters.add(HoldId("h"))
        assert not parts.group.may_wait()
        wait.cancel()
        await settle()
        assert parts.group.may_wait()
        parts.events.watchers += 1
        assert not parts.group.may_wait()


async def test_what_has_no_outcome_in_time_is_counted(tmp_path: Path) -> None:
    """By its code, as what is refused at once: commands, and each of the reads that share a barrier."""
    async with following(tmp_path) as node:
        parts, failures = node.parts, node.parts.metrics.failures

        async def ended(*calls: Coroutine[Any, Any, object]) -> list[type[object]]:
            tasks = [asyncio.create_task(call) for call in calls]
            await settle()
            parts.outbox.give_up_due()
            return [type(found) for found in await asyncio.gather(*tasks, return_exceptions=True)]

        assert await ended(parts.requests.submit(OPEN, 0.0)) == [OutcomeUnknown]
        assert failures == {"outcome-unknown": 1}
        node.disconnect("n1")
        reads = [parts.requests.read(lambda machine: machine.revision, 0.0) for _ in range(2)]
        assert await ended(parts.requests.submit(OPEN, 0.0), *reads) == [NoLeader] * 3
        assert failures == {"outcome-unknown": 1, "no-leader": 3}
