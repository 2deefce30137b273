"""Asking for something in the model: a lock or several, permits, an election, another mode."""

from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    AcquireSeveral,
    Acquisition,
    AddLocks,
    Campaign,
    Convert,
)
from lockstate.words.ids import OwnerName
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Queued, Result
from lockstate.words.wanted import Wanted
from tests.property.model_changes import convert, enqueue, grant, have_again, serve, share
from tests.property.model_checks import refuse_together
from tests.property.model_deadlock import refuse_conversion, refuse_stuck
from tests.property.model_locks import is_grantable, is_shared, names, overtakes, position
from tests.property.model_namespaces import (
    if_held_in,
    refuse_endless,
    refuse_more_in,
    refuse_named_in,
    refuse_rare,
    refuse_ttl,
)
from tests.property.model_principals import principal_of_new, refuse_more, refuse_named
from tests.property.model_records import Hold, ModelState, Ticket
from tests.property.model_refusals import limit_mismatch, refuse_now
from tests.property.model_requests import key_of
from tests.property.model_takes import refuse_wanted
from tests.property.model_values import mark
from tests.property.model_views import granted

DOWN = {
    Mode.EXCLUSIVE: list(Mode),
    Mode.UPDATE: [Mode.UPDATE, Mode.SHARED, Mode.CONCURRENT_READ],
    Mode.SHARED: [Mode.SHARED, Mode.CONCURRENT_READ],
    Mode.CONCURRENT_WRITE: [Mode.CONCURRENT_WRITE, Mode.CONCURRENT_READ],
    Mode.CONCURRENT_READ: [Mode.CONCURRENT_READ],
}
"""The modes that are not above each mode. Every other one is, even if it is not above in turn."""


def acquire(state: ModelState, command: Acquire) -> Result:
    """Ask for a lock, or for several at once."""
    locks = list(command.locks) or [Wanted(command.name, command.mode, command.scope)]
    ticket = ticket_of(state, command, HoldKind.LOCK, locks)
    ticket.is_several = bool(command.locks)
    mark(ticket, command)
    ticket.if_held = command.if_held or if_held_in(state, names(ticket))
    ticket.ttl_ms = command.ttl_ms
    return refuse_there(state, command, names(ticket)) or _ask(state, ticket, command.wait_ms)


def refuse_there(state: ModelState, command: Acquire | AcquirePermits, of: list[str]) -> Refused | None:
    """Return the refusal of what the namespaces of these names do not allow."""
    return refuse_rare(state, command, of) or refuse_ttl(state, command.ttl_ms, of)


def acquire_several(state: ModelState, command: AcquireSeveral) -> Result:
    """Ask for locks, permits and places of rate limits, all or none."""
    of = [lock.name for lock in command.locks] + [one.name for one in command.permits]
    refused = refuse_there(state, command, of)
    if refused is not None:
        return refused
    if command.session_id and state.session(command.session_id) is None:
        return Refused(Reason.SESSION_EXPIRED, "")
    for wanted in command.permits:
        limit = state.limits.get(wanted.name, wanted.limit)
        if not limit:
            return Refused(Reason.LIMIT_MISMATCH, "")
        if limit < wanted.permits:
            return Refused(Reason.LIMIT_MISMATCH, "", facts={"limit": limit})
    refused = refuse_wanted(state, command.rates)
    if refused is not None:
        return refused
    for wanted in command.permits:
        state.limits.setdefault(wanted.name, wanted.limit)
    ticket = ticket_of(state, command, HoldKind.LOCK, list(command.locks))
    ticket.is_several = ticket.is_of_kinds = True
    ticket.beside, ticket.rates = list(command.permits), list(command.rates)
    mark(ticket, command)
    ticket.ttl_ms = command.ttl_ms
    return _ask(state, ticket, command.wait_ms)


def acquire_permits(state: ModelState, command: AcquirePermits) -> Result:
    """Ask for permits. The first request sets the limit."""
    refused = refuse_there(state, command, [command.name])
    if refused is not None:
        return refused
    if command.session_id and state.session(command.session_id) is None:
        return Refused(Reason.SESSION_EXPIRED, "")
    ticket = ticket_of(state, command, HoldKind.SEMAPHORE, [Wanted(command.name)])
    ticket.permits = command.permits
    mark(ticket, command)
    ticket.ttl_ms = command.ttl_ms
    if not any(is_shared(hold, ticket) for hold in state.holds):
        limit = state.limits.get(command.name, command.limit)
        if not limit:
            return Refused(Reason.LIMIT_MISMATCH, "")
        if limit != command.limit if command.is_strict else limit < command.permits:
            return limit_mismatch(state, command.name)
        state.limits[command.name] = limit
    return _ask(state, ticket, command.wait_ms)


def campaign(state: ModelState, command: Campaign) -> Result:
    """Ask to lead, which takes a session."""
    if state.session(command.session_id) is None:
        return Refused(Reason.SESSION_EXPIRED, "")
    ticket = ticket_of(state, command, HoldKind.ELECTION, [Wanted(command.name)])
    ticket.value = command.value
    ticket.if_held = command.if_held or if_held_in(state, [command.name])
    return _ask(state, ticket, command.wait_ms)


def ticket_of(state: ModelState, command: Acquisition, kind: HoldKind, locks: list[Wanted]) -> Ticket:
    """Return the ticket for what a command asks for."""
    session = state.session(command.session_id)
    return Ticket(
        kind=kind,
        ticket_id=command.hold_id,
        attempt_id=command.attempt_id,
        wanted=locks,
        owner=command.owner or (session.owner if session else OwnerName(f"hold-{command.hold_id}")),
        has_owner=bool(command.owner),
        session_id=command.session_id,
        request=key_of(state, command),
        queued_at_ms=state.now_ms,
        deadline_ms=state.now_ms + command.wait_ms,
        created=state.next_created(),
        principal=principal_of_new(state, session),
    )


def _ask(state: ModelState, ticket: Ticket, wait_ms: int) -> Result:
    session = state.session(ticket.session_id)
    if ticket.session_id and session is None:
        return Refused(Reason.SESSION_EXPIRED, "")
    if session is not None:
        for hold in state.holds:
            if is_shared(hold, ticket):
                return have_again(state, hold, ticket)
    too_many = refuse_named(state, "holds", names(ticket), ticket.note, ticket.value) or refuse_named_in(
        state, "holds", names(ticket), ticket
    )
    if too_many is not None:
        return too_many
    if is_grantable(state, ticket):
        return grant_past(state, ticket) if overtakes(state, ticket) else grant(state, ticket)
    refused = refuse_wait(state, ticket) if wait_ms else refuse_now(state, ticket)
    if refused is not None:
        return refused
    enqueue(state, ticket)
    return Queued(ticket.ticket_id, position(state, ticket))


def grant_past(state: ModelState, ticket: Ticket) -> Result:
    """Grant a request at once past those that come behind it, unless some would wait for ever then.

    With it goes what its session waits for and is the same.
    """
    refused = refuse_stuck(state, ticket)
    if refused is not None:
        return refused
    result = grant(state, ticket)
    share(state, ticket)
    state.passed += 1
    return result


def refuse_wait(state: ModelState, ticket: Ticket) -> Refused | None:
    """Return the refusal of a wait that would last for ever, or of one too many."""
    return (
        refuse_stuck(state, ticket)
        or refuse_more(state, "waits")
        or refuse_more_in(state, "waits", names(ticket))
    )


def add_locks(state: ModelState, command: AddLocks) -> Result:
    """Ask for more locks for a hold."""
    hold = state.hold(command.hold_id)
    if hold is None:
        return Refused(Reason.LEASE_EXPIRED, "")
    more = [lock for lock in command.locks if lock not in hold.locks]
    if not _may_change(state, hold):
        return Refused(Reason.INVALID_REQUEST, "")
    if not more:
        return granted(state, hold)
    if any(refused is not None for refused in refuse_together((*hold.locks, *more))):
        return Refused(Reason.INVALID_REQUEST, "")
    of = [lock.name for lock in more]
    too_short = None if hold.session_id or hold.lease is None else refuse_ttl(state, hold.lease.ttl_ms, of)
    endless = refuse_endless(state, of, command.endless_not_for) if hold.lease is None else None
    too_many = refuse_named(state, "holds", of) or refuse_named_in(state, "holds", of, hold)
    not_there = too_short or endless or too_many
    if not_there is not None:
        return not_there
    ticket = Ticket(
        kind=HoldKind.LOCK,
        ticket_id=command.ticket_id,
        attempt_id=command.attempt_id,
        wanted=more,
        owner=hold.owner,
        has_owner=hold.has_owner,
        session_id=hold.session_id,
        request=key_of(state, command),
        queued_at_ms=state.now_ms,
        deadline_ms=state.now_ms + command.wait_ms,
        created=state.next_created(),
        note=hold.note,
        is_several=True,
        adds=hold,
        principal=hold.principal,
    )
    if is_grantable(state, ticket):
        refused = refuse_stuck(state, ticket) if overtakes(state, ticket) else None
        return refused or grant(state, ticket)
    refused = refuse_wait(state, ticket) if command.wait_ms else refuse_now(state, ticket)
    if refused is not None:
        return refused
    enqueue(state, ticket)
    return Queued(ticket.ticket_id, position(state, ticket))


def _may_change(state: ModelState, hold: Hold) -> bool:
    """Whether a hold is of locks alone, and no change of it waits."""
    is_of_locks = hold.kind is HoldKind.LOCK and not hold.is_of_kinds
    return is_of_locks and not any(ticket.changes is hold for ticket in state.tickets)


def change_mode(state: ModelState, command: Convert) -> Result:
    """Ask for another mode of a hold."""
    hold = state.hold(command.hold_id)
    if hold is None:
        return Refused(Reason.LEASE_EXPIRED, "")
    if not _may_change(state, hold):
        return Refused(Reason.INVALID_REQUEST, "")
    modes = [lock.mode for lock in hold.locks]
    if all(mode is command.mode for mode in modes):
        return granted(state, hold)
    if all(command.mode in DOWN[mode] for mode in modes):
        down = convert(state, hold, command.mode)
        serve(state)
        return down
    ticket = Ticket(
        kind=HoldKind.LOCK,
        ticket_id=command.ticket_id,
        attempt_id=command.attempt_id,
        wanted=[],
        owner=hold.owner,
        has_owner=hold.has_owner,
        session_id=hold.session_id,
        request=key_of(state, command),
        queued_at_ms=state.now_ms,
        deadline_ms=state.now_ms + command.wait_ms,
        created=state.next_created(),
        note=hold.note,
        is_several=hold.is_several,
        converts=hold,
        principal=hold.principal,
        to_mode=command.mode,
    )
    if is_grantable(state, ticket):
        result = grant(state, ticket)
        serve(state)
        return result
    refused = refuse_conversion(state, ticket)
    if refused is None:
        refused = refuse_wait(state, ticket) if command.wait_ms else refuse_now(state, ticket)
    if refused is not None:
        return refused
    enqueue(state, ticket)
    return Queued(ticket.ticket_id, position(state, ticket))
