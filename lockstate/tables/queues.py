"""Whether a request or a waiter can go, and which waiters may be able to go when something has ended.

A waiter can go when no hold and no earlier waiter conflicts with any of its claims; which one is earlier is
said by `records.precedence`. Whether it can go shows on the records that it claims; which waiters to look at
after an end shows on the records that were freed. So neither depends on how many wait.
"""

import heapq
from collections import OrderedDict
from collections.abc import Container, Iterator, Mapping

from lockstate.tables.claim_table import Freed, claims_of_hold
from lockstate.tables.freezes import freeze_of
from lockstate.tables.records import (
    CONVERSION,
    NOTHING,
    RANKED,
    Hold,
    Lock,
    Place,
    Semaphore,
    Ticket,
    last_of,
    permits_in,
    precedence,
)
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.claims import Claims, semaphore_of
from lockstate.words.ids import HoldId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import (
    CLAIMS,
    CONFLICTING,
    CONFLICTS,
    FIELD,
    INTENT,
    INTENTS,
    IS_TREE,
    ROLES_END,
    UNIT,
    Claim,
    Counts,
    conflicting_among,
    is_intent,
    is_tree,
)


def is_free(state: State, claims: Claims) -> bool:
    """Whether a newcomer can have all of `claims` at once: nothing is in the way of any.

    That is a hold, a delay or a waiter that conflicts with it, or a freeze.
    """
    if state.freezes and freeze_of(state.freezes, claims) is not None:
        return False
    locks = state.locks
    for name, claim in claims:
        lock = locks.get(name)
        if IS_TREE[claim] and state.intents.get(name, 0) & CONFLICTS[claim]:
            return False
        if lock is None:
            continue
        if (lock.held | lock.waiting) & CONFLICTS[claim] or (claim % ROLES_END < INTENT and _is_full(lock)):
            return False
    return True


def can_go(  # noqa: C901 - asked of every waiter
    state: State, ticket: Ticket, claims: Claims, ended: Mapping[HoldId, Hold] = NOTHING
) -> bool:
    """Whether nothing that comes before `ticket` is in its way. The ticket may or may not be queued yet.

    What the holds in `ended` claim, and waits for changes of them, do not count.
    """
    if state.freezes and freeze_of(state.freezes, claims, permits_in(ticket)) is not None:
        return False
    if ticket.kind is HoldKind.SEMAPHORE:
        return True  # `candidates` yields only tickets for which there are permits
    if ticket.permits and not _are_permits_there(state, ticket):
        return False
    own: dict[str, Counts] = {}
    if ticket.is_conversion:
        for name, claim in claims_of_hold(state.holds[ticket.changes]):
            own[name] = own.get(name, 0) + UNIT[claim]
    for hold in ended.values():
        for name, claim in claims_of_hold(hold):
            own[name] = own.get(name, 0) + UNIT[claim]
    for name, claim in claims:
        if (state.claimed.held_on(name) - own.get(name, 0)) & CONFLICTS[claim]:
            return False
        lock = state.locks.get(name)
        if lock is None:
            continue  # nobody waits for it yet, and neither does the ticket, which is not queued
        if not own and claim % ROLES_END < INTENT and _is_full(lock):
            return False
        if lock.waiting & CONFLICTS[claim] and is_behind(lock, claim, ticket, ended):
            return False
    return True


def _are_permits_there(state: State, ticket: Ticket) -> bool:
    """Whether nobody comes before a ticket of several kinds at any semaphore, and there are the permits."""
    place = precedence(ticket)
    for name, count in permits_in(ticket):
        semaphore = state.semaphores[name]
        first = next(iter(semaphore.queue.values()), ticket)
        if precedence(first) < place or semaphore.used + count > semaphore.limit:
            return False
    return True


def _is_full(lock: Lock) -> bool:
    """Whether a name has so many holders that nobody more can have it. What is below has its own room."""
    return lock.holders_count >= limits.HOLDERS_COUNT_MAX


def is_behind(lock: Lock, claim: Claim, ticket: Ticket, ended: Mapping[HoldId, Hold] = NOTHING) -> bool:
    """Whether an earlier ticket on this record is in the way of `ticket`; none of a change of `ended` is."""
    assert lock.queues is not None, "a ticket waits in a queue"
    place, in_the_way = precedence(ticket), CONFLICTING[claim]
    for slot, queue in lock.queues.items():
        if slot % CONVERSION not in in_the_way:
            continue
        first = next(iter(queue.values()))
        if ended and first.changes in ended:
            first = next((other for other in queue.values() if other.changes not in ended), ticket)
        if precedence(first) < place:
            return True
    return False


def overtakes(state: State, ticket: Ticket) -> bool:
    """Whether `ticket`, which is not queued yet, comes before anybody who would have to wait for it then.

    This is not asked of conversions: what those wait for who are overtaken by one is held by it already.
    """
    if not (ticket.steps or state.ranked_count):
        return False
    place = precedence(ticket)
    for name, _ in permits_in(ticket) if ticket.permits else ():
        queue = state.semaphores[name].queue
        if queue and place < precedence(last_of(queue)):
            return True
    if ticket.is_conversion:
        return False
    # Two of the default priority never overtake each other.
    first_lane = 0 if ticket.steps else RANKED
    for name, claim in claims_of_hold(ticket):
        lock = state.locks.get(name)
        if lock is not None and lock.waiting & CONFLICTS[claim]:
            for slot, queue in (lock.queues or {}).items():
                is_in_the_way = slot >= first_lane and slot % CONVERSION in CONFLICTING[claim]
                if is_in_the_way and place < precedence(last_of(queue)):
                    return True
    return False


def candidates(state: State, freed: Freed) -> Iterator[Ticket]:
    """Yield the tickets that may be able to go since `freed` ended, in the order in which they may go.

    The caller lets a ticket through, or leaves it, before it asks for the next one. What it adds to `freed`
    meanwhile counts as well: who goes may have stood in the way of one that came before the next.
    """
    fronts: list[tuple[Place, int, Ticket, Iterator[Ticket]]] = []
    seen, number = 0, 0
    while True:
        while seen < len(freed):
            for front in _fronts(state, *freed[seen]):
                first = next(front, None)
                if first is not None:
                    heapq.heappush(fronts, (precedence(first), number, first, front))
                    number += 1
            seen += 1
        if not fronts:
            return
        _, place, ticket, front = heapq.heappop(fronts)
        yield ticket
        following = next(front, None)
        if following is not None:
            heapq.heappush(fronts, (precedence(following), place, following, front))


def _fronts(state: State, name: str, claim: Claim) -> Iterator[Iterator[Ticket]]:
    """Yield the tickets that may be able to go since one claim ended, each sequence in order."""
    if semaphore := state.semaphores.get(semaphore_of(name)):
        yield _fitting(semaphore)
    lock = state.locks.get(name)
    if lock is not None and lock.waiting & CONFLICTS[claim]:
        yield from _at(state, lock, conflicting_among(lock.waiting, claim))
        if is_tree(claim):
            yield from _below(state, lock)


def _fitting(semaphore: Semaphore) -> Iterator[Ticket]:
    """Yield the first tickets of a semaphore's queue while there are permits for them; nobody overtakes.

    One of several kinds that something else is in the way of keeps those behind it waiting.
    """
    while semaphore.queue:
        ticket = next(iter(semaphore.queue.values()))
        permits = ticket.permits
        if ticket.kind is not HoldKind.SEMAPHORE:
            permits = dict(permits_in(ticket))[semaphore.name]
        if semaphore.used + permits > semaphore.limit:
            return
        yield ticket
        if ticket.hold_id in semaphore.queue:
            return


def _at(state: State, lock: Lock, claims: Container[Claim]) -> Iterator[Iterator[Ticket]]:
    """Yield the tickets for this very name with one of `claims`, as far as this record lets them through."""
    queues = lock.queues
    assert queues is not None, "somebody waits"
    held = state.claimed.held_on(lock.name)
    for slot, queue in queues.items():
        claim = slot % CONVERSION
        # A conversion whatever is held: the hold that is to be converted is itself among what is held.
        is_let = slot - claim == CONVERSION or not held & CONFLICTS[claim]
        if is_let and claim in claims and not is_intent(claim):
            yield _front(lock, claim, queue)


def _front(lock: Lock, claim: Claim, queue: OrderedDict[HoldId, Ticket]) -> Iterator[Ticket]:
    """Yield the tickets of a queue that no ticket of another queue is in the way of.

    When a ticket for a single lock cannot go, no ticket behind it that wants the same can; but of two
    conversions the first may be held up by the very hold that the second converts.
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
    behind = list(queue.values())[1:] if ticket.locks or ticket.changes else []
    for ticket in behind:
        if is_behind(lock, claim, ticket):
            return
        yield ticket
        if not (ticket.locks or ticket.changes) and ticket.hold_id in queue:
            return


def _lets_through(lock: Lock, intent: Claim) -> bool:
    """Whether the first ticket that waits below with this intent has nothing in its way here."""
    is_held = lock.held & CONFLICTS[intent]
    first = [
        next(iter(queue.values()))
        for slot, queue in (lock.queues or {}).items()
        if slot % CONVERSION == intent and (slot - intent == CONVERSION or not is_held)
    ]
    return any(not is_behind(lock, intent, ticket) for ticket in first)


def _below(state: State, lock: Lock) -> Iterator[Iterator[Ticket]]:
    """Yield the tickets for names below that of `lock`, in the modes that this record lets through."""
    let_through = [intent for intent in INTENTS if _lets_through(lock, intent)]
    wanted = sum([FIELD[claim] for intent in let_through for claim in (intent, intent - 3, intent - 6)])
    names = list(lock.below or ()) if let_through else []
    while names:
        below = state.locks[names.pop()]
        if below.waiting & wanted:
            yield from _at(state, below, CLAIMS)
            names += below.below or ()
