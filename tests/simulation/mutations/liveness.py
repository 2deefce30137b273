"""Defects that make nobody do anything wrong: what should happen does not, or not in time, or grows."""

from collections.abc import Collection
from typing import Any, Final

from cluster.commands.expiry import Expiry
from cluster.commands.outbox import Outbox
from cluster.commands.waiters import Waiters
from cluster.consensus.library import Library
from cluster.consensus.pinned_log import PinnedLog
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced
from tests.simulation.workload.crowd import CrowdSettings


def _nothing(*_args: Any, **_facts: Any) -> None:
    """Do nothing."""


_SPLIT: Final = Surroundings(rates={"isolate": 6.0, "deaf": 4.0}, fault_s=(6.0, 30.0))


def _keep_everybody(_pinned: PinnedLog, _peer_ids: Collection[str]) -> None:
    """Forget nobody."""


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
        sentence="A leader that hears no majority leads on.",
        found_by=("lone-leader", "liveness", "leader-late", "one-leader-per-term"),
        apply=replaced(Library, "_step_down_if_unheard", _nothing),
        surroundings=_SPLIT,
    ),
    Mutation(
        name="alarm-never-set",
        sentence="Nobody proposes that time passes when a lease is due.",
        found_by=("lease-late",),
        apply=replaced(Expiry, "arm", _nothing),
    ),
    Mutation(
        name="log-kept-for-removed",
        sentence="The log that a follower needs behind its snapshot is kept when it is no member any more.",
        found_by=("log-bounded",),
        apply=replaced(PinnedLog, "keep", _keep_everybody),
        surroundings=Surroundings(
            nodes_count=5,
            minutes=3.0,
            rates={"fall-behind": 8.0, "shrink": 6.0, "replace": 6.0},
            fault_s=(3.0, 12.0),
            settings={
                "compact_entries": 10,
                "crowd": CrowdSettings(60, 8.0, 0.7, 0.8),
                "quiet_every_s": 20.0,
            },
        ),
    ),
)
