"""Defects of links: what comes is believed, whoever has put it there."""

from types import SimpleNamespace
from typing import Final

from cluster.peers import sealing
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced


def _equal_always(_one: bytes, _other: bytes) -> bool:
    return True


LINKS: Final = (
    Mutation(
        name="seals-not-checked",
        sentence="Frames of a link are believed without a check of their seal.",
        found_by=(
            "raft-replay",
            "peer-fault",
            "node-ends",
            "log-matching",
            "reply",
            "uncaught",
            "equal-digest",
        ),
        apply=replaced(sealing, "hmac", SimpleNamespace(compare_digest=_equal_always)),
        surroundings=Surroundings(rates={"tampered": 20.0}, fault_s=(1.0, 20.0)),
    ),
)
