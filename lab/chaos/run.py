"""One run of the lab: clients, faults, a recorded history, the end, and what the checkers say of it."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from lab.chaos import gaps
from lab.chaos.breaker import Breaker
from lab.chaos.checkers.catalogue import check_all
from lab.chaos.checkers.violation import Violation
from lab.chaos.endings import Ending, wait_equal
from lab.chaos.faults.fault import Fault
from lab.chaos.final_listing import record_final_holds
from lab.chaos.history import Header, History, HistoryWriter, Note, read_history
from lab.chaos.lab import Workload, now_ns
from lab.chaos.late_leases import LateLeases, late_leases
from lab.chaos.schedule import Step
from lab.chaos.targets.target import LabFailure, Target
from lab.chaos.timeline import write_timeline

TELL_S: Final = 1.0
"""Seconds between two running lines."""
WARM_S: Final = 2.0
"""Seconds of clients alone before anything breaks."""
HISTORY_FILE: Final = "history.jsonl"
TIMELINE_FILE: Final = "timeline.html"


class OwnFault(NamedTuple):
    """A command that the user wants to be run `at_s` seconds after clients have begun."""

    at_s: float
    command: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to run."""

    seed: int
    seconds: float
    steps: Sequence[Step]
    workloads: Mapping[str, type[Workload]]
    faults: Mapping[str, type[Fault[Any]]]
    directory: Path
    """Where the history is kept."""
    scale: float = 1.0
    """How many clients, beside the usual number."""
    budget_factor: float = 1.0
    """By what the budgets of gaps are multiplied, on a slow machine."""
    own_faults: Sequence[OwnFault] = ()


class Report(msgspec.Struct, kw_only=True):
    """What a run came to."""

    operations: dict[str, int]
    """How many by outcome."""
    faults: dict[str, int]
    """How many by kind."""
    terms: int
    """How many terms the run took: each change of the leader is at least one."""
    gaps: list[gaps.Gap]
    late_leases: LateLeases
    violations: list[Violation]
    """What the checkers object to, also what they could not decide."""
    problems: list[str]
    """Gaps above the budget, and what did not come back by itself."""
    seconds: float

    @property
    def exit_code(self) -> int:
        """0 for a clean run, 1 for a broken promise, 3 for a gap above the budget or what is undecided."""
        if any(violation.verdict == "broken" for violation in self.violations):
            return 1
        return 3 if self.problems or self.violations else 0


async def run(target: Target, plan: Plan, tell: Callable[[str], None]) -> Report:
    """Run `plan` on a target that is open. Raises LabFailure if its start cannot be seen.

    A run that is not clean leaves a timeline beside its history.
    """
    path = plan.directory / HISTORY_FILE
    path.unlink(missing_ok=True)
    (plan.directory / TIMELINE_FILE).unlink(missing_ok=True)
    with HistoryWriter(path) as history:
        history.write(_header(target, plan))
        running = _Running(target, plan, history, tell)
        began_s = time.monotonic()
        await running.run()
        seconds = time.monotonic() - began_s
    recorded = read_history(path)
    report = judged(recorded, plan, running.problems, running.terms, seconds)
    if report.exit_code != 0:
        write_timeline(recorded, report.violations, plan.directory / TIMELINE_FILE)
    return report


def judged(history: History, plan: Plan, problems: Sequence[str], terms: int, seconds: float) -> Report:
    """Return what a history comes to."""
    found = gaps.gaps(history)
    return Report(
        operations=dict(Counter(str(item.outcome) for item in history.operations)),
        faults=dict(Counter(fault.what for fault in history.faults)),
        terms=terms,
        gaps=found,
        late_leases=late_leases(history),
        violations=check_all(history),
        problems=[*problems, *gaps.over_budget(found, plan.faults, plan.budget_factor)],
        seconds=seconds,
    )


class _Running:
    """The parts of a run that go on at the same time."""

    def __init__(
        self, target: Target, plan: Plan, history: HistoryWriter, tell: Callable[[str], None]
    ) -> None:
        self._target = target
        self._plan = plan
        self._history = history
        self._tell = tell
        self.problems: list[str] = []
        self._first_term = self._last_term = 0
        self._breaker = Breaker(target, plan.faults, history, seed=plan.seed, say=self._say)
        self._lab = target.lab(history, seed=plan.seed, scale=plan.scale)

    @property
    def terms(self) -> int:
        """How many terms have begun in the run."""
        return self._last_term - self._first_term

    def _say(self, text: str) -> None:
        self._tell(text)
        self._history.write(Note(at_ns=now_ns(), text=text))

    async def run(self) -> None:
        """Let clients work while things break; then see how it ends."""
        self._first_term = await asyncio.to_thread(self._term)
        until_s = time.monotonic() + self._plan.seconds
        teller = asyncio.create_task(self._keep_telling())
        breaking = asyncio.create_task(asyncio.to_thread(self._break, until_s))
        try:
            async with asyncio.TaskGroup() as group:
                for own in self._plan.own_faults:
                    group.create_task(self._run_own(own))
                for workload in self._plan.workloads.values():
                    group.create_task(workload().run(self._lab, until_s))
            await breaking
        finally:
            self._breaker.stop()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(breaking)
            teller.cancel()
            await asyncio.gather(teller, return_exceptions=True)
        ending = await self._end()
        self.problems += ending.problems
        self._last_term = max(ending.term, self._first_term)

    def _break(self, until_s: float) -> None:
        """Run the schedule; what cannot be healed is a problem of the cluster."""
        time.sleep(min(WARM_S, self._plan.seconds / 4))
        try:
            self._breaker.run(self._plan.steps, until_s)
        except LabFailure as error:
            self.problems.append(str(error))
            self._say(f"problem: {error}")

    async def _run_own(self, own: OwnFault) -> None:
        """Run a command of the user, as long as it takes; it is a fault of the history."""
        await asyncio.sleep(own.at_s)
        self._say(f"running: {own.command}")
        fault_id = self._history.fault_begin("own", [own.command], now_ns())
        process = await asyncio.create_subprocess_shell(own.command)
        code = await process.wait()
        self._history.fault_end(fault_id, now_ns())
        self._say(f"ended with exit code {code}: {own.command}")

    async def _end(self) -> Ending:
        """List what is held, and compare the nodes."""
        await record_final_holds(self._lab)
        self._tell("clients have stopped; comparing the nodes")
        return await asyncio.to_thread(wait_equal, self._target, self._history)

    async def _keep_telling(self) -> None:
        """Tell again and again what is broken and what clients see."""
        began_s = time.monotonic()
        before = 0
        while True:
            await asyncio.sleep(TELL_S)
            counts = self._lab.history.counts
            done = sum(counts.values())
            line = f"{time.monotonic() - began_s:6.0f} s  {done - before:5d} operations/s, "
            line += f"{counts['unknown']} unknown so far; broken: {self._breaker.broken}"
            before = done
            self._tell(line)

    def _term(self) -> int:
        """Return the newest term that a node knows."""
        views = [self._target.status(node_id) for node_id in self._target.urls()]
        return max((int(view["term"]) for view in views if view), default=0)


def _header(target: Target, plan: Plan) -> Header:
    return Header(
        seed=plan.seed,
        target=target.name,
        nodes=dict(target.urls()),
        started_ns=now_ns(),
        details={
            "seconds": plan.seconds,
            "steps": [str(step) for step in plan.steps],
            "workloads": sorted(plan.workloads),
            "budget_factor": plan.budget_factor,
            "lacking": {str(key): text for key, text in target.lacking.items()},
        },
    )
