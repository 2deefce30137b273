"""What reads and refusals show: one struct per JSON object, and how each is made of a view of the machine.

The names of the structs are those of the components in the API's published description. Modes and scopes are
shown of locks, permits of semaphores; elections have neither. None of them contains a secret.
"""

from collections.abc import Iterable

import msgspec

from api import cursors
from lockstate.modes import Mode, Scope
from lockstate.owners import shown_owner
from lockstate.results import (
    ElectionView,
    Event,
    EventKind,
    FenceView,
    HolderView,
    HoldKind,
    LockView,
    SemaphoreView,
    SessionView,
    WaiterView,
)

Unset = msgspec.UnsetType
UNSET = msgspec.UNSET


class Holder(msgspec.Struct, kw_only=True):
    """Who holds a lock, permits or an election, as others may see it."""

    owner: str
    mode: Mode | Unset = UNSET
    token: int
    expires_in_ms: int
    note: str
    name: str
    scope: Scope | Unset = UNSET
    permits: int | Unset = UNSET


class Waiter(msgspec.Struct, kw_only=True):
    """Who waits; position 1 is next. A conversion, which goes before all others, is marked."""

    owner: str
    mode: Mode | Unset = UNSET
    position: int
    waited_ms: int
    name: str
    scope: Scope | Unset = UNSET
    permits: int | Unset = UNSET
    conversion: bool | Unset = UNSET


class Held(Holder, kw_only=True):
    """What a session holds."""

    kind: HoldKind


class Ticket(Waiter, kw_only=True):
    """What a session waits for."""

    kind: HoldKind


class Leader(msgspec.Struct):
    """Who leads an election, and its value."""

    owner: str
    value: str
    token: int


class CycleStep(msgspec.Struct):
    """One step of a deadlock: `owner` waits for `name`, which the owner of the next step has or waits for."""

    owner: str
    name: str
    kind: HoldKind


class Read(msgspec.Struct, kw_only=True):
    """Base of the answers to reads. Stale ones say how old they are."""

    revision: int | Unset = UNSET
    lag_ms: int | Unset | None = UNSET


class Session(Read):
    """A session, as shown to those that know its id."""

    ttl_ms: int
    expires_in_ms: int
    owner: str
    labels: dict[str, str]
    holds: tuple[Held, ...]
    tickets: tuple[Ticket, ...]


class Lock(Read):
    """A lock: free, held or delayed. Holders of subtrees that it lies in are among its holders."""

    name: str
    state: str
    holders: tuple[Holder, ...]
    queue: tuple[Waiter, ...]


class LockPage(Read):
    """Locks in order of name, and the cursor to pass as `after` for more."""

    locks: tuple[Lock, ...]
    next: str | None


class Semaphore(Read):
    """A semaphore. One that nobody holds or wants has the limit 0: the next acquire gives it."""

    name: str
    limit: int
    available: int
    holders: tuple[Holder, ...]
    queue: tuple[Waiter, ...]


class Election(Read):
    """An election: its leader, or null, and its candidates."""

    name: str
    leader: Leader | None
    queue: tuple[Waiter, ...]


class Fence(Read):
    """Whether a token is that of a current holder; `current_token` is the highest of those, 0 without any."""

    valid: bool
    current_token: int


class AuditEvent(msgspec.Struct, kw_only=True):
    """Something that happened. Times are milliseconds of cluster time, of which only differences matter."""

    revision: int
    event: EventKind
    kind: HoldKind | Unset = UNSET
    name: str
    mode: Mode | Unset = UNSET
    scope: Scope | Unset = UNSET
    permits: int | Unset = UNSET
    owner: str
    token: int | Unset = UNSET
    value: str | Unset = UNSET
    reason: str
    at_ms: int
    lasted_ms: int


class Audit(Read):
    """What happened last, the newest first."""

    events: tuple[AuditEvent, ...]


# -- from the machine's views to these --------------------------------------------------------------------


def holder_of(view: HolderView) -> Holder:
    """Return a holder as a JSON object."""
    holder = Holder(
        owner=view.owner,
        token=view.token,
        expires_in_ms=view.expires_in_ms,
        note=view.note,
        name=view.name,
    )
    _describe(holder, view)
    return holder


def holders_of(views: Iterable[HolderView]) -> tuple[Holder, ...]:
    """Return holders as JSON objects."""
    return tuple([holder_of(view) for view in views])


def waiters_of(views: Iterable[WaiterView]) -> tuple[Waiter, ...]:
    """Return waiters as JSON objects."""
    return tuple([waiter_of(view) for view in views])


def waiter_of(view: WaiterView) -> Waiter:
    """Return a waiter as a JSON object."""
    waiter = Waiter(owner=view.owner, position=view.position, waited_ms=view.waited_ms, name=view.name)
    _describe(waiter, view)
    if view.is_conversion:
        waiter.conversion = True
    return waiter


def _describe(shown: Holder | Waiter, view: HolderView | WaiterView) -> None:
    """Add the fields that only this kind of thing has."""
    if view.kind is HoldKind.LOCK:
        shown.mode, shown.scope = view.mode, view.scope
    elif view.kind is HoldKind.SEMAPHORE:
        shown.permits = view.permits


def session_of(view: SessionView) -> Session:
    """Return a session as a JSON object."""
    return Session(
        view.ttl_ms,
        view.expires_in_ms,
        view.owner,
        view.labels,
        tuple([Held(kind=hold.kind, **msgspec.structs.asdict(holder_of(hold))) for hold in view.holds]),
        tuple(
            [Ticket(kind=ticket.kind, **msgspec.structs.asdict(waiter_of(ticket))) for ticket in view.tickets]
        ),
    )


def lock_of(view: LockView) -> Lock:
    """Return a lock as a JSON object."""
    return Lock(view.name, view.state, holders_of(view.holders), waiters_of(view.queue))


def page_of(found: tuple[list[LockView], str | None]) -> LockPage:
    """Return a page of locks as a JSON object."""
    views, last = found
    more = None if last is None else cursors.of_name(last)
    return LockPage(tuple([lock_of(view) for view in views]), more)


def semaphore_of(view: SemaphoreView) -> Semaphore:
    """Return a semaphore as a JSON object."""
    return Semaphore(view.name, view.limit, view.available, holders_of(view.holders), waiters_of(view.queue))


def election_of(view: ElectionView) -> Election:
    """Return an election as a JSON object."""
    leader = None if view.leader is None else Leader(view.leader.owner, view.value, view.leader.token)
    return Election(view.name, leader, waiters_of(view.queue))


def fence_of(view: FenceView) -> Fence:
    """Return the check of a token as a JSON object."""
    return Fence(view.valid, view.current_token)


def audit_of(events: Iterable[Event]) -> Audit:
    """Return events as a JSON object."""
    return Audit(tuple([event_of(event) for event in events]))


def event_of(event: Event) -> AuditEvent:
    """Return an event as a JSON object, for the audit and for watchers."""
    shown = AuditEvent(
        revision=event.revision,
        event=event.kind,
        name=event.name,
        owner=shown_owner(event.owner, event.session_id),
        reason=event.reason,
        at_ms=event.now_ms,
        lasted_ms=event.lasted_ms,
    )
    if event.kind is EventKind.SESSION_EXPIRED:
        return shown  # a session has none of the fields below
    shown.kind, shown.token = event.of, event.token
    if event.of is HoldKind.LOCK:
        shown.mode, shown.scope = event.mode, event.scope
    elif event.of is HoldKind.SEMAPHORE:
        shown.permits = event.permits
    elif event.kind is EventKind.ELECTED:
        shown.value = event.value
    return shown
