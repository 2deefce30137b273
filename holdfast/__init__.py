"""Holdfast's client: locks with leases and fencing tokens, from a cluster that survives its nodes.

async with holdfast.Client("10.0.0.1:7700,10.0.0.2:7700") as client:
    async with client.lock("db/migrate") as hold:
        migrate(token=hold.token)

with holdfast.SyncClient() as client, client.lock(("order", 42), timeout=60) as hold:
    ship(token=hold.token)
"""

from typing import TYPE_CHECKING

from holdfast._acquiring import Acquirable, Lock, Semaphore, SessionContext
from holdfast._cell_values import (
    Cell,
    CellCompare,
    CellDelete,
    CellGet,
    CellIs,
    CellOperation,
    CellPage,
    CellPut,
    CellWritten,
    StillHeld,
    Transacted,
)
from holdfast._cells import Cells, SyncCells
from holdfast._client import Client
from holdfast._election import Election
from holdfast._errors import (
    AlreadyHeld,
    CellChanged,
    Compacted,
    Deadlock,
    InvalidRequest,
    LeaseExpired,
    LeaseLost,
    LockError,
    LockHeld,
    LockTimeout,
    MemberChangeRefused,
    OutcomeUnknown,
    RateLimited,
    Refused,
    SessionExpired,
    StaleToken,
    TlsRefused,
    Unavailable,
)
from holdfast._fencing import FencedResource
from holdfast._hold import Hold, Leadership, Session
from holdfast._metrics import Metrics
from holdfast._rates_and_fences import Fence, RateLimiter
from holdfast._sync_client import SyncClient, SyncFence, SyncRateLimiter, SyncWatch
from holdfast._sync_holds import (
    SyncElection,
    SyncHold,
    SyncLeadership,
    SyncLock,
    SyncSemaphore,
    SyncSession,
    SyncSessionContext,
)
from holdfast._sync_transaction import SyncTransaction, SyncTransactionContext
from holdfast._tls import Tls
from holdfast._transaction import Transaction, TransactionContext
from holdfast._values import (
    ClusterInfo,
    ElectionInfo,
    Event,
    Holder,
    Leader,
    LockInfo,
    LockPage,
    Member,
    NodeInfo,
    Obstacle,
    SemaphoreInfo,
    SemaphoreSize,
    Taken,
    TokenCheck,
    Waiter,
)
from holdfast._watch import Watch

if TYPE_CHECKING:
    from holdfast._decorators import locked, once
    from holdfast._leader import leader

__all__ = [
    "Acquirable",
    "AlreadyHeld",
    "Cell",
    "CellChanged",
    "CellCompare",
    "CellDelete",
    "CellGet",
    "CellIs",
    "CellOperation",
    "CellPage",
    "CellPut",
    "CellWritten",
    "Cells",
    "Client",
    "ClusterInfo",
    "Compacted",
    "Deadlock",
    "Election",
    "ElectionInfo",
    "Event",
    "Fence",
    "FencedResource",
    "Hold",
    "Holder",
    "InvalidRequest",
    "Leader",
    "Leadership",
    "LeaseExpired",
    "LeaseLost",
    "Lock",
    "LockError",
    "LockHeld",
    "LockInfo",
    "LockPage",
    "LockTimeout",
    "Member",
    "MemberChangeRefused",
    "Metrics",
    "NodeInfo",
    "Obstacle",
    "OutcomeUnknown",
    "RateLimited",
    "RateLimiter",
    "Refused",
    "Semaphore",
    "SemaphoreInfo",
    "SemaphoreSize",
    "Session",
    "SessionContext",
    "SessionExpired",
    "StaleToken",
    "StillHeld",
    "SyncCells",
    "SyncClient",
    "SyncElection",
    "SyncFence",
    "SyncHold",
    "SyncLeadership",
    "SyncLock",
    "SyncRateLimiter",
    "SyncSemaphore",
    "SyncSession",
    "SyncSessionContext",
    "SyncTransaction",
    "SyncTransactionContext",
    "SyncWatch",
    "Taken",
    "Tls",
    "TlsRefused",
    "TokenCheck",
    "Transacted",
    "Transaction",
    "TransactionContext",
    "Unavailable",
    "Waiter",
    "Watch",
    "leader",
    "locked",
    "once",
]


def __getattr__(name: str) -> object:
    """Import the decorators with their first use: most programs have none."""
    if name in {"locked", "once"}:
        from holdfast import _decorators  # noqa: PLC0415 - see above

        return getattr(_decorators, name)
    if name == "leader":
        from holdfast import _leader  # noqa: PLC0415 - see above

        return _leader.leader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
