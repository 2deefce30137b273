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
from tests.property.model_records import Hold, Ticket, World


def holder_view(world: World, hold: Hold, lock: Wanted) -> HolderView:
    """Return a hold as others see it, by one of its locks."""
    return HolderView(
        hold.owner,
        lock.mode,
        hold.token,
        world.left_ms(hold),
        hold.note,
        lock.name,
        lock.scope,
        hold.kind,
        hold.permits,
    )


def waiter_view(world: World, ticket: Ticket, lock: Wanted, at: int) -> WaiterView:
    """Return a waiter as others see it, by one of the locks that it wants."""
    return WaiterView(
        ticket.owner,
        lock.mode,
        at,
        world.now_ms - ticket.queued_at_ms,
        lock.name,
        lock.scope,
        ticket.kind,
        ticket.permits,
        ticket.converts is not None,
    )


def holders(world: World, kind: HoldKind, name: str) -> tuple[HolderView, ...]:
    """Return who holds `name`, also as a part of a subtree, in order of token."""
    return tuple(
        holder_view(world, hold, lock)
        for hold in world.holds
        if hold.kind is kind
        for lock in hold.locks
        if covers(lock, name)
    )


def waiters(world: World, kind: HoldKind, name: str) -> tuple[WaiterView, ...]:
    """Return who waits for exactly `name`, in order."""
    return tuple(
        waiter_view(world, ticket, lock, at)
        for at, ticket in enumerate(queue(world, kind, name), 1)
        for lock in ticket.locks
        if lock.name == name
    )


def lock_view(world: World, name: str) -> LockView:
    """Return the lock."""
    held = holders(world, HoldKind.LOCK, name)
    delayed = any(
        d.kind is HoldKind.LOCK and covers(Wanted(d.name, scope=d.scope), name) for d in world.delays
    )
    state = "held" if held else "delayed" if delayed else "free"
    return LockView(name, state, held, waiters(world, HoldKind.LOCK, name))


def active_names(world: World) -> list[str]:
    """Return the names of locks that are held, wanted or delayed themselves, in order."""
    things: list[Hold | Ticket] = [*world.holds, *world.tickets]
    active = {name for thing in things if thing.kind is HoldKind.LOCK for name in names(thing)}
    return sorted(active | {d.name for d in world.delays if d.kind is HoldKind.LOCK})


def session_view(world: World, session_id: SessionId) -> SessionView | None:
    """Return the session as its client sees it: every lock of its holds and tickets."""
    session = world.session(session_id)
    if session is None:
        return None
    return SessionView(
        session.lease.ttl_ms,
        max(0, session.lease.expires_at_ms - world.now_ms),
        session.owner,
        session.labels,
        tuple(
            holder_view(world, hold, lock)
            for hold in world.holds
            if hold.session_id == session_id
            for lock in hold.locks
        ),
        tuple(
            waiter_view(world, ticket, lock, queue(world, ticket.kind, lock.name).index(ticket) + 1)
            for ticket in world.tickets
            if ticket.session_id == session_id
            for lock in ticket.locks
        ),
    )


def available(world: World, name: str) -> int:
    """Return how many permits are left; negative after a resize below what is used."""
    return world.limits[name] - used(world, name)


def semaphore_view(world: World, name: str) -> SemaphoreView:
    """Return the semaphore; one that does not exist has no limit yet."""
    if name not in world.limits:
        return SemaphoreView(name, 0, 0)
    return SemaphoreView(
        name,
        world.limits[name],
        available(world, name),
        holders(world, HoldKind.SEMAPHORE, name),
        waiters(world, HoldKind.SEMAPHORE, name),
    )


def election_view(world: World, name: str) -> ElectionView:
    """Return the election."""
    leaders = [h for h in world.holds if h.kind is HoldKind.ELECTION and names(h) == [name]]
    leader = holder_view(world, leaders[0], leaders[0].locks[0]) if leaders else None
    value = leaders[0].value if leaders else ""
    return ElectionView(name, leader, value, waiters(world, HoldKind.ELECTION, name))


def fence_view(world: World, name: str, token: int) -> FenceView:
    """Return whether `token` is that of a holder of the lock."""
    tokens = [view.token for view in holders(world, HoldKind.LOCK, name)]
    return FenceView(token in tokens, max(tokens, default=0))


def audit(world: World, name: str, session_id: SessionId) -> list[Event]:
    """Return what happened to a name, or by a session, newest first."""
    return [
        event
        for event in reversed(world.history)
        if name in ("", event.name) and session_id in ("", event.session_id)
    ]


def granted(world: World, hold: Hold) -> Granted:
    """Return what the holder is told of its hold."""
    if hold.is_several:
        first = hold.locks[0]
        return Granted(hold.hold_id, hold.token, "", first.mode, world.left_ms(hold), locks=tuple(hold.locks))
    (lock,) = hold.locks
    return Granted(
        hold.hold_id,
        hold.token,
        lock.name,
        lock.mode,
        world.left_ms(hold),
        hold.owner if hold.kind is HoldKind.ELECTION else NO_OWNER,
        lock.scope,
        permits=hold.permits,
        available=available(world, lock.name) if hold.kind is HoldKind.SEMAPHORE else 0,
    )
