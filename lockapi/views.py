"""How what reads and refusals show, the structs of `holdfast.wire`, is made of a view of the machine.

Modes and scopes are shown of locks, permits of semaphores; elections have neither. None of them contains a
secret.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.wire.answers import RatePeekJson
from holdfast.wire.held import (
    ElectionInfo,
    FenceJson,
    Holder,
    HoldRow,
    Leader,
    LockInfo,
    Revocation,
    SemaphoreInfo,
    SessionInfo,
    TicketInfo,
    TokenCheck,
    Waiter,
    WaitRow,
)
from holdfast.wire.listings import (
    ElectionPageJson,
    ElectionRow,
    FencePageJson,
    FenceRow,
    HoldPageJson,
    LockPageJson,
    RateLimitRow,
    RatePageJson,
    SemaphorePageJson,
    SemaphoreRow,
    SessionPageJson,
    SessionRow,
)
from holdfast.wire.operators import (
    FreezeInfo,
    FreezePageJson,
    LeftBelow,
    NamespaceInfo,
    NamespacePageJson,
    NamespaceSettings,
    NamespaceUsed,
    PrincipalInfo,
    Quota,
    QuotaPageJson,
    RateSettings,
    Used,
)
from holdfast.wire.shape import ABSENT, FRESH, ReadAnswer
from lockapi import cursors
from lockstate.tables.audit_record import AuditEvent, shown
from lockstate.words import settings
from lockstate.words.events import Event
from lockstate.words.kinds import HoldKind
from lockstate.words.results import RateTaken
from lockstate.words.views import (
    ElectionSummary,
    ElectionView,
    FenceView,
    FreezeView,
    HighestToken,
    HolderView,
    Holdings,
    HoldView,
    LeftView,
    LockView,
    NamespaceSummary,
    PrincipalRow,
    RateRowView,
    RevocationView,
    RevokedView,
    SemaphoreSummary,
    SemaphoreView,
    SessionSummary,
    SessionView,
    TicketView,
    WaiterView,
)
from lockstate.words.wanted import PRIORITY_DEFAULT

S = TypeVar("S", bound=msgspec.Struct)


class AuditJson(ReadAnswer, frozen=True):
    """What happened last, the newest first; `now_ms` is the cluster time of the newest entry of this node."""

    events: tuple[AuditEvent, ...]
    now_ms: int


def _copied(kind: type[S], view: msgspec.Struct) -> S:
    """Return a JSON object whose fields are all those of a view with the same name."""
    return kind(**{name: getattr(view, name) for name in kind.__struct_fields__})


# -- who holds and who waits ------------------------------------------------------------------------------


def holder_of(view: HolderView) -> Holder:
    """Return a holder as a JSON object."""
    is_lock = view.kind is HoldKind.LOCK
    more, value, principal = _NO_MORE, ABSENT, ABSENT
    if isinstance(view, HoldView):
        more, value, principal = _more(view), view.value or ABSENT, view.principal or ABSENT
    elif isinstance(view, RevokedView):
        more = ABSENT, ABSENT, ABSENT, revocation_of(view.revocation)
    return Holder(
        view.owner,
        view.mode if is_lock else ABSENT,
        view.token,
        ABSENT if view.expires_in_ms is None else view.expires_in_ms,
        view.note,
        view.name,
        view.scope if is_lock else ABSENT,
        view.permits if view.kind is HoldKind.SEMAPHORE else ABSENT,
        *more,
        value,
        view.expires_in_ms is None or ABSENT,
        principal,
    )


def _more(view: HoldView) -> tuple[Any, Any, Any, Any]:
    """Return for how long it is held, the session and its labels, if it is in one, and the revocation."""
    revocation = ABSENT if view.revocation is None else revocation_of(view.revocation)
    if not view.session_name:
        return view.since_ms, ABSENT, ABSENT, revocation
    return view.since_ms, view.session_name, view.labels, revocation


_NO_MORE: Final[tuple[Any, Any, Any, Any]] = (ABSENT, ABSENT, ABSENT, ABSENT)
"""What stands in the place of that where it is not told."""


def held_of(view: HolderView) -> HoldRow:
    """Return a hold with its kind as a JSON object."""
    return HoldRow(*msgspec.structs.astuple(holder_of(view)), kind=view.kind)


def revocation_of(view: RevocationView) -> Revocation:
    """Return what a holder was asked as a JSON object."""
    return Revocation(view.name, view.reason, view.ends_in_ms, view.is_put_off, view.ticket)


def holders_of(views: Iterable[HolderView]) -> tuple[Holder, ...]:
    """Return holders as JSON objects."""
    return tuple([holder_of(view) for view in views])


def waiters_of(views: Iterable[WaiterView]) -> tuple[Waiter, ...]:
    """Return waiters as JSON objects."""
    return tuple([waiter_of(view) for view in views])


def waiter_of(view: WaiterView) -> Waiter:
    """Return a waiter as a JSON object."""
    is_lock = view.kind is HoldKind.LOCK
    return Waiter(
        view.owner,
        view.mode if is_lock else ABSENT,
        view.position,
        view.waited_ms,
        view.name,
        view.scope if is_lock else ABSENT,
        view.permits if view.kind is HoldKind.SEMAPHORE else ABSENT,
        view.ticket,
        view.is_conversion or ABSENT,
        view.session_name or ABSENT,
        _unusual(view.priority),
        view.principal or ABSENT,
    )


def _unusual(priority: int) -> int:
    return ABSENT if priority == PRIORITY_DEFAULT else priority


def ticket_of(view: WaiterView) -> WaitRow:
    """Return a waiter with its kind as a JSON object."""
    return WaitRow(*msgspec.structs.astuple(waiter_of(view)), kind=view.kind)


def leader_of(view: HoldView | None, value: str) -> Leader | None:
    """Return a leader with its value as a JSON object, None if nobody leads."""
    if view is None:
        return None
    return Leader(view.owner, value, view.token, *_more(view), view.principal or ABSENT)


def new_leader(owner: str, value: str, token: int) -> Leader:
    """Return a leader of this moment as a JSON object."""
    return Leader(owner, value, token, *_NO_MORE, principal=ABSENT)


# -- one thing --------------------------------------------------------------------------------------------


def lock_of(view: LockView) -> LockInfo:
    """Return a lock as a JSON object."""
    return LockInfo(view.name, view.state, holders_of(view.holders), waiters_of(view.queue), **FRESH)


def semaphore_of(view: SemaphoreView) -> SemaphoreInfo:
    """Return a semaphore as a JSON object."""
    holders, queue = holders_of(view.holders), waiters_of(view.queue)
    return SemaphoreInfo(view.name, view.limit, view.available, holders, queue, **FRESH)


def election_of(view: ElectionView) -> ElectionInfo:
    """Return an election as a JSON object."""
    return ElectionInfo(view.name, leader_of(view.leader, view.value), waiters_of(view.queue), **FRESH)


def session_of(view: SessionView) -> SessionInfo:
    """Return a session as a JSON object."""
    return SessionInfo(
        view.ttl_ms,
        view.expires_in_ms,
        view.owner,
        view.labels,
        tuple([held_of(hold) for hold in view.holds]),
        tuple([ticket_of(ticket) for ticket in view.tickets]),
        view.session_name,
        **FRESH,
    )


def ticket_status_of(view: TicketView) -> TicketInfo:
    """Return a waiter, asked for by its number, as a JSON object."""
    return TicketInfo(
        view.ticket,
        view.kind,
        view.names,
        view.owner,
        view.position,
        view.waited_ms,
        view.ends_in_ms,
        view.estimate_ms,
        view.session_name or ABSENT,
        view.is_conversion or ABSENT,
        _unusual(view.priority),
        view.principal or ABSENT,
        **FRESH,
    )


def rate_peek_of(taken: RateTaken) -> RatePeekJson:
    """Return what a rate limit would answer as a JSON object."""
    return RatePeekJson(taken.allowed, taken.remaining, taken.retry_after_ms, taken.reset_in_ms, **FRESH)


def fence_state_of(view: HighestToken) -> FenceJson:
    """Return the highest token of a resource as a JSON object."""
    return FenceJson(name=view.name, highest_token=view.highest_token, **FRESH)


def fence_of(view: FenceView) -> TokenCheck:
    """Return the check of a token as a JSON object."""
    return TokenCheck(view.valid, view.current_token, **FRESH)


def quota_of(quota: settings.Quota | None) -> Quota | None:
    """Return a quota as a JSON object, null if there is none."""
    return None if quota is None else _copied(Quota, quota)


def settings_of(kept: settings.NamespaceSettings) -> NamespaceSettings:
    """Return the settings of a namespace as a JSON object."""
    told = _copied(NamespaceSettings, kept)
    return told if kept.rate is None else replace(told, rate=_copied(RateSettings, kept.rate))


def event_of(event: Event) -> AuditEvent:
    """Return an event as a JSON object for watchers."""
    return shown(event)


# -- pages ------------------------------------------------------------------------------------------------


def page_of(found: tuple[list[LockView], str | None]) -> LockPageJson:
    """Return a page of locks as a JSON object."""
    views, last = found
    more = None if last is None else cursors.of_name(last)
    return LockPageJson(tuple([lock_of(view) for view in views]), more, **FRESH)


def holds_of(found: Holdings) -> HoldPageJson:
    """Return a page of holds and waits as a JSON object."""
    holds = tuple([held_of(hold) for hold in found.holds])
    tickets = tuple([ticket_of(ticket) for ticket in found.tickets])
    return HoldPageJson(holds, tickets, found.next, **FRESH)


def semaphore_page_of(found: tuple[list[SemaphoreSummary], str | None]) -> SemaphorePageJson:
    """Return a page of semaphores as a JSON object."""
    rows = [
        SemaphoreRow(
            row.name,
            row.limit,
            row.available,
            holders_of(row.holders),
            row.holders_count,
            row.queue_length,
        )
        for row in found[0]
    ]
    return SemaphorePageJson(tuple(rows), found[1], **FRESH)


def election_page_of(found: tuple[list[ElectionSummary], str | None]) -> ElectionPageJson:
    """Return a page of elections as a JSON object."""
    rows = [ElectionRow(row.name, leader_of(row.leader, row.value), row.queue_length) for row in found[0]]
    return ElectionPageJson(tuple(rows), found[1], **FRESH)


def rate_page_of(found: tuple[list[RateRowView], str | None]) -> RatePageJson:
    """Return a page of rate limits as a JSON object."""
    return RatePageJson(tuple([_rate_of(row) for row in found[0]]), found[1], **FRESH)


def _rate_of(row: RateRowView) -> RateLimitRow:
    return replace(
        _copied(RateLimitRow, row),
        principal=row.principal or ABSENT,
        last_principal=row.last_principal or ABSENT,
    )


def fence_page_of(found: tuple[list[HighestToken], str | None]) -> FencePageJson:
    """Return a page of fences as a JSON object."""
    rows = [FenceRow(row.name, row.highest_token or 0) for row in found[0]]
    return FencePageJson(tuple(rows), found[1], **FRESH)


def session_page_of(found: tuple[list[SessionSummary], str | None]) -> SessionPageJson:
    """Return a page of sessions as a JSON object."""
    rows = [_copied(SessionRow, row) for row in found[0]]
    shown = [row if row.principal else msgspec.structs.replace(row, principal=ABSENT) for row in rows]
    return SessionPageJson(tuple(shown), found[1], **FRESH)


def quota_page_of(found: tuple[list[PrincipalRow], str | None]) -> QuotaPageJson:
    """Return a page of principals as a JSON object."""
    return QuotaPageJson(tuple([principal_of(row) for row in found[0]]), found[1], **FRESH)


def principal_of(row: PrincipalRow) -> PrincipalInfo:
    """Return a principal as a JSON object."""
    return PrincipalInfo(row.principal, quota_of(row.quota), _copied(Used, row), **FRESH)


def namespace_page_of(found: tuple[list[NamespaceSummary], str | None]) -> NamespacePageJson:
    """Return a page of namespaces as a JSON object."""
    return NamespacePageJson(tuple([namespace_of(row) for row in found[0]]), found[1], **FRESH)


def namespace_of(row: NamespaceSummary) -> NamespaceInfo:
    """Return a namespace as a JSON object."""
    return NamespaceInfo(row.name, settings_of(row.settings), _copied(NamespaceUsed, row), **FRESH)


def freeze_page_of(found: tuple[list[FreezeView], str | None]) -> FreezePageJson:
    """Return a page of frozen prefixes as a JSON object."""
    return FreezePageJson(tuple([freeze_of(row) for row in found[0]]), found[1], **FRESH)


def freeze_of(row: FreezeView) -> FreezeInfo:
    """Return a prefix and its freeze as a JSON object."""
    return FreezeInfo(
        row.name,
        row.is_frozen,
        row.reason,
        row.frozen_ms,
        ABSENT if row.ends_in_ms is None else row.ends_in_ms,
        ABSENT if row.left is None else left_of(row.left),
        **FRESH,
    )


def left_of(left: LeftView) -> LeftBelow:
    """Return what is left below a prefix as a JSON object."""
    return LeftBelow(left.holds, left.waits, ABSENT if left.is_all else True)
