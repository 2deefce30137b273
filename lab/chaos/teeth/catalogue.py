"""All teeth: what must be noticed, and what must not be objected to."""

from functools import partial
from typing import Final

import msgspec

from lab.chaos.checkers.registers import objections
from lab.chaos.defective_node import NONE, UNGUARDED
from lab.chaos.lab import Workload
from lab.chaos.teeth.tooth import NODE, Tooth
from lab.chaos.workloads.cells import Cells
from lab.chaos.workloads.fencing import FencingTokens
from lab.chaos.workloads.leases import Ledger, LeftToExpire, QueueOrder
from lab.chaos.workloads.locks import Mutex, SharedExclusive
from lab.chaos.workloads.mixed import Mixed
from lab.chaos.workloads.permits import Permits
from lab.chaos.workloads.rates import RateWindows
from lab.chaos.workloads.reads import Reads
from lab.chaos.workloads.repeats import Repeats
from lab.chaos.workloads.sessions import Sessions
from lab.chaos.workloads.stopped_clients import StoppedClients, StoppedClientsWithoutFence
from tests.simulation.mutations.catalogue import MUTATIONS

LEADS: Final = f"0.1 lead 5 node={NODE}"
LEADS_AGAIN: Final = f"0.1 lead 2 node={NODE}\n0.1 lead 0.3 node=n2\n0.1 lead 2 node={NODE}"
POWER_CUT: Final = f"0.1 lead 0 node=n2\n0.1 power-cut 0 node={NODE}"
KILLED: Final = f"0.1 lead 1.5 node={NODE}\n0.1 kill-leader 0.5\n0.1 lead 1.5 node={NODE}"
LOSSES: Final = "0.1 lead 0 node=n2\n0.1 kill-follower 1 node=n3\n0.1 lead 4 node=n2"

_SENTENCES: Final = {mutation.name: mutation.sentence for mutation in MUTATIONS}


def _defect(
    mutation: str,
    *workloads: type[Workload],
    schedule: str = LEADS,
    round_s: float = 8.0,
) -> Tooth:
    """Return the tooth of a defect of the simulation's list in one node, which does not notice by itself."""
    return Tooth(
        name=mutation,
        sentence=_SENTENCES[mutation],
        workloads=workloads,
        schedule=schedule,
        round_s=round_s,
        mutation=mutation + UNGUARDED,
    )


_TEETH: Final = (
    Tooth(
        name="sound-node",
        sentence="Nothing is wrong.",
        workloads=(
            LeftToExpire,
            Mutex,
            SharedExclusive,
            FencingTokens,
            QueueOrder,
            Repeats,
            Reads,
            Ledger,
            Mixed,
        ),
        schedule=KILLED,
        mutation=NONE,
        is_sound=True,
    ),
    Tooth(
        name="power-cut",
        sentence="Nothing is wrong: a power cut takes what a node had not synced.",
        workloads=(Ledger, Mutex, FencingTokens),
        schedule=POWER_CUT,
        round_s=20.0,
        mutation=NONE,
        is_sound=True,
    ),
    Tooth(
        name="fast-clock",
        sentence="The clock of the leader runs 10 % fast.",
        workloads=(LeftToExpire,),
        schedule="0.1 fast-clock 6 node=leader",
        round_s=12.0,
    ),
    Tooth(
        name="no-fence",
        sentence="Clients are stopped beyond their lease, and what they write to has no fence.",
        workloads=(StoppedClientsWithoutFence,),
        objections=partial(objections, is_fenced=False),
    ),
    Tooth(
        name="fence",
        sentence="Clients are stopped beyond their lease, and what they write to has a fence.",
        workloads=(StoppedClients,),
        is_sound=True,
    ),
    Tooth(
        name="other-rules",
        sentence="One node, a follower, applies other rules: two may hold a lock for an update.",
        workloads=(SharedExclusive, Mutex),
        schedule="0.1 lead 5 node=n2",
        mutation="update-beside-update",
    ),
    Tooth(
        name="repeating-proxy",
        sentence="A proxy answers requests with earlier answers.",
        workloads=(Mutex, FencingTokens, Permits, Sessions),
        repeats=True,
    ),
    _defect("reads-without-barrier", Reads, schedule="0.1 lead 5 node=n2"),
    msgspec.structs.replace(
        _defect("reads-without-barrier", Reads, schedule=LOSSES),
        name="stale-reads-behind-losses",
        sentence="Every node answers reads from its own state, and requests were lost before.",
    ),
    _defect("time-jumps-with-leader", LeftToExpire, Sessions, schedule=LEADS_AGAIN),
    _defect("token-given-twice", Mutex, FencingTokens),
    _defect("request-ids-ignored", Repeats),
    _defect("lease-not-renewed", LeftToExpire, Mutex),
    _defect("lease-never-ends", LeftToExpire, round_s=12.0),
    _defect("queue-overtaken", QueueOrder),
    _defect("exclusive-beside-shared", SharedExclusive),
    _defect("fence-accepts-stale", FencingTokens),
    _defect("fixed-window-admits-one-more", RateWindows),
    _defect("cell-compare-ignored", Cells),
    _defect("subtree-ignores-descendants", Mixed),
    _defect("several-without-permits", Mixed),
    _defect("conversion-keeps-token", Mixed),
    _defect("partial-release-ends-all", Mixed),
    _defect("two-leaders", Mixed),
    _defect("force-of-all-ends-one", Mixed),
    _defect(
        "ack-before-sync",
        Ledger,
        Mutex,
        FencingTokens,
        schedule=POWER_CUT,
        round_s=20.0,
    ),
)

TEETH: Final = {tooth.name: tooth for tooth in _TEETH}
