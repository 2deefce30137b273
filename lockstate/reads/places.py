"""Places in queues, and the lock-delays that are in the way."""

from collections.abc import Iterator
from typing import Final

from lockstate.tables.blockers import names_below
from lockstate.tables.claim_table import claims_of_hold
from lockstate.tables.records import Delay, Ticket, permits_in, place_among
from lockstate.tables.state import State
from lockstate.words.claims import Claims, ancestors
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Scope, is_intent, is_tree

POSITION_QUEUE_MAX: Final = 1000
"""Waits in a queue up to which one whose time is over is told its place: finding it looks at all of them."""


def position(state: State, ticket: Ticket) -> int:
    """Return the place of a ticket in its queue, from 1; of several queues, the place furthest behind."""
    names = [name for name, claim in claims_of_hold(ticket) if not is_intent(claim)]
    places = [state.locks[name].place_of(ticket) for name in names]
    queues = [state.semaphores[name].queue for name, _ in permits_in(ticket)]
    return max(places + [place_among(queue, ticket) + 1 for queue in queues])


def last_position(state: State, ticket: Ticket) -> int:
    """Return the place of a ticket whose time is over, 0 if that is too costly to find for a hint."""
    names = [name for name, claim in claims_of_hold(ticket) if not is_intent(claim)]
    longest = max(
        [state.locks[name].queue_length for name in names]
        + [len(state.semaphores[name].queue) for name, _ in permits_in(ticket)]
    )
    return position(state, ticket) if longest <= POSITION_QUEUE_MAX else 0


def newcomer_position(state: State, ticket: Ticket, claims: Claims, queue_length: int) -> int:
    """Return the place that a ticket is about to get. Conversions stand ahead of all others.

    `queue_length` is how many wait already, in the longest of its queues.
    """
    if ticket.kind is HoldKind.SEMAPHORE:
        return place_among(state.semaphores[ticket.name].queue, ticket) + 1
    if not (ticket.is_conversion or ticket.steps or state.ranked_count):
        return queue_length + 1
    queues = [state.semaphores[name].queue for name, _ in permits_in(ticket)] if ticket.permits else []
    names = [name for name, claim in claims if not is_intent(claim)]
    if not ticket.is_conversion:
        places = [place_among(queue, ticket) + 1 for queue in queues]
        records = [state.locks.get(name) for name in names]
        return max(places + [lock.place_of(ticket) if lock is not None else 1 for lock in records])
    return max(state.locks[name].conversions_count for name in names) + 1


def queue_length(state: State, claims: Claims) -> int:
    """Return how many wait for one of the very names in `claims`: for the one with the longest queue."""
    records = [state.locks.get(name) for name, claim in claims if not is_intent(claim)]
    return max([lock.queue_length if lock is not None else 0 for lock in records], default=0)


def delays_ms(state: State, claims: Claims) -> list[int]:
    """Return the milliseconds left of the delays that are in the way of `claims`."""
    delays: list[Delay] = []
    for name, claim in claims:
        if not is_intent(claim):
            delays += _delays(state, name)
            if is_tree(claim):
                delays += _delays_below(state, name)
    return [delay.expires_at_ms - state.now_ms for delay in delays]


def is_delayed(state: State, name: str) -> bool:
    """Whether a lock-delay covers `name`."""
    return bool(_delays(state, name))


def _delays(state: State, name: str) -> list[Delay]:
    """Return the delays that cover `name`."""
    if not state.delays:
        return []
    keys = [(name, Scope.NODE), *[(above, Scope.SUBTREE) for above in (name, *ancestors(name))]]
    return [state.delays[key] for key in keys if key in state.delays]


def _delays_below(state: State, name: str) -> Iterator[Delay]:
    """Yield the delays of the names below `name`, looking at a limited number of names."""
    for below in names_below(state, name) if state.delays else ():
        for scope in Scope:
            if delay := state.delays.get((below, scope)):
                yield delay
