"""How holds and waits begin and end in the model, and the events and answers that this causes."""

import msgspec

from lockstate.words import limits
from lockstate.words.events import CellEventKind, Event, EventKind, Left
from lockstate.words.ids import NO_OWNER, NO_SESSION, HoldId
from lockstate.words.kinds import HoldKind, IfHeld
from lockstate.words.modes import Mode
from lockstate.words.outcomes import Settled
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted
from lockstate.words.wanted import Wanted
from tests.property.model_cells import end_cells, end_cells_of
from tests.property.model_locks import (
    Part,
    claims,
    conflict,
    is_grantable,
    is_shared,
    line,
    names,
    parts,
    parts_of,
    used,
)
from tests.property.model_namespaces import innermost, longest_delay_ms, refuse_texts_in
from tests.property.model_principals import refuse_texts
from tests.property.model_records import (
    UNKNOWN_NUMBER,
    Asker,
    Cell,
    Delay,
    Hold,
    Lease,
    ModelFreeze,
    ModelState,
    Place,
    Plea,
    Rate,
    Session,
    Ticket,
)
from tests.property.model_refusals import refuse_now
from tests.property.model_requests import conclude
from tests.property.model_takes import give_back, take_together
from tests.property.model_values import take, told
from tests.property.model_views import granted

_X, _S, _U = Mode.EXCLUSIVE, Mode.SHARED, Mode.UPDATE
_CR, _CW = Mode.CONCURRENT_READ, Mode.CONCURRENT_WRITE
DRAWING = {
    *[(mode, _X) for mode in (_S, _U, _CR, _CW)],
    *[(mode, _CW) for mode in (_S, _U, _CR)],
    *[(mode, _S) for mode in (_CR, _CW)],
    *[(mode, _U) for mode in (_CR, _CW)],
}
"""The changes of mode that draw a token: who may write now must come behind all who have read, and who keeps
writers away behind all that they wrote. To reserve a write is neither."""

OVERRIDES = {
    EventKind.FORCED,
    EventKind.SESSION_FORCED,
    EventKind.WAIT_FORCED,
    EventKind.REVOKED,
    EventKind.REVOCATION_WITHDRAWN,
}
"""What one does to others."""
AUDITED = {
    EventKind.REVOKED,
    EventKind.REVOCATION_WITHDRAWN,
    EventKind.PUT_OFF,
    EventKind.GRANTED,
    EventKind.RELEASED,
    EventKind.EXPIRED,
    EventKind.FORCED,
    EventKind.HANDED_OVER,
    EventKind.CONVERTED,
    EventKind.ELECTED,
    EventKind.RESIGNED,
    EventKind.SESSION_EXPIRED,
    EventKind.SESSION_FORCED,
    EventKind.WAIT_FORCED,
}


def hold_id(thing: Hold | Ticket) -> HoldId:
    """Return the id of a hold, or of the hold that a ticket waits for."""
    if isinstance(thing, Hold):
        return thing.hold_id
    return thing.changes.hold_id if thing.changes else thing.ticket_id


def tell(  # noqa: PLR0917 - what an event tells, called everywhere
    state: ModelState,
    kind: EventKind,
    thing: Hold | Ticket | Session,
    since_ms: int | None = None,
    reason: str = "",
    only: list[Part] | None = None,
    number: int = 0,
    ends_in_ms: int = 0,
) -> None:
    """Add an event for each lock of a hold or a ticket, or for those in `only`."""
    number = thing.number if isinstance(thing, Ticket) else number
    lasted_ms = 0 if since_ms is None else state.now_ms - since_ms
    by = state.principal if kind in OVERRIDES else ""
    if isinstance(thing, Session):
        events = [
            Event(
                state.revision,
                state.now_ms,
                kind,
                "",
                Mode.EXCLUSIVE,
                thing.owner,
                0,
                thing.session_id,
                lasted_ms,
                reason,
                principal=thing.principal,
                by=by,
            )
        ]
    else:
        events = [
            Event(
                state.revision,
                state.now_ms,
                kind,
                lock.name,
                lock.mode,
                thing.owner,
                thing.token if isinstance(thing, Hold) else 0,
                thing.session_id or hold_id(thing),
                lasted_ms,
                reason,
                lock.kind,
                lock.scope,
                lock.permits,
                told(thing),
                number,
                ends_in_ms,
                thing.principal,
                by,
            )
            for lock in (parts(thing) if only is None else only)
        ]
    state.events += events
    if kind in AUDITED:
        state.history += events


def tell_freeze(state: ModelState, kind: EventKind, freeze: ModelFreeze, reason: str) -> None:
    """Add the event that a prefix was frozen or thawed."""
    when, lasted_ms = (state.revision, state.now_ms), state.now_ms - freeze.since_ms
    left_ms = 0 if freeze.until_ms is None else freeze.until_ms - state.now_ms
    event = Event(
        *when, kind, freeze.prefix, Mode.EXCLUSIVE, NO_OWNER, 0, NO_SESSION, lasted_ms, reason,
        ends_in_ms=left_ms if kind is EventKind.FROZEN else 0, by=state.principal,
    )  # fmt: skip
    state.events.append(event)
    state.history.append(event)


# How things begin


def enqueue(state: ModelState, ticket: Ticket) -> None:
    """Put a ticket into its queues."""
    ticket.origin = state.asking
    state.tickets.append(ticket)
    ticket.number = UNKNOWN_NUMBER
    if ticket.asks is not None:
        ticket.asks_at_ms, ticket.asks_created = (
            state.now_ms + ticket.asks.ask_after_ms,
            state.next_created(),
        )
    tell(state, EventKind.QUEUED, ticket)


def grant(state: ModelState, ticket: Ticket) -> Granted | Refused:
    """Grant a ticket what it wants and nothing is in the way of, unless a rate limit has no place in time."""
    if ticket.converts is not None:
        return convert(state, ticket.converts, ticket.to_mode, ticket.number)
    if ticket.adds is not None:
        return add(state, ticket.adds, ticket)
    wait_ms = max(0, ticket.deadline_ms - state.now_ms)
    taken = take_together(state, ticket.rates, wait_ms, ticket.ticket_id, ticket.principal)
    if isinstance(taken, Refused):
        return taken
    at_ms, used = taken
    session = state.session(ticket.session_id)
    hold = Hold(
        kind=ticket.kind,
        hold_id=ticket.ticket_id,
        attempt_id=ticket.attempt_id,
        locks=ticket.locks,
        owner=ticket.owner,
        has_owner=ticket.has_owner,
        token=state.new_token(),
        lease=session.lease if session else state.new_lease(ticket.ttl_ms, at_ms) if ticket.ttl_ms else None,
        session_id=ticket.session_id,
        lock_delay_ms=longest_delay_ms(state, ticket),
        note=ticket.note,
        request=ticket.request,
        granted_at_ms=state.now_ms,
        is_several=ticket.is_several,
        permits=ticket.permits,
        value=ticket.value,
        others=ticket.others,
        is_secret=ticket.is_secret,
        is_of_kinds=ticket.is_of_kinds,
        beside=ticket.beside,
        rates=ticket.rates,
        at_ms=at_ms if at_ms > state.now_ms else 0,
        principal=ticket.principal,
        priority=ticket.priority,
    )
    state.holds.append(hold)
    bound(state, hold, parts(hold))
    kind = EventKind.ELECTED if hold.kind is HoldKind.ELECTION else EventKind.GRANTED
    tell(state, kind, hold, ticket.queued_at_ms, number=ticket.number)
    result = granted(state, hold)
    return msgspec.structs.replace(result, rates=used) if hold.is_of_kinds else result


def convert(state: ModelState, hold: Hold, mode: Mode, number: int = 0) -> Granted:
    """Give every lock of a hold the mode, and with some changes a new token, behind all others."""
    if any((lock.mode, mode) in DRAWING for lock in hold.locks):
        hold.token = state.new_token()
        state.holds.remove(hold)
        state.holds.append(hold)
    hold.locks = [Wanted(lock.name, mode, lock.scope) for lock in hold.locks]
    tell(state, EventKind.CONVERTED, hold, hold.granted_at_ms, number=number)
    return granted(state, hold)


def add(state: ModelState, hold: Hold, ticket: Ticket) -> Granted:
    """Give a hold more locks, and a new token, behind all others: whoever had them before has a lower one."""
    had = parts(hold)
    hold.token = state.new_token()
    state.holds.remove(hold)
    state.holds.append(hold)
    hold.locks, hold.is_several = hold.locks + ticket.wanted, True
    hold.lock_delay_ms = longest_delay_ms(state, hold)
    more = parts(hold)[len(had) :]
    bound(state, hold, more)
    tell(state, EventKind.CONVERTED, hold, hold.granted_at_ms, only=had)
    tell(state, EventKind.GRANTED, hold, ticket.queued_at_ms, only=more, number=ticket.number)
    return granted(state, hold)


def serve(state: ModelState) -> None:
    """Grant every ticket that can be granted, in order."""
    while True:
        ticket = next((t for t in line(state) if is_grantable(state, t)), None)
        if ticket is None:
            break
        result = grant(state, ticket)
        if isinstance(result, Refused):
            is_other = result.reason is Reason.LIMIT_MISMATCH
            end_wait(state, ticket, Left.LIMIT_MISMATCH if is_other else Left.RATE_LIMITED, result)
            continue
        state.tickets.remove(ticket)
        settle(state, ticket, result)
        share(state, ticket)
    forget_idle(state)
    forget_obeyed(state)


def share(state: ModelState, ticket: Ticket) -> None:
    """Give the hold that a ticket got to all others of its session that ask for the same."""
    for other in [t for t in line(state) if is_shared(t, ticket)]:
        hold = state.hold(ticket.ticket_id)
        assert hold is not None
        if other.if_held is IfHeld.REFUSE and hold.depth:
            end_wait(state, other, Left.ALREADY_HELD, Refused(Reason.ALREADY_HELD, ""))
            continue
        state.tickets.remove(other)
        settle(state, other, pass_on(state, hold, other))
        tell(state, EventKind.LEFT, other, other.queued_at_ms, Left.SHARED)


def have_again(state: ModelState, hold: Hold, ticket: Ticket) -> Granted | Refused:
    """Renew what a session has already, and hand it to the attempt that asks for it again."""
    if ticket.if_held is IfHeld.REFUSE and hold.depth:
        return Refused(Reason.ALREADY_HELD, "")
    is_election = hold.kind is HoldKind.ELECTION
    value = ticket.value if is_election else ticket.value or hold.value
    told = (hold.note, hold.value)
    note = ticket.note or hold.note
    too_much = refuse_texts(state, note, value, instead_of=told) or refuse_texts_in(state, hold, note, value)
    if too_much is not None:
        return too_much
    assert hold.lease is not None, "what can be had again lives with a session"
    state.restart(hold.lease)
    return pass_on(state, hold, ticket)


def pass_on(state: ModelState, hold: Hold, ticket: Ticket) -> Granted:
    """Hand a hold to another attempt that asked for it."""
    hold.attempt_id, hold.request, hold.others = ticket.attempt_id, ticket.request, []
    if hold.kind is not HoldKind.ELECTION:
        take(hold, ticket)
    elif hold.value != ticket.value:
        hold.value = ticket.value
        tell(state, EventKind.ELECTED, hold)
    result = granted(state, hold)
    hold.note, hold.lock_delay_ms = ticket.note or hold.note, ticket.lock_delay_ms or hold.lock_delay_ms
    if ticket.note or ticket.lock_delay_ms:
        hold.lock_delay_ms = longest_delay_ms(state, hold)
    hold.depth += ticket.if_held is IfHeld.COUNT or not hold.depth
    return msgspec.structs.replace(result, depth=hold.depth)


def forget_idle(state: ModelState) -> None:
    """Forget the limits of semaphores that nobody holds, wants or delays."""
    wanted = [part.name for t in state.tickets for part in parts_of(t, HoldKind.SEMAPHORE)]
    state.limits = {
        name: limit for name, limit in state.limits.items() if name in wanted or used(state, name)
    }


def forget_obeyed(state: ModelState) -> None:
    """Forget what was asked for a hold or a name that is gone, or that is in the way of no wait any more."""
    state.pleas = [plea for plea in state.pleas if is_to_be_given_up(state, plea)]


def is_to_be_given_up(state: ModelState, plea: Plea) -> bool:
    """Whether what was asked for is there, and in the way of the wait for which it was asked."""
    held = parts_of(plea.hold, plea.kind, plea.name)
    if not held or not any(hold is plea.hold for hold in state.holds):
        return False
    return plea.waiter is None or (
        any(ticket is plea.waiter for ticket in state.tickets) and hinders(plea.hold, held[0], plea.waiter)
    )


def bound(state: ModelState, hold: Hold, granted: list[Part]) -> None:
    """Note until when a hold may have what it has just got, where a namespace says that."""
    since_ms = max(state.now_ms, hold.at_ms)
    for part in granted:
        held_ms = innermost(state, part.name)[1].held_ms_max
        if held_ms is not None:
            notice_ms = min(held_ms // 2, 60_000)
            until_ms = since_ms + held_ms - notice_ms
            created = state.next_created()
            plea = Plea(hold, part.kind, part.name, "held-too-long", notice_ms, until_ms, created)
            plea.is_put_off, plea.is_bound, plea.is_told = True, True, False
            state.pleas.append(plea)


def tell_plea(state: ModelState, kind: EventKind, plea: Plea) -> None:
    """Add an event for what is to be given up."""
    ends_in_ms = max(0, plea.until_ms - state.now_ms)
    tell(
        state,
        kind,
        plea.hold,
        plea.hold.granted_at_ms,
        plea.reason,
        only=parts_of(plea.hold, plea.kind, plea.name),
        number=plea.ticket,
        ends_in_ms=ends_in_ms,
    )


def hinders(hold: Hold, part: Part, ticket: Ticket) -> bool:
    """Whether a part of a hold is in the way of a wait for the same: permits are of every one."""
    if ticket.changes is hold:
        return False
    wanted = parts_of(ticket, part.kind, part.name)
    return part.kind is HoldKind.SEMAPHORE or any(conflict(part, one) for one in wanted)


# How things end


def settle(state: ModelState, ticket: Ticket, result: Granted | Refused) -> None:
    """Settle a wait with its result."""
    added = tuple(ticket.locks) if ticket.adds is not None else ()
    state.settled.append(Settled(ticket.ticket_id, result, state.now_ms - ticket.queued_at_ms, added))
    conclude(state, ticket, result)


def end_wait(state: ModelState, ticket: Ticket, why: Left, refused: Refused | None = None) -> None:
    """End a wait with `refused`, or with the refusal of a request that does not wait."""
    state.tickets.remove(ticket)
    tell(state, EventKind.LEFT, ticket, ticket.queued_at_ms, why)
    settle(state, ticket, refused or refuse_now(state, ticket))


def end_hold(state: ModelState, hold: Hold, kind: EventKind, reason: str = "", delay_ms: int = 0) -> None:
    """End a hold and the wait for a change of it. If others end it, the longer of two delays follows."""
    changes = [t for t in state.tickets if t.changes is hold]
    state.holds.remove(hold)
    if hold.is_of_kinds:
        give_back(state, hold.hold_id)
    for ticket in changes:
        end_wait(state, ticket, Left.LEASE_EXPIRED, Refused(Reason.LEASE_EXPIRED, ""))
    if kind is EventKind.RELEASED and hold.kind is HoldKind.ELECTION:
        kind = EventKind.RESIGNED
    tell(state, kind, hold, hold.granted_at_ms, reason)
    delay_ms = max(hold.lock_delay_ms, delay_ms)
    if kind in {EventKind.EXPIRED, EventKind.FORCED} and delay_ms:
        for part in parts(hold):
            delay(state, part, delay_ms, hold.principal)


def delay(state: ModelState, part: Part, delay_ms: int, principal: str) -> None:
    """Delay a lock, or withhold permits. A lock has one delay of each scope: the longest."""
    until_ms, of = state.now_ms + delay_ms, (part.kind, part.name, part.scope)
    for known in state.delays:
        if part.kind is HoldKind.LOCK and (known.kind, known.name, known.scope) == of:
            if until_ms > known.until_ms:
                known.until_ms, known.principal = until_ms, principal
            return
    state.delays.append(Delay(*of, part.permits, until_ms, state.next_created(), principal))


_LEFT = {
    EventKind.RELEASED: Left.SESSION_CLOSED,
    EventKind.EXPIRED: Left.SESSION_EXPIRED,
    EventKind.FORCED: Left.SESSION_FORCED,
}


def end_session(state: ModelState, session: Session, kind: EventKind, reason: str = "") -> tuple[str, ...]:
    """End a session with its waits and holds, and return the names that it held."""
    holds = [h for h in state.holds if h.session_id == session.session_id]
    state.sessions.remove(session)
    for ticket in [t for t in state.tickets if t.session_id == session.session_id]:
        over = Reason.SESSION_EXPIRED if ticket.changes is None else Reason.LEASE_EXPIRED
        end_wait(state, ticket, _LEFT[kind], Refused(over, ""))
    stream, ended = state.streams.get(session.session_id), 0
    for _, kept in sorted(stream.kept.items()) if stream else ():
        numbered = state.ticket(kept.answers_to) if kept.result is None else None
        if numbered is not None and ended < limits.EXPIRIES_PER_ENTRY_MAX:
            ended += claims(numbered)
            end_wait(state, numbered, _LEFT[kind], Refused(Reason.SESSION_EXPIRED, ""))
    for hold in holds:
        end_hold(state, hold, kind, reason)
    state.streams.pop(session.session_id, None)
    if kind is EventKind.EXPIRED:
        tell(state, EventKind.SESSION_EXPIRED, session)
    elif kind is EventKind.FORCED:
        tell(state, EventKind.SESSION_FORCED, session, reason=reason)
    is_over = kind is EventKind.EXPIRED
    end_cells_of(state, session.session_id, CellEventKind.EXPIRED if is_over else CellEventKind.DELETED)
    serve(state)
    return tuple(name for hold in holds for name in names(hold))


Due = Session | Hold | Ticket | Delay | Cell | Plea | Asker | Rate | Place | ModelFreeze
"""What ends by itself, or asks by itself."""


def due(state: ModelState) -> list[tuple[int, int, Due]]:
    """Return (deadline, creation, thing) of everything that has a deadline, the first first."""
    leases: list[tuple[Lease, Session | Hold | Cell]] = [(s.lease, s) for s in state.sessions]
    leases += [(c.lease, c) for c in state.cells if c.lease]
    leases += [(h.lease, h) for h in state.holds if not h.session_id and h.lease]
    every: list[tuple[int, int, Due]] = []
    every += [(lease.expires_at_ms, lease.created, thing) for lease, thing in leases]
    every += [(t.deadline_ms, t.created, t) for t in state.tickets]
    every += [(d.until_ms, d.created, d) for d in state.delays]
    every += [(p.until_ms, p.created, p) for p in state.pleas]
    every += [(t.asks_at_ms, t.asks_created, Asker(t)) for t in state.tickets if t.asks is not None]
    every += [(f.until_ms, f.created, f) for f in state.freezes if f.until_ms is not None]
    every += [(r.whole_ms, r.created, r) for r in state.rates]
    every += [(p.at_ms, p.created, p) for _, p in state.places()]
    return sorted(every, key=lambda item: item[:2])


def expire(state: ModelState, thing: Due) -> None:  # noqa: C901 - a case for each thing
    """End what is due."""
    match thing:
        case Session():
            end_session(state, thing, EventKind.EXPIRED)
        case Hold():
            end_hold(state, thing, EventKind.EXPIRED)
        case Ticket():
            end_wait(state, thing, Left.TIMED_OUT)
        case Delay():
            state.delays.remove(thing)
        case Cell():
            end_cells(state, [thing], CellEventKind.EXPIRED)
        case Plea() if not thing.is_told:
            thing.is_told, thing.until_ms = True, thing.until_ms + thing.grace_ms
            tell_plea(state, EventKind.REVOKED, thing)
        case Plea():
            kind = EventKind.EXPIRED if thing.is_bound else EventKind.FORCED
            end_hold(state, thing.hold, kind, thing.reason)
        case ModelFreeze():
            state.freezes.remove(thing)
            tell_freeze(state, EventKind.THAWED, thing, "")
        case Rate():
            state.rates.remove(thing)
        case Place():
            for rate in state.rates:
                rate.places = [place for place in rate.places if place is not thing]
    serve(state)
