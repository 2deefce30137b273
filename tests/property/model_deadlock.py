"""Which tickets can never be served in the model, and whether a named cycle is a real one.

At first every ticket is taken to be stuck. A ticket is not stuck if it could be served once all parties
without a stuck ticket gave up everything they have or get. When that frees no other ticket, the rest is
stuck.
"""

import re
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from lockstate.words.ids import HoldId, OwnerName
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import CycleView, Reason, Refused
from tests.property.model_locks import (
    Part,
    conflict,
    holds_in_the_way,
    is_the_same,
    overtakes,
    parts,
    parts_of,
    permits_of,
    tickets_ahead,
    tickets_in_the_way,
    twin,
)
from tests.property.model_records import Edge, Hold, ModelState, Party, Ticket


def party(thing: Hold | Ticket) -> Party:
    """Return the party that holds or waits: without a session this one alone; a change is its hold's."""
    if thing.session_id:
        return thing.session_id, thing.owner
    of = thing.changes if isinstance(thing, Ticket) and thing.changes is not None else thing
    return "no session", of.hold_id if isinstance(of, Hold) else of.ticket_id


def tickets_needed(state: ModelState, ticket: Ticket) -> list[Ticket]:
    """Return the tickets that must be served before this one: its twin, or those ahead of it."""
    first = twin(state, ticket)
    if first is not None:
        return [first]
    needed = [] if ticket.kind is HoldKind.SEMAPHORE else tickets_in_the_way(state, ticket)
    for part in parts_of(ticket, HoldKind.SEMAPHORE):
        needed += [t for t in tickets_ahead(state, ticket, part.name) if t not in needed]
    return needed


def to_be_given_back(state: ModelState, ticket: Ticket) -> list[Hold | Ticket]:
    """Return what keeps this ticket waiting: what is held, or will be before it is its turn."""
    every = locks_to_be_given_back(state, ticket)
    for part in parts_of(ticket, HoldKind.SEMAPHORE):
        every += [item for item in permits_to_be_given_back(state, ticket, part.name) if item not in every]
    return every


def locks_to_be_given_back(state: ModelState, ticket: Ticket) -> list[Hold | Ticket]:
    """Return what keeps it from everything but permits: all of it. Two that ask for the same get one hold."""
    if twin(state, ticket) is not None or ticket.kind is HoldKind.SEMAPHORE:
        return []
    queued = [t for t in tickets_in_the_way(state, ticket) if twin(state, t) is None]
    return holds_in_the_way(state, ticket) + queued


def permits_to_be_given_back(state: ModelState, ticket: Ticket, name: str) -> list[Hold | Ticket]:
    """Return what has, or will have, permits of a semaphore: any of them may have those that are missing."""
    if twin(state, ticket) is not None:
        return []
    queued = [t for t in tickets_ahead(state, ticket, name) if twin(state, t) is None]
    return [h for h in state.holds if permits_of(h, name)] + queued


def keepers(state: ModelState, thing: Hold | Ticket) -> list[Ticket]:
    """Return the tickets that something is kept for: those of its party."""
    return [ticket for ticket in state.tickets if party(ticket) == party(thing)]


class Wait(NamedTuple):
    """What one ticket waits for: tickets, and things, each with the tickets that it is kept for.

    All of `kept` must be given back, and enough of the permits of each semaphore in `pools`. Who is ahead in
    its queue must be served whatever it wants, as one of `needed`: there only what others keep of it counts.
    """

    ticket: Ticket
    needed: list[Ticket]
    kept: list[tuple[Hold | Ticket, list[Ticket]]]
    pools: dict[str, list[tuple[Hold | Ticket, list[Ticket]]]]


def waits(state: ModelState) -> list[Wait]:
    """Return what each ticket waits for."""
    return [
        Wait(
            t,
            tickets_needed(state, t),
            [(item, keepers(state, item)) for item in locks_to_be_given_back(state, t)],
            {
                part.name: [
                    (item, [keeper for keeper in keepers(state, item) if keeper is not item])
                    for item in permits_to_be_given_back(state, t, part.name)
                ]
                for part in parts_of(t, HoldKind.SEMAPHORE)
            },
        )
        for t in state.tickets
    ]


def is_blocked_by(state: ModelState, wait: Wait, stuck: list[HoldId]) -> bool:
    """Whether a ticket cannot be served as long as the `stuck` are not and keep what they have."""
    if any(other.ticket_id in stuck for other in wait.needed):
        return True
    if any(other.ticket_id in stuck for _, tickets in wait.kept for other in tickets):
        return True
    return any(lacks_permits(state, wait, name, stuck) for name in wait.pools)


def lacks_permits(state: ModelState, wait: Wait, name: str, stuck: list[HoldId]) -> bool:
    """Whether there are too few permits of a semaphore for a ticket as long as the `stuck` keep theirs."""
    kept = [
        thing for thing, tickets in wait.pools[name] if any(other.ticket_id in stuck for other in tickets)
    ]
    left = state.limits[name] - sum(permits_of(thing, name) for thing in kept)
    return left < permits_of(wait.ticket, name)


def stuck_waits(state: ModelState) -> list[Wait]:
    """Return the waits of the tickets that can never be served by what others do."""
    stuck = waits(state)
    while True:
        ids = [wait.ticket.ticket_id for wait in stuck]
        still = [wait for wait in stuck if is_blocked_by(state, wait, ids)]
        if len(still) == len(stuck):
            return stuck
        stuck = still


def refuse_stuck(state: ModelState, ticket: Ticket) -> Refused | None:
    """Refuse a new ticket that would be stuck and would wait for itself in the end.

    A ticket that only waits for others that are stuck is not refused: their waits or leases will end. One
    that overtakes others makes these wait for all that its party waits for: none of that may wait for itself.
    """
    starts = [ticket.ticket_id]
    if overtakes(state, ticket):
        starts += [other.ticket_id for other in keepers(state, ticket)]
    state.tickets.append(ticket)
    every = edges(state)
    state.tickets.remove(ticket)
    if not any(start in reachable(every, start) for start in starts):
        return None
    return _refuse(state, ticket, every, starts, Reason.DEADLOCK)


def refuse_conversion(state: ModelState, ticket: Ticket) -> Refused | None:
    """Refuse a new conversion that would wait for another one that waits for it."""
    state.tickets.append(ticket)
    every = edges(state)
    state.tickets.remove(ticket)
    waits = [(one, other) for one, _, other in every]
    closes = any(
        (ticket.ticket_id, other.ticket_id) in waits and (other.ticket_id, ticket.ticket_id) in waits
        for other in state.tickets
        if other.converts is not None
    )
    starts = [ticket.ticket_id]
    return _refuse(state, ticket, every, starts, Reason.CONVERSION_DEADLOCK) if closes else None


def _refuse(
    state: ModelState, ticket: Ticket, every: list[Edge], starts: list[HoldId], reason: Reason
) -> Refused:
    """Return a refusal. Which cycle is named is left open: `detail` is the number of the edges."""
    state.deadlocks.append((ticket, every, starts))
    return Refused(reason, str(len(state.deadlocks) - 1))


def shown(owner: OwnerName) -> OwnerName:
    """Return an owner without what identifies one that was not given: the machine shows a digest of it."""
    return OwnerName(re.sub(r"^(session|hold)-.*", r"\1-*", owner))


def edges(state: ModelState) -> list[Edge]:
    """Return which stuck ticket waits for which, and for what: not for permits of which there are enough."""
    stuck = stuck_waits(state)
    ids = [wait.ticket.ticket_id for wait in stuck]
    return [
        (wait.ticket.ticket_id, CycleView(shown(wait.ticket.owner), part.name, part.kind), other.ticket_id)
        for wait in stuck
        for thing, others in [
            *[(t, [t]) for t in wait.needed],
            *wait.kept,
            *chain(*[items for name, items in wait.pools.items() if lacks_permits(state, wait, name, ids)]),
        ]
        for other in others
        if other.ticket_id in ids
        for part in _meeting_parts(wait.ticket, thing)
    ]


def _meeting_parts(ticket: Ticket, thing: Hold | Ticket) -> list[Part]:
    """Return the parts at which two conflict, any of which a cycle may name."""
    is_twin = isinstance(thing, Ticket) and is_the_same(thing, ticket)
    pairs = [
        (a, b)
        for a in parts(ticket)
        for b in parts(thing)
        if a.kind is b.kind and (conflict(a, b) or (is_twin and a == b))
    ]
    return list(dict.fromkeys(part for pair in pairs for part in pair))


def check_cycle(every: Sequence[Edge], starts: Sequence[HoldId], cycle: Sequence[CycleView]) -> None:
    """Check that a cycle through one of `starts` is one: each step waits for the owner of the next."""
    assert cycle, "a deadlock has a cycle"
    wrong = [_wrong_in(every, start, cycle) for start in starts]
    assert None in wrong, wrong[0]


def _wrong_in(every: Sequence[Edge], start: HoldId, cycle: Sequence[CycleView]) -> str | None:
    """Return why steps are no way from a ticket to itself, None if they are one."""
    reached = [start]
    for step in cycle:
        named = CycleView(shown(step.owner), step.name, step.kind)
        reached = [other for one, view, other in every if one in reached and view == named]
        if not reached:
            return f"{step} is not a step of the cycle"
    return None if start in reached else f"{cycle[-1]} closes no cycle"


def reachable(every: Sequence[Edge], start: HoldId) -> list[HoldId]:
    """Return the tickets that `start` waits for, directly or not."""
    found: list[HoldId] = []
    added = [other for one, _, other in every if one == start]
    while added:
        found += added
        added = list(dict.fromkeys(o for one, _, o in every if one in found and o not in found))
    return found
