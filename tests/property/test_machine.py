"""LockMachine and the naive model, side by side, on random histories.

What a seed finds, Hypothesis may find again and make smaller; what it finds, it repeats.
"""

from collections import Counter
from contextlib import AbstractContextManager
from functools import cache
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from lockstate.words import limits
from tests.property import situations
from tests.property.machine_with_model import PRINCIPALS, MachineWithModel

SEEDS = (
    *(*range(118), 129, 131, 163, 205, 249, 255, 259, 264, 271, 293, 313, 334, 412, 418, 537),
    *(541, 548, 549, 598, 3115),
)
"""The last ones for what is seen seldom."""
ASKING_SEEDS = range(1000, 1008)
"""More of them, of histories in which waits may ask by themselves."""
LOCK_SEEDS = range(2000, 2012)
"""And of histories in which transactions change locks all the time."""
EVERY_SEED = (*SEEDS, *ASKING_SEEDS, *LOCK_SEEDS)
STEPS = 60
ENDS_MAX = [None, 1, 3]
"""How many things one entry or command ends at most: the real limit, or so few that something is left."""


STEPS_MS = [limits.PRIORITY_STEP_MS, 40]
"""What a step of priority is worth: the real time, which no history takes, or so little that waits age."""


def bounded(ends_max: int | None, step_ms: int) -> AbstractContextManager[object]:
    """Return a context with these limits."""
    bounds: dict[str, Any] = {"PRIORITY_STEP_MS": step_ms}
    if ends_max is not None:
        names = ("EXPIRIES_PER_ENTRY_MAX", "ABANDONED_PER_COMMAND_MAX", "CELLS_DELETED_MAX")
        bounds |= dict.fromkeys(names, ends_max)
    patched: AbstractContextManager[object] = patch.multiple(limits, **bounds)
    return patched


class Lockstep(RuleBasedStateMachine):
    """Lets anything happen, in any order, to a machine and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = MachineWithModel()
        self.ends_max: int | None = None
        self.step_ms = limits.PRIORITY_STEP_MS

    @initialize(
        rng=st.randoms(use_true_random=False),
        ends_max=st.sampled_from(ENDS_MAX),
        step_ms=st.sampled_from(STEPS_MS),
    )
    def begin(self, rng: Random, ends_max: int | None, step_ms: int) -> None:
        """Some sessions are open."""
        self.ends_max, self.step_ms = ends_max, step_ms
        self.pair.come_back(rng)

    @rule(rng=st.randoms(use_true_random=False))
    def step(self, rng: Random) -> None:
        """Something happens."""
        with bounded(self.ends_max, self.step_ms):
            self.pair.step(rng)


TestLockstep = Lockstep.TestCase
TestLockstep.settings = settings(stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow])


@cache
def run(seed: int) -> tuple[Counter[str], AssertionError | None]:
    """Return the situations in the history of one seed, and how machine and model differ if they do."""
    rng = Random(seed)
    pair = MachineWithModel(PRINCIPALS if seed % 2 else ("",))
    try:
        with bounded(ENDS_MAX[seed % len(ENDS_MAX)], STEPS_MS[seed % len(STEPS_MS)]):
            pair.come_back(rng)
            if seed in ASKING_SEEDS:
                pair.let_waits_ask()
            for number in range(STEPS):
                pair.step(rng)
                if seed in LOCK_SEEDS and number % 2:
                    pair.change_locks(rng)
    except AssertionError as error:
        return pair.seen, error
    return pair.seen, None


@pytest.mark.parametrize("seed", EVERY_SEED)
def test_machine_and_model_agree(seed: int) -> None:
    """On every history of a seed, a machine that restarts and one that does not do what the model does."""
    seen, error = run(seed)
    if error is not None:
        raise error
    assert seen.total() > 0, "something was seen"


@pytest.mark.parametrize("sight", situations.SITUATIONS)
def test_the_interesting_is_often_seen(sight: str) -> None:
    """The histories of the seeds lead to every situation in which a machine is likely to be wrong."""
    count = sum(run(seed)[0][sight] for seed in EVERY_SEED)
    assert count >= situations.SITUATIONS[sight], f"seen {count} times"
