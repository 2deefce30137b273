"""`scripts/chaos --prove`: somebody must object to all that is wrong on purpose."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from lab.chaos import schedule
from lab.chaos.checkers.violation import Violation
from lab.chaos.faults.catalogue import FAULTS
from lab.chaos.faults.fault import Fault
from lab.chaos.history import read_history
from lab.chaos.run import HISTORY_FILE, Plan, run
from lab.chaos.targets.target import LabFailure
from lab.chaos.teeth.lead import Lead
from lab.chaos.teeth.power_cut import PowerCut
from lab.chaos.teeth.tooth import Tooth, ToothTarget

LIMIT_S: Final = 300.0
"""Within this somebody has to object."""
LOOK_S: Final = 0.5
CLUSTER: Final = "the cluster"
FAULTS_OF_TEETH: Final[Mapping[str, type[Fault[Any]]]] = FAULTS | {
    Lead.name: Lead,
    PowerCut.name: PowerCut,
}


class Bite(msgspec.Struct, kw_only=True):
    """What came of one tooth."""

    tooth: Tooth
    objectors: list[str]
    """Who objected: names of checkers, and the cluster itself, which stops a node that is wrong."""
    said: str
    """The first objection."""
    seconds: float
    """How long the cluster had been used until then, or in all."""
    rounds: int

    @property
    def is_right(self) -> bool:
        """Whether somebody objected who should, or nobody who should not."""
        return bool(self.objectors) is not self.tooth.is_sound


def bite(tooth: Tooth, seed: int, directory: Path, limit_s: float = LIMIT_S) -> Bite:
    """Run rounds of a tooth until somebody objects, or the limit is over. Raises LabFailure.

    What is sound has one round. The history of the last round stays in the directory.
    """
    target = ToothTarget(tooth)
    target.open()
    try:
        began_s = time.monotonic()
        rounds = 0
        while True:
            violations = asyncio.run(_round(tooth, target, seed + rounds, directory))
            rounds += 1
            seconds = time.monotonic() - began_s
            if violations or tooth.is_sound or seconds > limit_s:
                break
    finally:
        target.close()
    return Bite(
        tooth=tooth,
        objectors=sorted({violation.checker for violation in violations}),
        said=violations[0].text if violations else "",
        seconds=seconds,
        rounds=rounds,
    )


async def _round(tooth: Tooth, target: ToothTarget, seed: int, directory: Path) -> list[Violation]:
    """Let clients and faults run for a while, or until the cluster stops the node; return all objections."""
    plan = Plan(
        seed=seed,
        seconds=tooth.round_s,
        steps=schedule.parse(tooth.schedule, FAULTS_OF_TEETH),
        workloads={workload.name: workload for workload in tooth.workloads},
        faults=FAULTS_OF_TEETH,
        directory=directory,
    )
    running = asyncio.create_task(run(target, plan, lambda _: None))
    while not running.done():
        await asyncio.wait([running], timeout=LOOK_S)
        if not running.done() and target.verdict_of_the_cluster():
            running.cancel()  # what is under way is recorded as unknown: the history is whole
            await asyncio.wait([running])
    if not running.cancelled() and (error := running.exception()) is not None:
        raise LabFailure(f"the round of {tooth.name} failed: {error!r}") from error
    found = [
        violation
        for violation in tooth.objections(read_history(directory / HISTORY_FILE))
        if violation.verdict == "broken"
    ]
    verdict = target.verdict_of_the_cluster()
    if verdict:
        found.append(Violation(checker=CLUSTER, text=verdict))
    return found


def prove(teeth: Sequence[Tooth], seed: int, directory: Path, tell: Callable[[str], None]) -> list[Bite]:
    """Try all teeth, one after the other. Raises LabFailure."""
    bites = []
    for tooth in teeth:
        below = directory / tooth.name
        below.mkdir(parents=True, exist_ok=True)
        done = bite(tooth, seed, below)
        bites.append(done)
        tell(f"{tooth.name}: {outcome(done)}")
        if done.said:
            tell(f"  {done.said[:300]}")
    return bites


def outcome(done: Bite) -> str:
    """Return in a few words what came of a tooth."""
    spent = f"after {done.seconds:.0f} s"
    if done.objectors:
        words = f"{', '.join(done.objectors)} {spent}"
        return f"WRONGLY by {words}" if done.tooth.is_sound else words
    if done.tooth.is_sound:
        return "nobody, as it must be"
    return f"NOBODY {spent}"


def table(bites: Sequence[Bite]) -> str:
    """Return the result in Markdown."""
    lines = ["| tooth | what is wrong | who objects |", "| --- | --- | --- |"]
    lines += [f"| `{done.tooth.name}` | {done.tooth.sentence} | {outcome(done)} |" for done in bites]
    return "\n".join(lines)
