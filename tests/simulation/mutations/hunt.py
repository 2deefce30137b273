"""The hunt for one mutation: world after world, until a checker objects and the defect alone is to blame."""

import contextlib
import time
from typing import Final

import msgspec

from tests.simulation.mutations.mutation import Mutation
from tests.simulation.run import Report, run

LONGER_S: Final = 10.0
"""So much longer than the world with the defect the same one runs without it."""


class Hunt(msgspec.Struct, kw_only=True):
    """What came of it. `checker` is empty if nobody objected within the budget."""

    mutation: Mutation
    checker: str = ""
    sentence: str = ""
    seed: int = 0
    seeds_count: int = 0
    seeds_max: int
    after_s: float = 0.0
    """Simulated time in the world that showed it."""
    real_s: float = 0.0
    not_counted: list[str] = []
    """Objections that came without the defect, too: something else is wrong there."""

    @property
    def is_found(self) -> bool:
        """Whether a checker objected, because of the defect."""
        return bool(self.checker)

    @property
    def is_expected(self) -> bool:
        """Whether it was one of the checkers that should."""
        return self.checker in self.mutation.found_by


def hunt(mutation: Mutation, seeds_max: int | None = None) -> Hunt:
    """Run worlds with the defect until one is found that is well without it."""
    count = mutation.seeds_max if seeds_max is None else seeds_max
    hunted = Hunt(mutation=mutation, seeds_max=count)
    began_s = time.perf_counter()
    for seed in range(1, count + 1):
        hunted.seeds_count = seed
        report = run_mutated(mutation, seed)
        if report.violation:
            sound = run_sound(mutation, seed, report.simulated_s + LONGER_S)
            if not sound.violation:
                hunted.checker, hunted.sentence = report.checker, report.violation
                hunted.seed, hunted.after_s = seed, report.simulated_s
                break
            hunted.not_counted.append(f"seed {seed}: {sound.violation}")
    hunted.real_s = time.perf_counter() - began_s
    return hunted


def run_mutated(mutation: Mutation, seed: int) -> Report:
    """Run one world with the defect."""
    return _run(mutation, seed, mutation.apply(), mutation.surroundings.minutes * 60)


def run_sound(mutation: Mutation, seed: int, simulated_s: float) -> Report:
    """Run the same world without it, for so long."""
    return _run(mutation, seed, contextlib.nullcontext(), simulated_s)


def _run(
    mutation: Mutation, seed: int, defect: contextlib.AbstractContextManager[object], simulated_s: float
) -> Report:
    surroundings = mutation.surroundings
    with surroundings.around():
        return run(surroundings.plan(seed), simulated_s, mutation=defect)
