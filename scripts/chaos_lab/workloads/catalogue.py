"""All workloads by name: what `scripts/chaos` runs unless it is told to run only some."""

from scripts.chaos_lab.lab import Workload
from scripts.chaos_lab.workloads.fencing import FencingTokens, GuardedRegister
from scripts.chaos_lab.workloads.leases import Ledger, LeftToExpire, QueueOrder
from scripts.chaos_lab.workloads.locks import Mutex, Reentrant, SharedExclusive
from scripts.chaos_lab.workloads.permits import Permits
from scripts.chaos_lab.workloads.rates import RateWindows
from scripts.chaos_lab.workloads.reach import Reach
from scripts.chaos_lab.workloads.reads import Reads
from scripts.chaos_lab.workloads.repeats import Repeats
from scripts.chaos_lab.workloads.sessions import Sessions
from scripts.chaos_lab.workloads.watching import Watching

WORKLOADS: dict[str, type[Workload]] = {
    workload.name: workload
    for workload in (
        Mutex,
        Reentrant,
        SharedExclusive,
        Permits,
        FencingTokens,
        GuardedRegister,
        LeftToExpire,
        Ledger,
        QueueOrder,
        RateWindows,
        Sessions,
        Repeats,
        Watching,
        Reads,
        Reach,
    )
}
