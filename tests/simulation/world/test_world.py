"""The simulated world itself: loops and clocks, what patches let through, and what a lone process sees."""

import asyncio
import contextlib
import inspect
import sys
import time
import types
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

import cluster.commands.clock
import cluster.storage.snapshot_store
from cluster.commands.forwarded import new_origin
from cluster.storage.files import Files
from tests.simulation.world.event_loop import Current, NodeLoop, make_loop
from tests.simulation.world.files import SimFiles
from tests.simulation.world.patches import simulated
from tests.simulation.world.scheduler import Clock, Scheduler

US = 1_000_000


class Lone:
    """One process on one machine, which records what nobody caught."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.scheduler = Scheduler()
        self.uncaught: list[dict[str, Any]] = []
        self.clock = clock or Clock(0, 0)
        self.loop = make_loop(
            self.scheduler, self.clock, "n1", Current(), lambda _, context: self.uncaught.append(context)
        )

    def run(self, work: Coroutine[Any, Any, Any], true_s: float = 100) -> Any:
        """Return what `work` returns."""
        task = self.loop.create_task(work)
        self.scheduler.run_until(int(true_s * US))
        assert task.done(), f"it did not end within {true_s} s"
        return task.result()


async def sleep_and_look(loop: NodeLoop, sleep_s: float) -> tuple[float, int]:
    """Sleep by the machine's clock; return how long that was by this clock, and the true time."""
    before_s = loop.time()
    await asyncio.sleep(sleep_s)
    return loop.time() - before_s, loop.now_us


def test_clock_runs_at_its_own_rate() -> None:
    """A machine whose clock is 0.1 % fast sleeps 0.1 % less than it believes."""
    lone = Lone(Clock(5 * US, 1000))
    local_s, true_us = lone.run(sleep_and_look(lone.loop, 10.01))
    assert local_s == pytest.approx(10.01, abs=1e-5)
    assert true_us == pytest.approx(10 * US, abs=10)


def test_clock_changes_its_rate() -> None:
    """A clock that changes its rate goes on from where it is."""
    clock = Clock(5 * US, 0)
    clock.set_drift(1000, 10 * US)
    assert clock.read(10 * US) == 15 * US
    assert clock.read(20 * US) == 25 * US + 10_000
    clock.stop(20 * US)
    clock.set_drift(0, 30 * US)
    clock.go(40 * US)
    assert clock.read(50 * US) == 35 * US + 10_000


def test_process_stalls_within_a_callback() -> None:
    """A process may stand still between two looks at the clock, and what it does next happens later."""
    lone = Lone()
    looks: list[int] = []

    def callback() -> None:
        looks.extend(lone.loop.look_at_clock() for _ in range(3))
        lone.loop.call_soon(lambda: looks.append(lone.loop.now_us))

    lone.loop.stall_after_looks, lone.loop.stall_us = 2, 3 * US
    lone.loop.call_soon(callback)
    lone.scheduler.run_until(10 * US)
    assert looks == [0, 3 * US, 3 * US, 3 * US]


def test_clock_goes_on_while_a_process_is_paused() -> None:
    """A stopped process wakes late, and its clock has counted the stop."""
    lone = Lone()
    lone.scheduler.at(2 * US, lone.loop.pause)
    lone.scheduler.at(30 * US, lone.loop.resume)
    local_s, true_us = lone.run(sleep_and_look(lone.loop, 10))
    assert (local_s, true_us) == (30, 30 * US)


def test_clock_stands_while_a_machine_is_suspended() -> None:
    """A suspended machine does not see the time that it slept."""
    lone = Lone()

    def wake() -> None:
        lone.clock.go(lone.scheduler.now_us)
        lone.loop.resume()

    lone.scheduler.at(2 * US, lone.clock.stop, 2 * US)
    lone.scheduler.at(2 * US, lone.loop.pause)
    lone.scheduler.at(30 * US, wake)
    assert lone.run(sleep_and_look(lone.loop, 10)) == (10, 38 * US)


def test_busy_process_does_everything_later() -> None:
    """What a process does after a slow disk operation happens after it, on its clock and in truth."""
    lone = Lone()

    async def work() -> tuple[int, int]:
        lone.loop.spend(3 * US)
        return lone.loop.now_us, (await sleep_and_look(lone.loop, 1))[1]

    assert lone.run(work()) == (3 * US, 4 * US)


def test_asyncio_works_on_the_loop() -> None:
    """Timeouts, gather, shield, events and wait behave as on any loop, in no real time."""
    lone = Lone()

    async def work() -> list[str]:
        told = []
        try:
            async with asyncio.timeout(5):
                await asyncio.shield(asyncio.sleep(60))
        except TimeoutError:
            told.append(f"timeout at {lone.loop.time():.0f}")
        event = asyncio.Event()
        lone.loop.call_later(3, event.set)
        await asyncio.gather(event.wait(), asyncio.sleep(1))
        told.append(f"event at {lone.loop.time():.0f}")
        _, late = await asyncio.wait({lone.loop.create_task(asyncio.sleep(50))}, timeout=2)
        told.append(f"{len(late)} late at {lone.loop.time():.0f}")
        return told

    began_s = time.perf_counter()
    assert lone.run(work()) == ["timeout at 5", "event at 8", "1 late at 10"]
    assert time.perf_counter() - began_s < 5
    assert lone.uncaught == []


def test_dead_process_does_nothing_more() -> None:
    """After a kill no callback, timer or coroutine of the process runs, not even its cleanup."""
    lone = Lone()
    told: list[str] = []

    async def work() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(5)
        told.append("slept")

    lone.loop.create_task(work())
    lone.scheduler.at(2 * US, lone.loop.kill)
    lone.scheduler.run_until(10 * US)
    assert lone.uncaught == []
    lone.loop.call_soon(told.append, "called")
    lone.scheduler.run_until(20 * US)
    assert told == []


def test_kill_comes_between_two_callbacks() -> None:
    """A kill after so many callbacks lets exactly those run, though more were ready in the same run."""
    lone = Lone()
    lone.loop.on_kill = lone.loop.kill
    told: list[int] = []
    for number in range(10):
        lone.loop.call_soon(told.append, number)
    lone.loop.kill_after_handles = 4
    lone.scheduler.run_until(US)
    assert told == [0, 1, 2, 3]


def test_uncaught_exceptions_are_told() -> None:
    """An exception that a callback lets through reaches the world."""
    lone = Lone()
    lone.loop.call_soon(int, "no number")
    lone.scheduler.run_until(US)
    assert [type(context["exception"]) for context in lone.uncaught] == [ValueError]


class FixedMachine:
    """A machine whose clocks stand."""

    def monotonic_us(self) -> int:
        """Return seven seconds."""
        return 7 * US

    def wall_s(self) -> float:
        """Return a year far ahead."""
        return 4e9

    def pid(self) -> int:
        """Return a pid."""
        return 42


def test_product_sees_the_simulated_machine_only() -> None:
    """Clocks and random numbers of the product come from the world, and are real again after it."""
    clock = cluster.commands.clock.SystemClock()
    before_ns = clock.now_ns()
    with simulated(FixedMachine(), Random(1)):
        assert clock.now_ns() == 7 * US * 1000
        first = new_origin("n1")
    with simulated(FixedMachine(), Random(1)):
        assert new_origin("n1") == first
    assert new_origin("n1") != first
    assert clock.now_ns() >= before_ns
    assert vars(cluster.commands.clock)["time"] is time


def test_nothing_real_gets_in_unseen() -> None:
    """What the world has no twin for is refused, and not passed on to the real machine."""
    with simulated(FixedMachine(), Random(1)):
        machine = vars(cluster.storage.snapshot_store)["os"]
        assert machine.getpid() == 42
        with pytest.raises(AssertionError, match=r"os\.listdir has no simulated twin"):
            machine.listdir(".")


@pytest.mark.parametrize(("name", "value"), [("time", time), ("monotonic", time.monotonic)])
def test_a_module_that_is_not_patched_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    """A module of ours that keeps a real clock, in a room that nobody walks or by its function, is found."""
    forgotten = types.ModuleType("cluster.forgotten.clockwork")
    setattr(forgotten, name, value)
    monkeypatch.setitem(sys.modules, forgotten.__name__, forgotten)
    with (
        pytest.raises(AssertionError, match=rf"clockwork\.{name} is the real time"),
        simulated(FixedMachine(), Random(1)),
    ):
        raise RuntimeError("this world must not run")
    assert vars(cluster.commands.clock)["time"] is time


def test_simulated_files_have_every_operation() -> None:
    """Each operation of the product's disk has its twin with the same parameters: no real disk is touched."""
    for name, real in inspect.getmembers(Files, inspect.isfunction):
        if not name.startswith("_"):
            twin = vars(SimFiles).get(name)
            assert twin is not None, f"SimFiles has no {name}"
            assert list(inspect.signature(twin).parameters) == list(inspect.signature(real).parameters)
