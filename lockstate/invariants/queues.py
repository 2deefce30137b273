"""Sentences about waiters: whose turn it is, and in which queues they stand."""

from collections import Counter
from itertools import pairwise

from lockstate.tables.claim_table import claims_of_hold
from lockstate.tables.queues import can_go
from lockstate.tables.records import permits_in, precedence
from lockstate.tables.state import State
from lockstate.words.claims import parent
from lockstate.words.kinds import HoldKind


def nobody_waits_in_vain(state: State) -> None:
    """A waiter that no hold, no earlier waiter, no delay and no freeze is in the way of was let through."""
    for ticket in state.tickets.values():
        if ticket.kind is HoldKind.SEMAPHORE:
            semaphore = state.semaphores[ticket.name]
            is_first = next(iter(semaphore.queue.values())) is ticket
            fits = semaphore.used + ticket.permits <= semaphore.limit and can_go(state, ticket, ())
            assert not (is_first and fits), f"{ticket.name}: the first waiter could have its permits"
        else:
            assert not can_go(state, ticket, claims_of_hold(ticket)), (
                f"waiter {ticket.order} could be granted"
            )


def queues_are_right(state: State) -> None:
    """Every ticket stands once in the queue of each of its claims, in order, and can be found from above."""
    queued = Counter[tuple[str, int, str]]()
    for lock in state.claimed.records():
        for slot, queue in (lock.queues or {}).items():
            places = [precedence(ticket) for ticket in queue.values()]
            assert places, f"{lock.name}: an empty queue is remembered"
            assert all(a < b for a, b in pairwise(places)), f"{lock.name}: out of order"
            queued.update((lock.name, slot, hold_id) for hold_id in queue)
        for name in lock.below or ():
            assert state.locks[name].waiting, f"{lock.name}: nobody waits at {name}"
        above = state.locks.get(parent(lock.name))
        if lock.waiting and above is not None:
            assert lock.name in (above.below or ()), f"{lock.name}: not to be found from above"
    wanted = Counter(
        (name, claim + ticket.lane, ticket.hold_id)
        for ticket in state.tickets.values()
        for name, claim in claims_of_hold(ticket)
    )
    assert queued == wanted, "queues and tickets disagree"
    tables = [semaphore.queue for semaphore in state.semaphores.values()]
    for table in (*tables, *state.wishes.values()):
        places = [precedence(ticket) for ticket in table.values()]
        assert all(a < b for a, b in pairwise(places)), "permits or wishes: out of order"


def priorities_are_of_tickets(state: State) -> None:
    """No change of a hold, and no wait for an election, has a priority; those that have one are counted."""
    for ticket in state.tickets.values():
        assert not (ticket.changes and ticket.steps), "a change of a hold has a priority"
        assert not (ticket.kind is HoldKind.ELECTION and ticket.steps), "elections know no priorities"
    ranked_count = sum(ticket.steps != 0 for ticket in state.tickets.values())
    assert state.ranked_count == ranked_count, f"counted {state.ranked_count} tickets with a priority"


def permits_are_queued_for_in_order(state: State) -> None:
    """Every ticket stands in the queues of the semaphores it wants, and holders by token."""
    wanted = sorted(
        [(name, precedence(ticket)) for ticket in state.tickets.values() for name, _ in permits_in(ticket)]
    )
    held = sorted([(name, hold.token) for hold in state.holds.values() for name, _ in permits_in(hold)])
    semaphores = sorted(state.semaphores.values(), key=lambda semaphore: semaphore.name)
    queued = [(one.name, precedence(ticket)) for one in semaphores for ticket in one.queue.values()]
    assert queued == wanted, f"permits: {queued} are queued, {wanted} are wanted"
    holders = [(one.name, hold.token) for one in semaphores for hold in one.holders.values()]
    assert holders == held, f"permits: {holders} are holders, {held} are held"
