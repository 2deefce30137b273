"""Defects of the move from one version of the rules to the next."""

from collections.abc import Generator
from typing import Final

from cluster import assembly
from cluster.rare_proposals import RareProposals
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words.versions import RULES_FIRST
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced
from tests.support.later_rules import RULES_LATER

_UPGRADING: Final = Surroundings(
    minutes=1.0,
    rates={"kill": 4.0, "transfer": 4.0},
    fault_s=(0.5, 4.0),
    settings={"upgraded_s": 20.0},
)


def _decode_without_rules(state: bytearray) -> Generator[None, None, LockMachine]:
    """Decode a snapshot as if it did not say what rules it follows."""
    decoded = yield from snapshot.decode_in_steps(state)
    decoded.rules = RULES_FIRST
    return LockMachine(decoded)


def _known_by_this_one(_proposals: RareProposals) -> int:
    return RULES_LATER


RULES: Final = (
    Mutation(
        name="rules-move-without-all",
        sentence="The rules move on although a member does not know the next ones.",
        found_by=("rules-known",),
        apply=replaced(RareProposals, "_rules_known_by_all", _known_by_this_one),
        surroundings=_UPGRADING,
    ),
    Mutation(
        name="rules-lost-in-snapshot",
        sentence="A node that gets a snapshot follows the first rules, whatever the snapshot says.",
        found_by=("equal-digest",),
        apply=replaced(assembly, "decode_state", _decode_without_rules),
        surroundings=Surroundings(
            minutes=2.0,
            rates={"isolate": 8.0},
            fault_s=(2.0, 8.0),
            settings={"compact_entries": 10, "upgraded_s": 5.0},
        ),
    ),
)
