"""The turns of large answers: one at a time, in order, with rests, and never lost."""

import asyncio
import itertools
import time

import pytest

from cluster.errors import Overloaded, ShuttingDown
from holdfast.wire.held import LockInfo
from holdfast.wire.listings import LockPageJson
from holdfast.wire.shape import FRESH
from lockapi.gateway import Gateway
from lockapi.problems import ProblemError
from lockapi.rights import ANYBODY, Principal, Rights
from lockapi.turns import REST_S_MAX, RESTS, Turns
from lockapi.views import lock_of, page_of
from lockstate.machine import LockMachine
from lockstate.words.views import LockView
from tests.support.local_node import LocalNode

STEP_S = 0.02
FAR_S = 60.0


def work(step_s: float = STEP_S) -> None:
    """Do what stops the loop for a while."""
    end_s = time.monotonic() + step_s
    while time.monotonic() < end_s:
        pass


def far() -> float:
    """Return a deadline that does not come."""
    return asyncio.get_running_loop().time() + FAR_S


@pytest.mark.parametrize("step_s", [STEP_S, 0])
async def test_after_each_step_comes_a_rest(step_s: float) -> None:
    """Between two steps the loop is free for twice as long as the first one took, or as long as was said."""
    rest_s_min = 0.01
    turns = Turns(rest_s_min)
    spans: list[tuple[float, float]] = []

    async def answer() -> None:
        async with turns.turn(far()):
            began_s = time.monotonic()
            work(step_s)
            spans.append((began_s, time.monotonic()))

    await asyncio.gather(*[answer() for _ in range(4)])
    for (began_s, ended_s), (next_s, _) in itertools.pairwise(spans):
        # The loop counts in milliseconds, and may run a timer that much early.
        rest_s = max(RESTS * (ended_s - began_s), rest_s_min)
        assert next_s - ended_s >= min(rest_s, REST_S_MAX) - 0.002


async def test_a_long_step_does_not_make_others_rest_for_ever() -> None:
    """A rest has an end, however long the step was."""
    turns = Turns()
    async with turns.turn(far()):
        work(3 * REST_S_MAX)
    began_s = time.monotonic()
    async with turns.turn(began_s + far()):
        assert time.monotonic() - began_s >= REST_S_MAX - 0.002


async def test_whoever_comes_first_is_served_first() -> None:
    """Turns are taken in the order in which they were asked for."""
    turns = Turns()
    served: list[int] = []

    async def answer(number: int) -> None:
        async with turns.turn(far()):
            served.append(number)

    await asyncio.gather(*[answer(number) for number in range(5)])
    assert served == [0, 1, 2, 3, 4]


async def test_a_turn_that_does_not_come_in_time_is_refused() -> None:
    """At its deadline a waiter is told that nothing was done, and those behind it still get their turns."""
    turns = Turns()
    async with turns.turn(far()):
        with pytest.raises(Overloaded, match="large answers"):
            async with turns.turn(asyncio.get_running_loop().time() + 0.01):
                pytest.fail("two have the turn")
    async with turns.turn(far()):
        assert turns._lock.locked()


async def test_a_waiter_that_goes_away_takes_no_turn_along() -> None:
    """When a waiting call is cancelled, or a step fails, the next one has its turn."""
    turns = Turns()

    async def wait() -> None:
        async with turns.turn(far()):
            pytest.fail("it was cancelled before")

    waiting: list[asyncio.Task[None]] = []

    async def fail() -> None:
        async with turns.turn(far()):
            waiting.append(asyncio.create_task(wait()))
            await asyncio.sleep(0)  # it waits by now
            waiting[0].cancel()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    async with turns.turn(far()):
        assert turns._lock.locked()


# -- views that take turns ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_stale", [False, True])
async def test_many_large_views_leave_the_loop_free_in_between(*, is_stale: bool) -> None:
    """Between the steps of views that were asked for at the same time the loop runs everything else."""
    gateway = Gateway(LocalNode())
    ticks = 0
    seen: list[int] = []

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    def query(machine: LockMachine) -> tuple[list[object], None]:
        del machine
        seen.append(ticks)
        work(0.005)
        return [], None

    def show(found: tuple[list[object], None]) -> LockPageJson:
        del found
        seen.append(ticks)
        work(0.005)
        return page_of(([], None))

    ticking = asyncio.create_task(tick())
    # Each caller has its gateway, and all share the turns of the first.
    views = [
        gateway.of(ANYBODY).view(query, show, FAR_S, name=None, is_stale=is_stale, is_large=True)
        for _ in range(5)
    ]
    assert await asyncio.gather(*views)
    ticking.cancel()
    assert len(seen) == 10
    assert all(after > before for before, after in itertools.pairwise(seen))


class Slow:
    """A search of several steps, each of which stops the loop for a while."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self.machines: list[LockMachine] = []
        self.is_at_second = asyncio.Event()

    def step(self, machine: LockMachine) -> tuple[list[LockView], None] | None:
        """Work, and find nothing at the end."""
        work(0.005)
        self.machines.append(machine)
        if len(self.machines) == 2:
            self.is_at_second.set()
        return ([], None) if len(self.machines) == self._steps else None


@pytest.mark.parametrize("is_stale", [False, True])
async def test_the_loop_is_free_between_the_steps_of_a_search(*, is_stale: bool) -> None:
    """Each step has a turn of its own, and looks at the state that the node has by then."""
    node, search = LocalNode(), Slow(4)
    gateway = Gateway(node)
    first, other = node.machine, LockMachine()

    async def restore() -> None:
        await search.is_at_second.wait()
        node.machine = other

    restoring = asyncio.create_task(restore())
    view = await gateway.page(search, page_of, FAR_S, name=None, is_stale=is_stale)
    await restoring
    assert view.__class__ is LockPageJson
    assert search.machines == [first, first, other, other]


async def test_a_page_is_finished_before_the_next_is_begun() -> None:
    """Who has begun keeps the turn: a page of many steps waits no longer than one of few."""
    gateway = Gateway(LocalNode())
    order: list[str] = []

    class Named(Slow):
        def __init__(self, name: str, steps: int) -> None:
            super().__init__(steps)
            self.name = name

        def step(self, machine: LockMachine) -> tuple[list[LockView], None] | None:
            order.append(self.name)
            return super().step(machine)

    searches = [Named("first", 3), Named("second", 2), Named("third", 1)]
    pages = [
        gateway.of(ANYBODY).page(search, page_of, FAR_S, name=None, is_stale=True) for search in searches
    ]
    await asyncio.gather(*pages)
    assert order == ["first"] * 3 + ["second"] * 2 + ["third"]


async def test_a_page_that_is_not_found_in_time_is_refused() -> None:
    """Between two steps; the next one has its turn then."""
    gateway = Gateway(LocalNode())
    with pytest.raises(Overloaded, match="large answers"):
        await gateway.page(Slow(1000), page_of, 0.05, name=None, is_stale=True)
    view = await gateway.page(Slow(1), page_of, FAR_S, name=None, is_stale=True)
    assert view.__class__ is LockPageJson


async def test_a_stale_page_says_the_age_of_its_first_step() -> None:
    """What is behind the revision that it says may be missing; what is before it is not."""
    node = LocalNode()
    gateway, search = Gateway(node), Slow(3)
    first = node.machine.revision

    async def change() -> None:
        await search.is_at_second.wait()
        await gateway.read(lambda _: None, FAR_S)  # whatever is applied raises the revision

    changing = asyncio.create_task(change())
    view = await gateway.page(search, page_of, FAR_S, name=None, is_stale=True)
    await changing
    assert node.machine.revision > first
    assert view.revision == first
    assert isinstance(view.lag_ms, int)
    assert view.lag_ms >= 7 + 2 * 5 + 2 * RESTS * 5, "the node's own lag, two more steps, and two rests"


async def test_a_search_of_a_name_that_may_not_be_read_is_not_begun() -> None:
    """It is refused before anything is looked at."""
    search = Slow(1)
    nobody = Principal("nobody", Rights({}))
    with pytest.raises(ProblemError):
        await Gateway(LocalNode()).of(nobody).page(search, page_of, FAR_S, name="a", is_stale=False)
    assert search.machines == []


async def test_a_large_view_is_as_new_as_any_other() -> None:
    """It has what was answered before it; asked for a stale one, it says how old that is."""
    gateway = Gateway(LocalNode())
    fresh, stale = [
        await gateway.view(
            lambda machine: machine.lock("a"), lock_of, FAR_S, name=None, is_stale=is_stale, is_large=True
        )
        for is_stale in (False, True)
    ]
    assert fresh == LockInfo("a", "free", **FRESH)
    assert stale.revision == 1
    assert isinstance(stale.lag_ms, int)
    assert stale.lag_ms >= 7


async def test_a_node_that_broke_while_a_view_waited_shows_no_state() -> None:
    """What has its turn after the node broke is refused: the state may be half-way between two revisions."""
    node = LocalNode()
    gateway = Gateway(node)
    async with gateway._turns.turn(far()):
        waiting = asyncio.create_task(
            gateway.view(
                lambda machine: machine.lock("a"), lock_of, FAR_S, name=None, is_stale=False, is_large=True
            )
        )
        await asyncio.sleep(0)
        node.has_failed = True
    with pytest.raises(ShuttingDown):
        await waiting
