"""Whether a hold is valid while it is handed over, and after each outcome: never by mistake."""

import asyncio
import contextlib

import pytest
from aiohttp import web

import holdfast
from cluster.config import Address
from holdfast import wire
from tests.support.tap import tapped
from tests.unit.holdfast.conftest import NewClient, a_node
from tests.unit.holdfast.scripted import (
    ScriptedNode,
    Step,
    answer,
    granted,
    problem,
    released,
    renewed,
    reset,
    silence,
)
from tests.unit.http_api.serving import until

REFUSALS = ["ticket-ended", "session-expired", "quota-exceeded", "frozen", "deadlock", "invalid-request"]
handed_over = answer(token=8, owner="b", revision=12)
given_up = (False, "released", False)
"""The state of a hold that was given up on purpose."""
lost = (False, "lease-expired", True)
held = (True, "", False)


def state_of(hold: holdfast.Hold) -> tuple[bool, str, bool]:
    """Return whether a hold is valid, its reason, and whether it says that it was lost."""
    return hold.is_valid, hold.reason, hold.lost.is_set()


class Giving:
    """A node that grants a lock, and answers a hand-over when it is told how."""

    def __init__(self, renew: Step | None = None, expires_in_ms: int = 900) -> None:
        self._steps: dict[str, Step] = {
            wire.LOCK_ACQUIRE: granted(expires_in_ms=expires_in_ms),
            wire.LOCK_RENEW: renew or renewed(expires_in_ms=900),
            wire.LOCK_RELEASE: released,
            wire.LOCK_HAND_OVER: self._hand_over,
        }
        self._answer: asyncio.Future[Step] = asyncio.get_running_loop().create_future()
        self.node = ScriptedNode(self._step)

    async def _step(self, request: web.Request) -> web.StreamResponse:
        return await self._steps.get(request.path, problem("not-found"))(request)

    async def _hand_over(self, request: web.Request) -> web.StreamResponse:
        return await (await asyncio.shield(self._answer))(request)

    def answer(self, step: Step) -> None:
        """Answer the hand-over, and each repetition of it, with this."""
        self._answer.set_result(step)

    def count(self, path: str) -> int:
        """Return how often something was asked."""
        return sum(request.path == path for request in self.node.seen)

    async def begin(self, hold: holdfast.Hold) -> "asyncio.Task[int]":
        """Hand over; return as soon as that is on its way, with what waits for the answer."""
        handing = asyncio.ensure_future(hold.hand_over(to_ticket=1))
        await until(lambda: self.count(wire.LOCK_HAND_OVER))
        return handing


async def test_the_giver_is_not_valid_when_the_receiver_is(new_client: NewClient) -> None:
    """However late the answer comes: the receiver has the lock before."""
    async with (
        a_node() as (served, url),
        tapped(Address("127.0.0.1", served.port)) as (tap, address),
        new_client(f"http://127.0.0.1:{address.port}") as giver,
        new_client(url) as receiver,
    ):
        hold = await giver.lock("a", ttl=60).acquire()
        waiting = asyncio.ensure_future(receiver.lock("a", ttl=60, wait=60).acquire())
        await until(lambda: served.node.machine.lock("a").queue)
        (waiter,) = served.node.machine.lock("a").queue
        tap.stall("acceptor")
        handing = asyncio.ensure_future(hold.hand_over(to_ticket=waiter.ticket))
        given = await waiting
        assert given.is_valid
        assert not handing.done()
        assert (state_of(hold), hold.remaining, hold.state) == (given_up, 0, "released")
        with pytest.raises(holdfast.LeaseLost):
            hold.ensure()
        tap.go_on()
        assert await handing == given.token
        assert (state_of(hold), hold.state) == (given_up, "released")
        await given.release()


@pytest.mark.parametrize("doubt", [reset, silence, problem("outcome-unknown"), answer(token="?")])
async def test_after_an_answer_that_was_lost_it_is_never_valid(new_client: NewClient, doubt: Step) -> None:
    """Neither at once nor later; and it is released, in case that it was not handed over."""
    giving = Giving()
    async with giving.node as node, new_client(node.url, timeout=0.3) as client:
        hold = await client.lock("a/b", ttl=0.9).acquire()
        handing = await giving.begin(hold)
        giving.answer(doubt)
        with pytest.raises(holdfast.OutcomeUnknown):
            await handing
        assert state_of(hold) == given_up
        await until(lambda: giving.count(wire.LOCK_RELEASE))
        assert state_of(hold) == given_up


@pytest.mark.parametrize("code", ["unauthenticated", "forbidden"])
async def test_a_repetition_that_is_refused_does_not_make_it_valid(new_client: NewClient, code: str) -> None:
    """The first answer was lost, so it may have been handed over before the token was taken away."""
    giving, steps = Giving(), iter((reset, problem(code)))

    async def first_lost(request: web.Request) -> web.StreamResponse:
        return await next(steps)(request)

    async with giving.node as node, new_client(node.url) as client:
        hold = await client.lock("a/b", ttl=0.9).acquire()
        handing = await giving.begin(hold)
        giving.answer(first_lost)
        with pytest.raises(holdfast.OutcomeUnknown, match=code) as caught:
            await handing
        assert isinstance(caught.value.__cause__, holdfast.AccessDenied)
        assert state_of(hold) == given_up


async def test_after_a_cancellation_it_is_never_valid() -> None:
    """Whatever the cluster would have answered."""
    giving = Giving()
    async with giving.node as node, holdfast.Client(node.url) as client:
        hold = await client.lock("a/b", ttl=0.9).acquire()
        handing = await giving.begin(hold)
        assert state_of(hold) == given_up
        handing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handing
        assert state_of(hold) == given_up
        giving.answer(problem("ticket-ended"))
        await until(lambda: giving.count(wire.LOCK_RELEASE))
        assert state_of(hold) == given_up


@pytest.mark.parametrize("code", [*REFUSALS, "no-leader"])
async def test_after_a_refusal_it_is_valid_again(new_client: NewClient, code: str) -> None:
    """It was renewed meanwhile, and goes on being renewed."""
    giving = Giving()
    async with giving.node as node, new_client(node.url, timeout=0.5) as client:
        hold = await client.lock("a/b", ttl=0.9).acquire()
        handing = await giving.begin(hold)
        before = giving.count(wire.LOCK_RENEW)
        await until(lambda: giving.count(wire.LOCK_RENEW) > before)
        assert state_of(hold) == given_up
        giving.answer(problem(code))
        with pytest.raises((holdfast.Refused, holdfast.Unavailable)) as caught:
            await handing
        assert getattr(caught.value, "code", "") == code
        assert state_of(hold) == held
        before = giving.count(wire.LOCK_RENEW)
        await until(lambda: giving.count(wire.LOCK_RENEW) > before + 3)  # a lease later
        assert state_of(hold) == held
        await hold.release()


async def test_a_refusal_does_not_bring_back_what_has_run_out() -> None:
    """A hold that is not renewed may end by its own time while it is handed over."""
    giving = Giving(expires_in_ms=300)
    async with giving.node as node, holdfast.Client(node.url) as client:
        hold = await client.lock("a/b", ttl=0.3, renew=False).acquire()
        handing = await giving.begin(hold)
        await until(lambda: hold.lease.remaining_s(hold.clock.now_s()) == 0 and hold.has_ended)
        assert state_of(hold) == given_up
        giving.answer(problem("ticket-ended"))
        with pytest.raises(holdfast.Refused):
            await handing
        assert state_of(hold) == (False, "expired", True)


async def test_a_loss_that_a_hand_over_finds_is_a_loss(new_client: NewClient) -> None:
    """It is told as one that a renewal finds; a block whose body goes on says so at its end."""
    told: list[str] = []
    async with a_node() as (_, url), new_client(url) as client:
        lock = client.lock("a", ttl=60, on_lost=lambda hold: told.append(hold.reason))
        hold = await lock.acquire()
        await client.admin.force_release("a", reason="a test")
        with pytest.raises(holdfast.LeaseExpired):
            await hold.hand_over(to_session="s-1")
        assert state_of(hold) == lost
        await until(lambda: told)
        assert told == ["lease-expired"]
        with pytest.raises(holdfast.LeaseLost) as caught:  # noqa: PT012 - a block is what is tested
            async with client.lock("a", ttl=60) as hold:
                await client.admin.force_release("a", reason="a test")
                with contextlib.suppress(holdfast.LeaseExpired):
                    await hold.hand_over(to_session="s-1")
        assert caught.value.reason == "lease-expired"
        assert state_of(hold) == lost


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (handed_over, given_up),
        (problem("ticket-ended"), lost),
        (problem("lease-expired"), lost),
        (reset, given_up),
    ],
    ids=["handed over", "refused", "over", "unknown"],
)
async def test_what_a_renewal_finds_meanwhile_counts_if_it_was_not_handed_over(
    new_client: NewClient, outcome: Step, state: tuple[bool, str, bool]
) -> None:
    """The renewal cannot know why the hold is over; the answer to the hand-over says so."""
    giving = Giving(renew=problem("lease-expired"))
    async with giving.node as node, new_client(node.url, timeout=0.5) as client:
        hold = await client.lock("a/b", ttl=0.9).acquire()
        handing = await giving.begin(hold)
        await until(lambda: hold.has_ended)
        assert state_of(hold) == given_up
        giving.answer(outcome)
        with contextlib.suppress(holdfast.LockError):
            await handing
        assert state_of(hold) == state
        assert giving.count(wire.LOCK_RENEW) == 1


async def test_of_two_hand_overs_the_one_that_succeeds_counts() -> None:
    """The other one finds the hold over, because of the first."""
    giving = Giving()
    async with giving.node as node, holdfast.Client(node.url) as client:
        hold = await client.lock("a/b", ttl=0.9).acquire()
        steps = [handed_over, problem("lease-expired")]

        async def late(request: web.Request) -> web.StreamResponse:
            response = await steps.pop()(request)
            if steps:
                return response
            await until(lambda: sum(task.done() for task in both) == 1)
            assert state_of(hold) == given_up
            return response

        first = await giving.begin(hold)
        both = [first, asyncio.ensure_future(hold.hand_over(to_ticket=2))]
        await until(lambda: giving.count(wire.LOCK_HAND_OVER) == 2)
        giving.answer(late)
        await asyncio.wait(both)
        assert {type(task.exception()) for task in both} == {type(None), holdfast.LeaseExpired}
        assert state_of(hold) == given_up


@pytest.mark.parametrize("outcome", [handed_over, problem("ticket-ended")])
async def test_a_block_that_is_left_meanwhile_is_released(outcome: Step) -> None:
    """Nobody uses it any more, if it was not handed over; it is not lost, and never valid again."""
    giving = Giving()
    async with giving.node as node, holdfast.Client(node.url) as client:
        async with client.lock("a/b", ttl=0.9, if_held="count") as hold:
            async with client.lock("a/b", ttl=0.9, if_held="count"):
                hold.count()
                handing = await giving.begin(hold)
            assert giving.count(wire.LOCK_RELEASE) == 0
            hold.counts_down()
        assert giving.count(wire.LOCK_RELEASE) == 1
        giving.answer(outcome)
        await asyncio.wait([handing])
        assert state_of(hold) == given_up


async def test_closing_the_client_releases_what_is_being_handed_over() -> None:
    """A refusal that comes behind it changes nothing."""
    giving = Giving()
    async with giving.node as node, holdfast.Client(node.url) as client:
        hold = await client.lock("a/b", ttl=0.9).acquire()
        handing = await giving.begin(hold)
        await client.close()
        assert giving.count(wire.LOCK_RELEASE) == 1
        giving.answer(problem("ticket-ended"))
        await asyncio.wait([handing])
        assert handing.exception() is not None
        assert state_of(hold) == given_up
