"""Transactions of both clients, at a real node: what they hold, what they release, and how they are lost."""

import asyncio

import pytest

import holdfast
from holdfast.testing import Flaky, MemoryCluster
from tests.unit.holdfast.conftest import NewClient, a_node, sessions_of

DEADLINE_S = 60


@pytest.fixture
def new_client(new_client_of_each_way: NewClient) -> NewClient:
    """Let every test here run over HTTP and over a stream."""
    return new_client_of_each_way


async def test_everything_is_released_in_one_request(new_client: NewClient) -> None:
    """Locks, several at once and permits are held until the end, which is the end of the session."""
    async with a_node() as (served, url), new_client(url, owner="me") as client:
        state = served.node.machine.state
        async with client.transaction(labels={"job": "transfer"}) as transaction:
            first = await transaction.acquire(("acct", "ann"))
            both = await transaction.acquire("acct/bob", "acct/cyd", mode="shared")
            permits = await transaction.acquire_permits("gpu", limit=4, permits=2)
            assert [hold.names for hold in transaction.holds] == [
                ("acct/ann",),
                ("acct/bob", "acct/cyd"),
                ("gpu",),
            ]
            (holder,) = (await client.inspect("acct/ann")).holders
            assert (holder.owner, holder.labels) == ("me", {"job": "transfer"})
            released = [command for command, _ in served.node.begun if type(command).__name__ == "Release"]
        assert released == []
        assert (len(state.holds), len(sessions_of(served))) == (0, 0)
        assert {hold.reason for hold in (first, both, permits)} == {"released"}
        assert transaction.reason == "released"
        assert not first.lost.is_set()
    assert not [command for command, _ in served.node.begun if type(command).__name__ == "Release"]


async def test_what_is_held_already_is_returned_again(new_client: NewClient) -> None:
    """The same names give the same hold, if that excludes enough; permits come on top of others."""
    async with a_node() as (_, url), new_client(url) as client, client.transaction() as transaction:
        exclusive = await transaction.acquire("a")
        assert (await transaction.acquire("a", mode="shared")).hold_id == exclusive.hold_id
        shared = await transaction.acquire("b", mode="shared")
        for mode, scope in (("exclusive", "node"), ("shared", "subtree")):
            with pytest.raises(holdfast.AlreadyHeld):
                await transaction.acquire("b", mode=mode, scope=scope)  # type: ignore[arg-type]
        await shared.convert("exclusive")
        assert (await transaction.acquire("b")).hold_id == shared.hold_id
        one = await transaction.acquire_permits("gpu", limit=2)
        two = await transaction.acquire_permits("gpu", limit=2)
        assert one.hold_id != two.hold_id
        await two.release()
        assert len(transaction.holds) == 3


async def test_a_wait_in_vain_leaves_the_rest(new_client: NewClient) -> None:
    """LockTimeout does not end the transaction; a wait for each other is refused with Deadlock."""
    async with (
        a_node() as (_, url),
        new_client(url) as client,
        new_client(url) as other,
        client.transaction(wait=0) as first,
        other.transaction() as second,
    ):
        await first.acquire("a")
        in_the_way = await second.acquire("b")
        with pytest.raises(holdfast.LockTimeout):
            await first.acquire("b")
        assert first.is_valid
        waiting = asyncio.create_task(first.acquire("b", wait=None))
        async with asyncio.timeout(DEADLINE_S):
            while not (await other.inspect("b")).queue:
                """Not there yet."""
        with pytest.raises(holdfast.Deadlock):
            await second.acquire("a")
        await in_the_way.release()
        await waiting
        assert [hold.name for hold in first.holds] == ["a", "b"]
        assert second.holds == ()


async def test_cells_are_written_only_while_everything_is_held(new_client: NewClient) -> None:
    """A write compares all holds; a lost one refuses it, and the transaction is lost."""
    async with a_node() as (_, url), new_client(url) as client, new_client(url) as operator:
        with pytest.raises(holdfast.LeaseLost) as caught:  # noqa: PT012 - a block is what is tested
            async with client.transaction() as transaction:
                await transaction.acquire("a")
                kept = await transaction.acquire("b")
                (written, seen) = await transaction.write(
                    holdfast.CellPut("app/a", "1"), holdfast.CellGet("app/a")
                )
                assert isinstance(written, holdfast.CellWritten)
                assert isinstance(seen, holdfast.Cell)
                await operator.admin.force_release("a", reason="a test")
                with pytest.raises(holdfast.LeaseLost):
                    await transaction.write(holdfast.CellPut("app/a", "2"))
        assert caught.value.reason == "lease-expired"
        assert kept.lost.is_set()
        assert kept.reason == "lease-expired"
        cell = await client.cells.get("app/a")
        assert cell is not None
        assert cell.text == "1"


async def test_a_loss_that_nobody_has_noticed_is_told_at_the_end(new_client: NewClient) -> None:
    """The cluster says what the transaction held: what is missing was lost, and the block was not alone."""
    async with a_node() as (served, url), new_client(url) as client, new_client(url) as operator:
        with pytest.raises(holdfast.LeaseLost, match="'b'"):  # noqa: PT012 - a block is what is tested
            async with client.transaction() as transaction:
                await transaction.acquire("a")
                await transaction.acquire("b")
                await operator.admin.force_release("b", reason="a test")
        assert not served.node.machine.state.holds


async def test_the_loss_of_one_is_the_loss_of_all(new_client: NewClient) -> None:
    """When a call says that one hold is over, the transaction is lost, and gives back the others."""
    async with a_node() as (served, url), new_client(url) as client, new_client(url) as operator:
        with pytest.raises(holdfast.LeaseLost):  # noqa: PT012 - a block is what is tested
            async with client.transaction() as transaction:
                hold = await transaction.acquire("a", mode="update")
                await transaction.acquire("b")
                await operator.admin.force_release("a", reason="a test")
                with pytest.raises(holdfast.LeaseExpired):
                    await hold.convert("exclusive")
                assert transaction.reason == "lease-expired"
                assert transaction.lost.is_set()
        async with asyncio.timeout(DEADLINE_S):
            while sessions_of(served):  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.005)


async def test_an_error_of_the_block_releases_everything(new_client: NewClient) -> None:
    """The block's own exception comes out, and nothing is left."""
    async with a_node() as (served, url), new_client(url) as client:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - a block is what is tested
            async with client.transaction() as transaction:
                await transaction.acquire("a")
                raise ZeroDivisionError
        assert not sessions_of(served)
        with pytest.raises(holdfast.LeaseLost):
            await transaction.acquire("a")


async def test_wrong_arguments_are_refused_before_anything_is_sent(new_client: NewClient) -> None:
    """No name, a length that is none, a wrong mode: the error names the argument."""
    async with a_node() as (_, url), new_client(url) as client:
        with pytest.raises(ValueError, match="wait"):
            client.transaction(wait=-1)
        async with client.transaction() as transaction:
            with pytest.raises(ValueError, match="names"):
                await transaction.acquire()
            with pytest.raises(holdfast.InvalidRequest, match="mode"):
                await transaction.acquire("a", mode="best")  # type: ignore[arg-type]
            assert (await transaction.acquire("a")).is_valid


async def test_a_lost_transaction_cancels_its_block() -> None:
    """With asyncio the block does not go on, and LeaseLost comes out of it."""
    async with a_node() as (served, url), holdfast.Client(url) as client:
        went_on = False
        with pytest.raises(holdfast.LeaseLost):  # noqa: PT012 - a block is what is tested
            async with client.transaction(ttl=3) as transaction:
                await transaction.acquire("a")
                await served.call("DELETE", f"/v1/sessions/{transaction.session_id}")
                async with asyncio.timeout(DEADLINE_S):
                    await asyncio.Event().wait()
                went_on = True
        assert not went_on
        assert transaction.reason in {"session-expired", "expired"}


async def test_a_lost_answer_to_the_end_is_no_loss() -> None:
    """The end is asked for again, and the answer says again what was released."""
    with MemoryCluster() as cluster:
        flaky = Flaky(cluster)
        async with flaky.client() as client:
            async with client.transaction() as transaction:
                await transaction.acquire("a", "b")
                await transaction.acquire_permits("gpu", limit=2)
                flaky.lose("*", applied=True)
            assert [call.split()[0] for call in flaky.sent[-2:]] == ["DELETE", "DELETE"]
            assert (await client.inspect("a")).state == "free"


async def test_a_lost_answer_to_an_acquire_gives_the_same_hold() -> None:
    """It is asked for again under its id: one hold, which is there once and counted once at the end."""
    with MemoryCluster() as cluster:
        flaky = Flaky(cluster)
        async with flaky.client() as client:
            async with client.transaction() as transaction:
                flaky.lose("acquire", applied=True)
                hold = await transaction.acquire("a")
                assert transaction.holds == (hold,)
            assert hold.reason == "released"


async def test_a_cluster_that_does_not_answer_at_the_end_fails_no_block() -> None:
    """The block has ended in time: what is not released ends with its session, and a warning says so."""
    with MemoryCluster() as cluster:
        flaky = Flaky(cluster)
        async with flaky.client() as client:
            async with client.transaction(ttl=15) as transaction:
                await transaction.acquire("a")
                flaky.lose("*", applied=False, times=None)
            flaky.heal()
            cluster.advance(16)
            assert (await client.inspect("a")).state == "free"
