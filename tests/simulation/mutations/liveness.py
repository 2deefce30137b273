"""Defects that make nobody do anything wrong: what should happen does not, or not in time, or grows."""

from typing import Any, Final

from pysyncobj import SyncObjConf

import cluster.consensus.engine
from cluster.commands.expiry import Expiry
from cluster.commands.outbox import Outbox
from cluster.commands.waiters import Waiters
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced


def _nothing(*_args: Any, **_facts: Any) -> None:
    """Do nothing."""


def _patient_settings(**settings: Any) -> SyncObjConf:
    """Return the library's settings, with a leader that is in no hurry to step down."""
    return SyncObjConf(**{**settings, "leaderFallbackTimeout": 3600.0})


_SPLIT: Final = Surroundings(rates={"isolate": 6.0, "deaf": 4.0}, fault_s=(6.0, 30.0))

LIVENESS: Final = (
    Mutation(
        name="deadlines-forgotten",
        sentence="A command without an outcome is never given up.",
        found_by=("call-in-time", "call-ends", "liveness"),
        apply=replaced(Outbox, "give_up_due", _nothing),
        surroundings=_SPLIT,
    ),
    Mutation(
        name="waits-not-reconciled",
        sentence="A node that took over a snapshot does not look which waits have ended meanwhile.",
        found_by=("wait-told", "model-events", "reply"),
        apply=replaced(Waiters, "reconcile", _nothing),
        surroundings=Surroundings(
            rates={"isolate": 8.0, "slow-node": 4.0},
            fault_s=(3.0, 12.0),
            settings={"compact_entries": 10},
            client_settings={"wait_ms": (10_000, 20_000), "timeout_s": (4.0, 8.0), "names": ("n0",)},
        ),
    ),
    Mutation(
        name="lone-leader-leads-on",
        sentence="A leader that hears no majority leads on for an hour.",
        found_by=("lone-leader", "liveness", "leader-late", "one-leader-per-term"),
        apply=replaced(
            cluster.consensus.engine,
            "SyncObjConf",
            _patient_settings,
        ),
        surroundings=_SPLIT,
    ),
    Mutation(
        name="alarm-never-set",
        sentence="Nobody proposes that time passes when a lease is due.",
        found_by=("lease-late",),
        apply=replaced(Expiry, "arm", _nothing),
    ),
)
