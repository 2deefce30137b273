"""All workloads by name: what `scripts/chaos` runs unless it is told to run only some."""

from lab.chaos.lab import Workload
from lab.chaos.workloads.cells import Cells
from lab.chaos.workloads.fencing import FencingTokens, GuardedRegister
from lab.chaos.workloads.leases import Ledger, LeftToExpire, QueueOrder
from lab.chaos.workloads.locks import Mutex, Reentrant, SharedExclusive, StreamMutex
from lab.chaos.workloads.mixed import Mixed
from lab.chaos.workloads.permits import Permits
from lab.chaos.workloads.rates import RateWindows
from lab.chaos.workloads.reach import Reach
from lab.chaos.workloads.reads import Reads
from lab.chaos.workloads.repeats import Repeats
from lab.chaos.workloads.sessions import Sessions
from lab.chaos.workloads.watching import Watching

WORKLOADS: dict[str, type[Workload]] = {
    workload.name: workload
    for workload in (
        Mutex,
        StreamMutex,
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
        Cells,
        Mixed,
        Reach,
    )
}
