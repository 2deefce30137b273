"""Hand-over in the model: a hold of a lock ends, and its receiver has one before anybody else is served."""

from dataclasses import replace

import msgspec

from lockstate.words.commands.holds import HandOver
from lockstate.words.events import EventKind
from lockstate.words.ids import NO_ATTEMPT, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import HandedOver, Result
from lockstate.words.wanted import Wanted
from tests.property.model_changes import (
    end_hold,
    grant,
    is_to_be_given_up,
    serve,
    settle,
    share,
    tell_plea,
)
from tests.property.model_deadlock import edges, keepers, reachable
from tests.property.model_locks import (
    delays_in_the_way,
    freeze_over,
    holds_in_the_way,
    is_shared,
    names,
)
from tests.property.model_namespaces import refuse_passed_in
from tests.property.model_principals import refuse_named
from tests.property.model_records import Hold, ModelState, Plea, Ticket
from tests.property.model_refusals import refuse_now

BAD = Refused(Reason.INVALID_REQUEST, "")


def hand_over(state: ModelState, command: HandOver) -> Result:
    """Give the lock of a hold to a waiter or to a session."""
    giver = state.hold(command.hold_id)
    if giver is None:
        return Refused(Reason.LEASE_EXPIRED, "")
    is_of_one = giver.kind is HoldKind.LOCK and not giver.is_of_kinds and len(giver.locks) == 1
    if not is_of_one or giver.depth > 1 or any(ticket.changes is giver for ticket in state.tickets):
        return BAD
    receiver = _waiter(state, command, giver) if command.to_ticket else _session(state, command, giver)
    if isinstance(receiver, Refused):
        return receiver
    refused = _refuse_in_the_way(state, giver, receiver) or _refuse_deadlock(state, giver, receiver)
    if refused is not None:
        return refused
    to_session = bool(command.to_session)
    asked = [plea for plea in state.pleas if plea.hold is giver and (to_session or not plea.is_bound)]
    end_hold(state, giver, EventKind.HANDED_OVER)
    told = msgspec.structs.replace(state.events[-1], to_token=state.next_token)
    state.events[-1] = state.history[-1] = told
    result = grant(state, receiver)
    assert not isinstance(result, Refused)
    if command.to_ticket:
        state.tickets.remove(receiver)
        settle(state, receiver, result)
    hold = state.hold(receiver.ticket_id)
    assert hold is not None
    if to_session:
        hold.depth = 0
    share(state, receiver)
    for plea in asked:
        _pass_on(state, plea, hold)
    serve(state)
    return HandedOver(hold.token, hold.owner)


def _waiter(state: ModelState, command: HandOver, giver: Hold) -> Ticket | Refused:
    """Return the wait that is to have the lock."""
    ticket = next((t for t in state.tickets if t.number == command.to_ticket), None)
    if ticket is not None:
        is_of_locks = ticket.kind is HoldKind.LOCK and not ticket.is_of_kinds and ticket.changes is None
        if is_of_locks and names(ticket) == names(giver):
            return ticket
    return Refused(Reason.TICKET_ENDED, "")


def _session(state: ModelState, command: HandOver, giver: Hold) -> Ticket | Refused:
    """Return what a session would ask for, to have the lock as the giver has it."""
    session = next((s for s in state.sessions if s.public_name == command.to_session), None)
    if session is None or (state.principal and session.principal != state.principal):
        return Refused(Reason.SESSION_EXPIRED, "")
    new_id = command.new_hold_id
    known = (state.session(SessionId(new_id)), state.hold(new_id), state.ticket(new_id))
    if giver.session_id == session.session_id or any(known):
        return BAD
    wish = Ticket(
        kind=HoldKind.LOCK,
        ticket_id=new_id,
        attempt_id=NO_ATTEMPT,
        wanted=[Wanted(lock.name, lock.mode, lock.scope) for lock in giver.locks],
        owner=session.owner,
        has_owner=False,
        session_id=session.session_id,
        request=None,
        queued_at_ms=state.now_ms,
        deadline_ms=state.now_ms,
        created=0,
        principal=session.principal,
    )
    if any(is_shared(hold, wish) for hold in state.holds):
        return Refused(Reason.ALREADY_HELD, "")
    is_of_other = session.principal != giver.principal
    refused = refuse_named(state, "holds", names(wish), by=session.principal) if is_of_other else None
    return refused or refuse_passed_in(state, giver) or wish


def _refuse_in_the_way(state: ModelState, giver: Hold, receiver: Ticket) -> Refused | None:
    """Refuse what anything but the giver and those that wait is in the way of."""
    others = [hold for hold in holds_in_the_way(state, receiver) if hold is not giver]
    is_taken = others or freeze_over(state, receiver) or delays_in_the_way(state, receiver)
    return refuse_now(state, receiver, giver) if is_taken else None


def _refuse_deadlock(state: ModelState, giver: Hold, receiver: Ticket) -> Refused | None:
    """Refuse if anything that the receiver waits for would wait for itself, once it has the lock."""
    tickets, holds = state.tickets, state.holds
    state.tickets = [t for t in tickets if t is not receiver and not is_shared(t, receiver)]
    # Its lock goes to the receiver, in the mode that this wants.
    has = replace(
        giver,
        hold_id=receiver.ticket_id,
        locks=receiver.locks,
        owner=receiver.owner,
        session_id=receiver.session_id,
    )
    state.holds = [has if hold is giver else hold for hold in holds]
    every, starts = edges(state), [ticket.ticket_id for ticket in keepers(state, has)]
    state.tickets, state.holds = tickets, holds
    if not any(start in reachable(every, start) for start in starts):
        return None
    state.deadlocks.append((receiver, every, starts))
    return Refused(Reason.DEADLOCK, str(len(state.deadlocks) - 1))


def _pass_on(state: ModelState, plea: Plea, hold: Hold) -> None:
    """Ask the receiver what the giver was asked, if it may be asked that, and until the same moment."""
    bounds = [own for own in state.pleas if plea.is_bound and own.is_bound and own.hold is hold]
    if any(own.ends_at_ms <= plea.ends_at_ms for own in bounds):
        return
    state.pleas = [own for own in state.pleas if not any(own is later for later in bounds)]
    passed_on = replace(plea, hold=hold, created=state.next_created())
    waiter, is_asked = plea.waiter, is_to_be_given_up(state, passed_on)
    if waiter is not None and waiter.has_asked and plea.reason == "a wait needs it":
        is_asked &= hold.priority < waiter.priority or hold.principal == waiter.principal
    if is_asked:
        state.pleas.append(passed_on)
        if passed_on.is_told:
            tell_plea(state, EventKind.REVOKED, passed_on)
