"""Whether a request or a waiter can go, and which waiters may be able to go when something has ended.

A waiter can go when no hold and no earlier waiter conflicts with any of its claims. Whether that is so shows
on the records that it claims; which waiters to look at after an end shows on the records that were freed. So
neither depends on how many wait.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import chain

from lockstate import limits
from lockstate.claims import Claims, semaphore_of
from lockstate.ids import HoldId
from lockstate.modes import (
    CLAIMS,
    CONFLICTING,
    CONFLICTS,
    FIELD,
    INTENTS,
    UNIT,
    Claim,
    Counts,
    is_intent,
    is_tree,
)
from lockstate.records import CONVERSION, Lock, Semaphore, Ticket, precedence
from lockstate.results import HoldKind
from lockstate.state import Freed, State, claims_of_hold


def is_free(state: State, claims: Claims) -> bool:
    """Whether a newcomer can have all of `claims` at once: no hold, delay or waiter conflicts with any."""
    locks = state.locks
    for name, claim in claims:
        lock = locks.get(name)
        if lock is not None and ((lock.held | lock.waiting) & CONFLICTS[claim] or _is_full(lock, claim)):
            return False
    return True


def can_go(state: State, ticket: Ticket, claims: Claims) -> bool:
    """Whether nothing that came before `ticket` is in its way. The ticket may or may not be queued yet."""
    if ticket.kind is HoldKind.SEMAPHORE:
        return True  # `candidates` yields only tickets for which there are permits
    own: dict[str, Counts] = {}
    if ticket.converts:
        for name, claim in claims_of_hold(state.holds[ticket.converts]):
            own[name] = own.get(name, 0) + UNIT[claim]
    for name, claim in claims:
        lock = state.locks[name]
        if (lock.held - own.get(name, 0)) & CONFLICTS[claim] or (not own and _is_full(lock, claim)):
            return False
        if lock.waiting & CONFLICTS[claim] and is_behind(lock, claim, ticket):
            return False
    return True


def _is_full(lock: Lock, claim: Claim) -> bool:
    return lock.holders_count >= limits.HOLDERS_COUNT_MAX and not is_intent(claim)


def earlier_queues(lock: Lock, claim: Claim, ticket: Ticket) -> Iterator[OrderedDict[HoldId, Ticket]]:
    """Yield the queues of `lock` whose first ticket is one that `ticket` has to wait for."""
    assert lock.queues is not None, "a ticket waits in a queue"
    for other in CONFLICTING[claim]:
        for slot in (other + CONVERSION, other):
            queue = lock.queues.get(slot)
            if queue and precedence(next(iter(queue.values()))) < precedence(ticket):
                yield queue


def is_behind(lock: Lock, claim: Claim, ticket: Ticket) -> bool:
    """Whether an earlier ticket on this record is in the way of `ticket`."""
    return next(earlier_queues(lock, claim, ticket), None) is not None


def candidates(state: State, freed: Freed) -> Iterator[Ticket]:
    """Yield the tickets that may be able to go since `freed` ended, in the order in which they may go.

    The caller lets a ticket through, or leaves it, before it asks for the next one.
    """
    fronts: list[Iterator[Ticket]] = []
    for name, claim in freed:
        if semaphore := state.semaphores.get(semaphore_of(name)):
            fronts.append(_fitting(semaphore))
        lock = state.locks.get(name)
        if lock is not None and lock.waiting & CONFLICTS[claim]:
            fronts += _at(lock, CONFLICTING[claim])
            if is_tree(claim):
                fronts += _below(state, lock)
    return heapq.merge(*fronts, key=precedence) if len(fronts) > 1 else chain.from_iterable(fronts)


def _fitting(semaphore: Semaphore) -> Iterator[Ticket]:
    """Yield the first tickets of a semaphore's queue while there are permits for them; nobody overtakes."""
    while semaphore.queue:
        ticket = next(iter(semaphore.queue.values()))
        if semaphore.used + ticket.permits > semaphore.limit:
            return
        yield ticket


def _at(lock: Lock, claims: Iterable[Claim]) -> Iterator[Iterator[Ticket]]:
    """Yield the tickets for this very name with one of `claims`, as far as this record lets them through."""
    queues = lock.queues
    assert queues is not None, "somebody waits"
    for claim in claims:
        if is_intent(claim):
            continue
        converting, waiting = queues.get(claim + CONVERSION), queues.get(claim)
        if converting:
            # Whatever is held: the hold that is to be converted is itself among what is held.
            yield _front(lock, claim, converting)
        if waiting and not lock.held & CONFLICTS[claim]:
            yield _front(lock, claim, waiting)


def _front(lock: Lock, claim: Claim, queue: OrderedDict[HoldId, Ticket]) -> Iterator[Ticket]:
    """Yield the tickets of a queue that no ticket of another queue is in the way of.

    When a ticket for a single lock cannot go, no ticket behind it that wants the same can.
    """
    if claim in CONFLICTING[claim]:
        yield next(iter(queue.values()))
        return
    while queue:
        ticket = next(iter(queue.values()))
        if is_behind(lock, claim, ticket):
            return
        yield ticket
        if ticket.hold_id in queue:
            break
    else:
        return
    behind = list(queue.values())[1:] if ticket.locks else []
    for ticket in behind:
        if is_behind(lock, claim, ticket):
            return
        yield ticket
        if not ticket.locks and ticket.hold_id in queue:
            return


def _lets_through(lock: Lock, intent: Claim) -> bool:
    """Whether the first ticket that waits below with this intent has nothing in its way here."""
    queues = lock.queues or {}
    waiting = queues.get(intent) if not lock.held & CONFLICTS[intent] else None
    first = [next(iter(queue.values())) for queue in (waiting, queues.get(intent + CONVERSION)) if queue]
    return any(not is_behind(lock, intent, ticket) for ticket in first)


def _below(state: State, lock: Lock) -> Iterator[Iterator[Ticket]]:
    """Yield the tickets for names below that of `lock`, in the modes that this record lets through."""
    let_through = [intent for intent in INTENTS if _lets_through(lock, intent)]
    wanted = sum([FIELD[claim] for intent in let_through for claim in (intent, intent - 3, intent - 6)])
    names = list(lock.below or ()) if let_through else []
    while names:
        below = state.locks[names.pop()]
        if below.waiting & wanted:
            yield from _at(below, CLAIMS)
            names += below.below or ()
