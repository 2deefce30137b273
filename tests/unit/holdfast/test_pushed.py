"""What a session or a hold with `push` loses: the client hears of it at once, not with its next renewal."""

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

import holdfast
from cluster.config import Address
from holdfast import wire
from holdfast.client import pushed
from holdfast.operations.hold_operations import Opened
from holdfast.values.lease import Lease
from holdfast.values.words import HoldKind
from tests.support.tap import tapped
from tests.unit.holdfast.conftest import NewClient, a_node
from tests.unit.holdfast.scripted import ScriptedNode, Step, answer, problem, reset, status
from tests.unit.http_api.serving import Served

SOON_S = 20.0
"""Seconds that a slow machine may need; a keepalive would come after minutes."""
LONG_S = 3600


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(SOON_S):
        while not condition():  # noqa: ASYNC110 - what is waited for may be in another thread
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def _operator(served: Served) -> AsyncIterator[holdfast.Client]:
    async with holdfast.Client(f"http://127.0.0.1:{served.port}", owner="operator") as client:
        yield client


async def test_a_hold_that_is_forced_away_is_lost_at_once(new_client: NewClient) -> None:
    """The flag is set, the callback called with what became of it; what else there is, is as before."""
    told: list[holdfast.Hold | holdfast.SyncHold] = []
    async with (
        a_node() as (served, url),
        _operator(served) as operator,
        new_client(url) as client,
        client.session(ttl=LONG_S, push=True) as session,
    ):
        lock = client.lock("a", session=session, on_lost=told.append)
        hold = await lock.acquire()
        other = await client.lock("b", session=session).acquire()
        await operator.admin.force_release("a", reason="a test")
        await _until(hold.lost.is_set)
        await _until(lambda: told)
        (lost,) = told
        assert (hold.reason, hold.state) == (lost.reason, lost.state) == ("lease-expired", "lost")
        with pytest.raises(holdfast.LeaseLost, match="is lost: lease-expired: forced: a test"):
            lost.ensure()
        assert other.is_valid
        assert session.is_valid
        again = await client.lock("a", session=session).acquire()
        assert again.is_valid


async def test_a_hold_that_somebody_else_hands_over_is_lost_at_once(new_client: NewClient) -> None:
    """Whoever knows the id may do so; what this client hands over itself is not lost."""
    async with (
        a_node() as (served, url),
        new_client(url) as client,
        client.session(ttl=LONG_S, push=True) as session,
        new_client(url) as other,
        other.session(ttl=LONG_S) as receiver,
    ):
        name = await receiver.public_name()
        own = await client.lock("a", session=session).acquire()
        taken = await client.lock("b", session=session).acquire()
        await own.hand_over(to_session=name)
        assert (own.reason, own.lost.is_set()) == ("released", False)
        fields = {"hold_id": taken.hold_id, "to_session": name, "new_hold_id": "f" * 32}
        assert (await served.post(wire.LOCK_HAND_OVER, **fields)).status == 200
        await _until(taken.lost.is_set)
        assert taken.reason == "lease-expired"


async def test_the_block_of_a_session_that_is_ended_is_cancelled() -> None:
    """All that it held is over with it, each for itself."""
    async with a_node() as (served, url), holdfast.Client(url) as client, _operator(served) as operator:
        with pytest.raises(holdfast.LeaseLost) as caught:  # noqa: PT012 - a block is what is tested
            async with client.session(ttl=LONG_S, push=True) as session, asyncio.timeout(SOON_S):
                hold = await client.lock("a", session=session).acquire()
                (holder,) = (await client.inspect("a")).holders
                await operator.admin.force_close_session(holder.session_name, reason="a test")
                await asyncio.Event().wait()
        assert (caught.value.reason, hold.reason) == ("session-expired", "lease-expired")
        assert "session-forced: a test" in str(caught.value)


async def test_a_converted_hold_is_known_by_its_new_token(new_client: NewClient) -> None:
    """It is the one that the cluster names when it is forced away."""
    async with (
        a_node() as (served, url),
        _operator(served) as operator,
        new_client(url) as client,
        client.session(ttl=LONG_S, push=True) as session,
    ):
        hold = await client.lock("a", session=session, mode="shared").acquire()
        token = hold.token
        await hold.convert("exclusive")
        assert hold.token > token
        await operator.admin.force_release("a", reason="a test")
        await _until(hold.lost.is_set)


async def test_what_is_released_is_not_lost() -> None:
    """By its user, with all events of that in the ears of the client; with the session it stops listening."""
    async with a_node() as (_, url), holdfast.Client(url) as client:
        async with client.session(ttl=LONG_S, push=True) as session:
            async with client.lock("a", session=session) as hold:
                assert _listening()
            assert hold.reason == "released"
            assert not hold.lost.is_set()
        assert not session.lost.is_set()
        await _until(lambda: not _listening())


def _listening() -> bool:
    return any("hear_losses" in repr(task) for task in asyncio.all_tasks())


async def test_it_goes_on_over_another_connection() -> None:
    """The one that it had breaks; what was forced meanwhile is told all the same."""
    async with (
        a_node() as (served, _),
        _operator(served) as operator,
        tapped(Address("127.0.0.1", served.port)) as (tap, address),
        holdfast.Client(f"http://127.0.0.1:{address.port}") as client,
        client.session(ttl=LONG_S, push=True) as session,
    ):
        hold = await client.lock("a", session=session).acquire()
        await _until(lambda: b"text/event-stream; " in bytes(tap.seen) or b"id: " in bytes(tap.seen))
        tap.cut()
        await operator.admin.force_release("a", reason="a test")
        await _until(hold.lost.is_set)


@contextlib.asynccontextmanager
async def _hearing_late(monkeypatch: pytest.MonkeyPatch, *, since: int | None = -1) -> AsyncIterator[None]:
    """Sessions that are opened within begin to hear at its end: behind their opening, or behind `since`."""
    hear_losses, may_begin = pushed.hear_losses, asyncio.Event()

    async def hear_late(session: "weakref.ref[pushed.Loser]", opened: int | None) -> None:
        await may_begin.wait()
        await hear_losses(session, opened if since == -1 else since)

    monkeypatch.setattr(pushed, "hear_losses", hear_late)
    monkeypatch.setattr(pushed, "AGAIN_S", 0.01)
    yield
    may_begin.set()


async def test_what_was_forced_before_the_watch_is_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch begins behind the opening of the session, and not when the node comes to it."""
    async with a_node() as (served, url), _operator(served) as operator, holdfast.Client(url) as client:
        async with _hearing_late(monkeypatch):
            session = await client.session(ttl=LONG_S, push=True).open()
            hold = await client.lock("a", session=session).acquire()
            await operator.admin.force_release("a", reason="a test")
        await _until(hold.lost.is_set)
        assert session.is_valid


@pytest.mark.parametrize("since", [None, 1_000_000])
async def test_where_events_are_gone_it_looks_at_what_is_still_held(
    monkeypatch: pytest.MonkeyPatch, since: int | None
) -> None:
    """So it is after a revision that no node knows, too. Whatever is still held is as before."""
    async with a_node() as (served, url), _operator(served) as operator, holdfast.Client(url) as client:
        async with _hearing_late(monkeypatch, since=since):
            session = await client.session(ttl=LONG_S, push=True).open()
            lost = await client.lock("a", session=session).acquire()
            kept: list[holdfast.Hold] = [
                await client.lock("b", session=session, mode="shared").acquire(),
                await client.locks("c/1", "c/2", session=session).acquire(),
                await client.semaphore("gpu", limit=2, session=session).acquire(),
                await client.election("primary", session=session).acquire(),
            ]
            await operator.admin.force_release("a", reason="a test")
        await _until(lost.lost.is_set)
        assert all(hold.is_valid for hold in kept)
        await operator.admin.force_release("b", reason="a test")
        await _until(kept[0].lost.is_set)


async def test_a_hold_that_is_forced_away_before_its_grant_arrives_is_lost() -> None:
    """What is told of a hold that is not known yet is remembered."""
    async with (
        a_node() as (served, url),
        _operator(served) as operator,
        tapped(Address("127.0.0.1", served.port)) as (tap, address),
        holdfast.Client(url) as client,
        holdfast.Client(f"http://127.0.0.1:{address.port}") as slow,
    ):
        session = await client.session(ttl=LONG_S, push=True).open()
        other = await client.lock("b", session=session).acquire()
        await slow.inspect("a")  # its connection is open, and stalls from now on
        tap.stall("acceptor")
        lock = client.lock("a", session=session)
        lock._transport = slow._transport
        acquiring = asyncio.create_task(lock.acquire())
        await _until(lambda: len(served.node.machine.state.holds) == 2)
        await operator.admin.force_release("a", reason="a test")
        await operator.admin.force_release("b", reason="a test")
        await _until(other.lost.is_set)  # so the loss of the first one was told before
        tap.go_on()
        with pytest.raises(holdfast.LeaseLost) as caught:
            await acquiring
        assert caught.value.reason == "lease-expired"
        assert (await client.lock("a", session=session).acquire()).is_valid


async def test_a_loss_may_name_a_token_that_a_conversion_tells_later() -> None:
    """The hold is over as soon as it is known to be the one with this token."""
    async with a_node() as (_, url), holdfast.Client(url) as client, client.session(ttl=LONG_S) as session:
        over = holdfast.LeaseExpired("lease-expired", "forced")
        hold = await client.lock("a", session=session, mode="shared").acquire()
        session.end_hold(hold.token + 1, over)
        assert hold.is_valid
        hold._has_token(hold.token + 1)
        assert (hold.reason, hold.cause) == ("lease-expired", over)
        for token in range(10_000, 12_000):
            session.end_hold(token, over)
        assert len(session._over) == 1000


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_session_that_ends_while_nobody_listens_is_lost(
    monkeypatch: pytest.MonkeyPatch, *, has_begun: bool
) -> None:
    """Before the first connection of the watch, or between two: the node that is asked next says so."""
    async with (
        a_node() as (served, _),
        _operator(served) as operator,
        tapped(Address("127.0.0.1", served.port)) as (tap, address),
        holdfast.Client(f"http://127.0.0.1:{address.port}") as client,
    ):
        async with contextlib.nullcontext() if has_begun else _hearing_late(monkeypatch):
            session = await client.session(ttl=LONG_S, push=True).open()
            hold = await client.lock("a", session=session).acquire()
            (holder,) = (await operator.inspect("a")).holders
            if has_begun:
                await _until(lambda: b"\nid: " in bytes(tap.seen))
                tap.cut()
            await operator.admin.force_close_session(holder.session_name, reason="a test")
        await _until(session.lost.is_set)
        assert session.reason == "session-expired"
        assert hold.lost.is_set()


@pytest.mark.parametrize(
    "refusal", [problem("forbidden"), problem("compacted", oldest=9), status(404), reset]
)
async def test_where_losses_are_not_pushed_keepalives_tell(refusal: Step) -> None:
    """Nothing fails because a node, or something in between, does not tell."""

    async def answer_each(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/watch"):
            return await refusal(request)
        step = opened if request.path == wire.SESSIONS else problem("session-expired")
        return await step(request)

    opened = answer(session_id="s", ttl_ms=900, expires_in_ms=900, revision=1)
    async with ScriptedNode(answer_each) as node, holdfast.Client([node.url], timeout=0.2) as client:
        session = await client.session(ttl=0.9, push=True).open()
        await _until(session.lost.is_set)
        assert session.reason == "session-expired"
        asked = sum(request.path.startswith(f"{wire.SESSIONS}/s/watch") for request in node.seen)
        assert 0 < asked < (20 if refusal is reset else 2)  # again and again, if at all, but with a pause


async def test_a_node_that_does_not_tell_is_not_the_only_one_that_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is of an older release, or does not know the client: another one tells."""
    monkeypatch.setattr(pushed, "AGAIN_S", 0.01)
    async with (
        a_node() as (served, url),
        ScriptedNode(status(404)) as old,
        _operator(served) as operator,
        holdfast.Client([url, old.url]) as client,
    ):
        client._transport.node = 0
        hold = await client.lock("a", ttl=LONG_S).acquire()
        client._transport.node = 1
        hold.hear_losses()
        await _until(lambda: old.seen)
        await operator.admin.force_release("a", reason="a test")
        await _until(hold.lost.is_set)
        assert len(old.seen) == 1


async def test_who_has_no_place_among_the_listeners_asks_more_and_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that is full is not asked all the time by those that it has no room for."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == len(least_s):
            raise asyncio.CancelledError

    least_s = (2.5, 5, 10, 20, 30, 30)
    async with ScriptedNode(problem("overloaded")) as node, holdfast.Client([node.url]) as client:
        monkeypatch.setattr(pushed, "PATIENCE_S", 0.0)
        session = holdfast.Session(client._transport, Opened("s", Lease(0.0, 10**9), 1))
        monkeypatch.setattr(session, "clock", SimpleNamespace(sleep=sleep, now_s=session.clock.now_s))
        with pytest.raises(asyncio.CancelledError):
            await pushed.hear_losses(weakref.ref(session), 1)
        assert all(low < pause <= 2 * low for pause, low in zip(pauses, least_s, strict=True))
        assert len(node.seen) <= 12


# -- what has no session -----------------------------------------------------------------------------------

_PUSHED: dict[str, Callable[[holdfast.Client], Any]] = {
    "lock": lambda client: client.lock("a", ttl=LONG_S, push=True),
    "locks": lambda client: client.locks("z", "a", ttl=LONG_S, push=True),
    "semaphore": lambda client: client.semaphore("a", limit=2, ttl=LONG_S, push=True),
    "together": lambda client: client.together(
        "a", permits=[holdfast.WantedPermits("gpu", limit=2)], ttl=LONG_S, push=True
    ),
    "election": lambda client: client.election("a", ttl=LONG_S, push=True),
}


_KINDS: dict[str, HoldKind] = {"semaphore": "semaphore", "election": "election"}


@pytest.mark.parametrize("kind", _PUSHED)
async def test_what_has_a_lease_of_its_own_is_lost_at_once(kind: str) -> None:
    """Whatever it is; and another hold of the same client is as before."""
    async with a_node() as (served, url), holdfast.Client(url) as client, _operator(served) as operator:
        hold = await _PUSHED[kind](client).acquire()
        other = await client.lock("b", ttl=LONG_S, push=True).acquire()
        await operator.admin.force_release("a", reason="a test", kind=_KINDS.get(kind, "lock"))
        await _until(hold.lost.is_set)
        assert hold.reason == "lease-expired"
        assert other.is_valid
        await client.lock("a", wait=0, renew=False).acquire()


@pytest.mark.parametrize("is_pushed", [False, True])
async def test_what_is_left_of_a_leader_that_was_deposed_ends(*, is_pushed: bool) -> None:
    """The session that was opened for it, its keepalives and its watch: by push, or when it says more."""
    async with a_node() as (served, url), holdfast.Client(url) as client, _operator(served) as operator:
        for _ in range(3):
            with pytest.raises(holdfast.LockError):  # noqa: PT012 - a block is what is tested
                async with client.election("a", ttl=LONG_S, push=is_pushed) as leadership:
                    await operator.admin.force_release("a", reason="a test", kind="election")
                    async with asyncio.timeout(SOON_S):
                        await (leadership.lost.wait() if is_pushed else leadership.proclaim("more"))
                        await asyncio.Event().wait()
            assert leadership.reason == "lease-expired"
        await _until(lambda: not served.node.machine.state.sessions)
        await _until(lambda: not _listening())
        assert not client._transport.kept


async def test_a_hold_hears_of_its_end_after_a_conversion_and_over_another_connection() -> None:
    """Its token is another one then, and the connection that it had breaks."""
    async with (
        a_node() as (served, _),
        _operator(served) as operator,
        tapped(Address("127.0.0.1", served.port)) as (tap, address),
        holdfast.Client(f"http://127.0.0.1:{address.port}") as client,
    ):
        hold = await client.lock("a", mode="shared", ttl=LONG_S, push=True).acquire()
        await hold.convert("exclusive")
        await _until(lambda: b"\nid: " in bytes(tap.seen))
        tap.cut()
        await operator.admin.force_release("a", reason="a test")
        await _until(hold.lost.is_set)
        assert hold.reason == "lease-expired"


async def test_a_hold_that_is_over_before_the_watch_begins_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node that is asked says that there is no such hold."""
    async with a_node() as (served, url), _operator(served) as operator, holdfast.Client(url) as client:
        async with _hearing_late(monkeypatch):
            hold = await client.lock("a", ttl=LONG_S, push=True).acquire()
            await operator.admin.force_release("a", reason="a test")
        await _until(hold.lost.is_set)
        assert hold.reason == "lease-expired"


async def test_a_hold_that_is_released_is_not_lost_and_not_listened_for() -> None:
    """Its block ends as without `push`."""
    async with a_node() as (_, url), holdfast.Client(url) as client:
        async with client.lock("a", ttl=LONG_S, push=True) as hold:
            assert _listening()
        assert (hold.reason, hold.lost.is_set()) == ("released", False)
        await _until(lambda: not _listening())


async def test_what_lives_in_a_session_hears_with_it() -> None:
    """To ask for both is refused with what to do."""
    async with a_node() as (_, url), holdfast.Client(url) as client, client.session(ttl=LONG_S) as session:
        with pytest.raises(ValueError, match="give push to the session"):
            client.lock("a", session=session, push=True)


async def test_a_thread_hears_of_a_forced_end_at_once() -> None:
    """The client for threads has the same flag."""
    async with a_node() as (served, url), _operator(served) as operator:
        client = holdfast.SyncClient(url)
        hold = await asyncio.to_thread(client.lock("a", ttl=LONG_S, push=True).acquire)
        await operator.admin.force_release("a", reason="a test")
        assert await asyncio.to_thread(hold.lost.wait, SOON_S)
        assert hold.reason == "lease-expired"
        await asyncio.to_thread(client.close)
