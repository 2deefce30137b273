"""How a hold ends, and how a wait ends without a grant."""

from typing import Final

from lockstate.reads import held, places
from lockstate.rules.effects import Effects
from lockstate.rules.refusals import LEASE_EXPIRED, in_the_way
from lockstate.tables.claim_table import Freed, claims_of_hold
from lockstate.tables.delays import set_delay, withhold_permits
from lockstate.tables.holds import remove_hold
from lockstate.tables.records import Hold, Ticket, each_lock, permits_in
from lockstate.tables.state import State
from lockstate.tables.tickets import remove_ticket
from lockstate.words.events import Event, EventKind, Left
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Refused

_SEMAPHORE: Final = HoldKind.SEMAPHORE
_ELECTION: Final = HoldKind.ELECTION
_EXPIRED: Final = EventKind.EXPIRED
_FORCED: Final = EventKind.FORCED
_RELEASED: Final = EventKind.RELEASED
"""Members under names of this module: looking one up in its enumeration costs more than making an event."""

_LEAVE_DELAYS: Final = (_EXPIRED, _FORCED)
"""The ends that a hold's lock-delay follows."""


def end(effects: Effects, hold: Hold, kind: EventKind, reason: str = "", delay_ms: int = 0) -> Freed:
    """End a hold, record the event, and return what became free.

    A hold that its holder did not end leaves a lock-delay: the longer of its own and of the force's.
    """
    state = effects.state
    principal = state.principals.of(hold) if state.owners else ""
    by = state.principals.asking if kind is _FORCED else ""
    if hold.changing:
        freed = end_wait(effects, state.tickets[hold.changing], Left.LEASE_EXPIRED, LEASE_EXPIRED)
        freed += remove_hold(state, hold)
    else:
        freed = remove_hold(state, hold)
    delay_ms = max(hold.details.lock_delay_ms, delay_ms)
    if delay_ms and kind in _LEAVE_DELAYS:
        for lock in each_lock(hold) if hold.kind is not _SEMAPHORE else ():
            set_delay(state, lock.name, lock.scope, delay_ms, principal)
        for name, count in permits_in(hold):
            withhold_permits(state, name, count, delay_ms, principal)
    if kind is _RELEASED and hold.kind is _ELECTION:
        kind = EventKind.RESIGNED
    if not hold.name:
        effects.tell(kind, hold, state.now_ms - hold.since_ms, reason)
        _disown(state, hold)
        return freed
    effects.events.append(
        Event(
            state.revision,
            state.now_ms,
            kind,
            hold.name,
            hold.mode,
            hold.owner,
            hold.token,
            hold.session_id or hold.hold_id,
            state.now_ms - hold.since_ms,
            reason,
            hold.kind,
            hold.scope,
            hold.permits,
            held.told_value(hold),
            0,
            0,
            principal,
            by,
        )
    )
    if principal:
        _disown(state, hold)
    return freed


def end_wait(effects: Effects, ticket: Ticket, why: Left, refusal: Refused | None = None) -> Freed:
    """End a wait with a refusal, by default one that says what is in the way; return what became free."""
    state = effects.state
    claims, permits = claims_of_hold(ticket), permits_in(ticket)
    position = places.last_position(state, ticket) if why is Left.TIMED_OUT else 0
    freed = remove_ticket(state, ticket, claims)
    effects.settle(ticket, refusal or in_the_way(state, claims, permits, (ticket.changes,)), position)
    effects.tell_left(ticket, why)
    if state.owners:
        _disown(state, ticket)
    return freed


def _disown(state: State, record: Hold | Ticket) -> None:
    """Forget whose something was that is gone, unless it was its session's or only a change."""
    if not record.session_id and not (isinstance(record, Ticket) and record.changes):
        state.principals.drop(record.hold_id)
