"""How requests wait, and how they are let through when it is their turn."""

from typing import Final

from lockstate.reads import places
from lockstate.rules import deadlocks
from lockstate.rules.effects import Effects
from lockstate.rules.holds import changes, ends, grants, reentry
from lockstate.rules.refusals import refused_for
from lockstate.tables.claim_table import Freed, claims_of_hold
from lockstate.tables.queues import can_go, candidates
from lockstate.tables.records import Ask, Ticket, hold_of, names_of, permits_in
from lockstate.tables.state import State
from lockstate.tables.tickets import add_ticket, remove_ticket
from lockstate.words import limits
from lockstate.words.claims import Claims, permits_of, semaphore_of
from lockstate.words.events import EventKind, Left
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, Queued

PLACES_PER_LOOK: Final = 4
"""Places of rate limits that are counted anew in the time in which one holder or waiter is looked at."""


def check_passing(state: State, ticket: Ticket) -> Refused | None:
    """Refuse a grant by which some of those that wait behind it would wait for ever."""
    cycle = deadlocks.find(state, ticket)
    return None if cycle is None else refused_for(cycle)


def pass_by(effects: Effects, ticket: Ticket, claims: Claims) -> Granted | Refused:
    """Grant at once what only later waiters are in the way of, unless some would wait for ever then.

    The session may be among them with the same wish, which is granted with it.
    """
    refused = check_passing(effects.state, ticket)
    if refused is not None:
        return refused
    hold = hold_of(ticket, effects.state.now_ms)
    granted = grants.begin(effects, hold, claims, 0)
    reentry.share(effects, hold, claims)
    return granted


def wait(effects: Effects, ticket: Ticket, claims: Claims, wait_ms: int) -> Queued | Refused:
    """Queue a ticket that cannot go at once, unless it would wait for ever or there is no room."""
    state = effects.state
    ticket.order, ticket.expires_at_ms = state.take_order(), state.now_ms + wait_ms
    cycle = deadlocks.find(state, ticket)
    if cycle is not None:
        return refused_for(cycle)
    refused = (
        limits.check_count(len(state.tickets), limits.TICKETS_COUNT_MAX, "waiters")
        or limits.check_count(len(state.claimed), limits.RECORDS_COUNT_MAX, "names")
        or state.principals.check("waits")
        or (state.namespaces.check("waits", names_of(ticket)) if state.spaces else None)
    )
    if refused is not None:
        return refused
    queue_length = _queue_length(state, ticket, claims)
    if queue_length >= limits.QUEUE_LENGTH_MAX:
        detail = f"{queue_length} wait already; no more are allowed"
        return Refused(Reason.QUEUE_FULL, detail, (), queue_length, limits.RETRY_MS)
    position = places.newcomer_position(state, ticket, claims, queue_length)
    ticket.origin = state.asking
    add_ticket(state, ticket, claims)
    if (asks := ticket.details.asks) is not None:
        state.pleas.enter_ask(Ask(state.take_order(), state.now_ms + asks.ask_after_ms, ticket.hold_id))
    effects.tell(EventKind.QUEUED, ticket, 0)
    return Queued(ticket.hold_id, position)


def _queue_length(state: State, ticket: Ticket, claims: Claims) -> int:
    if not ticket.permits:
        return places.queue_length(state, claims)
    queues = [len(state.semaphores[name].queue) for name, _ in permits_in(ticket)]
    return max([*queues, places.queue_length(state, claims)])


def serve(effects: Effects, freed: Freed) -> None:
    """Let through, in order of arrival, every waiter that nothing is in the way of any more."""
    state = effects.state
    if state.rates.stale:
        state.searched_count += state.rates.settle(state.now_ms) // PLACES_PER_LOOK
    if len(freed) == 1:
        semaphore = state.semaphores.get(semaphore_of(freed[0][0]))
        if semaphore is not None and not semaphore.queue:
            state.drop_if_idle(semaphore)  # the same as below, without the calls
            return
    for ticket in candidates(state, freed):
        if ticket.hold_id not in state.tickets:
            continue  # it waited for several locks, and went when another of them was looked at
        claims = claims_of_hold(ticket)
        if not can_go(state, ticket, claims):
            continue
        if ticket.permits and ticket.is_of_kinds:
            freed += _let_several_through(effects, ticket, claims)
        else:
            freed += _let_through(effects, ticket, claims)
    _drop_idle(state, freed)


def _drop_idle(state: State, ended: Freed) -> None:
    """Forget the semaphores of what has ended that nobody uses any more."""
    for name, _ in ended:
        if semaphore := state.semaphores.get(semaphore_of(name)):
            state.drop_if_idle(semaphore)


def _let_through(effects: Effects, ticket: Ticket, claims: Claims) -> Freed:
    """End a wait with a grant; return what became free, which only a conversion can cause."""
    state = effects.state
    remove_ticket(state, ticket, claims)
    if ticket.changes:
        hold, freed = state.holds[ticket.changes], []
        number = ticket.order
        if ticket.is_addition:
            changes.add(effects, hold, ticket.locks, state.now_ms - ticket.since_ms, number)
        else:
            freed = changes.convert(effects, hold, ticket.mode, ticket.locks, claims, ticket=number)
        effects.settle(ticket, grants.grant_of(state, hold))
        return freed
    hold = hold_of(ticket, state.now_ms)
    waited_ms = state.now_ms - ticket.since_ms
    effects.settle(ticket, grants.begin(effects, hold, claims, waited_ms, ticket.order))
    reentry.share(effects, hold, claims)
    return []


def _let_several_through(effects: Effects, ticket: Ticket, claims: Claims) -> Freed:
    """End a wait for several kinds: with a grant, or a refusal if a rate limit has no place in time.

    Return what it does not keep any more: its places in the queues, or all that it stood in the way of.
    """
    state = effects.state
    taken = grants.take_rates(state, ticket, ticket.details.rates, ticket.expires_at_ms - state.now_ms)
    if isinstance(taken, Refused):
        is_other = taken.reason is Reason.LIMIT_MISMATCH
        return ends.end_wait(effects, ticket, Left.LIMIT_MISMATCH if is_other else Left.RATE_LIMITED, taken)
    remove_ticket(state, ticket, claims)
    waited_ms = state.now_ms - ticket.since_ms
    hold = hold_of(ticket, state.now_ms)
    effects.settle(ticket, grants.begin_several(effects, hold, claims, taken, waited_ms, ticket=ticket.order))
    return [permits_of(name) for name, _ in permits_in(ticket)]
