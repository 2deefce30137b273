"""The route table: all calls of the API, one tuple for each subject."""

from collections.abc import Callable, Mapping
from typing import Final

from cluster.observing.status import ClusterStatus
from holdfast import wire
from holdfast.wire import answers, backup, cells, held, listings, operators
from http_api.server.log_level import LogLevel
from http_api.server.metrics import RequestCounts
from http_api.server.refusal_trace import RefusalTrace
from http_api.server.routes import Route
from http_api.v1 import stream, watch
from http_api.v1.handlers import (
    audit,
    backups,
    cluster,
    debugging,
    elections,
    fences,
    freezes,
    holds,
    locks,
    members,
    namespaces,
    quotas,
    rates,
    semaphores,
    sessions,
    several,
)
from http_api.v1.handlers import cells as cell_handlers
from lockapi import needs
from lockapi.requests.cells import DeleteCellRequest, DeletePrefixRequest, PutCellRequest, TransactRequest
from lockapi.requests.locks import (
    AcquireRequest,
    AddRequest,
    ConvertRequest,
    DeposeRequest,
    ForceReleaseRequest,
    HandOverRequest,
    ReleaseHoldRequest,
    ReleasePermitsRequest,
    ReleaseRequest,
    RenewRequest,
    WithdrawRequest,
)
from lockapi.requests.namespaces import RemoveNamespaceRequest, SetNamespaceRequest
from lockapi.requests.overrides import (
    ForceCloseSessionRequest,
    ForceWaitsRequest,
    ForgetFenceRequest,
    ForgetRatesRequest,
    FreezeRequest,
    LiftDelayRequest,
    PutOffRequest,
    RevokeRequest,
    ThawRequest,
    WithdrawRevocationRequest,
)
from lockapi.requests.primitives import (
    AcquirePermitsRequest,
    AdvanceFenceRequest,
    CampaignRequest,
    CheckFenceRequest,
    PeekRateRequest,
    ProclaimRequest,
    ResizeRequest,
    TakeRateRequest,
)
from lockapi.requests.quotas import RemoveQuotaRequest, SetQuotaRequest
from lockapi.requests.service import (
    AddMemberRequest,
    CloseSessionRequest,
    HoldRulesRequest,
    KeepAliveRequest,
    LogLevelRequest,
    MoveMemberRequest,
    OpenSessionRequest,
    PreferLeaderRequest,
    PreferNobodyRequest,
    ReleaseRulesRequest,
    RemoveMemberRequest,
    TransferRequest,
)
from lockapi.requests.several import AcquireSeveralRequest
from lockapi.views import AuditJson

_WORLD: Final = ("overloaded", "not-ready", "no-leader", "shutting-down", "outcome-unknown")
"""What can come between a node and the cluster."""
_READ: Final = ("overloaded", "not-ready", "no-leader", "shutting-down")
"""The same for reads, which have no outcome to be unknown."""
_CHANGE: Final = ("not-ready", "no-leader", "shutting-down", "outcome-unknown")
"""The same for changes of the members, of which there are never many."""
_ACQUIRE: Final = (
    "name-too-long", "ttl-out-of-range", "session-expired", "lease-expired", "ticket-ended", "deadlock",
    "queue-full", "quota-exceeded", *_WORLD,
)  # fmt: skip
"""What can be answered to a client that wants to hold something."""

_PAGE: Final = ("prefix", "limit", "after", "consistency")
"""What the query of a listing may say."""

_SESSIONS: Final = (
    Route(
        method="POST", path=wire.SESSIONS, need=needs.ACQUIRE, handler=sessions.open_session,
        takes=OpenSessionRequest, gives=answers.SessionOpenedJson, status=201,
        problems=("ttl-out-of-range", "quota-exceeded", *_WORLD),
    ),
    Route(
        method="POST", path=wire.SESSION_KEEPALIVE, need=needs.ACQUIRE, handler=sessions.keep_alive,
        direct=sessions.KEEP_ALIVE, takes=KeepAliveRequest, gives=answers.SessionKeptJson,
        problems=("ttl-out-of-range", "session-expired", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="POST", path=wire.SESSION_FORCE_CLOSE, need=needs.FORCE_ALL, handler=sessions.force_close,
        takes=ForceCloseSessionRequest, gives=answers.SessionForcedJson,
        problems=("session-expired", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="GET", path=wire.SESSIONS, need=needs.READ_ALL, handler=sessions.list_sessions,
        gives=listings.SessionPageJson,
        query=("owner", "label", "principal", "limit", "after", "consistency"), problems=_READ,
    ),
    Route(
        method="GET", path=wire.SESSION, need=needs.ACQUIRE, handler=sessions.get_session,
        gives=held.SessionInfo, query=("consistency",), problems=("session-expired", *_READ),
    ),
    Route(
        method="DELETE", path=wire.SESSION, need=needs.ACQUIRE, handler=sessions.close_session,
        takes=CloseSessionRequest, gives=answers.SessionClosedJson,
        problems=("session-expired", *_WORLD),
    ),
)  # fmt: skip

_SEVERAL: Final = (
    Route(
        method="POST", path=wire.ACQUIRE, need=needs.ACQUIRE, handler=several.acquire_several,
        takes=AcquireSeveralRequest, gives=answers.GrantedOfKindsJson,
        problems=(
            "lock-held", "no-permits", "frozen", "limit-mismatch", "rate-limited", "upgrade-pending",
            *_ACQUIRE,
        ),
    ),
)  # fmt: skip

_LOCKS: Final = (
    Route(
        method="POST", path=wire.LOCK_ACQUIRE, need=needs.ACQUIRE, handler=locks.acquire,
        direct=locks.ACQUIRE,
        takes=AcquireRequest, gives=answers.GrantedJson, or_gives=answers.GrantedSeveralJson,
        problems=("lock-held", "frozen", "already-held", "upgrade-pending", *_ACQUIRE),
    ),
    Route(
        method="POST", path=wire.LOCK_RENEW, need=needs.ACQUIRE, handler=locks.renew, direct=locks.RENEW,
        takes=RenewRequest, gives=answers.RenewedJson,
        problems=(
            "name-too-long", "ttl-out-of-range", "wrong-kind", "not-holder", "lease-expired",
            "upgrade-pending", *_WORLD,
        ),
    ),
    Route(
        method="POST", path=wire.LOCK_RELEASE, need=needs.ACQUIRE, handler=locks.release,
        direct=locks.RELEASE, takes=ReleaseRequest, gives=answers.ReleasedJson,
        problems=("name-too-long", "wrong-kind", "not-holder", "lease-expired", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="POST", path=wire.LOCK_CONVERT, need=needs.ACQUIRE, handler=locks.convert,
        takes=ConvertRequest, gives=answers.GrantedJson, or_gives=answers.GrantedSeveralJson,
        problems=(
            "lock-held", "frozen", "conversion-deadlock", "deadlock", "lease-expired", "ticket-ended",
            "queue-full", "quota-exceeded", *_WORLD,
        ),
    ),
    Route(
        method="POST", path=wire.LOCK_ADD, need=needs.ACQUIRE, handler=locks.add,
        takes=AddRequest, gives=answers.GrantedJson, or_gives=answers.GrantedSeveralJson,
        problems=(
            "lock-held", "frozen", "deadlock", "lease-expired", "ticket-ended", "queue-full", "name-too-long",
            "ttl-out-of-range", "quota-exceeded", "upgrade-pending", *_WORLD,
        ),
    ),
    Route(
        method="POST", path=wire.LOCK_HAND_OVER, need=needs.ACQUIRE, handler=locks.hand_over,
        takes=HandOverRequest, gives=answers.HandedOverJson,
        problems=(
            "lock-held", "frozen", "deadlock", "already-held", "quota-exceeded", "lease-expired",
            "session-expired", "ticket-ended", "upgrade-pending", *_WORLD,
        ),
    ),
    Route(
        method="POST", path=wire.LOCK_FORCE_RELEASE, need=needs.FORCE, handler=locks.force_release,
        takes=ForceReleaseRequest, gives=answers.ForceReleasedJson,
        problems=("name-too-long", "wrong-kind", "not-holder", *_WORLD),
    ),
    Route(
        method="POST", path=wire.LOCK_LIFT_DELAY, need=needs.FORCE, handler=locks.lift_delay,
        takes=LiftDelayRequest, gives=answers.DelaysLiftedJson,
        problems=("name-too-long", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="POST", path=wire.LOCK_REVOKE, need=needs.FORCE, handler=locks.revoke,
        takes=RevokeRequest, gives=answers.RevokedJson,
        problems=("name-too-long", "wrong-kind", "not-holder", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="POST", path=wire.LOCK_WITHDRAW, need=needs.FORCE,
        handler=locks.withdraw_revocation,
        takes=WithdrawRevocationRequest, gives=answers.RevocationsWithdrawnJson,
        problems=("name-too-long", "wrong-kind", "not-holder", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="POST", path=wire.LOCK_PUT_OFF, need=needs.ACQUIRE, handler=locks.put_off,
        takes=PutOffRequest, gives=answers.PutOffJson,
        problems=("wrong-kind", "not-revoked", "lease-expired", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="GET", path=wire.LOCK, need=needs.READ, handler=locks.get_lock,
        gives=held.LockInfo, query=("consistency",), problems=("name-too-long", *_READ),
    ),
    Route(
        method="GET", path=wire.LOCKS, need=needs.READ, handler=locks.list_locks,
        gives=listings.LockPageJson, query=("held_longer_than_ms", *_PAGE), problems=_READ,
    ),
    Route(
        method="GET", path=wire.HOLDS, need=needs.READ, handler=holds.list_holds, gives=listings.HoldPageJson,
        query=(
            "owner", "label", "principal", "session_name", "held_longer_than_ms", "no_deadline", *_PAGE,
        ),
        problems=("session-expired", *_READ),
    ),
    Route(
        method="GET", path=wire.TICKET, need=needs.READ, handler=holds.get_ticket,
        gives=held.TicketInfo, query=("consistency",), problems=("ticket-ended", *_READ),
    ),
    Route(
        method="POST", path=wire.WAITS_WITHDRAW, need=needs.ACQUIRE, handler=locks.withdraw,
        takes=WithdrawRequest, gives=answers.WithdrawnJson, problems=_WORLD,
    ),
    Route(
        method="POST", path=wire.WAITS_FORCE_END, need=needs.FORCE, handler=holds.force_waits,
        takes=ForceWaitsRequest, gives=answers.WaitsForcedJson,
        problems=("name-too-long", "ticket-ended", "upgrade-pending", *_WORLD),
    ),
)  # fmt: skip

_SEMAPHORES: Final = (
    Route(
        method="POST", path=wire.SEMAPHORE_ACQUIRE, need=needs.ACQUIRE, handler=semaphores.acquire_permits,
        takes=AcquirePermitsRequest, gives=answers.PermitsGrantedJson,
        problems=("no-permits", "frozen", "limit-mismatch", "upgrade-pending", *_ACQUIRE),
    ),
    Route(
        method="POST", path=wire.SEMAPHORE_RENEW, need=needs.ACQUIRE, handler=semaphores.renew_permits,
        takes=RenewRequest, gives=answers.RenewedJson,
        problems=(
            "name-too-long", "ttl-out-of-range", "wrong-kind", "not-holder", "lease-expired",
            "upgrade-pending", *_WORLD,
        ),
    ),
    Route(
        method="POST", path=wire.SEMAPHORE_RELEASE, need=needs.ACQUIRE, handler=semaphores.release_permits,
        takes=ReleasePermitsRequest, gives=answers.ReleasedJson,
        problems=("name-too-long", "wrong-kind", "not-holder", "lease-expired", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="POST", path=wire.SEMAPHORE_FORCE_RELEASE, need=needs.FORCE,
        handler=semaphores.force_release_permits, takes=ForceReleaseRequest, gives=answers.ForceReleasedJson,
        problems=("name-too-long", "wrong-kind", "not-holder", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="POST", path=wire.SEMAPHORE_LIFT_DELAY, need=needs.FORCE,
        handler=semaphores.lift_permits_delay, takes=LiftDelayRequest, gives=answers.DelaysLiftedJson,
        problems=("name-too-long", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="POST", path=wire.SEMAPHORE_REVOKE, need=needs.FORCE, handler=semaphores.revoke_permits,
        takes=RevokeRequest, gives=answers.RevokedJson,
        problems=("name-too-long", "wrong-kind", "not-holder", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="POST", path=wire.SEMAPHORE_WITHDRAW, need=needs.FORCE,
        handler=semaphores.withdraw_permit_revocation,
        takes=WithdrawRevocationRequest, gives=answers.RevocationsWithdrawnJson,
        problems=("name-too-long", "wrong-kind", "not-holder", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="POST", path=wire.SEMAPHORE_PUT_OFF, need=needs.ACQUIRE, handler=semaphores.put_off_permits,
        takes=PutOffRequest, gives=answers.PutOffJson,
        problems=("wrong-kind", "not-revoked", "lease-expired", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="POST", path=wire.SEMAPHORE_RESIZE, need=needs.ACQUIRE, handler=semaphores.resize_semaphore,
        takes=ResizeRequest, gives=answers.ResizedJson,
        problems=("name-too-long", "not-holder", *_WORLD),
    ),
    Route(
        method="GET", path=wire.SEMAPHORE, need=needs.READ, handler=semaphores.get_semaphore,
        gives=held.SemaphoreInfo, query=("consistency",), problems=("name-too-long", *_READ),
    ),
    Route(
        method="GET", path=wire.SEMAPHORES, need=needs.READ, handler=semaphores.list_semaphores,
        gives=listings.SemaphorePageJson, query=_PAGE, problems=_READ,
    ),
)  # fmt: skip

_RATES_AND_FENCES: Final = (
    Route(
        method="POST", path=wire.RATE_TAKE, need=needs.ACQUIRE, handler=rates.take_rate,
        takes=TakeRateRequest, gives=answers.RateTakenJson,
        problems=("name-too-long", "limit-mismatch", "queue-full", "quota-exceeded", *_WORLD),
    ),
    Route(
        method="POST", path=wire.RATE_PEEK, need=needs.READ, handler=rates.peek_rate,
        takes=PeekRateRequest, gives=answers.RatePeekJson, query=("consistency",),
        problems=("name-too-long", "limit-mismatch", *_READ),
    ),
    Route(
        method="GET", path=wire.RATES, need=needs.READ, handler=rates.list_rate_limits,
        gives=listings.RatePageJson, query=_PAGE, problems=_READ,
    ),
    Route(
        method="DELETE", path=wire.RATE, need=needs.FORCE, handler=rates.forget_rate_limit,
        takes=ForgetRatesRequest, gives=answers.RatesForgottenJson, query=("reason",),
        problems=("name-too-long", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="DELETE", path=wire.RATES, need=needs.FORCE, handler=rates.forget_rate_limits,
        takes=ForgetRatesRequest, gives=answers.RatesForgottenJson, query=("prefix", "all", "reason"),
        problems=("upgrade-pending", *_WORLD),
    ),
    Route(
        method="GET", path=wire.FENCE, need=needs.READ, handler=fences.get_fence,
        gives=held.FenceJson, query=("consistency",), problems=("name-too-long", *_READ),
    ),
    Route(
        method="GET", path=wire.FENCES, need=needs.READ, handler=fences.list_fences,
        gives=listings.FencePageJson, query=_PAGE, problems=_READ,
    ),
    Route(
        method="POST", path=wire.FENCE_CHECK, need=needs.READ, handler=fences.check_fence,
        takes=CheckFenceRequest, gives=held.TokenCheck, query=("consistency",),
        problems=("name-too-long", *_READ),
    ),
    Route(
        method="POST", path=wire.FENCE_ADVANCE, need=needs.ACQUIRE, handler=fences.advance_fence,
        takes=AdvanceFenceRequest, gives=answers.FenceAdvancedJson,
        problems=("name-too-long", "stale-token", "quota-exceeded", *_WORLD),
    ),
    Route(
        method="POST", path=wire.FENCE_FORGET, need=needs.FORCE, handler=fences.forget_fence,
        takes=ForgetFenceRequest, gives=answers.FenceForgottenJson,
        problems=("name-too-long", "upgrade-pending", *_WORLD),
    ),
)  # fmt: skip

_ELECTIONS: Final = (
    Route(
        method="POST", path=wire.ELECTION_CAMPAIGN, need=needs.ACQUIRE, handler=elections.campaign,
        takes=CampaignRequest, gives=answers.ElectedJson,
        problems=(
            "name-too-long", "lock-held", "frozen", "already-held", "session-expired", "lease-expired",
            "ticket-ended", "deadlock", "queue-full", "quota-exceeded", *_WORLD,
        ),
    ),
    Route(
        method="POST", path=wire.ELECTION_PROCLAIM, need=needs.ACQUIRE, handler=elections.proclaim,
        takes=ProclaimRequest, gives=answers.ProclaimedJson,
        problems=("lease-expired", "quota-exceeded", *_WORLD),
    ),
    Route(
        method="POST", path=wire.ELECTION_RESIGN, need=needs.ACQUIRE, handler=elections.resign,
        takes=ReleaseHoldRequest, gives=answers.ReleasedJson,
        problems=("wrong-kind", "lease-expired", *_WORLD),
    ),
    Route(
        method="POST", path=wire.ELECTION_DEPOSE, need=needs.FORCE, handler=elections.depose,
        takes=DeposeRequest, gives=answers.ForceReleasedJson,
        problems=("name-too-long", "wrong-kind", "not-holder", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="POST", path=wire.ELECTION_REVOKE, need=needs.FORCE, handler=elections.revoke_leader,
        takes=RevokeRequest, gives=answers.RevokedJson,
        problems=("name-too-long", "wrong-kind", "not-holder", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="POST", path=wire.ELECTION_WITHDRAW, need=needs.FORCE,
        handler=elections.withdraw_leader_revocation,
        takes=WithdrawRevocationRequest, gives=answers.RevocationsWithdrawnJson,
        problems=("name-too-long", "wrong-kind", "not-holder", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="POST", path=wire.ELECTION_PUT_OFF, need=needs.ACQUIRE, handler=elections.put_off_resigning,
        takes=PutOffRequest, gives=answers.PutOffJson,
        problems=("wrong-kind", "not-revoked", "lease-expired", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="GET", path=wire.ELECTION, need=needs.READ, handler=elections.get_election,
        gives=held.ElectionInfo, query=("consistency",), problems=("name-too-long", *_READ),
    ),
    Route(
        method="GET", path=wire.ELECTIONS, need=needs.READ, handler=elections.list_elections,
        gives=listings.ElectionPageJson, query=_PAGE, problems=_READ,
    ),
)  # fmt: skip

_CELLS: Final = (
    Route(
        method="POST", path=wire.CELLS_TRANSACT, need=needs.KNOWN, handler=cell_handlers.transact,
        takes=TransactRequest, gives=cells.TransactedJson,
        problems=("ttl-out-of-range", "session-expired", "upgrade-pending", "quota-exceeded", *_WORLD),
    ),
    Route(
        method="PUT", path=wire.CELL, need=needs.ACQUIRE, handler=cell_handlers.put_cell,
        takes=PutCellRequest, gives=cells.CellWrittenJson,
        problems=(
            "ttl-out-of-range", "cell-changed", "session-expired", "upgrade-pending", "quota-exceeded",
            *_WORLD,
        ),
    ),
    Route(
        method="DELETE", path=wire.CELL, need=needs.ACQUIRE, handler=cell_handlers.delete_cell,
        takes=DeleteCellRequest, gives=cells.CellsDeletedJson,
        problems=("cell-changed", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="DELETE", path=wire.CELLS, need=needs.ACQUIRE, handler=cell_handlers.delete_cells,
        takes=DeletePrefixRequest, gives=cells.CellsDeletedJson, query=("prefix", "all"),
        problems=("upgrade-pending", *_WORLD),
    ),
    Route(
        method="GET", path=wire.CELL, need=needs.READ, handler=cell_handlers.get_cell,
        gives=cells.CellJson, query=("consistency",), problems=("cell-not-found", *_READ),
    ),
    Route(
        method="GET", path=wire.CELLS, need=needs.READ, handler=cell_handlers.list_cells,
        gives=cells.CellPageJson, query=("prefix", "limit", "after", "consistency"), problems=_READ,
    ),
)  # fmt: skip

_AUDIT: Final = (
    Route(
        method="GET", path=wire.AUDIT, need=needs.READ, handler=audit.get_audit,
        gives=AuditJson, query=("name", "limit", "behind", "by_operators", "consistency"),
        problems=("name-too-long", *_READ),
    ),
    Route(
        method="GET", path=wire.SESSION_AUDIT, need=needs.ACQUIRE, handler=audit.get_session_audit,
        gives=AuditJson, query=("limit", "consistency"), problems=_READ,
    ),
)  # fmt: skip

_QUOTAS: Final = (
    Route(
        method="GET", path=wire.QUOTAS, need=needs.ADMIN, handler=quotas.list_quotas,
        gives=operators.QuotaPageJson, query=("limit", "after", "consistency"), problems=_READ,
    ),
    Route(
        method="GET", path=wire.QUOTA, need=needs.ADMIN, handler=quotas.get_quota,
        gives=operators.PrincipalInfo, query=("consistency",), problems=_READ,
    ),
    Route(
        method="PUT", path=wire.QUOTA, need=needs.ADMIN, handler=quotas.set_quota,
        takes=SetQuotaRequest, gives=operators.QuotaSetJson, problems=("upgrade-pending", *_WORLD),
    ),
    Route(
        method="DELETE", path=wire.QUOTA, need=needs.ADMIN, handler=quotas.remove_quota,
        takes=RemoveQuotaRequest, gives=operators.QuotaSetJson, query=("reason",),
        problems=("upgrade-pending", *_WORLD),
    ),
)  # fmt: skip

_NAMESPACES: Final = (
    Route(
        method="GET", path=wire.NAMESPACES, need=needs.READ_OR_ADMIN, handler=namespaces.list_namespaces,
        gives=operators.NamespacePageJson, query=_PAGE, problems=_READ,
    ),
    Route(
        method="GET", path=wire.NAMESPACE, need=needs.READ_OR_ADMIN, handler=namespaces.get_namespace,
        gives=operators.NamespaceInfo, query=("consistency",),
        problems=("name-too-long", "namespace-not-found", *_READ),
    ),
    Route(
        method="PUT", path=wire.NAMESPACE, need=needs.ADMIN_BELOW, handler=namespaces.set_namespace,
        takes=SetNamespaceRequest, gives=operators.NamespaceSetJson,
        problems=("name-too-long", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="DELETE", path=wire.NAMESPACE, need=needs.ADMIN_BELOW, handler=namespaces.remove_namespace,
        takes=RemoveNamespaceRequest, gives=operators.NamespaceSetJson,
        query=("reason",),
        problems=("name-too-long", "upgrade-pending", *_WORLD),
    ),
)  # fmt: skip

_FREEZES: Final = (
    Route(
        method="GET", path=wire.FREEZES, need=needs.READ, handler=freezes.list_freezes,
        gives=operators.FreezePageJson, query=_PAGE, problems=_READ,
    ),
    Route(
        method="GET", path=wire.FREEZE, need=needs.READ, handler=freezes.get_freeze,
        gives=operators.FreezeInfo, query=("consistency",), problems=("name-too-long", *_READ),
    ),
    Route(
        method="PUT", path=wire.FREEZE, need=needs.FORCE, handler=freezes.freeze,
        takes=FreezeRequest, gives=operators.FrozenJson,
        problems=("name-too-long", "upgrade-pending", *_WORLD),
    ),
    Route(
        method="DELETE", path=wire.FREEZE, need=needs.FORCE, handler=freezes.thaw,
        takes=ThawRequest, gives=operators.ThawedJson, query=("reason",),
        problems=("name-too-long", "upgrade-pending", *_WORLD),
    ),
)  # fmt: skip

_CLUSTER: Final = (
    Route(
        method="GET", path=wire.CLUSTER_BACKUP, need=needs.ADMIN, handler=backups.get_backup,
        media_type=backup.MEDIA_TYPE, problems=_READ,
    ),
    Route(
        method="POST", path=wire.CLUSTER_TRANSFER_LEADERSHIP, need=needs.ADMIN,
        handler=cluster.transfer_leadership, takes=TransferRequest, gives=operators.LeadershipTransferredJson,
        problems=("transfer-failed", *_WORLD),
    ),
    Route(
        method="PUT", path=wire.CLUSTER_PREFERRED_LEADER, need=needs.ADMIN, handler=cluster.prefer_leader,
        takes=PreferLeaderRequest, gives=operators.LeaderPreferredJson, problems=("upgrade-pending", *_WORLD),
    ),
    Route(
        method="DELETE", path=wire.CLUSTER_PREFERRED_LEADER, need=needs.ADMIN, handler=cluster.prefer_nobody,
        takes=PreferNobodyRequest, gives=operators.LeaderPreferredJson, query=("reason",),
        problems=("upgrade-pending", *_WORLD),
    ),
    Route(
        method="PUT", path=wire.CLUSTER_RULES_HOLD, need=needs.ADMIN, handler=cluster.hold_rules,
        takes=HoldRulesRequest, gives=operators.RulesHeldJson, problems=("upgrade-pending", *_WORLD),
    ),
    Route(
        method="DELETE", path=wire.CLUSTER_RULES_HOLD, need=needs.ADMIN, handler=cluster.release_rules,
        takes=ReleaseRulesRequest, gives=operators.RulesHeldJson, query=("reason",),
        problems=("upgrade-pending", *_WORLD),
    ),
    Route(
        method="POST", path=wire.CLUSTER_MEMBERS, need=needs.ADMIN, handler=members.add_member,
        takes=AddMemberRequest, gives=operators.MemberListJson,
        problems=("member-change-refused", "member-change-pending", *_CHANGE),
    ),
    Route(
        method="PATCH", path=wire.CLUSTER_MEMBERS, need=needs.ADMIN, handler=members.move_member,
        takes=MoveMemberRequest, gives=operators.MemberListJson,
        problems=("member-not-found", "member-change-refused", "member-change-pending", *_CHANGE),
    ),
    Route(
        method="DELETE", path=wire.CLUSTER_MEMBERS, need=needs.ADMIN, handler=members.remove_member,
        takes=RemoveMemberRequest, gives=operators.MemberListJson, query=("id", "reason"),
        problems=("member-not-found", "member-change-refused", "member-change-pending", *_CHANGE),
    ),
)  # fmt: skip

_HEALTH: Final = (
    Route(
        method="GET", path=wire.LIVEZ, need=needs.OPEN, handler=cluster.get_livez, gives=operators.HealthJson,
    ),
    Route(
        method="GET", path=wire.READYZ, need=needs.OPEN, handler=cluster.get_readyz,
        gives=operators.HealthJson, problems=("not-ready", "shutting-down"),
    ),
)  # fmt: skip


def _watching() -> tuple[Route, ...]:
    """Return the calls of the watches, whose handlers know all watchers of their server."""
    names, session = watch.watch_handlers()
    return (
        Route(
            method="GET", path=wire.WATCH, need=needs.READ, handler=names, media_type=watch.EVENT_STREAM,
            query=("prefix", "since"), problems=("compacted", *_READ),
        ),
        Route(
            method="GET", path=wire.SESSION_WATCH, need=watch.SESSION_NEED, handler=session,
            media_type=watch.EVENT_STREAM,
            query=("since",), problems=("session-expired", "compacted", *_READ),
        ),
    )  # fmt: skip


def make_routes(
    counts: RequestCounts,
    trace: RefusalTrace,
    connections: Callable[[], tuple[int, int]] = lambda: (0, 0),
    settings: Mapping[str, str] | None = None,
) -> tuple[Route, ...]:
    """Return all calls of the API, for one server that counts and traces there.

    `connections` tells how many clients have, and how many they may have. `settings` are those of the node.
    """
    log_level = LogLevel()
    routes = [
        *_SESSIONS, *_SEVERAL, *_LOCKS, *_SEMAPHORES, *_RATES_AND_FENCES, *_ELECTIONS, *_CELLS, *_AUDIT,
        *_QUOTAS, *_NAMESPACES, *_FREEZES, *_watching(),
        Route(
            method="GET", path=wire.REFUSALS, need=needs.ADMIN, handler=audit.refusals_handler(trace),
            gives=operators.Refusals, query=("limit",),
        ),
        Route(
            method="GET", path=wire.STREAM, need=stream.NEED,
            handler=stream.stream_handler(trace), status=101,
        ),
        Route(
            method="GET", path=wire.CLUSTER, need=needs.KNOWN,
            handler=cluster.cluster_handler(connections, log_level), gives=ClusterStatus,
        ),
        Route(
            method="GET", path=wire.CLUSTER_DEBUG, need=needs.ADMIN,
            handler=debugging.debug_handler(log_level, settings or {}), gives=operators.DebugInfo,
            problems=("overloaded",),
        ),
        Route(
            method="PUT", path=wire.CLUSTER_LOG_LEVEL, need=needs.ADMIN,
            handler=debugging.log_level_handler(log_level), takes=LogLevelRequest,
            gives=operators.LogLevelSetJson,
        ),
        *_CLUSTER, *_HEALTH,
        Route(
            method="GET", path=wire.METRICS, need=needs.METRICS, handler=cluster.metrics_handler(counts),
            problems=("overloaded",),
        ),
    ]  # fmt: skip
    describe = cluster.openapi_handler(routes)
    routes.append(Route(method="GET", path=wire.OPENAPI, need=needs.KNOWN, handler=describe, gives=dict))
    return tuple(routes)
