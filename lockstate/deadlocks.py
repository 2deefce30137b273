"""Deadlocks: found when a waiter is about to be queued, from the tables alone, so the same on every node.

Who waits for a lock waits for all who are in its way; who waits for permits waits until enough of their
holders gave them back. So the wait-for graph has AND and OR nodes, and a cycle alone is no proof: see
`wait_graph`.

What a party has it keeps as long as one of its tickets is stuck: what it holds, and what it gets while others
wait behind it. So nothing depends on whether a lock is held already or only about to be.
"""

import bisect
from collections import deque
from collections.abc import Collection, Iterator
from itertools import chain, takewhile

import msgspec

from lockstate import limits
from lockstate.blockers import conflict, conflicting_holds
from lockstate.claims import Claims, permits_of
from lockstate.ids import HoldId
from lockstate.modes import CONFLICTING, CONFLICTS, UNIT, Claim
from lockstate.owners import Party, party_of
from lockstate.records import CONVERSION, NOTHING, Claimant, Hold, Ticket, precedence
from lockstate.results import HoldKind
from lockstate.state import State, claims_of_hold
from lockstate.wait_graph import Cycle, Wait, cycle, reduce

_CHECKED_MAX = 64
_PER_STEP = 16
"""Tickets of a queue that are sorted for a search in about the time of one of its steps."""

_Place = tuple[bool, int]


class _Alike(msgspec.Struct, eq=False):
    """The tickets of a queue that claim the same, with their places. Who shares another's hold is left out.

    A later one needs all that an earlier one does. So the last before a place stands for all of them, but for
    the `busy`: their parties wait elsewhere, too, and keep what they get here until then.
    """

    tickets: list[Ticket] = msgspec.field(default_factory=list)
    places: list[_Place] = msgspec.field(default_factory=list)
    busy: list[Ticket] = msgspec.field(default_factory=list)

    def before(self, place: _Place) -> Iterator[Ticket]:
        """Yield the last and all the busy before a place."""
        at = bisect.bisect_left(self.places, place)
        if at:
            yield self.tickets[at - 1]
        yield from takewhile(lambda ticket: precedence(ticket) < place, self.busy)


class _TooMuchError(Exception):
    """The search has looked at as much as it may."""


def find(state: State, ticket: Ticket) -> Cycle | None:
    """Return the deadlock that `ticket`, which is not queued yet, would close by waiting."""
    if not (_blocks_anybody(state, ticket) or _blocks_itself(state, ticket) or _waits_beside(state, ticket)):
        return None
    try:
        waits = _Search(state, ticket).waits()
    except _TooMuchError:
        return None
    reduce(waits)
    return cycle(waits, ticket.hold_id) if ticket.hold_id in waits else None


def _blocks_anybody(state: State, ticket: Ticket) -> bool:
    """Whether anybody may wait for what the party of `ticket` holds. Mostly nobody does."""
    session = state.sessions.get(ticket.session_id)
    if ticket.converts:
        return True
    if session is None:
        return False
    holds = session.holds
    return len(holds) > _CHECKED_MAX or any(_is_wanted(state, hold) for hold in holds.values())


def _is_wanted(state: State, hold: Hold) -> bool:
    if hold.kind is HoldKind.SEMAPHORE:
        return bool(state.semaphores[hold.name].queue)
    return any(state.locks[name].waiting for name, _ in claims_of_hold(hold))


def _blocks_itself(state: State, ticket: Ticket) -> bool:
    """Whether a session wants what it cannot get because of what it has."""
    session = state.sessions.get(ticket.session_id)
    if session is None or not session.holds:
        return False
    if ticket.kind is HoldKind.SEMAPHORE:
        holders = state.semaphores[ticket.name].holders.values()
        return any(hold.session_id == ticket.session_id for hold in holders)
    in_the_way = conflicting_holds(state, claims_of_hold(ticket), ticket.converts)
    return any(hold.session_id == ticket.session_id for _, hold in in_the_way)


def _waits_beside(state: State, ticket: Ticket) -> bool:
    """Whether the party of `ticket` has others that anybody may wait for, itself included."""
    others: Collection[Ticket] = state.party_tickets.get(party_of(ticket), NOTHING).values()
    return len(others) > _CHECKED_MAX or any(
        _is_ahead(state, other) or _is_in_the_way(other, ticket) for other in others
    )


def _is_ahead(state: State, ticket: Ticket) -> bool:
    if ticket.kind is HoldKind.SEMAPHORE:
        return next(reversed(state.semaphores[ticket.name].queue)) != ticket.hold_id
    claims = claims_of_hold(ticket)
    return any((state.locks[name].waiting - UNIT[claim]) & CONFLICTS[claim] for name, claim in claims)


def _is_in_the_way(one: Ticket, other: Ticket) -> bool:
    if one.kind is HoldKind.SEMAPHORE or other.kind is HoldKind.SEMAPHORE:
        return (one.kind, one.name) == (other.kind, other.name)
    return conflict(claims_of_hold(one), claims_of_hold(other))


class _Search:
    """Gathers which tickets depend on which, as far as they can be reached from one."""

    def __init__(self, state: State, ticket: Ticket) -> None:
        self._state = state
        self._first = ticket
        self._claims: dict[str, set[Claim]] = {}
        for name, claim in claims_of_hold(ticket):
            self._claims.setdefault(name, set()).add(claim)
        self._party = party_of(ticket)
        self._queues: dict[tuple[str, int], Collection[_Alike]] = {}
        self._kept_for: dict[Party, list[Ticket]] = {}
        self._steps = 0

    def waits(self) -> dict[HoldId, Wait]:
        """Return the waits, the first ticket's own first."""
        waits: dict[HoldId, Wait] = {}
        found = deque([self._first])
        while found:
            ticket = found.popleft()
            if ticket.hold_id in waits:
                continue
            wait = waits[ticket.hold_id] = Wait(ticket, {}, [])
            if twin := self._state.twin_of(ticket):
                wait.needed = {twin.hold_id: _name_of(twin)}
                depends_on = [twin]
            elif ticket.kind is HoldKind.SEMAPHORE:
                depends_on = self._wait_for_permits(wait)
            else:
                depends_on = self._wait_for_locks(wait)
            found.extend(other for other in depends_on if other.hold_id not in waits)
        return waits

    def _wait_for_locks(self, wait: Wait) -> list[Ticket]:
        ticket = wait.ticket
        claims = claims_of_hold(ticket)
        depends_on: list[Ticket] = []
        holds = conflicting_holds(self._state, claims, ticket.converts)
        for name, in_the_way in chain(self._earlier(ticket, claims), holds):
            self._step()
            for other in self._keeping(in_the_way):
                wait.needed.setdefault(other.hold_id, name)
                depends_on.append(other)
        return depends_on

    def _wait_for_permits(self, wait: Wait) -> list[Ticket]:
        ticket = wait.ticket
        semaphore = self._state.semaphores[ticket.name]
        queue = permits_of(ticket.name)[0]
        depends_on = list(dict.fromkeys(self._before(queue, 0, semaphore.queue, ticket)))
        wait.needed = {other.hold_id: ticket.name for other in depends_on}
        wait.spare = semaphore.limit - ticket.permits
        for it in (*semaphore.holders.values(), *depends_on):
            self._step()
            keeping = [other for other in self._keeping(it) if other is not it]
            if keeping:
                wait.permits.append((it.permits, [other.hold_id for other in keeping]))
                depends_on += keeping
        return depends_on

    def _keeping(self, record: Claimant) -> list[Ticket]:
        """Return the tickets for which a party may keep what it holds, or will get for one of them."""
        party = party_of(record)
        if party not in self._kept_for:
            tickets = list(self._state.party_tickets.get(party, {}).values())
            if party == self._party:
                tickets.append(self._first)
            self._kept_for[party] = tickets
        self._step(len(self._kept_for[party]))
        return self._kept_for[party]

    def _earlier(self, ticket: Ticket, claims: Claims) -> Iterator[tuple[str, Ticket]]:
        """Yield names and tickets there that `ticket` has to wait for.

        The first, if it is a conversion, will stand ahead of all that are no conversions.
        """
        slots = (CONVERSION,) if ticket.converts else (0, CONVERSION)
        is_later = precedence(self._first) < precedence(ticket)
        for name, claim in claims:
            lock = self._state.locks.get(name)
            if lock is not None and lock.waiting & CONFLICTS[claim]:
                queues = lock.queues or {}
                for slot in [other + kind for other in CONFLICTING[claim] for kind in slots]:
                    for earlier in self._before(name, slot, queues.get(slot, {}), ticket):
                        yield name, earlier
            if is_later and not self._claims.get(name, frozenset()).isdisjoint(CONFLICTING[claim]):
                yield name, self._first

    def _before(self, name: str, slot: int, queue: dict[HoldId, Ticket], ticket: Ticket) -> Iterator[Ticket]:
        """Yield who matters of those before `ticket` in a queue."""
        if (name, slot) not in self._queues:
            self._queues[name, slot] = self._alike(queue)
        for alike in self._queues[name, slot]:
            for earlier in alike.before(precedence(ticket)):
                self._step()
                yield earlier

    def _alike(self, queue: dict[HoldId, Ticket]) -> Collection[_Alike]:
        self._step(len(queue) // _PER_STEP)
        found: dict[tuple[object, ...], _Alike] = {}
        for it in queue.values():
            is_busy = it.session_id and self._is_busy(it)
            if is_busy and self._state.twin_of(it):
                continue
            alike = found.setdefault((it.name, it.mode, it.scope, it.locks, it.converts), _Alike())
            alike.tickets.append(it)
            alike.places.append(precedence(it))
            if is_busy:
                alike.busy.append(it)
        return found.values()

    def _is_busy(self, ticket: Ticket) -> bool:
        party = party_of(ticket)
        return party == self._party or len(self._state.party_tickets[party]) > 1

    def _step(self, count: int = 1) -> None:
        self._steps += count
        if self._steps > limits.DEADLOCK_STEPS_MAX:
            raise _TooMuchError


def _name_of(ticket: Ticket) -> str:
    return ticket.name if ticket.kind is HoldKind.SEMAPHORE else claims_of_hold(ticket)[0][0]
