"""Answers that are lost, late or refused as a test chooses, and what the real client makes of that."""

import asyncio
from collections.abc import Iterator

import pytest

import holdfast
from holdfast.testing import Flaky, MemoryCluster

ACQUIRE = "POST /v1/locks/acquire"


@pytest.fixture
def flaky() -> Iterator[Flaky]:
    """Give a way to a cluster that fails when it is told to."""
    with MemoryCluster() as cluster:
        yield Flaky(cluster)


@pytest.mark.parametrize("applied", [True, False])
async def test_one_loss_is_repeated_and_done_once(flaky: Flaky, applied: bool) -> None:  # noqa: FBT001
    """The client asks again under the same id: it gets the one hold that there is."""
    flaky.lose("acquire", applied=applied)
    async with flaky.client() as client:
        hold = await client.acquire("a", ttl=30, wait=0, renew=False)
        assert flaky.sent == (ACQUIRE, ACQUIRE)
        assert hold.token == 1
        (holder,) = (await client.inspect("a")).holders
        assert holder.token == 1


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lasting_loss_is_an_unknown_outcome(flaky: Flaky, applied: bool) -> None:  # noqa: FBT001
    """Whether it was done, only the cluster knows."""
    flaky.lose("acquire", applied=applied, times=None)
    async with flaky.client(owner="ann") as client, flaky.cluster.client() as other:
        with pytest.raises(holdfast.OutcomeUnknown):
            await client.acquire("a", ttl=30, wait=0, renew=False)
        assert (await other.inspect("a")).state == ("held" if applied else "free")
        flaky.heal()
        flaky.cluster.advance(31)
        assert (await client.acquire("a", ttl=30, wait=0, renew=False)).is_valid


async def test_a_lasting_refusal_is_unavailable(flaky: Flaky) -> None:
    """A cluster without a leader did surely not do it."""
    flaky.refuse("locks/acquire", "no-leader", times=None)
    async with flaky.client() as client:
        with pytest.raises(holdfast.Unavailable) as refused:
            await client.acquire("a", wait=0, renew=False)
        assert refused.value.code == "no-leader"
        assert (await client.inspect("a")).state == "free"


async def test_a_refusal_after_it_was_done_may_have_had_an_effect(flaky: Flaky) -> None:
    """Such an answer is asked for again, and is a doubt when that is in vain."""
    flaky.refuse("acquire", "outcome-unknown", applied=True)
    async with flaky.client() as client:
        assert (await client.acquire("a", wait=0, renew=False)).token == 1
        flaky.refuse("acquire", "outcome-unknown", applied=True, times=None)
        with pytest.raises(holdfast.OutcomeUnknown):
            await client.acquire("b", wait=0, renew=False)


async def test_a_final_refusal_is_raised_at_once(flaky: Flaky) -> None:
    """What the cluster decides against is not asked for again."""
    flaky.refuse("release", "lease-expired")
    async with flaky.client() as client:
        hold = await client.acquire("a", wait=0, renew=False)
        with pytest.raises(holdfast.LeaseExpired, match="refused by the test"):
            await hold.release()
        assert flaky.sent.count("POST /v1/locks/release") == 1


@pytest.mark.parametrize("applied", [True, False])
async def test_a_late_answer_comes_with_the_clock(flaky: Flaky, applied: bool) -> None:  # noqa: FBT001
    """It is held back by the cluster's clock; in between the lock is there, or not yet."""
    flaky.delay("acquire", 2, applied=applied)
    async with flaky.client() as client, flaky.cluster.client() as other:
        acquiring = asyncio.create_task(client.acquire("a", ttl=30, wait=0, renew=False))
        async with asyncio.timeout(10):
            state = "held" if applied else "free"
            while not flaky.sent or (await other.inspect("a")).state != state:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.001)
        await other.inspect("a")
        assert not acquiring.done()
        flaky.cluster.advance(2)
        assert (await acquiring).is_valid
        assert flaky.sent == (ACQUIRE,)


async def test_what_is_too_late_is_lost(flaky: Flaky) -> None:
    """The client waits for no longer than for a real node, and asks again."""
    flaky.delay("acquire", 3600)
    async with flaky.client() as client:
        acquiring = asyncio.create_task(client.acquire("a", ttl=60, wait=0, renew=False))
        async with asyncio.timeout(10):
            while not acquiring.done():
                flaky.cluster.advance(1)
                await asyncio.sleep(0.01)
        assert (await acquiring).token == 1
        assert len(flaky.sent) == 2


async def test_a_kept_hold_is_lost_when_its_renewals_are(flaky: Flaky) -> None:
    """A client that reaches nobody stops its work in time."""
    has_begun = asyncio.Event()

    async def work(client: holdfast.Client) -> None:
        async with client.lock("a", ttl=30):
            has_begun.set()
            await asyncio.Event().wait()

    async with flaky.client() as client:
        working = asyncio.create_task(work(client))
        await has_begun.wait()
        flaky.lose("*", applied=False, times=None)
        flaky.cluster.advance(11)
        with pytest.raises(holdfast.LeaseLost):
            await working


async def test_a_cancelled_acquire_leaves_nothing_though_its_answer_is_lost(flaky: Flaky) -> None:
    """What was granted unheard is taken back."""
    flaky.delay("acquire", 60)
    async with flaky.client() as client, flaky.cluster.client() as other:
        acquiring = asyncio.create_task(client.acquire("a", ttl=600, wait=0, renew=False))
        async with asyncio.timeout(10):
            while (await other.inspect("a")).state == "free":  # noqa: ASYNC110 - has no event
                await asyncio.sleep(0.001)
        acquiring.cancel()
        async with asyncio.timeout(10):
            while (await other.inspect("a")).state != "free":
                flaky.cluster.advance(1)
                await asyncio.sleep(0.01)
        with pytest.raises(asyncio.CancelledError):
            await acquiring


def test_threads_meet_the_faults_and_other_clients_do_not(flaky: Flaky) -> None:
    """Only the clients of the flaky way are concerned."""
    flaky.refuse("*", "overloaded", times=None)
    with flaky.sync_client() as client, flaky.cluster.sync_client() as other:
        with pytest.raises(holdfast.Unavailable):
            client.acquire("a", wait=0, renew=False)
        assert other.acquire("a", wait=0, renew=False).is_valid


def test_what_can_never_happen_is_refused(flaky: Flaky) -> None:
    """A call, a code or a number that means nothing is told, and changes nothing."""
    with pytest.raises(ValueError, match="'aquire'; known are"):
        flaky.lose("aquire", applied=True)
    with pytest.raises(ValueError, match="not a problem code"):
        flaky.refuse("acquire", "no-such-code")
    with pytest.raises(ValueError, match="times"):
        flaky.lose("acquire", applied=True, times=0)
    with pytest.raises(ValueError, match="seconds"):
        flaky.delay("acquire", -1)
    with flaky.sync_client() as client:
        assert client.acquire("a", wait=0, renew=False).is_valid
    assert flaky.sent.count(ACQUIRE) == 1
