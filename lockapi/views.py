"""What reads and refusals show: one struct per JSON object, and how each is made of a view of the machine.

The API's published description names a component after its struct, without `Json`. Modes and scopes are shown
of locks, permits of semaphores; elections have neither. None of them contains a secret.
"""

from collections.abc import Iterable

import msgspec

from holdfast.wire.answers import UNSET, NamespaceUsed, Revocation, Unset, Used
from lockapi import cursors
from lockstate.tables.audit_record import AuditEvent, shown
from lockstate.words import results
from lockstate.words.commands import PRIORITY_DEFAULT, Algorithm, IfHeld, NamespaceSettings, Quota
from lockstate.words.modes import Mode, Scope
from lockstate.words.results import (
    ElectionView,
    Event,
    FenceView,
    HighestToken,
    HolderView,
    Holdings,
    HoldKind,
    HoldView,
    LockView,
    RateRowView,
    RateTaken,
    RevocationView,
    RevokedView,
    SemaphoreView,
    SessionView,
    TicketView,
    WaiterView,
)


class HolderJson(msgspec.Struct, kw_only=True):
    """Who holds a lock, permits or an election, as others may see it."""

    owner: str
    mode: Mode | Unset = UNSET
    token: int
    expires_in_ms: int | Unset
    note: str
    name: str
    scope: Scope | Unset = UNSET
    permits: int | Unset = UNSET
    since_ms: int | Unset = UNSET
    session_name: str | Unset = UNSET
    labels: dict[str, str] | Unset = UNSET
    revocation: Revocation | Unset = UNSET
    value: str | Unset = UNSET
    no_deadline: bool | Unset = UNSET


class WaiterJson(msgspec.Struct, kw_only=True):
    """Who waits; position 1 is next. A conversion, which goes before all others, is marked.

    `priority` is shown where it is not the default.
    """

    owner: str
    mode: Mode | Unset = UNSET
    position: int
    waited_ms: int
    name: str
    scope: Scope | Unset = UNSET
    permits: int | Unset = UNSET
    ticket: int
    conversion: bool | Unset = UNSET
    session_name: str | Unset = UNSET
    priority: int | Unset = UNSET


class HeldJson(HolderJson, kw_only=True):
    """What a session holds."""

    kind: HoldKind


class TicketJson(WaiterJson, kw_only=True):
    """What a session waits for."""

    kind: HoldKind


class LeaderJson(msgspec.Struct):
    """Who leads an election, and its value; in reads also for how long, and in which session."""

    owner: str
    value: str
    token: int
    since_ms: int | Unset = UNSET
    session_name: str | Unset = UNSET
    labels: dict[str, str] | Unset = UNSET
    revocation: Revocation | Unset = UNSET


class CycleStepJson(msgspec.Struct):
    """One step of a deadlock: `owner` waits for `name`, which the owner of the next step has or waits for."""

    owner: str
    name: str
    kind: HoldKind


class ReadAnswer(msgspec.Struct, kw_only=True):
    """Base of the answers to reads. Stale ones say how old they are.

    `hidden` counts what was left out because the caller may not read it.
    """

    hidden: int | Unset = UNSET
    revision: int | Unset = UNSET
    lag_ms: int | Unset | None = UNSET


class SessionJson(ReadAnswer):
    """A session, as shown to those that know its id. `session_name` is what others know it by."""

    ttl_ms: int
    expires_in_ms: int
    owner: str
    labels: dict[str, str]
    holds: tuple[HeldJson, ...]
    tickets: tuple[TicketJson, ...]
    session_name: str


class SessionRowJson(msgspec.Struct):
    """A session, as shown to everybody."""

    session_name: str
    owner: str
    labels: dict[str, str]
    ttl_ms: int
    expires_in_ms: int
    holds_count: int
    tickets_count: int


class SessionPageJson(ReadAnswer):
    """Sessions, the oldest first, and the cursor to pass as `after` for more."""

    sessions: tuple[SessionRowJson, ...]
    next: str | None


class QuotaJson(msgspec.Struct):
    """How much one principal may have at a time; null stands for as much as there is room for."""

    sessions: int | None
    holds: int | None
    waits: int | None
    cells: int | None
    fences: int | None
    bytes: int | None


class QuotaRowJson(msgspec.Struct):
    """A principal: its own quota, or null, and what it has."""

    principal: str
    quota: QuotaJson | None
    used: Used


class NamespaceSettingsJson(msgspec.Struct):
    """What a namespace says of the names at and below its prefix; null leaves it open."""

    ttl_ms_min: int | None
    ttl_ms_max: int | None
    lock_delay_ms_min: int | None
    no_deadline: bool | None
    priority: bool | None
    holds: int | None
    waits: int | None
    cells: int | None
    fences: int | None
    bytes: int | None
    if_held: IfHeld | None


class NamespaceRowJson(msgspec.Struct):
    """A namespace, by its prefix."""

    prefix: str
    settings: NamespaceSettingsJson
    used: NamespaceUsed


class NamespacePageJson(ReadAnswer):
    """Namespaces by prefix, and the cursor to pass as `after` for more."""

    namespaces: tuple[NamespaceRowJson, ...]
    next: str | None


class QuotaPageJson(ReadAnswer):
    """Principals by name, the quota of all others under "*", and the cursor to pass as `after` for more."""

    quotas: tuple[QuotaRowJson, ...]
    next: str | None


class HoldPageJson(ReadAnswer):
    """Holds and waits of all kinds, in order of kind and name, and the cursor to pass as `after` for more."""

    holds: tuple[HeldJson, ...]
    tickets: tuple[TicketJson, ...]
    next: str | None


class TicketStatusJson(ReadAnswer):
    """A waiter. It gives up in `ends_in_ms`; `estimate_ms` is a guess from the last hold times, or null."""

    ticket: int
    kind: HoldKind
    names: tuple[str, ...]
    owner: str
    position: int
    waited_ms: int
    ends_in_ms: int
    estimate_ms: int | None
    session_name: str | Unset = UNSET
    conversion: bool | Unset = UNSET
    priority: int | Unset = UNSET


class LockJson(ReadAnswer):
    """A lock: free, held or delayed. Holders of subtrees that it lies in are among its holders."""

    name: str
    state: str
    holders: tuple[HolderJson, ...]
    queue: tuple[WaiterJson, ...]


class LockPageJson(ReadAnswer):
    """Locks in order of name, and the cursor to pass as `after` for more."""

    locks: tuple[LockJson, ...]
    next: str | None


class SemaphoreJson(ReadAnswer):
    """A semaphore. One that nobody holds or wants has the limit 0: the next acquire gives it."""

    name: str
    limit: int
    available: int
    holders: tuple[HolderJson, ...]
    queue: tuple[WaiterJson, ...]


class SemaphoreRowJson(msgspec.Struct):
    """A semaphore with the first of its holders, and how many hold and want its permits."""

    name: str
    limit: int
    available: int
    holders: tuple[HolderJson, ...]
    holders_count: int
    queue_length: int


class SemaphorePageJson(ReadAnswer):
    """Semaphores in order of name, and the cursor to pass as `after` for more."""

    semaphores: tuple[SemaphoreRowJson, ...]
    next: str | None


class ElectionJson(ReadAnswer):
    """An election: its leader, or null, and its candidates."""

    name: str
    leader: LeaderJson | None
    queue: tuple[WaiterJson, ...]


class ElectionRowJson(msgspec.Struct):
    """An election with its leader, or null, and how many want to lead."""

    name: str
    leader: LeaderJson | None
    queue_length: int


class ElectionPageJson(ReadAnswer):
    """Elections in order of name, and the cursor to pass as `after` for more."""

    elections: tuple[ElectionRowJson, ...]
    next: str | None


class RatePeekJson(ReadAnswer):
    """What a rate limit would answer; nothing was taken. `remaining` is what is left before the cost."""

    allowed: bool
    remaining: int
    retry_after_ms: int
    reset_in_ms: int


class RateRowJson(msgspec.Struct):
    """A rate limit that is not whole: it is again in `reset_in_ms`."""

    name: str
    algorithm: Algorithm
    window_ms: int
    reset_in_ms: int


class RatePageJson(ReadAnswer):
    """Rate limits in order of name, algorithm and window, and the cursor to pass as `after` for more."""

    rate_limits: tuple[RateRowJson, ...]
    next: str | None


class FenceStateJson(ReadAnswer):
    """The highest token that a resource has seen, null if none."""

    resource: str
    highest_token: int | None


class FenceRowJson(msgspec.Struct):
    """The highest token that a resource has seen."""

    resource: str
    highest_token: int


class FencePageJson(ReadAnswer):
    """Fences in order of resource, and the cursor to pass as `after` for more."""

    fences: tuple[FenceRowJson, ...]
    next: str | None


class FenceJson(ReadAnswer):
    """Whether a token is that of a current holder; `current_token` is the highest of those, 0 without any."""

    valid: bool
    current_token: int


class AuditJson(ReadAnswer):
    """What happened last, the newest first; `now_ms` is the cluster time of the newest entry of this node."""

    events: tuple[AuditEvent, ...]
    now_ms: int | Unset = UNSET


# -- from the machine's views to these --------------------------------------------------------------------


def holder_of(view: HolderView) -> HolderJson:
    """Return a holder as a JSON object."""
    holder = HolderJson(
        owner=view.owner,
        token=view.token,
        expires_in_ms=UNSET if view.expires_in_ms is None else view.expires_in_ms,
        note=view.note,
        name=view.name,
    )
    if view.expires_in_ms is None:
        holder.no_deadline = True
    _describe(holder, view)
    if isinstance(view, HoldView):
        _tell_more(holder, view)
        if view.value:
            holder.value = view.value
    elif isinstance(view, RevokedView):
        holder.revocation = revocation_of(view.revocation)
    return holder


def _tell_more(shown: HolderJson | LeaderJson, view: HoldView) -> None:
    """Add for how long it is held, and in which session, if it is in one."""
    shown.since_ms = view.since_ms
    if view.session_name:
        shown.session_name, shown.labels = view.session_name, view.labels
    if view.revocation is not None:
        shown.revocation = revocation_of(view.revocation)


def revocation_of(view: RevocationView) -> Revocation:
    """Return what a holder was asked as a JSON object."""
    return Revocation(view.reason, view.ends_in_ms, view.is_put_off, view.ticket)


def holders_of(views: Iterable[HolderView]) -> tuple[HolderJson, ...]:
    """Return holders as JSON objects."""
    return tuple([holder_of(view) for view in views])


def waiters_of(views: Iterable[WaiterView]) -> tuple[WaiterJson, ...]:
    """Return waiters as JSON objects."""
    return tuple([waiter_of(view) for view in views])


def waiter_of(view: WaiterView) -> WaiterJson:
    """Return a waiter as a JSON object."""
    waiter = WaiterJson(
        owner=view.owner,
        position=view.position,
        waited_ms=view.waited_ms,
        name=view.name,
        ticket=view.ticket,
    )
    _describe(waiter, view)
    if view.is_conversion:
        waiter.conversion = True
    if view.session_name:
        waiter.session_name = view.session_name
    if view.priority != PRIORITY_DEFAULT:
        waiter.priority = view.priority
    return waiter


def held_of(view: HolderView) -> HeldJson:
    """Return a hold with its kind as a JSON object."""
    return HeldJson(kind=view.kind, **msgspec.structs.asdict(holder_of(view)))


def ticket_of(view: WaiterView) -> TicketJson:
    """Return a waiter with its kind as a JSON object."""
    return TicketJson(kind=view.kind, **msgspec.structs.asdict(waiter_of(view)))


def leader_of(view: HoldView | None, value: str) -> LeaderJson | None:
    """Return a leader with its value as a JSON object, None if nobody leads."""
    if view is None:
        return None
    leader = LeaderJson(view.owner, value, view.token)
    _tell_more(leader, view)
    return leader


def _describe(shown: HolderJson | WaiterJson, view: HolderView | WaiterView) -> None:
    """Add the fields that only this kind of thing has."""
    if view.kind is HoldKind.LOCK:
        shown.mode, shown.scope = view.mode, view.scope
    elif view.kind is HoldKind.SEMAPHORE:
        shown.permits = view.permits


def session_of(view: SessionView) -> SessionJson:
    """Return a session as a JSON object."""
    return SessionJson(
        view.ttl_ms,
        view.expires_in_ms,
        view.owner,
        view.labels,
        tuple([held_of(hold) for hold in view.holds]),
        tuple([ticket_of(ticket) for ticket in view.tickets]),
        view.session_name,
    )


def session_page_of(found: tuple[list[results.SessionSummary], str | None]) -> SessionPageJson:
    """Return a page of sessions as a JSON object."""
    return SessionPageJson(
        tuple([SessionRowJson(*msgspec.structs.astuple(row)) for row in found[0]]), found[1]
    )


def quota_page_of(found: tuple[list[results.PrincipalRow], str | None]) -> QuotaPageJson:
    """Return a page of principals as a JSON object."""
    rows = [
        QuotaRowJson(
            row.principal,
            quota_of(row.quota),
            Used(row.sessions, row.holds, row.waits, row.cells, row.fences, row.bytes),
        )
        for row in found[0]
    ]
    return QuotaPageJson(tuple(rows), found[1])


def quota_of(quota: Quota | None) -> QuotaJson | None:
    """Return a quota as a JSON object, null if there is none."""
    return None if quota is None else QuotaJson(**msgspec.structs.asdict(quota))


def namespace_page_of(found: tuple[list[results.NamespaceSummary], str | None]) -> NamespacePageJson:
    """Return a page of namespaces as a JSON object."""
    rows = [
        NamespaceRowJson(
            row.name,
            settings_of(row.settings),
            NamespaceUsed(row.holds, row.waits, row.cells, row.fences, row.bytes),
        )
        for row in found[0]
    ]
    return NamespacePageJson(tuple(rows), found[1])


def settings_of(settings: NamespaceSettings) -> NamespaceSettingsJson:
    """Return the settings of a namespace as a JSON object."""
    return NamespaceSettingsJson(**msgspec.structs.asdict(settings))


def holds_of(found: Holdings) -> HoldPageJson:
    """Return a page of holds and waits as a JSON object."""
    holds = tuple([held_of(hold) for hold in found.holds])
    return HoldPageJson(holds, tuple([ticket_of(ticket) for ticket in found.tickets]), found.next)


def ticket_status_of(view: TicketView) -> TicketStatusJson:
    """Return a waiter, asked for by its number, as a JSON object."""
    status = TicketStatusJson(
        view.ticket,
        view.kind,
        view.names,
        view.owner,
        view.position,
        view.waited_ms,
        view.ends_in_ms,
        view.estimate_ms,
    )
    if view.session_name:
        status.session_name = view.session_name
    if view.is_conversion:
        status.conversion = True
    if view.priority != PRIORITY_DEFAULT:
        status.priority = view.priority
    return status


def lock_of(view: LockView) -> LockJson:
    """Return a lock as a JSON object."""
    return LockJson(view.name, view.state, holders_of(view.holders), waiters_of(view.queue))


def page_of(found: tuple[list[LockView], str | None]) -> LockPageJson:
    """Return a page of locks as a JSON object."""
    views, last = found
    more = None if last is None else cursors.of_name(last)
    return LockPageJson(tuple([lock_of(view) for view in views]), more)


def semaphore_of(view: SemaphoreView) -> SemaphoreJson:
    """Return a semaphore as a JSON object."""
    return SemaphoreJson(
        view.name, view.limit, view.available, holders_of(view.holders), waiters_of(view.queue)
    )


def election_of(view: ElectionView) -> ElectionJson:
    """Return an election as a JSON object."""
    return ElectionJson(view.name, leader_of(view.leader, view.value), waiters_of(view.queue))


def semaphore_page_of(found: tuple[list[results.SemaphoreSummary], str | None]) -> SemaphorePageJson:
    """Return a page of semaphores as a JSON object."""
    rows = [
        SemaphoreRowJson(
            row.name,
            row.limit,
            row.available,
            holders_of(row.holders),
            row.holders_count,
            row.queue_length,
        )
        for row in found[0]
    ]
    return SemaphorePageJson(tuple(rows), found[1])


def election_page_of(found: tuple[list[results.ElectionSummary], str | None]) -> ElectionPageJson:
    """Return a page of elections as a JSON object."""
    rows = [ElectionRowJson(row.name, leader_of(row.leader, row.value), row.queue_length) for row in found[0]]
    return ElectionPageJson(tuple(rows), found[1])


def rate_page_of(found: tuple[list[RateRowView], str | None]) -> RatePageJson:
    """Return a page of rate limits as a JSON object."""
    return RatePageJson(tuple([RateRowJson(*msgspec.structs.astuple(row)) for row in found[0]]), found[1])


def rate_peek_of(taken: RateTaken) -> RatePeekJson:
    """Return what a rate limit would answer as a JSON object."""
    return RatePeekJson(taken.allowed, taken.remaining, taken.retry_after_ms, taken.reset_in_ms)


def fence_state_of(view: HighestToken) -> FenceStateJson:
    """Return the highest token of a resource as a JSON object."""
    return FenceStateJson(view.resource, view.highest_token)


def fence_page_of(found: tuple[list[HighestToken], str | None]) -> FencePageJson:
    """Return a page of fences as a JSON object."""
    return FencePageJson(
        tuple([FenceRowJson(row.resource, row.highest_token or 0) for row in found[0]]), found[1]
    )


def fence_of(view: FenceView) -> FenceJson:
    """Return the check of a token as a JSON object."""
    return FenceJson(view.valid, view.current_token)


def audit_of(rows: list[AuditEvent]) -> AuditJson:
    """Return records of the audit as a JSON object."""
    return AuditJson(tuple(rows))


def event_of(event: Event) -> AuditEvent:
    """Return an event as a JSON object for watchers."""
    return shown(event)
