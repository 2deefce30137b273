"""Changes of the members: how they are asked for, and what becomes of them on real nodes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from cluster.config import load
from cluster.config_sources import WrongValueError
from cluster.consensus import member_changes
from cluster.consensus.member_changes import Change, Means, MemberChanges, Verdict
from cluster.consensus.member_list import MemberRecord, Members
from cluster.consensus.membership import Membership
from cluster.consensus.replica import Replica, Role
from cluster.errors import (
    ClusterError,
    IdentityRefused,
    MemberChangePending,
    MemberChangeRefused,
    MemberNotFound,
    NoLeader,
    OutcomeUnknown,
    ShuttingDown,
)
from cluster.node import Node
from scripts.lib import ports

DEADLINE_S = 20.0
BUSY_S = 3.0
"""Time, in seconds, for two questions on a machine that has much else to do."""
SECRET = "the secret of these tests"
LIST = Members({"n1": MemberRecord("h:1", is_voter=True)})


# -- asking -------------------------------------------------------------------------------------------------


class Leaders:
    """A node that asks, among leaders that answer as the test says: one verdict for each time it asks.

    None in place of a code is silence; "-" is that there is no leader.
    """

    def __init__(self, *codes: str | None) -> None:
        self.asked: list[tuple[str, Change]] = []
        self._codes = list(codes)
        # Only the leader's part looks at the replica.
        self.changes = changes_of(cast("Replica", None), leader_id=self.leader_id, send=self.send)

    def leader_id(self) -> str | None:
        """Return another leader each time."""
        if self._codes[0] == "-":
            self._codes.pop(0)
            return None
        return f"leader-{len(self.asked)}"

    def send(self, leader_id: str, change: Change) -> None:
        """Answer, or not."""
        self.asked.append((leader_id, change))
        code = self._codes.pop(0) if len(self._codes) > 1 else self._codes[0]
        if code is not None:
            verdict = Verdict(change.number, code, "the reason", LIST)
            asyncio.get_running_loop().call_soon(self.changes.decided, verdict)


def changes_of(
    replica: Replica,
    *,
    leader_id: Callable[[], str | None] = lambda: "n1",
    send: Callable[[str, Change], object] = lambda _, __: None,
    disk_ids: dict[str, str] | None = None,
    belonging: Collection[str] = ("n1", "n2", "n3", "n4"),
    why_not_joining: str = "",
) -> MemberChanges:
    """Return the changes of a node whose other means do nothing."""
    means = Means(
        leader_id=leader_id,
        send=send,
        answer=lambda _, __: None,
        disk_ids=lambda: disk_ids or {},
        belongs=lambda node_id: node_id in belonging,
        why_not_joining=lambda _: why_not_joining,
        takes_peers=True,
        hand_over=lambda: None,
        request_tick=lambda: None,
    )
    return MemberChanges("n1", replica, means, asyncio.get_running_loop())


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less for an answer."""
    monkeypatch.setattr(member_changes, "ANSWER_S", 0.2)


async def test_a_change_is_asked_for_until_it_is_made() -> None:
    """No leader, another change under way, silence: the node asks again, whoever leads then."""
    leaders = Leaders("-", "no-leader", "member-change-pending", None, "")
    assert await leaders.changes.change("n4", "h:4", DEADLINE_S) == LIST
    assert [leader for leader, _ in leaders.asked] == [f"leader-{number}" for number in range(4)]
    assert {(change.node_id, change.peer) for _, change in leaders.asked} == {("n4", "h:4")}
    assert len({change.number for _, change in leaders.asked}) == 4


@pytest.mark.parametrize("error", [MemberChangeRefused, MemberNotFound])
async def test_a_refusal_ends_it_with_the_reason(error: type[ClusterError]) -> None:
    """What the leader refuses is not asked for again."""
    leaders = Leaders(error.code)
    with pytest.raises(error, match="the reason"):
        await leaders.changes.change("n4", "", DEADLINE_S)
    assert len(leaders.asked) == 1


@pytest.mark.parametrize("error", [NoLeader, MemberChangePending])
async def test_at_the_deadline_the_last_reason_is_told(error: type[ClusterError]) -> None:
    """If no attempt can have had an effect, the change is surely not made."""
    leaders = Leaders(error.code)
    with pytest.raises(error, match="the reason"):
        await leaders.changes.change("n4", "", BUSY_S)
    assert len(leaders.asked) > 1


@pytest.mark.parametrize("code", [None, "outcome-unknown", "of a newer version"])
async def test_what_may_have_been_made_is_unknown(code: str | None) -> None:
    """A leader that is silent, lost leadership, or says what this version does not know."""
    leaders = Leaders(code)
    with pytest.raises(OutcomeUnknown):
        await leaders.changes.change("n4", "", 0.5)


async def test_a_doubt_is_not_forgotten() -> None:
    """After one attempt without an answer, a later "another is under way" may be about this very change."""
    leaders = Leaders(None, "member-change-pending")
    with pytest.raises(OutcomeUnknown, match="the reason"):
        await leaders.changes.change("n4", "", BUSY_S)


async def test_late_and_repeated_verdicts_are_dropped() -> None:
    """A verdict that nobody waits for any more disturbs nothing."""
    leaders = Leaders("")
    await leaders.changes.change("n4", "", DEADLINE_S)
    leaders.changes.decided(Verdict(1))
    leaders.changes.decided(Verdict(99, "no-leader"))


# -- real nodes in one process ------------------------------------------------------------------------------


class BusyLeader:
    """A leader whose log grows with every look, and a learner that is always one entry behind."""

    role = Role("n1", 1, is_leader=True, is_candidate=False)
    may_change_members = True

    def __init__(self) -> None:
        members = Members({**LIST.nodes, "n4": MemberRecord("h:4", is_voter=False)}, version=1)
        self.membership = Membership("n1", members, lambda _: None)
        self.log = self
        self.committed = 100
        self.proposed: list[Members] = []

    def reachable(self) -> frozenset[str]:
        """Reach everybody."""
        return frozenset(self.membership.latest.nodes)

    def caught_up(self, peer_id: str, goal: int | None) -> bool:
        """Compare as the replica does; the learner's place is looked at before it can answer."""
        assert peer_id == "n4"
        self.committed += 1
        return self.committed - 2 >= (self.committed if goal is None else goal)

    def change_members(self, new: Members) -> None:
        """Note."""
        self.proposed.append(new)


async def test_a_learner_counts_though_the_log_never_stops_growing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner that has what was committed a round ago is caught up, even if it never has the newest."""
    monkeypatch.setattr(member_changes, "ROUND_S", 0.02)
    leader = BusyLeader()
    changes = changes_of(cast("Replica", leader), disk_ids={"n4": "disk"})
    changes.step()
    assert leader.proposed == []

    def is_promoted() -> bool:
        if not leader.proposed:
            changes.step()
        return bool(leader.proposed)

    await until(is_promoted)
    assert leader.proposed[0].voters == {"n1", "n4"}


async def test_a_node_of_another_cluster_never_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner that has the log, by chance, and has not adopted this cluster is not promoted."""
    monkeypatch.setattr(member_changes, "ROUND_S", 0.02)
    leader = BusyLeader()
    belonging: set[str] = set()
    changes = changes_of(cast("Replica", leader), disk_ids={"n4": "disk"}, belonging=belonging)
    for _ in range(10):
        changes.step()
        await asyncio.sleep(0.01)
    assert leader.proposed == []
    belonging.add("n4")

    def is_promoted() -> bool:
        if not leader.proposed:
            changes.step()
        return bool(leader.proposed)

    await until(is_promoted)
    assert [new.voters for new in leader.proposed] == [{"n1", "n4"}]


async def test_who_waits_for_a_node_that_cannot_join_is_told() -> None:
    """To add it again at its address tells what stands in the way."""
    leader = BusyLeader()
    changes = changes_of(cast("Replica", leader), why_not_joining="it belongs to the cluster abc")
    with pytest.raises(MemberChangeRefused, match="n4 at h:4 cannot join: it belongs to the cluster abc"):
        await changes.change("n4", "h:4", DEADLINE_S)
    same = await changes_of(cast("Replica", leader)).change("n4", "h:4", DEADLINE_S)
    assert same == leader.membership.committed


def free_port() -> int:
    """Return a port that nobody else takes."""
    return ports.reserve(1)[0]


@asynccontextmanager
async def running(directory: Path, *flags: str, secret: str = SECRET) -> AsyncIterator[Node]:
    """Run a node."""
    argv = ["--data-dir", str(directory), "--http", "127.0.0.1:0", *flags]
    node = Node(load([*argv, *(["--secret", secret] if secret else [])], {}))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


async def until(condition: Callable[[], object]) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - links and logs have no event to tell of it
            await asyncio.sleep(0.005)


@asynccontextmanager
async def three_nodes(directory: Path) -> AsyncIterator[dict[str, Node]]:
    """Run n1, which began alone and leads, and n2 and n3, which have joined it."""
    peers = {node_id: f"127.0.0.1:{free_port()}" for node_id in ("n1", "n2", "n3")}
    everybody = ",".join(f"{node_id}={peer}" for node_id, peer in peers.items())
    async with AsyncExitStack() as stack:
        nodes = {}
        for node_id, peer in peers.items():
            first = ("--peers", f"n1={peer}") if node_id == "n1" else ("--join", "--peers", everybody)
            nodes[node_id] = await stack.enter_async_context(
                running(directory / node_id, "--node-id", node_id, *first)
            )
            if node_id == "n1":
                await until(lambda: nodes["n1"].parts.replica.may_change_members)
            else:
                await nodes["n1"].add_member(node_id, peer, DEADLINE_S)
                await until(lambda: nodes["n1"].parts.replica.membership.committed.voters == nodes.keys())
        yield nodes


async def test_a_follower_adds_and_removes(tmp_path: Path) -> None:
    """The answer is the committed list, though the asked node may not have heard of it yet."""
    async with three_nodes(tmp_path) as nodes:
        added = await nodes["n3"].add_member("n4", "127.0.0.1:1", DEADLINE_S)
        assert added.voters == {"n1", "n2", "n3"}
        assert added.learners == {"n4"}
        again = await nodes["n2"].add_member("n4", "127.0.0.1:1", DEADLINE_S)
        assert again.nodes == added.nodes
        states = {node.id: node.state for node in nodes["n1"].status().nodes}
        assert states["n4"] == "unreachable"
        with pytest.raises(MemberChangeRefused, match=r"n4 is a member already, at 127\.0\.0\.1:1"):
            await nodes["n2"].add_member("n4", "127.0.0.1:2", DEADLINE_S)
        asked = nodes["n2"]
        assert await asked.members_if_made("n4", "127.0.0.1:1", DEADLINE_S) == added
        assert await asked.members_if_made("n4", "", DEADLINE_S) is None
        leader = asked.parts.leadership.leader_id() or ""
        assert await asked.members_if_made(leader, "", DEADLINE_S) is None
        assert await asked.members_if_made("n4", "127.0.0.1:2", DEADLINE_S, is_move=True) is None
        assert nodes["n1"].parts.replica.membership.latest == added, "a question changes nothing"
        assert asked.parts.leadership.leader_id() == leader
        removed = await nodes["n2"].remove_member("n4", DEADLINE_S)
        assert list(removed.nodes) == ["n1", "n2", "n3"]
        assert await nodes["n3"].remove_member("n4", DEADLINE_S) == removed, "though nobody ever met it"
        with pytest.raises(MemberNotFound):
            await nodes["n3"].remove_member("n9", DEADLINE_S)
        with pytest.raises(MemberNotFound):
            await nodes["n3"].members_if_made("n9", "", DEADLINE_S)


async def test_a_member_is_moved_by_any_node(tmp_path: Path) -> None:
    """All know the address then, and the connections are those of before; repeating it changes nothing."""
    async with three_nodes(tmp_path) as nodes:
        peer = f"127.0.0.1:{free_port()}"
        links = {node_id: nodes[node_id].parts.links._open["n3"] for node_id in ("n1", "n2")}
        moved = await nodes["n2"].move_member("n3", peer, DEADLINE_S)
        assert moved.nodes["n3"].peer == peer
        assert moved.voters == {"n1", "n2", "n3"}
        assert await nodes["n1"].move_member("n3", peer, DEADLINE_S) == moved
        await until(lambda: all(node.parts.replica.membership.committed == moved for node in nodes.values()))
        for node_id, link in links.items():
            assert nodes[node_id].parts.links._open["n3"] is link
        with pytest.raises(MemberNotFound):
            await nodes["n1"].move_member("n9", peer, DEADLINE_S)
        with pytest.raises(MemberChangeRefused, match="is the address of n3"):
            await nodes["n1"].move_member("n2", peer, DEADLINE_S)
        with pytest.raises(WrongValueError):
            await nodes["n1"].move_member("n2", "nowhere", DEADLINE_S)
        with pytest.raises(MemberChangeRefused, match="holdfast cluster move"):
            await nodes["n1"].add_member("n3", f"127.0.0.1:{free_port()}", DEADLINE_S)


async def test_a_removed_leader_answers_before_it_ends(tmp_path: Path) -> None:
    """Asked to remove itself it hands over, passes the change on, returns the list, and ends as removed."""
    async with three_nodes(tmp_path) as nodes:
        leader = nodes["n1"].parts.leadership.leader_id() or ""
        left = await nodes[leader].remove_member(leader, DEADLINE_S)
        assert set(left.nodes) == {"n1", "n2", "n3"} - {leader}
        async with asyncio.timeout(DEADLINE_S):
            failure = await nodes[leader].wait_failed()
        assert isinstance(failure, IdentityRefused)
        assert f"node {leader} was removed" in str(failure)


async def test_a_joining_node_asks_for_the_leader_to_be_removed(tmp_path: Path) -> None:
    """A learner passes it on like any other follower, and is not made a successor."""
    async with three_nodes(tmp_path) as nodes:
        leader = nodes["n1"].parts.leadership.leader_id() or ""
        peer = f"127.0.0.1:{free_port()}"
        told = nodes["n2"].parts.replica.membership.latest.nodes | {"n4": MemberRecord(peer, is_voter=False)}
        peers = ",".join(f"{node_id}={member.peer}" for node_id, member in told.items())
        async with running(tmp_path / "n4", "--node-id", "n4", "--join", "--peers", peers) as joining:
            # It never counts: the leader is kept from promoting.
            for node in nodes.values():
                node.parts.changes._promote = lambda: None  # type: ignore[method-assign]
            await nodes["n2"].add_member("n4", peer, DEADLINE_S)
            await until(lambda: joining.parts.leadership.leader_id() is not None)
            assert not joining.status().ready, "its state may be far behind"
            left = await joining.remove_member(leader, DEADLINE_S)
            assert leader not in left.nodes
            assert left.learners == {"n4"}


async def test_a_lone_node_without_a_secret_takes_nobody(tmp_path: Path) -> None:
    """It does not listen for others; the refusal says what it lacks."""
    async with running(tmp_path, "--peer", "127.0.0.1:0", secret="") as node:
        with pytest.raises(MemberChangeRefused, match="give it a secret and a peer port"):
            await node.add_member("n2", "127.0.0.1:1", DEADLINE_S)
        with pytest.raises(MemberChangeRefused, match="nothing would be left"):
            await node.remove_member("n1", DEADLINE_S)


async def test_a_node_that_nobody_could_reach_takes_nobody(tmp_path: Path) -> None:
    """The address of a first node that listens everywhere would go into the list: it has to be named."""
    flags = ("--peer", f"0.0.0.0:{free_port()}", "--insecure-peers")
    async with running(tmp_path, *flags) as node:
        with pytest.raises(MemberChangeRefused, match=r"n1 has the address 0\.0\.0\.0:"):
            await node.add_member("n2", "127.0.0.1:1", DEADLINE_S)
        assert list(node.parts.replica.membership.latest.nodes) == ["n1"]


@pytest.mark.parametrize(
    ("node_id", "peer", "setting"), [("n/2", "h:1", "id"), ("n2", "h", "peer"), ("n2", "h:0", "peer")]
)
async def test_what_is_no_node_goes_to_no_leader(
    tmp_path: Path, node_id: str, peer: str, setting: str
) -> None:
    """A wrong id or address is refused where it is asked for: in the log it would break every node."""
    async with running(tmp_path, "--peer", f"127.0.0.1:{free_port()}") as node:
        with pytest.raises(WrongValueError, match=f"^{setting}: "):
            await node.add_member(node_id, peer, DEADLINE_S)


async def test_the_leader_checks_addresses_too(tmp_path: Path) -> None:
    """Another node may have another version, and pass on what this one does not understand."""
    async with running(tmp_path, "--peer", f"127.0.0.1:{free_port()}") as node:
        await until(lambda: node.parts.replica.may_change_members)
        verdicts: list[Verdict] = []
        node.parts.changes.asked("n2", Change(1, "n2", "nonsense"))
        node.parts.changes.decide(Change(1, "n2", "nonsense"), verdicts.append)
        assert [verdict.code for verdict in verdicts] == ["member-change-refused"]


async def test_a_stopping_node_changes_nothing(tmp_path: Path) -> None:
    """It says that it stops."""
    async with running(tmp_path, "--peer", f"127.0.0.1:{free_port()}") as node:
        node.begin_shutdown()
        with pytest.raises(ShuttingDown):
            await node.add_member("n2", "127.0.0.1:1", DEADLINE_S)
        with pytest.raises(ShuttingDown):
            await node.remove_member("n2", DEADLINE_S)


async def test_members_that_differ_from_the_configuration_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A restarted node whose `peers` are others than the members goes by the members, and says so."""
    caplog.set_level(logging.INFO)
    own = f"127.0.0.1:{free_port()}"
    async with running(tmp_path, "--peers", f"n1={own}") as node:
        await until(lambda: node.parts.replica.may_change_members)
        await node.add_member("n2", "127.0.0.1:1", DEADLINE_S)
    assert "event=members-differ" not in caplog.text
    async with running(tmp_path, "--peers", f"n1={own}") as node:
        assert node.parts.replica.membership.latest.learners == {"n2"}
        assert f"event=members-differ members=n1={own},n2=127.0.0.1:1 configured=n1={own}" in caplog.text
        await until(lambda: node.parts.replica.may_change_members)
        await node.remove_member("n2", DEADLINE_S)
    caplog.clear()
    async with running(tmp_path, "--peers", f"n1={own}") as node:
        assert "event=members-differ" not in caplog.text
