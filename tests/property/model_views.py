"""The model as readers see it."""

from lockstate.commands import Wanted
from lockstate.ids import NO_OWNER, SessionId
from lockstate.results import (
    ElectionView,
    Event,
    FenceView,
    Granted,
    HolderView,
    HoldKind,
    LockView,
    SemaphoreView,
    SessionView,
    WaiterView,
)
from tests.property.model_locks import covers, names, queue, used
from tests.property.model_records import Hold, ModelState, Ticket


def holder_view(state: ModelState, hold: Hold, lock: Wanted) -> HolderView:
    """Return a hold as others see it, by one of its locks."""
    return HolderView(
        hold.owner,
        lock.mode,
        hold.token,
        state.left_ms(hold),
        hold.note,
        lock.name,
        lock.scope,
        hold.kind,
        hold.permits,
    )


def waiter_view(state: ModelState, ticket: Ticket, lock: Wanted, at: int) -> WaiterView:
    """Return a waiter as others see it, by one of the locks that it wants."""
    return WaiterView(
        ticket.owner,
        lock.mode,
        at,
        state.now_ms - ticket.queued_at_ms,
        lock.name,
        lock.scope,
        ticket.kind,
        ticket.permits,
        ticket.converts is not None,
    )


def holders(state: ModelState, kind: HoldKind, name: str) -> tuple[HolderView, ...]:
    """Return the holders of `name`, also those of subtrees that it lies in, in order of token."""
    return tuple(
        holder_view(state, hold, lock)
        for hold in state.holds
        if hold.kind is kind
        for lock in hold.locks
        if covers(lock, name)
    )


def waiters(state: ModelState, kind: HoldKind, name: str) -> tuple[WaiterView, ...]:
    """Return the waiters for exactly `name`, in order."""
    return tuple(
        waiter_view(state, ticket, lock, place)
        for place, ticket in enumerate(queue(state, kind, name), 1)
        for lock in ticket.locks
        if lock.name == name
    )


def lock_view(state: ModelState, name: str) -> LockView:
    """Return the lock."""
    held = holders(state, HoldKind.LOCK, name)
    delayed = any(
        d.kind is HoldKind.LOCK and covers(Wanted(d.name, scope=d.scope), name) for d in state.delays
    )
    word = "held" if held else "delayed" if delayed else "free"
    return LockView(name, word, held, waiters(state, HoldKind.LOCK, name))


def active_names(state: ModelState) -> list[str]:
    """Return the names of locks that are held, wanted or delayed themselves, in order."""
    things: list[Hold | Ticket] = [*state.holds, *state.tickets]
    active = {name for thing in things if thing.kind is HoldKind.LOCK for name in names(thing)}
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
            holder_view(state, hold, lock)
            for hold in state.holds
            if hold.session_id == session_id
            for lock in hold.locks
        ),
        tuple(
            waiter_view(state, ticket, lock, queue(state, ticket.kind, lock.name).index(ticket) + 1)
            for ticket in state.tickets
            if ticket.session_id == session_id
            for lock in ticket.locks
        ),
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
        holders(state, HoldKind.SEMAPHORE, name),
        waiters(state, HoldKind.SEMAPHORE, name),
    )


def election_view(state: ModelState, name: str) -> ElectionView:
    """Return the election."""
    leaders = [h for h in state.holds if h.kind is HoldKind.ELECTION and names(h) == [name]]
    leader = holder_view(state, leaders[0], leaders[0].locks[0]) if leaders else None
    value = leaders[0].value if leaders else ""
    return ElectionView(name, leader, value, waiters(state, HoldKind.ELECTION, name))


def fence_view(state: ModelState, name: str, token: int) -> FenceView:
    """Return whether `token` is that of a holder of the lock."""
    tokens = [view.token for view in holders(state, HoldKind.LOCK, name)]
    return FenceView(token in tokens, max(tokens, default=0))


def audit(state: ModelState, name: str, session_id: SessionId) -> list[Event]:
    """Return what happened to a name, or by a session, newest first."""
    return [
        event
        for event in reversed(state.history)
        if name in ("", event.name) and session_id in ("", event.session_id)
    ]


def granted(state: ModelState, hold: Hold) -> Granted:
    """Return the grant of a hold as its holder sees it."""
    if hold.is_several:
        first = hold.locks[0]
        return Granted(hold.hold_id, hold.token, "", first.mode, state.left_ms(hold), locks=tuple(hold.locks))
    (lock,) = hold.locks
    return Granted(
        hold.hold_id,
        hold.token,
        lock.name,
        lock.mode,
        state.left_ms(hold),
        hold.owner if hold.kind is HoldKind.ELECTION else NO_OWNER,
        lock.scope,
        permits=hold.permits,
        available=available(state, lock.name) if hold.kind is HoldKind.SEMAPHORE else 0,
    )
