"""What both clients do, asyncio and threads, at a real node: one suite for the two."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

import holdfast
from holdfast.operations import hold_operations
from holdfast.transport.transport import Transport
from lockstate.tables.owners import session_name
from lockstate.words import limits
from tests.unit.holdfast.conftest import NewClient, a_node, sessions_of
from tests.unit.http_api.serving import Served

DEADLINE_S = 60


@pytest.fixture
def new_client(new_client_of_each_way: NewClient) -> NewClient:
    """Let every test here run over HTTP and over a stream."""
    return new_client_of_each_way


async def _until(condition: Callable[[], object]) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event to tell of it
            await asyncio.sleep(0.005)


def _holds(served: Served) -> int:
    """Return how many holds there are at the node."""
    return len(served.node.machine.state.holds)


async def test_a_block_runs_under_a_lock(new_client: NewClient) -> None:
    """While the block runs others see its owner; after it the lock is free and the hold is over."""
    async with a_node() as (_, url), new_client(url, owner="me") as client:
        async with client.lock(("order", 42), note="why") as hold:
            info = await client.inspect("order/42")
            assert [(holder.owner, holder.token, holder.note) for holder in info.holders] == [
                ("me", hold.token, "why")
            ]
            assert (hold.name, hold.names, hold.mode, hold.state) == (
                "order/42",
                ("order/42",),
                "exclusive",
                "held",
            )
            hold.ensure(5)
            with pytest.raises(holdfast.LeaseLost) as caught:
                hold.ensure(60)
            assert caught.value.reason == "at-risk"
        assert (hold.is_valid, hold.reason, hold.state) == (False, "released", "released")
        assert not hold.lost.is_set()
        assert (await client.inspect("order/42")).state == "free"


async def test_a_wait_in_vain_never_enters_the_block(new_client: NewClient) -> None:
    """A timeout raises LockTimeout, a LockHeld and a TimeoutError; 0 tries once; try_acquire returns None."""
    async with (
        a_node() as (_, url),
        new_client(url, owner="first") as first,
        new_client(url, owner="second") as second,
    ):
        async with first.lock("a"):
            for timeout in (0, 0.05):
                with pytest.raises(holdfast.LockTimeout) as caught:
                    async with second.lock("a", wait=timeout):
                        raise AssertionError("entered")
                assert isinstance(caught.value, holdfast.LockHeld)
                assert isinstance(caught.value, TimeoutError)
                assert "first" in str(caught.value.problem["holders"])
            assert await second.lock("a").try_acquire() is None
            with pytest.raises(holdfast.LockTimeout):
                await second.lock("a").acquire(wait=0.05)
        hold = await second.lock("a").try_acquire()
        assert hold is not None
        await hold.release()


async def test_one_waits_for_the_other(new_client: NewClient) -> None:
    """Without a timeout a block waits as long as it takes, and gets a larger token."""
    async with (
        a_node() as (served, url),
        new_client(url) as first,
        new_client(url) as second,
    ):
        tokens = []

        async def wait() -> None:
            async with second.lock("a") as hold:
                tokens.append(hold.token)

        async with first.lock("a") as hold:
            tokens.append(hold.token)
            waiting = asyncio.create_task(wait())
            await _until(lambda: served.node.machine.state.tickets)
            assert len(tokens) == 1
        await waiting
        assert tokens == sorted(set(tokens))


async def test_each_acquire_has_a_hold_of_its_own(new_client: NewClient) -> None:
    """What one has acquired, another of the same client has not: it waits, or is refused."""
    async with a_node() as (_, url), new_client(url) as client:
        lock = client.lock("a")
        hold = await lock.acquire()
        assert await lock.try_acquire() is None
        await hold.release()
        async with lock as again:
            assert again.token > hold.token
            assert await lock.try_acquire() is None
        async with lock:
            assert again.reason == "released"


async def test_a_hold_is_a_context_of_its_own(new_client: NewClient) -> None:
    """What acquire returned is released by the end of a block over it."""
    async with a_node() as (served, url), new_client(url) as client:
        async with await client.lock("a").acquire() as hold:
            assert hold.is_valid
        assert (hold.reason, _holds(served)) == ("released", 0)


async def test_several_locks_are_one_hold(new_client: NewClient) -> None:
    """All or none, one token."""
    async with (
        a_node() as (served, url),
        new_client(url) as first,
        new_client(url) as second,
    ):
        async with first.locks("acct/ann", ("acct", "bob"), mode="shared") as hold:
            assert hold.names == ("acct/ann", "acct/bob")
            with pytest.raises(holdfast.LockTimeout):
                await second.locks("acct/cyd", "acct/bob").acquire(wait=0)
            assert (await second.inspect("acct/cyd")).state == "free"
            assert _holds(served) == 1
        with pytest.raises(ValueError, match="at least one"):
            first.locks()


async def test_a_subtree_is_held_for_update_and_converted(new_client: NewClient) -> None:
    """A reader may stand beside an update lock; it becomes exclusive when the reader is gone."""
    async with (
        a_node() as (_, url),
        new_client(url) as first,
        new_client(url) as second,
        first.lock("home/ann", scope="subtree", mode="update") as hold,
    ):
        token = hold.token
        async with second.lock("home/ann/mail", mode="shared"):
            with pytest.raises(holdfast.LockTimeout):
                await hold.convert("exclusive", wait=0)
            assert (hold.mode, hold.token) == ("update", token)
        await hold.convert("exclusive")
        assert hold.mode == "exclusive"
        assert hold.token > token
        assert await second.lock("home/ann/mail", mode="shared").try_acquire() is None


async def test_locks_are_added_to_a_hold(new_client: NewClient) -> None:
    """All that it had stays, whatever comes of it; with what is added comes a new token for the whole."""
    async with a_node() as (_, url), new_client(url) as first, new_client(url) as second:
        async with first.lock("acct/ann") as hold:
            token = hold.token
            async with second.lock("acct/bob") as other:
                with pytest.raises(holdfast.LockTimeout):
                    await hold.add("acct/bob", "acct/eve", wait=0)
                assert (hold.names, hold.token) == (("acct/ann",), token)
                assert other.token > token
            await hold.add("acct/bob", ("acct", "eve"), mode="shared")
            assert hold.names == ("acct/ann", "acct/bob", "acct/eve")
            assert hold.token > other.token
            await hold.add("acct/bob", mode="shared", wait=0)
            assert hold.names == ("acct/ann", "acct/bob", "acct/eve")
            assert await second.lock("acct/ann").try_acquire() is None
            async with second.lock("acct/bob", mode="shared"):
                pass
            with pytest.raises(holdfast.Refused) as caught:
                await hold.add("acct/ann", mode="shared")
            assert caught.value.code == "invalid-request"
            with pytest.raises(ValueError, match="at least one"):
                await hold.add()
        assert not (await second.inspect("acct/bob")).holders
        with pytest.raises(holdfast.LeaseExpired):
            await hold.add("acct/bob")


async def test_two_that_add_what_the_other_has_do_not_wait_for_ever(new_client: NewClient) -> None:
    """The second is told of the deadlock; when it lets go, the first has both."""
    async with (
        a_node() as (served, url),
        new_client(url) as first,
        new_client(url) as second,
        first.lock("a") as one,
    ):
        async with second.lock("b") as other:
            adding = asyncio.ensure_future(one.add("b"))
            await _until(lambda: bool(served.node.machine.state.tickets))
            with pytest.raises(holdfast.Deadlock):
                await other.add("a")
        await adding
        assert one.names == ("a", "b")


async def test_a_session_is_not_given_again_what_a_hold_of_its_own_got_more(new_client: NewClient) -> None:
    """Two holds of this client would be one of the cluster, and who releases one would end the other."""
    async with a_node() as (_, url), new_client(url) as client, client.session() as session:
        one = await client.lock("a", session=session).acquire()
        await one.add("b")
        for names in (("a", "b"), ("b", "a")):
            with pytest.raises(holdfast.AlreadyHeld):
                await client.locks(*names, session=session).acquire()
        await one.add("a", "b")
        other = await client.locks("e", "f", session=session, mode="shared").acquire()
        third = await client.lock("e", session=session, mode="shared").acquire()
        with pytest.raises(holdfast.AlreadyHeld):
            await third.add("f", mode="shared")
        with pytest.raises(holdfast.AlreadyHeld):
            await client.locks("f", "e", session=session).acquire()
        for hold in (one, other, third):
            await hold.release()
        await (await client.locks("a", "b", session=session).acquire()).release()


async def test_an_addition_without_an_answer_is_found_by_another_call(new_client: NewClient) -> None:
    """A renewal tells the token; the same call, that it has the locks already."""
    async with (
        a_node() as (_, url),
        new_client(url) as client,
        client.lock("a", ttl=60) as hold,
    ):
        unheard = Transport([url], DEADLINE_S)
        added = await unheard.call(hold_operations.add(hold.hold_id, ("b",), "exclusive", "node", 0))
        await unheard.close()
        token = added.token
        assert (hold.names, hold.token) == (("a",), token - 1)
        await hold.renew()
        assert (hold.names, hold.token) == (("a",), token)
        await hold.add("b", wait=0)
        assert (hold.names, hold.token) == (("a", "b"), token)


async def test_permits_of_a_semaphore(new_client: NewClient) -> None:
    """A semaphore is used like a lock."""
    async with a_node() as (_, url), new_client(url) as client:
        async with client.semaphore("gpu", limit=4, permits=3) as hold:
            await hold.renew()
            info = await client.get_semaphore("gpu")
            assert (info.limit, info.available, info.holders[0].permits) == (4, 1, 3)
            assert await client.semaphore("gpu", limit=4, permits=2).try_acquire() is None
            with pytest.raises(holdfast.Refused) as caught:
                await client.semaphore("gpu", limit=5, strict=True).acquire()
            assert caught.value.code == "limit-mismatch"
            async with client.semaphore("gpu"):
                assert (await client.get_semaphore("gpu")).available == 0
            assert (await client.resize_semaphore("gpu", 8, reason="by hand")).available == 5
        assert (await client.get_semaphore("gpu")).holders == ()


async def test_several_kinds_at_once(new_client: NewClient) -> None:
    """Locks, permits and places of rate limits are one hold, used like a lock."""
    rate_limits = [holdfast.WantedRate("starts", limit=1, per=86_400)]
    workers = [holdfast.WantedPermits("workers", permits=2, limit=3)]
    async with a_node() as (_, url), new_client(url) as client:
        async with client.together("dir/a", permits=workers, rate_limits=rate_limits) as hold:
            await hold.renew()
            assert hold.names == ("dir/a", "workers")
            (holder,) = (await client.get_semaphore("workers")).holders
            assert (holder.permits, holder.token) == (2, hold.token)
            again = [holdfast.WantedPermits("workers")]
            assert await client.together("dir/a", permits=again).try_acquire() is None
        assert (await client.get_semaphore("workers")).holders == ()
        with pytest.raises(holdfast.RateLimited) as caught:
            await client.together("dir/a", rate_limits=rate_limits).acquire(wait=0)
        assert caught.value.retry_after > 0
        with pytest.raises(holdfast.InvalidRequest):
            await client.together("dir/a").acquire()


async def test_a_lock_is_handed_over(new_client: NewClient) -> None:
    """Its giver has not lost it, a waiter has it next, and a session finds it with the next acquire."""
    async with (
        a_node() as (served, url),
        new_client(url) as client,
        client.session(ttl=60) as session,
        new_client(url, owner="other") as other,
        other.session(ttl=60) as its_session,
    ):
        told: list[str] = []
        lock = client.lock("a", session=session, on_lost=lambda lost: told.append(lost.reason))
        async with lock as hold:
            waiting = asyncio.ensure_future(other.lock("a", wait=60).acquire())
            await _until(lambda: served.node.machine.lock("a").queue)
            with pytest.raises(holdfast.Refused) as caught:
                await hold.hand_over(to_ticket=99)
            assert (caught.value.code, hold.is_valid) == ("ticket-ended", True)
            token = await hold.hand_over(to_ticket=served.node.machine.lock("a").queue[0].ticket)
            given = await waiting
            assert (given.token, hold.reason, hold.lost.is_set()) == (token, "released", False)
        token = await given.hand_over(to_session=await session.public_name())
        again = await client.lock("a", session=session).acquire()
        assert (again.token, again.is_valid, given.is_valid) == (token, True, False)
        await again.hand_over(to_session=await its_session.public_name())
        assert _holds(served) == 1
        with pytest.raises(holdfast.LeaseExpired):
            await again.hand_over(to_ticket=1)
        assert told == []


def _asked(one: Any) -> tuple[str, bool]:
    """Return what was asked of a holder, and whether it has put that off."""
    return one.revocation.reason, one.revocation.put_off


async def test_a_holder_is_asked_to_give_up(new_client: NewClient) -> None:
    """It hears of it with its next renewal, says "not yet" once, and is forced in the end."""
    async with a_node() as (_, url), new_client(url) as client:
        hold = await client.lock("a", ttl=60).acquire()
        assert hold.revocation is None
        with pytest.raises(holdfast.Refused) as caught:
            await hold.put_off()
        assert caught.value.code == "not-revoked"
        (asked,) = await client.admin.revoke("a", reason="maintenance", grace=60, token=hold.token)
        assert asked.token == hold.token
        assert _asked(asked) == ("maintenance", False)
        await hold.renew()
        assert _asked(hold) == ("maintenance", False)
        assert 100 < await hold.put_off() <= 120
        await hold.renew()
        assert _asked(hold) == ("maintenance", True)
        await client.admin.revoke("a", reason="at once", grace=0)
        while True:
            try:
                await hold.renew()
            except holdfast.LeaseExpired:
                break
        assert hold.reason == "lease-expired"


async def test_a_loss_says_what_was_asked_of_the_holder() -> None:
    """Otherwise an end by its own clock would look as if no node had answered."""
    async with a_node() as (_, url), holdfast.Client(url) as client, client.lock("a", ttl=60) as hold:
        assert str(hold.loss("expired")).endswith("'a' (token 1) is lost: expired")
        await client.admin.revoke("a", reason="maintenance", grace=60)
        await hold.renew()
        said = str(hold.loss("expired"))
        assert said.endswith("is lost: expired; its holder had been asked to give it up: maintenance")
        assert str(hold.loss("lease-expired")).endswith(
            "is lost: lease-expired" + said.partition("expired")[2]
        )
        hold.cause = ValueError("the hold was ended by force: maintenance")  # that says it already
        assert str(hold.loss("lease-expired")).endswith("is lost: the hold was ended by force: maintenance")
        hold.cause = None
        assert str(hold.loss("forked")).endswith("is lost: forked")


async def test_a_revocation_is_withdrawn(new_client: NewClient) -> None:
    """With its next renewal the holder hears that nobody asks any more, and lives on as before."""
    async with a_node() as (_, url), new_client(url) as client:
        hold = await client.lock("a", ttl=60).acquire()
        assert await client.admin.withdraw_revocation("a", reason="nobody asked") == 0
        await client.admin.revoke("a", reason="maintenance", grace=5)
        await hold.renew()
        assert hold.remaining < 10
        assert await client.admin.withdraw_revocation("a", reason="put off", ticket=99) == 0
        assert await client.admin.withdraw_revocation("a", reason="put off", token=hold.token) == 1
        await hold.renew()
        assert (hold.revocation, hold.revocations) == (None, ())
        assert hold.remaining > 50
        with pytest.raises(holdfast.Refused) as caught:
            await client.admin.withdraw_revocation("a", reason="x", kind="election")
        assert caught.value.code == "wrong-kind"
        with pytest.raises(ValueError, match="kind: 'cell'"):
            await client.admin.withdraw_revocation("a", reason="x", kind=cast("Any", "cell"))


async def test_what_was_asked_for_stands_when_the_token_is_another_one(new_client: NewClient) -> None:
    """A change of the hold does not make it last longer."""
    async with a_node() as (_, url), new_client(url) as client, client.session(ttl=60) as session:
        added = await client.lock("a", ttl=60).acquire()
        converted = await client.lock("b", session=session, mode="shared").acquire()
        for name in ("a", "b"):
            await client.admin.revoke(name, reason="maintenance", grace=20)
        await added.renew()
        await session.keepalive()
        await added.add("c")
        await converted.convert("exclusive")
        for hold in (added, converted):
            assert _asked(hold) == ("maintenance", False)
            assert hold.remaining <= 20
        await added.renew()
        await session.keepalive()
        for hold in (added, converted):
            assert _asked(hold) == ("maintenance", False)


async def test_what_is_to_be_given_up_is_relied_on_no_longer_than_that(new_client: NewClient) -> None:
    """By the client's own clock, as soon as a renewal has told it; a put-off counts at once."""
    async with a_node() as (_, url), new_client(url) as client, client.session(ttl=60) as session:
        one = await client.lock("a", ttl=60).acquire()
        other = await client.lock("b", session=session).acquire()
        for name in ("a", "b"):
            await client.admin.revoke(name, reason="maintenance", grace=20)
        assert one.remaining > 50
        await one.renew()
        await session.keepalive()
        for hold in (one, other):
            assert 10 < hold.remaining <= 20
            with pytest.raises(holdfast.LeaseLost, match="cannot be relied on for 25 s"):
                hold.ensure(25)
            await hold.put_off()
            assert 30 < hold.remaining <= 40
            await client.admin.revoke(hold.name, reason="now", grace=5)
        await one.renew()
        await session.keepalive()
        assert max(one.remaining, other.remaining) <= 5
        assert session.remaining > 50


async def test_a_name_that_is_given_up_in_time_is_asked_for_no_more(new_client: NewClient) -> None:
    """The hold is relied on as long as the rest of it, at once, whether or not it lives with a session."""
    async with a_node() as (_, url), new_client(url) as client, client.session(ttl=60) as session:
        alone = await client.locks("a", "b", ttl=60).acquire()
        beside = await client.locks("c", "d", session=session).acquire()
        for name, grace in {"a": 20, "b": 40, "c": 20, "d": 40}.items():
            await client.admin.revoke(name, reason="maintenance", grace=grace)
        await alone.renew()
        await session.keepalive()
        for hold in (alone, beside):
            assert [one.name for one in hold.revocations] == list(hold.names)
            assert 10 < hold.remaining <= 20
            await hold.drop(hold.names[0])
            assert [one.name for one in hold.revocations] == list(hold.names)
            assert 30 < hold.remaining <= 40
        await alone.renew()
        await session.keepalive()
        for hold in (alone, beside):
            assert hold.revocation is not None
            assert (hold.revocation.name,) == hold.names


async def test_a_session_hears_for_what_it_holds(new_client: NewClient) -> None:
    """Each of its holds knows what was asked of it."""
    async with a_node() as (_, url), new_client(url) as client, client.session(ttl=60) as session:
        one = await client.lock("a", session=session).acquire()
        other = await client.semaphore("b", limit=2, session=session).acquire()
        await client.admin.revoke("b", reason="maintenance", kind="semaphore")
        await session.keepalive()
        assert one.revocation is None
        assert _asked(other) == ("maintenance", False)
        with pytest.raises(ValueError, match="kind"):
            await client.admin.revoke("b", reason="x", kind=cast("Any", "cell"))


async def test_a_hold_is_renewed_and_released_by_its_value(new_client: NewClient) -> None:
    """Whoever knows name and value can do so; everybody may read it unless it is secret."""
    async with a_node() as (served, url), new_client(url) as client:
        hold = await client.acquire("a", ttl=60, value="worker-7", wait=0, renew=False)
        (holder,) = (await client.inspect("a")).holders
        assert holder.value == "worker-7"
        assert 80 < await client.renew_by_value("a", "worker-7", ttl=90) <= 90
        assert 80 < await client.renew_by_value("a", "worker-7", ttl=50) <= 90
        assert 40 < await client.renew_by_value("a", "worker-7", ttl=50, exact=True) <= 50
        await hold.renew(ttl=20, exact=True)
        assert 10 < hold.remaining <= 20
        with pytest.raises(ValueError, match="exact: needs a ttl"):
            await hold.renew(exact=True)
        for value in ("worker-8", ""):
            with pytest.raises(holdfast.Refused) as caught:
                await client.release_by_value("a", value)
            assert caught.value.code == ("not-holder" if value else "invalid-request")
        await client.release_by_value("a", "worker-7")
        assert _holds(served) == 0
        with pytest.raises(holdfast.LeaseExpired):
            await hold.renew()


async def test_a_secret_value_is_not_shown(new_client: NewClient) -> None:
    """Of a lock, of several, and of permits; leaving the block releases them as ever."""
    async with a_node() as (served, url), new_client(url) as client:
        secret: dict[str, Any] = {"value": "hunter2", "value_secret": True}
        async with (
            client.lock("a", **secret),
            client.locks("b", "c", **secret),
            client.semaphore("q", limit=1, **secret),
        ):
            shown = [*(await client.inspect("a")).holders, *(await client.inspect("b")).holders]
            shown += (await client.get_semaphore("q")).holders
            assert [holder.value for holder in shown] == ["", "", ""]
            assert await client.renew_by_value("q", "hunter2", kind="semaphore") > 20
            with pytest.raises(ValueError, match="kind"):
                await client.renew_by_value("q", "hunter2", kind=cast("Any", "election"))
        assert _holds(served) == 0


async def test_what_has_no_deadline_is_valid_until_it_is_released(new_client: NewClient) -> None:
    """Nothing renews it; whoever asks hears that it was ended by others."""
    async with a_node() as (served, url), new_client(url) as client:
        async with client.lock("batch/a", no_deadline=True) as hold:
            assert (hold.state, hold.remaining) == ("held", float("inf"))
            hold.ensure(86_400)
            await hold.renew()
            (holder,) = (await client.inspect("batch/a")).holders
            assert holder.no_deadline
        assert _holds(served) == 0
        permits = await client.semaphore("batch", limit=1, no_deadline=True).acquire()
        plain = await client.acquire("batch/b", no_deadline=True, wait=0, renew=False)
        assert permits.is_valid
        await client.admin.force_release("batch/b", reason="x")
        with pytest.raises(holdfast.LeaseExpired):
            await plain.renew()
        with pytest.raises(holdfast.Refused) as caught:
            await client.acquire("other", no_deadline=True, wait=0, renew=False)
        assert caught.value.code == "invalid-request"
        with pytest.raises(ValueError, match="no_deadline"):
            client.lock("batch/c", ttl=5, no_deadline=True)


@pytest.mark.parametrize("kind", ["lock", "locks", "semaphore"])
async def test_a_priority_goes_first(new_client: NewClient, kind: str) -> None:
    """Where the node allows it; elsewhere it is refused, and the default is sent to nobody."""

    def wish(client: holdfast.Client, priority: int) -> Any:
        if kind == "semaphore":
            return client.semaphore("a", limit=1, priority=priority)
        if kind == "locks":
            return client.locks("a", "a/b", priority=priority)
        return client.lock("a", priority=priority)

    async with (
        a_node("a") as (served, url),
        new_client(url) as client,
        new_client(url) as patient,
        new_client(url) as urgent,
    ):
        tickets = served.node.machine.state.tickets
        held = await wish(client, 5).acquire()
        low = asyncio.ensure_future(wish(patient, 0).acquire())
        await _until(lambda: len(tickets) == 1)
        high = asyncio.ensure_future(wish(urgent, 9).acquire())
        await _until(lambda: len(tickets) == 2)
        read = client.get_semaphore("a") if kind == "semaphore" else client.inspect("a")
        assert [waiter.priority for waiter in (await read).queue] == [9, 0]
        for holding in (held, high, low):
            await (await holding if isinstance(holding, asyncio.Future) else holding).release()
        with pytest.raises(holdfast.InvalidRequest, match="priority: 9"):
            await client.lock("b", priority=9).acquire()


async def test_a_wait_asks_by_itself(new_client: NewClient) -> None:
    """Where a namespace lets it; one that does not wait for so long does not say it. A grace needs a time."""
    async with a_node() as (_, url), new_client(url) as client, new_client(url) as other:
        ruled = holdfast.NamespaceSettings(ask_after_ms_min=10, grace_ms_min=0)
        assert (await client.admin.set_namespace("jobs", ruled, reason="as agreed")) == ruled
        for kind in ("lock", "semaphore"):

            def wish(one: Any, name: str, kind: str = kind, **terms: Any) -> Any:
                return one.lock(name, **terms) if kind == "lock" else one.semaphore(name, limit=1, **terms)

            hold = await wish(client, "jobs/1", ttl=60).acquire()
            urgent = await wish(other, "jobs/1", ask_after=0.01, grace=0, wait=60).acquire()
            with pytest.raises(holdfast.LeaseExpired):
                await hold.renew()
            await urgent.release()
            with pytest.raises(holdfast.InvalidRequest, match="must be at least 10"):
                await wish(other, "jobs/1", ask_after=0, wait=60).acquire()
            with pytest.raises(holdfast.InvalidRequest, match="no namespace allows it"):
                await wish(other, "else", ask_after=0.01, wait=60).acquire()
            await (await wish(other, "else", ask_after=0.01, wait=0).acquire()).release()
            with pytest.raises(ValueError, match="grace: needs ask_after"):
                wish(other, "jobs/1", grace=5)


async def test_a_rate_limit_is_shared(new_client: NewClient) -> None:
    """What is not allowed within the timeout is RateLimited, which is a TimeoutError."""
    async with a_node() as (_, url), new_client(url) as client:
        limiter = client.rate_limiter("mail", limit=2, per=3600, algorithm="sliding-window")
        assert (await limiter.take()).remaining == 1
        assert (await limiter.peek()).allowed
        assert not (await limiter.peek(cost=2)).allowed
        assert await limiter.try_take() is not None
        assert await limiter.try_take() is None
        with pytest.raises(holdfast.RateLimited) as caught:
            await limiter.take(wait=0)
        assert isinstance(caught.value, TimeoutError)
        assert 0 < caught.value.retry_after <= 3600


async def test_what_a_session_holds_ends_with_it(new_client: NewClient) -> None:
    """One session, several holds: closing it releases all, and none of them is valid."""
    async with a_node() as (served, url), new_client(url) as client:
        async with client.session(ttl=15, labels={"host": "rack-3", "owner": "me"}) as session:
            one = await client.lock("a", session=session).acquire()
            two = await client.lock("b", session=session).acquire()
            (at_node,) = sessions_of(served)
            assert at_node.labels == {"host": "rack-3", "owner": "me"}
            assert one.is_valid
            await two.release()
            assert session.is_valid
        assert (session.reason, one.reason, two.reason) == ("released", "released", "released")
        assert (_holds(served), len(sessions_of(served))) == (0, 0)


async def test_a_session_that_was_lost_takes_its_holds_along(new_client: NewClient) -> None:
    """When a keepalive is refused, the session and its holds say so."""
    async with a_node() as (served, url), new_client(url) as client:
        session = await client.session(ttl=30, renew=False).open()
        hold = await client.lock("a", session=session).acquire()
        assert (await served.call("DELETE", f"/v1/sessions/{session.session_id}")).status == 200
        with pytest.raises(holdfast.SessionExpired):
            await session.keepalive()
        assert (session.reason, hold.reason) == ("session-expired", "session-expired")
        assert hold.lost.is_set()


async def test_an_election_is_won_told_and_observed(new_client: NewClient) -> None:
    """The block leads; observers see each leader, what it says, and that there is none."""
    async with (
        a_node() as (served, url),
        new_client(url, owner="first") as first,
        new_client(url) as second,
    ):
        observed = second.election("primary").observe()
        assert await anext(observed) is None
        async with first.election("primary", value="10.0.0.1:80") as leadership:
            leader = await anext(observed)
            assert leader is not None
            assert (leader.owner, leader.value, leader.token) == ("first", "10.0.0.1:80", leadership.token)
            await leadership.proclaim("10.0.0.1:8080")
            assert (await first.get_election("primary")).leader is not None
            leader = await first.election("primary").leader()
            assert leader is not None
            assert leader.value == "10.0.0.1:8080"
        while await anext(observed) is not None:
            """The new value may be seen before the end."""
        assert len(sessions_of(served)) == 0


async def test_a_watch_misses_nothing(new_client: NewClient) -> None:
    """Events come in order, each once; another watch goes on behind any of them."""
    async with a_node() as (_, url), new_client(url) as client, new_client(url) as actor:
        async with client.watch("build/") as watch:
            await watch.begin()
            for name in ("build/1", "test/1", "build/2"):
                async with actor.lock(name):
                    """Held."""
            events = [await anext(watch) for _ in range(4)]
            assert [(event.event, event.name) for event in events] == [
                ("granted", "build/1"),
                ("released", "build/1"),
                ("granted", "build/2"),
                ("released", "build/2"),
            ]
            assert watch.last_id == events[-1].id
        async with client.watch("build/", since=events[1].id) as later:
            assert (await anext(later)).token == events[2].token
        with pytest.raises(holdfast.Compacted):
            await anext(client.watch(since=10_000))
        with pytest.raises(holdfast.InvalidRequest):
            await anext(client.watch(since="never"))


async def test_a_session_is_watched_to_its_end(new_client: NewClient) -> None:
    """What it loses is told at once, nothing of others; the iteration ends with the session."""
    async with a_node() as (served, url), new_client(url, owner="me") as client, new_client(url) as other:
        async with client.session() as session:
            watch = session.watch()
            await watch.begin()
            async with other.lock("b"):
                """Held by somebody else."""
            lost = client.lock("a", session=session)
            await lost.acquire()
            await other.admin.force_release("a", reason="because")
            events = [await anext(watch) for _ in range(2)]
            assert [(event.event, event.name, event.reason) for event in events] == [
                ("granted", "a", ""),
                ("forced", "a", "because"),
            ]
            session_id = session.session_id
        assert [event.event async for event in watch] == []
        session = await client.session().open()
        watch = session.watch()
        await watch.begin()
        (opened,) = sessions_of(served)
        await other.admin.force_close_session(session_name(opened), reason="because")
        assert [event.event async for event in watch] == ["session-forced"]
        assert session_id not in str(events)
        with pytest.raises(holdfast.SessionExpired):
            await anext(session.watch())
        assert len(sessions_of(served)) == 0


async def test_a_fence_refuses_smaller_tokens(new_client: NewClient) -> None:
    """The cluster remembers the highest token of a resource; a check asks for current holders."""
    async with a_node() as (served, url), new_client(url) as client:
        served.draw(42)
        fence = client.fence("disk/7")
        assert await fence.highest() is None
        assert await fence.advance(42) == 42
        assert await fence.highest() == 42
        with pytest.raises(holdfast.InvalidRequest, match="newest that was granted"):
            await fence.advance(43)
        with pytest.raises(holdfast.StaleToken) as caught:
            await fence.advance(41)
        assert (caught.value.token, caught.value.highest_token) == (41, 42)
        async with client.session(labels={"host": "rack-3"}) as session, client.lock("a", session=session):
            (holder,) = (await client.inspect("a")).holders
            assert holder.session_name
            assert holder.labels == {"host": "rack-3", "owner": holder.owner}
        async with client.lock("a") as hold:
            assert (await client.check_token("a", hold.token)).valid
        assert not (await client.check_token("a", hold.token)).valid


async def test_cells_are_written_read_and_deleted(new_client: NewClient) -> None:
    """Values are texts or bytes; a change may depend on what was read; a listing goes on over pages."""
    async with a_node() as (_, url), new_client(url) as client:
        cells = client.cells
        assert await cells.get("app/release") is None
        first = await cells.put("app/release", "v41", if_version=0)
        with pytest.raises(holdfast.CellChanged) as caught:
            await cells.put("app/release", "v0", if_version=0)
        assert caught.value.problem["version"] == first.version == 1
        await cells.put(("app", "a/b"), b"\xff\x00", ttl=60)
        await cells.put("app/empty", "", if_mod_revision=0)
        release, odd = await cells.get("app/release"), await cells.get("app/a%2Fb", is_stale=True)
        assert release is not None
        assert (release.text, release.mod_revision, release.expires_in_ms) == (
            "v41",
            first.mod_revision,
            None,
        )
        assert odd is not None
        assert odd.value == b"\xff\x00"
        assert odd.expires_in_ms
        with pytest.raises(UnicodeDecodeError):
            assert odd.text
        for index in range(101):
            await cells.put(f"many/{index:03}", str(index))
        assert [cell.text async for cell in cells.list("many/")] == [str(index) for index in range(101)]
        with pytest.raises(holdfast.CellChanged):
            await cells.delete("app/release", if_mod_revision=first.mod_revision + 1)
        assert await cells.delete("app/release", if_mod_revision=first.mod_revision)
        assert not await cells.delete("app/release")
        assert await cells.delete_prefix("many/") == 101
        with pytest.raises(ValueError, match="delete_all"):
            await cells.delete_prefix("")
        assert [cell.key async for cell in cells.list()] == ["app/a%2Fb", "app/empty"]
        with pytest.raises(holdfast.InvalidRequest):
            await cells.get("k" * 513)
        with pytest.raises(ValueError, match="in a transaction"):
            await cells.get("..")


async def test_a_transaction_depends_on_cells_and_holds(new_client: NewClient) -> None:
    """Who has lost the lock writes nothing; and a session takes what it kept along."""
    async with a_node() as (_, url), new_client(url) as client:
        async with client.session() as session, client.lock("deploy") as hold:
            done = await client.cells.transact(
                compare=[holdfast.StillHeld(hold), holdfast.CellIs("app/release", version=0)],
                then=[
                    holdfast.CellPut("app/release", b"v42"),
                    holdfast.CellPut("app/me", "here", session=session),
                    holdfast.CellGet("app/me"),
                    holdfast.CellDelete(("app", "canary")),
                ],
            )
            written, _, me, was_there = done.results
            assert done.succeeded
            assert isinstance(written, holdfast.CellWritten)
            assert isinstance(me, holdfast.Cell)
            assert (written.version, me.text, was_there) == (1, "here", False)
        late = await client.cells.transact(
            compare=[holdfast.StillHeld(hold.hold_id)],
            then=[holdfast.CellPut("app/release", "late")],
            otherwise=[holdfast.CellGet("app/release"), holdfast.CellGet("app/me")],
        )
        release, me = late.results
        assert not late.succeeded
        assert isinstance(release, holdfast.Cell)
        assert (release.value, me) == (b"v42", None)
        older = holdfast.CellIs("app/release", value="v43", relation="<")
        assert (await client.cells.transact(compare=[older])).succeeded


async def test_what_is_there_and_what_happened(new_client: NewClient) -> None:
    """A listing goes on over pages; the audit has the newest first."""
    async with a_node() as (_, url), new_client(url) as client:
        holds = [await client.acquire(f"x/{index:03}", wait=0, renew=False) for index in range(101)]
        assert [info.name async for info in client.list("x/")] == [hold.name for hold in holds]
        await holds[0].release()
        await client.release(holds[1].hold_id)
        assert [event.event for event in await client.audit("x/001")] == ["released", "granted"]


async def test_a_lock_is_not_kept_for_longer_than_allowed(new_client: NewClient) -> None:
    """After max_hold the hold is lost: told at once, raised at the end, and then free for others."""
    async with a_node() as (served, url), new_client(url) as client:
        told: list[str] = []
        with pytest.raises(holdfast.LeaseLost) as caught:  # noqa: PT012 - a block is what is tested
            async with client.lock("a", max_hold=0.2, on_lost=lambda hold: told.append(hold.reason)) as hold:
                await _until(lambda: told)
                await _until(hold.lost.is_set)
        assert (caught.value.reason, told) == ("max-hold", ["max-hold"])
        await _until(lambda: not _holds(served))


async def test_an_error_of_the_block_comes_out_and_the_lock_is_released(new_client: NewClient) -> None:
    """The block's own exception passes unchanged."""
    async with a_node() as (served, url), new_client(url) as client:
        with pytest.raises(ZeroDivisionError):
            async with client.lock("a"):
                raise ZeroDivisionError
        assert _holds(served) == 0


async def test_closing_a_client_releases_what_it_keeps(new_client: NewClient) -> None:
    """Holds and sessions that it renews are given back; those that nothing renews live on."""
    async with a_node() as (served, url):
        async with new_client(url) as client:
            kept = await client.lock("a").acquire()
            session = await client.session().open()
            await client.acquire("b", wait=0, renew=False)
            assert _holds(served) == 2
        assert (kept.reason, session.reason) == ("released", "released")
        assert (_holds(served), len(sessions_of(served))) == (1, 0)


async def test_a_forced_release_is_heard_of(new_client: NewClient) -> None:
    """An operator ends the hold; at its next renewal it is lost, and the end of the block says so."""
    async with a_node() as (_, url), new_client(url) as client, new_client(url) as operator:
        with pytest.raises(holdfast.LeaseLost) as caught:  # noqa: PT012 - a block is what is tested
            async with client.lock("a", ttl=9) as hold:
                former = await operator.admin.force_release("a", reason="a test")
                assert [holder.token for holder in former] == [hold.token]
                await _until(hold.lost.is_set)
        assert caught.value.reason == hold.reason
        assert hold.reason in {"lease-expired", "expired"}


async def test_an_operator_overrides_what_others_have(new_client: NewClient) -> None:
    """A session is ended by its public name, a delay is lifted, a fence forgotten; what is gone is told."""
    async with a_node() as (_, url), new_client(url) as client, new_client(url) as operator:
        with pytest.raises(holdfast.LeaseLost) as caught:  # noqa: PT012 - a block is what is tested
            async with client.session(ttl=9) as session:
                hold = await client.lock("a", session=session).acquire()
                (holder,) = (await operator.inspect("a")).holders
                assert await operator.admin.force_close_session(holder.session_name, reason="a test") == (
                    "a",
                )
                await _until(hold.lost.is_set)
        assert caught.value.reason == "session-expired"
        with pytest.raises(holdfast.SessionExpired):
            await operator.admin.force_close_session(holder.session_name, reason="a test")
        await operator.lock("a", ttl=9, renew=False).acquire()
        await operator.admin.force_release("a", reason="a test", lock_delay=60)
        assert await operator.admin.lift_delay("a", reason="a test") == 1
        assert await operator.admin.lift_delay("a", reason="a test", kind="semaphore") == 0
        with pytest.raises(ValueError, match="kind: 'election'"):
            await operator.admin.lift_delay("a", reason="a test", kind="election")  # type: ignore[arg-type]
        await operator.fence("a").advance(1)
        assert await operator.admin.forget_fence("a", reason="a test") == 1
        assert await operator.admin.forget_fence("a", reason="a test") is None
        await operator.fence("a").advance(0)


async def test_rate_limits_are_forgotten(new_client: NewClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """One name, those below a prefix, or all: as many calls as that takes. They may be taken from at once.

    A name may be the last part of another call's path.
    """
    monkeypatch.setattr(limits, "RATES_FORGOTTEN_MAX", 2)
    async with a_node() as (_, url), new_client(url) as operator:
        limiters = [operator.rate_limiter(name, "1/minute") for name in ("take", "b/1", "b/2", "b/3", "c")]
        for limiter in limiters:
            await limiter.take()
        assert await operator.admin.forget_rate_limit("take", reason="a test") == 1
        assert await operator.admin.forget_rate_limit("take", reason="a test") == 0
        await limiters[0].take()
        assert await operator.admin.forget_rate_limits("b/", reason="a test") == 3
        assert await operator.admin.forget_all_rate_limits(reason="a test") == 2
        for limiter in limiters:
            await limiter.take()
        with pytest.raises(ValueError, match="the prefix is empty; forget_all_rate_limits"):
            await operator.admin.forget_rate_limits("", reason="a test")


async def test_waits_are_ended_by_force(new_client: NewClient) -> None:
    """Those that waited are told why; more than one call ends are ended by several."""
    async with a_node() as (served, url), new_client(url) as operator, new_client(url) as other:
        queue: Callable[[], Any] = lambda: served.node.machine.lock("a").queue  # noqa: E731 - looked at often
        await operator.lock("a", ttl=60, renew=False).acquire()
        waiting = asyncio.ensure_future(other.lock("a", wait=60).acquire())
        await _until(queue)
        more = [asyncio.ensure_future(served.acquire("a", wait_ms=60_000)) for _ in range(2)]
        await _until(lambda: len(queue()) == len(more) + 1)
        first, *rest = [one.ticket for one in queue()]
        (ended,) = await operator.admin.force_waits("a", reason="it hangs", ticket=first)
        assert (ended.name, ended.position, ended.ticket) == ("a", 1, first)
        with pytest.raises(holdfast.Refused, match="it hangs") as caught:
            await waiting
        assert caught.value.code == "ticket-ended"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(limits, "WAITS_FORCED_PER_COMMAND_MAX", 1)
            ended_all = await operator.admin.force_waits("a", reason="a test")
        assert [one.ticket for one in ended_all] == rest
        assert await operator.admin.force_waits("a", reason="a test", kind="election") == ()
        with pytest.raises(holdfast.Refused) as caught:
            await operator.admin.force_waits("a", reason="a test", ticket=first)
        assert caught.value.code == "ticket-ended"
        assert [got.body["code"] for got in await asyncio.gather(*more)] == ["ticket-ended"] * 2


async def test_a_session_does_not_acquire_twice_what_it_holds(new_client: NewClient) -> None:
    """Both would get the same hold, and be inside at once: the second is told, until the first has left."""
    async with a_node() as (_, url), new_client(url) as client, client.session() as session:
        lock = client.lock("a", session=session)
        for acquirable in (lock, client.lock("a", session=session, mode="shared", wait=0)):
            async with lock as hold:
                with pytest.raises(holdfast.AlreadyHeld):
                    await acquirable.acquire()
                assert (await client.inspect("a")).holders[0].token == hold.token
        async with client.election("a", session=session):
            with pytest.raises(holdfast.AlreadyHeld):
                await client.election("a", session=session).acquire()
        async with client.semaphore("a", limit=2, session=session) as one:
            two = await client.semaphore("a", limit=2, session=session).acquire()
            assert one.hold_id != two.hold_id
        with pytest.raises(holdfast.InvalidRequest):
            await client.lock("a", session=session, mode="best").acquire()  # type: ignore[arg-type]
        await (await lock.acquire()).release()
