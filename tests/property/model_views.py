"""The model as readers see it."""

import msgspec

from lockstate.reads.listings import Whose
from lockstate.words.events import Event
from lockstate.words.ids import NO_OWNER, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode
from lockstate.words.results import Granted, GrantedSeveral, PermitsHeld, Renewed
from lockstate.words.views import (
    ElectionView,
    FenceView,
    HolderView,
    Holdings,
    HoldView,
    LockView,
    RevocationView,
    RevokedView,
    SemaphoreView,
    SessionSummary,
    SessionView,
    TicketView,
    WaiterView,
)
from lockstate.words.wanted import Wanted
from tests.property.model_locks import Part, covers, names, parts, parts_of, queue, used
from tests.property.model_records import Hold, ModelState, Plea, Session, Ticket
from tests.property.model_values import told, with_value

SESSION_NAME = "s-*"


def holder_view(state: ModelState, hold: Hold, lock: Part) -> HolderView:
    """Return a hold as others see it, by one of its locks."""
    return HolderView(
        hold.owner,
        lock.mode,
        hold.token,
        state.left_ms(hold),
        hold.note,
        lock.name,
        lock.scope,
        lock.kind,
        lock.permits,
    )


def plea_view(state: ModelState, plea: Plea) -> RevocationView:
    """Return what a holder was asked."""
    left_ms = max(0, plea.ends_at_ms - state.now_ms)
    return RevocationView(plea.name, plea.reason, left_ms, plea.ticket, plea.is_put_off)


def revocation_of(state: ModelState, hold: Hold, lock: Part) -> RevocationView | None:
    """Return until when one of the locks of a hold is to be given up."""
    asked = [p for p in state.asked(hold) if (p.kind, p.name) == (lock.kind, lock.name)]
    return plea_view(state, min(asked, key=lambda p: (p.until_ms, p.created))) if asked else None


def revoked_view(state: ModelState, hold: Hold, lock: Part) -> RevokedView | None:
    """Return a hold that is to be given up, by one of its locks; None if nobody asked for that."""
    revocation = revocation_of(state, hold, lock)
    if revocation is None:
        return None
    shown = holder_view(state, hold, lock)
    return RevokedView(**msgspec.structs.asdict(shown), revocation=revocation)


def renewed(state: ModelState, hold: Hold, token: int) -> Renewed:
    """Return what a holder is told when it has renewed."""
    asked = list(dict.fromkeys((p.kind, p.name) for p in state.asked(hold)))
    by_name = {(part.kind, part.name): part for part in parts(hold)}
    found = [revocation_of(state, hold, by_name[key]) for key in asked]
    return Renewed(token, state.left_ms(hold), tuple(one for one in found if one is not None))


def hold_view(state: ModelState, hold: Hold, lock: Part) -> HoldView:
    """Return a hold as reads show it, by one of its locks."""
    shown = holder_view(state, hold, lock)
    session = state.session(hold.session_id)
    return HoldView(
        **msgspec.structs.asdict(shown),
        since_ms=state.now_ms - hold.granted_at_ms,
        session_name=name_of(session),
        labels=session.labels if session is not None else {},
        revocation=revocation_of(state, hold, lock),
        value=told(hold) if hold.kind is not HoldKind.ELECTION else "",
        principal=hold.principal,
    )


def name_of(session: Session | None) -> str:
    """Return what stands for the public name of a session, whose number is left open."""
    return SESSION_NAME if session is not None else ""


def waiter_view(state: ModelState, ticket: Ticket, lock: Part, at: int) -> WaiterView:
    """Return a waiter as others see it, by one of the locks that it wants."""
    return WaiterView(
        ticket.owner,
        lock.mode,
        at,
        state.now_ms - ticket.queued_at_ms,
        lock.name,
        lock.scope,
        lock.kind,
        lock.permits,
        ticket.converts is not None,
        session_name=name_of(state.session(ticket.session_id)),
        priority=ticket.priority,
        principal=ticket.principal,
    )


def holders(state: ModelState, kind: HoldKind, name: str) -> tuple[HolderView, ...]:
    """Return the holders of `name`, also those of subtrees that it lies in, in order of token."""
    return tuple(holder_view(state, hold, lock) for hold, lock in holding(state, kind, name))


def held(state: ModelState, kind: HoldKind, name: str) -> tuple[HoldView, ...]:
    """Return the same as reads show them."""
    return tuple(hold_view(state, hold, lock) for hold, lock in holding(state, kind, name))


def holding(state: ModelState, kind: HoldKind, name: str) -> list[tuple[Hold, Part]]:
    """Return the holds of `name`, each with the lock by which it is one."""
    return [(hold, lock) for hold in state.holds for lock in parts_of(hold, kind) if covers(lock, name)]


def waiters(state: ModelState, kind: HoldKind, name: str) -> tuple[WaiterView, ...]:
    """Return the waiters for exactly `name`, in order."""
    return tuple(
        waiter_view(state, ticket, lock, place)
        for place, ticket in enumerate(queue(state, kind, name), 1)
        for lock in parts_of(ticket, kind, name)
    )


def lock_view(state: ModelState, name: str) -> LockView:
    """Return the lock."""
    of_name = held(state, HoldKind.LOCK, name)
    delayed = any(
        d.kind is HoldKind.LOCK and covers(Wanted(d.name, scope=d.scope), name) for d in state.delays
    )
    word = "held" if of_name else "delayed" if delayed else "free"
    return LockView(name, word, of_name, waiters(state, HoldKind.LOCK, name))


def active_names(state: ModelState) -> list[str]:
    """Return the names of locks that are held, wanted or delayed themselves, in order."""
    things: list[Hold | Ticket] = [*state.holds, *state.tickets]
    active = {part.name for thing in things for part in parts_of(thing, HoldKind.LOCK)}
    return sorted(active | {d.name for d in state.delays if d.kind is HoldKind.LOCK})


def session_view(state: ModelState, session_id: SessionId) -> SessionView | None:
    """Return the session as its client sees it: every lock of its holds and tickets."""
    session = state.session(session_id)
    if session is None:
        return None
    return SessionView(
        session.lease.ttl_ms,
        max(0, session.lease.expires_at_ms - state.now_ms),
        session.owner,
        session.labels,
        tuple(
            hold_view(state, hold, lock)
            for hold in state.holds
            if hold.session_id == session_id
            for lock in parts(hold)
        ),
        tuple(
            waiter_view(state, ticket, lock, queue(state, lock.kind, lock.name).index(ticket) + 1)
            for ticket in state.tickets
            if ticket.session_id == session_id
            for lock in parts(ticket)
        ),
        name_of(session),
    )


def available(state: ModelState, name: str) -> int:
    """Return how many permits are left; negative after a resize below what is used."""
    return state.limits[name] - used(state, name)


def semaphore_view(state: ModelState, name: str) -> SemaphoreView:
    """Return the semaphore; one that does not exist has limit 0."""
    if name not in state.limits:
        return SemaphoreView(name, 0, 0)
    return SemaphoreView(
        name,
        state.limits[name],
        available(state, name),
        held(state, HoldKind.SEMAPHORE, name),
        waiters(state, HoldKind.SEMAPHORE, name),
    )


def election_view(state: ModelState, name: str) -> ElectionView:
    """Return the election."""
    leaders = [h for h in state.holds if h.kind is HoldKind.ELECTION and names(h) == [name]]
    leader = hold_view(state, leaders[0], parts(leaders[0])[0]) if leaders else None
    value = leaders[0].value if leaders else ""
    return ElectionView(name, leader, value, waiters(state, HoldKind.ELECTION, name))


def fence_view(state: ModelState, name: str, token: int, only: HoldKind | None = None) -> FenceView:
    """Return whether `token` is that of a hold of `name`, of one kind or of any."""
    views = [view for kind in HoldKind if only in (None, kind) for view in holders(state, kind, name)]
    kinds = {view.kind for view in views if view.token == token}
    tokens = [view.token for view in views if not kinds or view.kind in kinds]
    return FenceView(bool(kinds), max(tokens, default=0))


def holdings(state: ModelState, whose: Whose) -> Holdings:
    """Return all holds and waits that meet the conditions: elections, locks, semaphores, each by name."""

    def is_meant(thing: Hold | Ticket, since_ms: int) -> bool:
        session = state.session(thing.session_id)
        labels = session.labels if session is not None else {}
        return (
            (not whose.owner or thing.owner == whose.owner)
            and (whose.label is None or labels.get(whose.label[0]) == whose.label[1])
            and (not whose.longer_than_ms or state.now_ms - since_ms > whose.longer_than_ms)
            and (not whose.principal or thing.principal == whose.principal)
        )

    kinds = (HoldKind.ELECTION, HoldKind.LOCK, HoldKind.SEMAPHORE)
    things: list[Hold | Ticket] = [*state.holds, *state.tickets]
    wanted = [
        (kind, name)
        for kind in kinds
        for name in sorted({part.name for thing in things for part in parts_of(thing, kind)})
    ]
    holds = tuple(
        hold_view(state, hold, lock)
        for kind, name in wanted
        for hold in state.holds
        if is_meant(hold, hold.granted_at_ms)
        for lock in parts_of(hold, kind, name)
    )
    tickets = tuple(
        waiter_view(state, ticket, lock, place)
        for kind, name in wanted
        for place, ticket in enumerate(queue(state, kind, name), 1)
        if is_meant(ticket, ticket.queued_at_ms)
        for lock in parts_of(ticket, kind, name)
    )
    return Holdings(holds, tickets)


def session_rows(state: ModelState) -> list[SessionSummary]:
    """Return all sessions as anybody may see them, the oldest first."""
    return [
        SessionSummary(
            name_of(session),
            session.owner,
            session.labels,
            session.lease.ttl_ms,
            max(0, session.lease.expires_at_ms - state.now_ms),
            sum(hold.session_id == session.session_id for hold in state.holds),
            sum(ticket.session_id == session.session_id for ticket in state.tickets),
            session.principal,
        )
        for session in state.sessions
    ]


def ticket_view(state: ModelState, ticket: Ticket) -> TicketView:
    """Return a waiter as it is shown by its number."""
    things = [(part.kind, part.name) for part in parts(ticket)]
    place = max(queue(state, kind, name).index(ticket) + 1 for kind, name in things)
    guesses = [guess for kind, name in things if (guess := estimate_ms(state, kind, name, place)) is not None]
    return TicketView(
        0,
        ticket.kind,
        tuple(names(ticket)),
        ticket.owner,
        place,
        state.now_ms - ticket.queued_at_ms,
        max(0, ticket.deadline_ms - state.now_ms),
        max(guesses, default=None),
        name_of(state.session(ticket.session_id)),
        ticket.converts is not None,
        ticket.priority,
        ticket.principal,
    )


def estimate_ms(state: ModelState, kind: HoldKind, name: str, place: int) -> int | None:
    """Return the median of the last hold times, once for every round of as many as hold it now."""
    ends = ("released", "expired", "forced", "resigned", "handed-over")
    newest = state.history[::-1][:1000]
    times_ms = [e.lasted_ms for e in newest if e.kind in ends and (e.of, e.name) == (kind, name)][:16]
    if not times_ms:
        return None
    median_ms = sorted(times_ms)[len(times_ms) // 2]
    of_it = [hold for hold in state.holds if parts_of(hold, kind, name)]
    passed_ms = max((state.now_ms - hold.granted_at_ms for hold in of_it), default=median_ms)
    return -(-place // max(len(of_it), 1)) * median_ms - min(passed_ms, median_ms)


def audit(state: ModelState, name: str, session_id: SessionId) -> list[Event]:
    """Return what happened to a name, or by a session, newest first."""
    return [
        event
        for event in reversed(state.history)
        if name in ("", event.name) and session_id in ("", event.session_id)
    ]


def granted_several(state: ModelState, hold: Hold) -> GrantedSeveral:
    """Return the grant of a hold of several kinds."""
    return GrantedSeveral(
        hold.hold_id,
        hold.token,
        "",
        Mode.EXCLUSIVE,
        state.left_ms(hold),
        locks=tuple(hold.locks),
        held=tuple(
            PermitsHeld(part.name, part.permits, available(state, part.name), state.limits[part.name])
            for part in parts_of(hold, HoldKind.SEMAPHORE)
        ),
        at_ms=hold.at_ms,
    )


def granted(state: ModelState, hold: Hold) -> Granted:
    """Return the grant of a hold as its holder sees it."""
    if hold.is_of_kinds:
        return granted_several(state, hold)
    return with_value(hold, _granted(state, hold))


def _granted(state: ModelState, hold: Hold) -> Granted:
    if hold.is_several:
        first = hold.locks[0]
        return Granted(hold.hold_id, hold.token, "", first.mode, state.left_ms(hold), locks=tuple(hold.locks))
    (lock,) = hold.locks
    if hold.kind is HoldKind.SEMAPHORE:
        return Granted(
            hold.hold_id,
            hold.token,
            lock.name,
            lock.mode,
            state.left_ms(hold),
            permits=hold.permits,
            available=available(state, lock.name),
            limit=state.limits[lock.name],
        )
    return Granted(
        hold.hold_id,
        hold.token,
        lock.name,
        lock.mode,
        state.left_ms(hold),
        hold.owner if hold.kind is HoldKind.ELECTION else NO_OWNER,
        lock.scope,
    )
