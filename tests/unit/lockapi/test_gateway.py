"""The gateway: commands reach the node, results come back in kind, and refusals as problems."""

import asyncio
from typing import Any

import pytest

from cluster.errors import MemberNotFound, NoLeader, OutcomeUnknown, ShuttingDown
from holdfast.wire.held import LockInfo
from holdfast.wire.shape import FRESH
from lockapi.gateway import CommandOutcome, Gateway
from lockapi.problems import ProblemError
from lockapi.requests.locks import AcquireRequest, ForceReleaseRequest, ReleaseHoldRequest, RenewRequest
from lockapi.requests.service import OpenSessionRequest
from lockapi.rights import EVERYTHING, Principal
from lockapi.views import lock_of
from lockstate.words import results
from lockstate.words.commands.admin import RecordAct
from lockstate.words.commands.holds import Acquire
from lockstate.words.events import EventKind
from lockstate.words.ids import HoldId, OwnerName
from lockstate.words.kinds import ClusterAct, HoldKind
from tests.support.local_node import LocalNode

TIMEOUT_S = 5.0
ADD = RecordAct(ClusterAct.ADD, "n4", "h:1", "more room")
REMOVE = RecordAct(ClusterAct.REMOVE, "n4", "", "it is old")


def _acquire(owner: str = "", wait_ms: int = 0) -> Acquire:
    return AcquireRequest(name="a", ttl_ms=60_000, owner=OwnerName(owner), wait_ms=wait_ms).command()


async def test_a_command_comes_back_as_its_result_and_revision() -> None:
    """The result is of the kind that was asked for; the revision is that at which it was applied."""
    node = LocalNode()
    gateway = Gateway(node)
    opened, first, _ = await gateway.submit(
        OpenSessionRequest(ttl_ms=60_000).command(), results.SessionOpened, 1.5
    )
    command = AcquireRequest(name="a", session_id=opened.session_id).command()
    outcome = await gateway.acquire(command, results.Granted, 2.5)
    assert isinstance(outcome, CommandOutcome)
    granted, second, _ = outcome
    assert (granted.hold_id, granted.name) == (command.hold_id, "a")
    assert (first, second) == (1, 2)
    assert node.timeouts_s == [1.5, 2.5]


async def test_a_refusal_is_a_problem() -> None:
    """What the state machine refuses is raised, with all that it said about it."""
    node = LocalNode()
    gateway = Gateway(node)
    await gateway.acquire(_acquire(owner="x"), results.Granted, TIMEOUT_S)
    with pytest.raises(ProblemError) as caught:
        await gateway.acquire(_acquire(), results.Granted, TIMEOUT_S)
    assert caught.value.code == "lock-held"
    assert caught.value.refused is not None
    assert [holder.owner for holder in caught.value.refused.holders] == ["x"]
    with pytest.raises(ProblemError, match="hold") as caught:
        await gateway.submit(
            ReleaseHoldRequest(hold_id=HoldId("h")).command(HoldKind.LOCK), results.Released, TIMEOUT_S
        )
    assert caught.value.code == "lease-expired"
    node.close()


async def test_a_command_can_be_begun_without_a_task() -> None:
    """Its outcome is read as that of any other: a result in kind, or a problem."""
    node = LocalNode()
    gateway = Gateway(node)
    command = _acquire(owner="x")
    begun = gateway.begin(command, 1.5)
    assert gateway.outcome(command, begun, results.Granted)[0].hold_id == command.hold_id
    assert node.timeouts_s == [1.5]
    with pytest.raises(ProblemError) as caught:
        gateway.outcome(command, gateway.begin(_acquire(), TIMEOUT_S), results.Granted)
    assert caught.value.code == "lock-held"
    gateway.abandon(command, begun)
    assert node.abandoned == [command]
    node.failure = NoLeader("nobody leads")
    with pytest.raises(NoLeader):
        gateway.begin(_acquire(), TIMEOUT_S)
    node.close()


async def test_a_result_of_another_kind_is_our_mistake() -> None:
    """A handler that expects the wrong result is found by an assertion, not answered."""
    gateway = Gateway(LocalNode())
    with pytest.raises(AssertionError, match="expected Renewed"):
        await gateway.submit(OpenSessionRequest(ttl_ms=60_000).command(), results.Renewed, TIMEOUT_S)


async def test_a_failure_of_the_world_passes() -> None:
    """What the node raises reaches the face as it is: it says whether the command had an effect."""
    node = LocalNode()
    node.failure = NoLeader("none")
    with pytest.raises(NoLeader):
        await Gateway(node).submit(
            RenewRequest(hold_id=HoldId("h")).command(HoldKind.LOCK), results.Renewed, TIMEOUT_S
        )


async def test_a_wait_ends_with_its_task() -> None:
    """Cancelling the task that acquires cancels the wait in the queue."""
    node = LocalNode()
    gateway = Gateway(node)
    await gateway.acquire(_acquire(), results.Granted, TIMEOUT_S)
    command = _acquire(wait_ms=50_000)
    waiting = asyncio.create_task(gateway.acquire(command, results.Granted, TIMEOUT_S))
    while not node.machine.lock("a").queue:  # noqa: ASYNC110 - the machine has no event to wait for
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert node.machine.lock("a").queue == ()
    node.close()


async def test_a_reserved_moment_is_awaited() -> None:
    """The wait lasts until cluster time has come so far; a moment that has passed costs nothing."""
    node = LocalNode()
    gateway = Gateway(node)
    await node.read(lambda machine: machine.revision, TIMEOUT_S)
    now_ms = node.machine.now_ms
    assert await gateway.wait_until(now_ms) == 0
    assert await gateway.wait_until(now_ms + 20) == 20


async def test_a_node_that_stops_before_the_reserved_moment_leaves_the_outcome_unknown() -> None:
    """The client may repeat its request elsewhere, where the place that it was given is remembered."""
    node = LocalNode()
    waiting = asyncio.create_task(Gateway(node).wait_until(node.machine.now_ms + 60_000))
    await asyncio.sleep(0)
    node.begin_shutdown()
    with pytest.raises(OutcomeUnknown, match="same request_id"):
        await waiting


async def test_a_node_that_broke_shows_no_state() -> None:
    """What it has may be half-way between two revisions: not even a stale read is answered from it."""
    node = LocalNode()
    node.has_failed = True
    with pytest.raises(ShuttingDown):
        await Gateway(node).view(
            lambda machine: machine.lock("a"), lock_of, TIMEOUT_S, name=None, is_stale=True
        )


async def test_a_stale_view_says_how_old_it_is() -> None:
    """A view of the node's own state carries its revision and lag, a linearizable one neither."""
    gateway = Gateway(LocalNode())
    fresh = await gateway.view(
        lambda machine: machine.lock("a"), lock_of, TIMEOUT_S, name=None, is_stale=False
    )
    stale = await gateway.view(
        lambda machine: machine.lock("a"), lock_of, TIMEOUT_S, name=None, is_stale=True
    )
    assert fresh == LockInfo("a", "free", **FRESH)
    assert (stale.revision, stale.lag_ms) == (1, 7)


@pytest.mark.parametrize(("node_id", "peer"), [("n 4", "h:1"), ("n4", "h"), ("", "h:1"), ("n4", "h:0")])
async def test_a_member_that_cannot_be_is_refused_before_the_node_hears_of_it(
    node_id: str, peer: str
) -> None:
    """Ids and addresses of members are checked for every face alike."""
    node = LocalNode()
    gateway = Gateway(node)
    for act in (ClusterAct.ADD, ClusterAct.MOVE):
        with pytest.raises(ProblemError) as caught:
            await gateway.change_members(RecordAct(act, node_id, peer, "why"), TIMEOUT_S)
        assert caught.value.code == "invalid-request"
    assert node.timeouts_s == []


async def test_the_members_come_with_the_revision_of_the_node() -> None:
    """A change of the members returns all of them."""
    node = LocalNode()
    gateway = Gateway(node)
    added, _ = await gateway.change_members(ADD, TIMEOUT_S)
    moved, _ = await gateway.change_members(RecordAct(ClusterAct.MOVE, "n4", "h:2", "why"), TIMEOUT_S)
    assert moved.nodes["n4"].peer == "h:2"
    removed, revision = await gateway.change_members(REMOVE, TIMEOUT_S)
    assert (set(added.nodes), set(removed.nodes)) == ({"n1", "n4"}, {"n1"})
    assert revision == node.machine.revision
    with pytest.raises(ProblemError):
        await gateway.change_members(RecordAct(ClusterAct.REMOVE, "/", "", "why"), TIMEOUT_S)


async def test_who_changes_the_members_is_recorded_before() -> None:
    """Once for each change that is to be made: not if the list has it already, or if nobody may make it."""
    node = LocalNode()
    gateway = Gateway(node, Principal("ops", EVERYTHING))
    for act in (ADD, ADD, REMOVE):
        await gateway.change_members(act, TIMEOUT_S)
    with pytest.raises(MemberNotFound):
        await gateway.change_members(REMOVE, TIMEOUT_S)
    asked = [(event.kind, event.value, event.reason, event.by) for event in node.machine.audit()]
    assert asked == [
        (EventKind.MEMBER_REMOVE_ASKED, '{"id":"n4"}', "it is old", "ops"),
        (EventKind.MEMBER_ADD_ASKED, '{"id":"n4","peer":"h:1"}', "more room", "ops"),
    ]


async def test_a_change_that_cannot_be_recorded_is_not_made() -> None:
    """The record is in the log before the change is asked for."""
    node = LocalNode()
    gateway = Gateway(node)

    async def submit(*_: object) -> Any:
        raise NoLeader("nobody")

    node.submit = submit  # type: ignore[method-assign, assignment]
    with pytest.raises(NoLeader):
        await gateway.change_members(ADD, TIMEOUT_S)
    with pytest.raises(NoLeader):
        await gateway.transfer_leadership(RecordAct(ClusterAct.TRANSFER, "", "", "why"), TIMEOUT_S)
    assert list(node.members.nodes) == ["n1"]
    assert node.transfers == []


async def test_leadership_goes_to_a_known_node_only() -> None:
    """A node that is not there cannot be asked to lead. One that leads already needs no record."""
    node = LocalNode()
    gateway = Gateway(node)
    to_n1, to_any = (RecordAct(ClusterAct.TRANSFER, to, "", "it is slow") for to in ("n1", ""))
    assert await gateway.transfer_leadership(to_n1, TIMEOUT_S) == "n1"
    assert node.machine.audit() == []
    assert await gateway.transfer_leadership(to_any, TIMEOUT_S) == "n1"
    (asked,) = node.machine.audit()
    assert (asked.kind, asked.value, asked.reason) == (EventKind.TRANSFER_ASKED, "{}", "it is slow")
    with pytest.raises(ProblemError, match="must be one of n1"):
        await gateway.transfer_leadership(RecordAct(ClusterAct.TRANSFER, "n9", "", "why"), TIMEOUT_S)
    assert node.transfers == ["n1", None]


async def test_force_release_names_the_holders() -> None:
    """A result may carry what others had."""
    node = LocalNode()
    gateway = Gateway(node)
    await gateway.acquire(_acquire(owner="x"), results.Granted, TIMEOUT_S)
    forced, _, _ = await gateway.submit(
        ForceReleaseRequest(name="a", reason="stuck").command(HoldKind.LOCK), results.ForceReleased, TIMEOUT_S
    )
    assert [holder.owner for holder in forced.released] == ["x"]
    node.close()
