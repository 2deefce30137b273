"""Machine and model on histories in the middle of which the rules move, one version after the other.

Whatever the older rules left behind is there: remembered refusals, waits, permits that two acquires share.
"""

from random import Random

import pytest

from lockstate.versions import RULES_BOUNDED, RULES_NEWEST
from tests.property.machine_with_model import MachineWithModel

SEEDS = 40
STEPS_MAX = 30
"""Steps under each of the rules, at most; a few, so that much of what was before is still there after it."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_machine_and_model_agree_while_the_rules_move(seed: int) -> None:
    """The entry that moves the rules lets time pass and carries commands; a repetition of it does nothing."""
    rng = Random(seed)
    pair = MachineWithModel(RULES_BOUNDED + seed % (RULES_NEWEST - RULES_BOUNDED))
    pair.come_back(rng)
    while True:
        for _ in range(rng.randint(STEPS_MAX // 2, STEPS_MAX)):
            pair.step(rng)
        if pair.machine.rules == RULES_NEWEST:
            break
        pair.move_the_rules(rng)
        if rng.randrange(2):
            pair.restore(rng)
        # What was asked before is asked again, before the old outcomes are forgotten.
        for step in rng.choices([pair.ask_again, pair.act, pair.repeat_the_last_entry], k=8):
            step(rng)
    assert pair.twin.rules == pair.state.rules == RULES_NEWEST
