"""How a waiter enters all tables and queues, and leaves them. `queues` tells whose turn it is."""

from collections import OrderedDict
from typing import Final, TypeVar

from lockstate.tables.claim_table import Freed
from lockstate.tables.owners import party_of, wish_of
from lockstate.tables.records import NOTHING, Ticket, permits_in, precedence, stand_in
from lockstate.tables.state import State
from lockstate.words.claims import Claims, parent, permits_of
from lockstate.words.ids import NO_HOLD, HoldId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import CONFLICTS, UNIT, Claim

_LOCK: Final = HoldKind.LOCK
_SEMAPHORE: Final = HoldKind.SEMAPHORE

_Key = TypeVar("_Key")


def add_ticket(state: State, ticket: Ticket, claims: Claims) -> None:
    """Add a waiter to its queues, its session, its node process and the deadlines."""
    state.deadlines.add(ticket)
    state.tickets[ticket.hold_id] = ticket
    if state.owners or state.spaces:
        state.count_ticket(ticket, 1)
    if ticket.rare is not None:
        state.rare_count += 1
        state.ranked_count += ticket.steps != 0
    state.tickets_in_order.add(ticket)
    state.ledger.noted[ticket] = 0
    join_origins(state, ticket)
    state.party_tickets.setdefault(party_of(ticket), {})[ticket.hold_id] = ticket
    if wish := wish_of(ticket):
        of_wish = state.wishes.setdefault(wish, {})
        if state.ranked_count:
            stand_in(of_wish, ticket)
        else:
            of_wish[ticket.hold_id] = ticket
    session = state.sessions.get(ticket.session_id)
    if session is not None:
        session.claims_count += len(claims) or 1
        if session.tickets is NOTHING:
            session.tickets = {}
        session.tickets[ticket.hold_id] = ticket
    if ticket.changes:
        hold = state.holds[ticket.changes]
        state.ledger.change(hold)
        hold.changing = ticket.hold_id
    if ticket.permits:
        _queue_for_permits(state, ticket)
    lane = ticket.lane
    for name, claim in claims:
        _queue_up(state, name, claim, lane, ticket)


def _queue_up(state: State, name: str, claim: Claim, lane: int, ticket: Ticket) -> None:
    lock = state.claimed.record_of(name)
    lock.waiting += UNIT[claim]
    if lock.queues is None:
        lock.queues = {}
        if above := parent(name):
            upper = state.claimed.record_of(above)
            upper.below = upper.below or {}
            upper.below[name] = None
    slot = claim + lane
    queue = lock.queues.get(slot)
    if queue is None:
        queue = lock.queues[slot] = OrderedDict()
    queue[ticket.hold_id] = ticket


def _queue_for_permits(state: State, ticket: Ticket) -> None:
    """Put a ticket into the queues of its semaphores. One of several kinds counts them as a hold does."""
    for name, _ in permits_in(ticket):
        stand_in(state.semaphores[name].queue, ticket)
    if ticket.kind is _LOCK and (session := state.sessions.get(ticket.session_id)) is not None:
        session.claims_count += ticket.permits


def remove_ticket(state: State, ticket: Ticket, claims: Claims) -> Freed:
    """Take a waiter out of its queues, with what was asked for it; return what became free.

    Whose it was stays known: the hold that it waited for is theirs as well.
    """
    del state.tickets[ticket.hold_id]
    if state.owners or state.spaces:
        state.count_ticket(ticket, -1)
    if ticket.rare is not None:
        state.rare_count -= 1
        state.ranked_count -= ticket.steps != 0
    if state.pleas:
        state.pleas.drop_ticket(ticket.order)
    if ask := state.pleas.asks.get(ticket.hold_id):
        state.pleas.drop_ask(ask)
    freed = _leave_permits(state, ticket) if ticket.permits else []
    state.tickets_in_order.remove(ticket)
    state.deadlines.remove(ticket)
    state.ledger.remove(ticket)
    leave_origins(state, ticket)
    _leave(state.party_tickets, party_of(ticket), ticket)
    if wish := wish_of(ticket):
        _leave(state.wishes, wish, ticket)
    session = state.sessions.get(ticket.session_id)
    if session is not None:
        session.claims_count -= len(claims) or 1
        del session.tickets[ticket.hold_id]
    hold = state.holds.get(ticket.changes)
    if hold is not None:
        state.ledger.change(hold)
        hold.changing = NO_HOLD
    lane = ticket.lane
    freed += [left for name, claim in claims if (left := _leave_queue(state, name, claim, lane, ticket))]
    return freed


def _leave_queue(
    state: State, name: str, claim: Claim, lane: int, ticket: Ticket
) -> tuple[str, Claim] | None:
    """Take a ticket out of one queue; return the claim if others may have waited behind it."""
    lock = state.locks[name]
    assert lock.queues is not None, "a ticket stands in its queues"
    lock.waiting -= UNIT[claim]
    slot = claim + lane
    del lock.queues[slot][ticket.hold_id]
    if not lock.queues[slot]:
        del lock.queues[slot]
    if lock.waiting:
        return (name, claim) if lock.waiting & CONFLICTS[claim] else None
    lock.queues = lock.below = None
    upper = state.locks.get(parent(name))
    if upper is not None and upper.below is not None:
        del upper.below[name]
    if not lock.held:
        state.claimed.drop(lock)
    return None


def _leave_permits(state: State, ticket: Ticket) -> Freed:
    """Take a ticket out of the queues of its semaphores; return what others may have waited for behind it."""
    permits = permits_in(ticket)
    for name, _ in permits:
        del state.semaphores[name].queue[ticket.hold_id]
    if ticket.kind is _LOCK and (session := state.sessions.get(ticket.session_id)) is not None:
        session.claims_count -= ticket.permits
    return [permits_of(name) for name, _ in permits]


def join_origins(state: State, ticket: Ticket) -> None:
    """Let a ticket be found under the node processes that keep connections of its clients."""
    for origin in ticket.origins:
        state.origin_tickets.setdefault(origin, {})[ticket.hold_id] = ticket


def leave_origins(state: State, ticket: Ticket) -> None:
    """Let a ticket not be found under them any more."""
    for origin in dict.fromkeys(ticket.origins):
        _leave(state.origin_tickets, origin, ticket)


def twin_of(state: State, ticket: Ticket) -> Ticket | None:
    """Return the first earlier ticket with the same wish, if the two will share a hold."""
    if ticket.kind is _SEMAPHORE:
        return None
    wish = wish_of(ticket)
    first = next(iter(state.wishes.get(wish, NOTHING).values()), None) if wish else None
    return first if first is not None and precedence(first) < precedence(ticket) else None


def _leave(tickets: dict[_Key, dict[HoldId, Ticket]], key: _Key, ticket: Ticket) -> None:
    """Take a ticket out of those of a key, and the key too with the last of them."""
    of_key = tickets[key]
    del of_key[ticket.hold_id]
    if not of_key:
        del tickets[key]
