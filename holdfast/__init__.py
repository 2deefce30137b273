"""Holdfast's client: locks with leases and fencing tokens, from a cluster that survives its nodes.

async with holdfast.Client("10.0.0.1:7700,10.0.0.2:7700") as client:
    async with client.lock("db/migrate") as hold:
        migrate(token=hold.token)

with holdfast.SyncClient() as client, client.lock(("order", 42), wait=60) as hold:
    ship(token=hold.token)
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast._acquiring import Acquirable, Lock, Semaphore, SessionContext
    from holdfast._admin import Admin, SyncAdmin
    from holdfast._cell_values import (
        Cell,
        CellCompare,
        CellDelete,
        CellGet,
        CellIs,
        CellOperation,
        CellPut,
        CellWritten,
        StillHeld,
        Transacted,
    )
    from holdfast._cell_watch import CellChange, CellWatch, SyncCellWatch
    from holdfast._cells import Cells, SyncCells
    from holdfast._client import Client
    from holdfast._client import Client as AsyncClient
    from holdfast._decorators import locked, once
    from holdfast._defaults import use
    from holdfast._durations import Seconds
    from holdfast._election import Election
    from holdfast._errors import (
        AccessDenied,
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
        QuotaExceeded,
        RateLimited,
        Refused,
        SessionExpired,
        StaleToken,
        TlsRefused,
        Unavailable,
    )
    from holdfast._fencing import FencedResource
    from holdfast._hold import Hold, Leadership, Session
    from holdfast._leader import leader
    from holdfast._listed_values import (
        ElectionRow,
        FenceRow,
        Holdings,
        HoldRow,
        RateLimitRow,
        SemaphoreRow,
        SessionInfo,
        SessionRow,
        TicketInfo,
        WaitRow,
    )
    from holdfast._listings import Listing, Page, SyncListing
    from holdfast._metrics import Metrics
    from holdfast._names import Name
    from holdfast._rates_and_fences import Fence, RateLimiter, SyncFence, SyncRateLimiter
    from holdfast._reads import Pong
    from holdfast._several import Together, WantedPermits, WantedRate
    from holdfast._sync_client import SyncClient
    from holdfast._sync_holds import (
        SyncElection,
        SyncHold,
        SyncLeadership,
        SyncLock,
        SyncSemaphore,
        SyncSession,
        SyncSessionContext,
        SyncTogether,
    )
    from holdfast._sync_transaction import SyncTransaction, SyncTransactionContext
    from holdfast._sync_watch import SyncWatch
    from holdfast._tls import Tls
    from holdfast._transaction import Transaction, TransactionContext
    from holdfast._values import (
        ClusterInfo,
        ElectionInfo,
        Event,
        Holder,
        Leader,
        LockInfo,
        Member,
        NamespaceInfo,
        NamespaceSettings,
        NodeInfo,
        Obstacle,
        PrincipalInfo,
        Quota,
        Refusals,
        RefusedAttempt,
        SemaphoreInfo,
        SemaphoreSize,
        Taken,
        TokenCheck,
        Waiter,
    )
    from holdfast._watch import Watch
    from holdfast._words import Algorithm, HoldKind, HoldState, IfHeld, Mode, Relation, Scope

__version__ = "1.0.0.dev0"
"""The version of both distributions: the builds of holdfast-locks and of holdfast-node read it here."""

__all__ = [
    "AccessDenied",
    "Acquirable",
    "Admin",
    "Algorithm",
    "AlreadyHeld",
    "AsyncClient",
    "Cell",
    "CellChange",
    "CellChanged",
    "CellCompare",
    "CellDelete",
    "CellGet",
    "CellIs",
    "CellOperation",
    "CellPut",
    "CellWatch",
    "CellWritten",
    "Cells",
    "Client",
    "ClusterInfo",
    "Compacted",
    "Deadlock",
    "Election",
    "ElectionInfo",
    "ElectionRow",
    "Event",
    "Fence",
    "FenceRow",
    "FencedResource",
    "Hold",
    "HoldKind",
    "HoldRow",
    "HoldState",
    "Holder",
    "Holdings",
    "IfHeld",
    "InvalidRequest",
    "Leader",
    "Leadership",
    "LeaseExpired",
    "LeaseLost",
    "Listing",
    "Lock",
    "LockError",
    "LockHeld",
    "LockInfo",
    "LockTimeout",
    "Member",
    "MemberChangeRefused",
    "Metrics",
    "Mode",
    "Name",
    "NamespaceInfo",
    "NamespaceSettings",
    "NodeInfo",
    "Obstacle",
    "OutcomeUnknown",
    "Page",
    "Pong",
    "PrincipalInfo",
    "Quota",
    "QuotaExceeded",
    "RateLimitRow",
    "RateLimited",
    "RateLimiter",
    "Refusals",
    "Refused",
    "RefusedAttempt",
    "Relation",
    "Scope",
    "Seconds",
    "Semaphore",
    "SemaphoreInfo",
    "SemaphoreRow",
    "SemaphoreSize",
    "Session",
    "SessionContext",
    "SessionExpired",
    "SessionInfo",
    "SessionRow",
    "StaleToken",
    "StillHeld",
    "SyncAdmin",
    "SyncCellWatch",
    "SyncCells",
    "SyncClient",
    "SyncElection",
    "SyncFence",
    "SyncHold",
    "SyncLeadership",
    "SyncListing",
    "SyncLock",
    "SyncRateLimiter",
    "SyncSemaphore",
    "SyncSession",
    "SyncSessionContext",
    "SyncTogether",
    "SyncTransaction",
    "SyncTransactionContext",
    "SyncWatch",
    "Taken",
    "TicketInfo",
    "Tls",
    "TlsRefused",
    "Together",
    "TokenCheck",
    "Transacted",
    "Transaction",
    "TransactionContext",
    "Unavailable",
    "WaitRow",
    "Waiter",
    "WantedPermits",
    "WantedRate",
    "Watch",
    "leader",
    "locked",
    "once",
    "use",
]

_HOMES = {
    "Acquirable": "_acquiring",
    "Lock": "_acquiring",
    "Semaphore": "_acquiring",
    "SessionContext": "_acquiring",
    "Admin": "_admin",
    "SyncAdmin": "_admin",
    "Cell": "_cell_values",
    "CellCompare": "_cell_values",
    "CellDelete": "_cell_values",
    "CellGet": "_cell_values",
    "CellIs": "_cell_values",
    "CellOperation": "_cell_values",
    "CellPut": "_cell_values",
    "CellWritten": "_cell_values",
    "StillHeld": "_cell_values",
    "Transacted": "_cell_values",
    "CellChange": "_cell_watch",
    "CellWatch": "_cell_watch",
    "SyncCellWatch": "_cell_watch",
    "Cells": "_cells",
    "SyncCells": "_cells",
    "AsyncClient": "_client",
    "Client": "_client",
    "locked": "_decorators",
    "once": "_decorators",
    "use": "_defaults",
    "Seconds": "_durations",
    "Election": "_election",
    "AccessDenied": "_errors",
    "AlreadyHeld": "_errors",
    "CellChanged": "_errors",
    "Compacted": "_errors",
    "Deadlock": "_errors",
    "InvalidRequest": "_errors",
    "LeaseExpired": "_errors",
    "LeaseLost": "_errors",
    "LockError": "_errors",
    "LockHeld": "_errors",
    "LockTimeout": "_errors",
    "MemberChangeRefused": "_errors",
    "OutcomeUnknown": "_errors",
    "QuotaExceeded": "_errors",
    "RateLimited": "_errors",
    "Refused": "_errors",
    "SessionExpired": "_errors",
    "StaleToken": "_errors",
    "TlsRefused": "_errors",
    "Unavailable": "_errors",
    "FencedResource": "_fencing",
    "Hold": "_hold",
    "Leadership": "_hold",
    "Session": "_hold",
    "leader": "_leader",
    "ElectionRow": "_listed_values",
    "FenceRow": "_listed_values",
    "HoldRow": "_listed_values",
    "Holdings": "_listed_values",
    "RateLimitRow": "_listed_values",
    "SemaphoreRow": "_listed_values",
    "SessionInfo": "_listed_values",
    "SessionRow": "_listed_values",
    "TicketInfo": "_listed_values",
    "WaitRow": "_listed_values",
    "Listing": "_listings",
    "Page": "_listings",
    "SyncListing": "_listings",
    "Metrics": "_metrics",
    "Name": "_names",
    "Fence": "_rates_and_fences",
    "RateLimiter": "_rates_and_fences",
    "SyncFence": "_rates_and_fences",
    "SyncRateLimiter": "_rates_and_fences",
    "Pong": "_reads",
    "Together": "_several",
    "WantedPermits": "_several",
    "WantedRate": "_several",
    "SyncClient": "_sync_client",
    "SyncElection": "_sync_holds",
    "SyncHold": "_sync_holds",
    "SyncLeadership": "_sync_holds",
    "SyncLock": "_sync_holds",
    "SyncSemaphore": "_sync_holds",
    "SyncSession": "_sync_holds",
    "SyncSessionContext": "_sync_holds",
    "SyncTogether": "_sync_holds",
    "SyncTransaction": "_sync_transaction",
    "SyncTransactionContext": "_sync_transaction",
    "SyncWatch": "_sync_watch",
    "Tls": "_tls",
    "Transaction": "_transaction",
    "TransactionContext": "_transaction",
    "ClusterInfo": "_values",
    "ElectionInfo": "_values",
    "Event": "_values",
    "Holder": "_values",
    "Leader": "_values",
    "LockInfo": "_values",
    "Member": "_values",
    "NamespaceInfo": "_values",
    "NamespaceSettings": "_values",
    "NodeInfo": "_values",
    "Obstacle": "_values",
    "PrincipalInfo": "_values",
    "Quota": "_values",
    "Refusals": "_values",
    "RefusedAttempt": "_values",
    "SemaphoreInfo": "_values",
    "SemaphoreSize": "_values",
    "Taken": "_values",
    "TokenCheck": "_values",
    "Waiter": "_values",
    "Watch": "_watch",
    "Algorithm": "_words",
    "HoldKind": "_words",
    "HoldState": "_words",
    "IfHeld": "_words",
    "Mode": "_words",
    "Relation": "_words",
    "Scope": "_words",
}
"""Where each name lives: imported with its first use.

A node, which needs only `wire.py`, and every run of pytest where Holdfast is installed, whose plugin is a
module of this package, do not pay for a client that they do not use.
"""

if not TYPE_CHECKING:  # else every name would be one of this package

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found  # the next time it is found without this function
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
