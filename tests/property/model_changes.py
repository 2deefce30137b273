"""How holds and waits begin and end in the model, and what is told about it."""

from lockstate.commands import Wanted
from lockstate.ids import HoldId
from lockstate.modes import Mode, Scope
from lockstate.results import Event, EventKind, Granted, HoldKind, Reason, Refused, Settled
from tests.property.model_locks import is_grantable, is_the_same, line, names, used
from tests.property.model_records import Delay, Hold, Lease, Session, Ticket, World
from tests.property.model_refusals import refuse_now
from tests.property.model_requests import conclude
from tests.property.model_views import granted

AUDITED = {
    EventKind.GRANTED,
    EventKind.RELEASED,
    EventKind.EXPIRED,
    EventKind.FORCED,
    EventKind.CONVERTED,
    EventKind.ELECTED,
    EventKind.RESIGNED,
    EventKind.SESSION_EXPIRED,
}


def hold_id(thing: Hold | Ticket) -> HoldId:
    """Return the id of a hold that is, or is to be."""
    if isinstance(thing, Hold):
        return thing.hold_id
    return thing.converts.hold_id if thing.converts else thing.ticket_id


def tell(  # noqa: PLR0917 - what an event tells, called everywhere
    world: World,
    kind: EventKind,
    thing: Hold | Ticket | Session,
    since_ms: int | None = None,
    reason: str = "",
    only: list[Wanted] | None = None,
) -> None:
    """Add an event for each lock of a hold or a ticket, or for those in `only`."""
    lasted_ms = 0 if since_ms is None else world.now_ms - since_ms
    if isinstance(thing, Session):
        events = [
            Event(
                world.revision,
                world.now_ms,
                kind,
                "",
                Mode.EXCLUSIVE,
                thing.owner,
                0,
                thing.session_id,
                lasted_ms,
            )
        ]
    else:
        events = [
            Event(
                world.revision,
                world.now_ms,
                kind,
                lock.name,
                lock.mode,
                thing.owner,
                thing.token if isinstance(thing, Hold) else 0,
                thing.session_id or hold_id(thing),
                lasted_ms,
                reason,
                thing.kind,
                lock.scope,
                thing.permits,
                thing.value,
            )
            for lock in (thing.locks if only is None else only)
        ]
    world.events += events
    if kind in AUDITED:
        world.history += events


# How things begin


def enqueue(world: World, ticket: Ticket) -> None:
    """Put a ticket into its queues."""
    ticket.origin = world.asking
    world.tickets.append(ticket)
    tell(world, EventKind.QUEUED, ticket)


def grant(world: World, ticket: Ticket) -> Granted:
    """Give the ticket what it wants, which nothing stands in the way of."""
    if ticket.converts is not None:
        return convert(world, ticket.converts, ticket.to_mode)
    session = world.session(ticket.session_id)
    hold = Hold(
        kind=ticket.kind,
        hold_id=ticket.ticket_id,
        attempt_id=ticket.attempt_id,
        locks=ticket.locks,
        owner=ticket.owner,
        has_owner=ticket.has_owner,
        token=world.new_token(),
        lease=session.lease if session else world.new_lease(ticket.ttl_ms),
        session_id=ticket.session_id,
        lock_delay_ms=ticket.lock_delay_ms,
        note=ticket.note,
        request=ticket.request,
        granted_at_ms=world.now_ms,
        is_several=ticket.is_several,
        permits=ticket.permits,
        value=ticket.value,
    )
    world.holds.append(hold)
    kind = EventKind.ELECTED if hold.kind is HoldKind.ELECTION else EventKind.GRANTED
    tell(world, kind, hold, ticket.queued_at_ms)
    return granted(world, hold)


def convert(world: World, hold: Hold, mode: Mode) -> Granted:
    """Give every lock of a hold the mode. What becomes exclusive gets a new token, behind all others."""
    if mode is Mode.EXCLUSIVE:
        hold.token = world.new_token()
        world.holds.remove(hold)
        world.holds.append(hold)
    hold.locks = [Wanted(lock.name, mode, lock.scope) for lock in hold.locks]
    tell(world, EventKind.CONVERTED, hold, hold.granted_at_ms)
    return granted(world, hold)


def serve(world: World) -> None:
    """Grant every ticket that can be granted, in order."""
    while True:
        ticket = next((t for t in line(world) if is_grantable(world, t)), None)
        if ticket is None:
            break
        world.tickets.remove(ticket)
        settle(world, ticket, grant(world, ticket))
        _share(world, ticket)
    forget_idle(world)


def _share(world: World, ticket: Ticket) -> None:
    """Give what a ticket got to all others of its session that ask for the same."""
    for other in [t for t in line(world) if is_the_same(t, ticket)]:
        hold = world.hold(ticket.ticket_id)
        assert hold is not None
        world.tickets.remove(other)
        settle(world, other, pass_on(world, hold, other))


def have_again(world: World, hold: Hold, ticket: Ticket) -> Granted:
    """Give a session what it has already, to the attempt that asks for it now; that is a sign of life."""
    world.restart(hold.lease)
    return pass_on(world, hold, ticket)


def pass_on(world: World, hold: Hold, ticket: Ticket) -> Granted:
    """Give a hold to another attempt that asked for it."""
    hold.attempt_id, hold.request = ticket.attempt_id, ticket.request
    if hold.value != ticket.value:
        hold.value = ticket.value
        tell(world, EventKind.ELECTED, hold)
    return granted(world, hold)


def forget_idle(world: World) -> None:
    """Forget the limits of semaphores of which nothing is known any more."""
    wanted = [names(t)[0] for t in world.tickets if t.kind is HoldKind.SEMAPHORE]
    world.limits = {
        name: limit for name, limit in world.limits.items() if name in wanted or used(world, name)
    }


# How things end


def settle(world: World, ticket: Ticket, result: Granted | Refused) -> None:
    """Tell the asker how a wait ended."""
    world.settled.append(Settled(ticket.ticket_id, result, world.now_ms - ticket.queued_at_ms))
    conclude(world, ticket, result)


def end_wait(world: World, ticket: Ticket, refused: Refused | None = None) -> None:
    """End a wait with `refused`, or with the refusal of one who did not want to wait."""
    world.tickets.remove(ticket)
    tell(world, EventKind.WAIT_ENDED, ticket, ticket.queued_at_ms)
    settle(world, ticket, refused or refuse_now(world, ticket))


def end_hold(world: World, hold: Hold, kind: EventKind, reason: str = "", delay_ms: int = 0) -> None:
    """End a hold, and the wait of its conversion. One that others end leaves the longer of two delays."""
    conversions = [t for t in world.tickets if t.converts is hold]
    world.holds.remove(hold)
    for ticket in conversions:
        end_wait(world, ticket, Refused(Reason.LEASE_EXPIRED, ""))
    if kind is EventKind.RELEASED and hold.kind is HoldKind.ELECTION:
        kind = EventKind.RESIGNED
    tell(world, kind, hold, hold.granted_at_ms, reason)
    delay_ms = max(hold.lock_delay_ms, delay_ms)
    if kind in {EventKind.EXPIRED, EventKind.FORCED} and delay_ms:
        for lock in hold.locks:
            delay(world, hold.kind, lock.name, lock.scope, delay_ms, hold.permits)


def delay(  # noqa: PLR0917 - what a delay is made of
    world: World, kind: HoldKind, name: str, scope: Scope, delay_ms: int, permits: int = 0
) -> None:
    """Keep a lock, or permits, from everybody. A lock has one delay of each scope: the longest."""
    until_ms = world.now_ms + delay_ms
    for known in world.delays:
        if kind is HoldKind.LOCK and (known.kind, known.name, known.scope) == (kind, name, scope):
            known.until_ms = max(known.until_ms, until_ms)
            return
    world.delays.append(Delay(kind, name, scope, permits, until_ms, world.next_created()))


def end_session(world: World, session: Session, kind: EventKind) -> tuple[str, ...]:
    """End a session with its waits and holds, and return the names that it held."""
    holds = [h for h in world.holds if h.session_id == session.session_id]
    world.sessions.remove(session)
    for ticket in [t for t in world.tickets if t.session_id == session.session_id]:
        reason = Reason.SESSION_EXPIRED if ticket.converts is None else Reason.LEASE_EXPIRED
        end_wait(world, ticket, Refused(reason, ""))
    for hold in holds:
        end_hold(world, hold, kind)
    if kind is EventKind.EXPIRED:
        tell(world, EventKind.SESSION_EXPIRED, session)
    serve(world)
    return tuple(name for hold in holds for name in names(hold))


def due(world: World) -> list[tuple[int, int, Session | Hold | Ticket | Delay]]:
    """Return (end, creation, thing) of everything that ends by itself, the first to end first."""
    leases: list[tuple[Lease, Session | Hold]] = [(s.lease, s) for s in world.sessions]
    leases += [(h.lease, h) for h in world.holds if not h.session_id]
    every: list[tuple[int, int, Session | Hold | Ticket | Delay]] = []
    every += [(lease.expires_at_ms, lease.created, thing) for lease, thing in leases]
    every += [(t.deadline_ms, t.created, t) for t in world.tickets]
    every += [(d.until_ms, d.created, d) for d in world.delays]
    return sorted(every, key=lambda item: item[:2])


def expire(world: World, thing: Session | Hold | Ticket | Delay) -> None:
    """End what cluster time has passed."""
    match thing:
        case Session():
            end_session(world, thing, EventKind.EXPIRED)
        case Hold():
            end_hold(world, thing, EventKind.EXPIRED)
        case Ticket():
            end_wait(world, thing)
        case Delay():
            world.delays.remove(thing)
    serve(world)
