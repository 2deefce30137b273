"""Deadlocks: found when a waiter is about to be queued, from the tables alone, so the same on every node.

A ticket for a lock waits for all that is in its way; a ticket for permits waits until enough of their holders
have given them back; one for several kinds does both. So the wait-for graph has AND and OR nodes, and a cycle
alone does not prove a deadlock: see `wait_graph`.

A party keeps what it has as long as one of its tickets is stuck: what it holds, and what it is granted while
others wait behind it. So nothing depends on whether a lock is held already or only about to be.
"""

import bisect
from collections import deque
from collections.abc import Collection, Iterator
from itertools import chain, takewhile

import msgspec

from lockstate.tables.blockers import conflict, conflicting_holds
from lockstate.tables.claim_table import claims_of_hold
from lockstate.tables.owners import Party, Wish, party_of, wish_of
from lockstate.tables.queues import overtakes
from lockstate.tables.records import (
    CONVERSION,
    NOTHING,
    Claimant,
    Hold,
    Place,
    Session,
    Ticket,
    lanes_of,
    permits_in,
    precedence,
)
from lockstate.tables.state import State
from lockstate.tables.tickets import twin_of
from lockstate.tables.wait_graph import Cycle, Pool, Wait, cycle, reduce
from lockstate.words import limits
from lockstate.words.claims import Claims, permits_of
from lockstate.words.ids import HoldId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import CONFLICTING, CONFLICTS, UNIT, Claim, conflicting_among

_CHECKED_MAX = 64
"""Holds or tickets of a party that are looked through before a search; with more of them it begins at
once."""
_FIRST_MS = -(1 << 60)
"""A time of arrival, in milliseconds, before that of every ticket, whatever its priority."""
_PER_STEP = 16
"""Tickets of a queue that are sorted in about the time of one step of a search."""


class _Alike(msgspec.Struct, eq=False):
    """The tickets of a queue that claim the same, with their places, except those that will share a hold.

    A later ticket needs all that an earlier one needs. So the last ticket before a place stands for all of
    them, except for the `busy`, whose parties wait elsewhere too and keep what they get here until then.
    """

    tickets: list[Ticket] = msgspec.field(default_factory=list)
    places: list[Place] = msgspec.field(default_factory=list)
    busy: list[Ticket] = msgspec.field(default_factory=list)

    def before(self, place: Place) -> Iterator[Ticket]:
        """Yield the last ticket before a place, and all busy ones before it."""
        count = bisect.bisect_left(self.places, place)
        if count:
            yield self.tickets[count - 1]
        yield from takewhile(lambda ticket: precedence(ticket) < place, self.busy)


class _TooMuchError(Exception):
    """The search has looked at as much as it is allowed to."""


def find(state: State, ticket: Ticket) -> Cycle | None:
    """Return the deadlock that `ticket`, which is not queued yet, would close by waiting, or by its grant.

    One that overtakes others makes them wait for what it gets, and that is kept while its party waits for
    anything. So a cycle may also go through another ticket of its party, and not through this one.
    """
    is_ahead = overtakes(state, ticket)
    if not (
        is_ahead
        or _blocks_anybody(state, ticket)
        or _blocks_itself(state, ticket)
        or _waits_beside(state, ticket)
    ):
        return None
    return _found(state, ticket, is_ahead=is_ahead)


def find_beside(state: State, receiver: Ticket, gone: Hold) -> Cycle | None:
    """Return the deadlock that a hand-over would close.

    `receiver` stands for what gets the lock in the place of `gone`, ahead of all that wait for it. These wait
    for its party then, and that may wait for theirs elsewhere.
    """
    if not state.party_tickets.get(party_of(receiver), NOTHING).keys() - {receiver.hold_id}:
        return None
    # As the conversion of the hold that it replaces, of the earliest arrival, it comes before all others.
    first = msgspec.structs.replace(receiver, since_ms=_FIRST_MS, changes=gone.hold_id)
    return _found(state, first, is_ahead=True, gone=gone, wish=wish_of(receiver))


def _found(
    state: State, ticket: Ticket, *, is_ahead: bool, gone: Hold | None = None, wish: Wish | None = None
) -> Cycle | None:
    """Search beginning with a ticket, as if a hold was `gone`, and all with the `wish` shared its grant."""
    try:
        search = _Search(state, ticket, is_ahead=is_ahead, gone=gone, wish=wish)
        waits = search.waits()
    except _TooMuchError:
        return None
    reduce(waits)
    found = (cycle(waits, start.hold_id) for start in search.starts if start.hold_id in waits)
    return next((one for one in found if one is not None), None)


def _blocks_anybody(state: State, ticket: Ticket) -> bool:
    """Whether anybody may wait for what the party of `ticket` holds. Mostly nobody does."""
    session = state.sessions.get(ticket.session_id)
    return bool(ticket.changes) or (session is not None and is_waited_for(state, session))


def is_waited_for(state: State, session: Session) -> bool:
    """Whether anybody may wait for what a session holds. Of many holds it is not found out."""
    holds = session.holds
    return len(holds) > _CHECKED_MAX or any(_is_wanted(state, hold) for hold in holds.values())


def _is_wanted(state: State, hold: Hold) -> bool:
    if any(state.semaphores[name].queue for name, _ in permits_in(hold)):
        return True
    locks = state.locks
    return any((lock := locks.get(name)) is not None and lock.waiting for name, _ in claims_of_hold(hold))


def _blocks_itself(state: State, ticket: Ticket) -> bool:
    """Whether a session, which has few holds, asks for something that one of these keeps it from."""
    session = state.sessions.get(ticket.session_id)
    holds = session.holds.values() if session is not None else ()
    return any(_is_in_the_way(hold, ticket) for hold in holds)


def _waits_beside(state: State, ticket: Ticket) -> bool:
    """Whether the party of `ticket` has other tickets that anybody, also itself, may wait for."""
    others: Collection[Ticket] = state.party_tickets.get(party_of(ticket), NOTHING).values()
    return len(others) > _CHECKED_MAX or any(
        _is_ahead(state, other) or _is_in_the_way(other, ticket) for other in others
    )


def _is_ahead(state: State, ticket: Ticket) -> bool:
    semaphores = [state.semaphores[name] for name, _ in permits_in(ticket)]
    if any(next(reversed(one.queue)) != ticket.hold_id for one in semaphores):
        return True
    claims = claims_of_hold(ticket)
    return any((state.locks[name].waiting - UNIT[claim]) & CONFLICTS[claim] for name, claim in claims)


def _is_in_the_way(one: Claimant, other: Ticket) -> bool:
    names = {name for name, _ in permits_in(one)}
    if any(name in names for name, _ in permits_in(other)):
        return True
    return conflict(claims_of_hold(one), claims_of_hold(other))


class _Search:
    """Gathers which tickets depend on which, beginning with one ticket."""

    def __init__(
        self, state: State, ticket: Ticket, *, is_ahead: bool, gone: Hold | None, wish: Wish | None
    ) -> None:
        self._state = state
        self._gone, self._wish = gone, wish
        self._first = ticket
        self._is_ahead = is_ahead
        self._claims: dict[str, set[Claim]] = {}
        for name, claim in claims_of_hold(ticket):
            self._claims.setdefault(name, set()).add(claim)
        self._permits = {name for name, _ in permits_in(ticket)}
        self._party = party_of(ticket)
        self._queues: dict[tuple[str, int], Collection[_Alike]] = {}
        self._kept_for: dict[Party, list[Ticket]] = {}
        self._steps = 0
        others = state.party_tickets.get(self._party, NOTHING).values() if is_ahead else ()
        self.starts: list[Ticket] = [ticket, *others]
        """The tickets through which a new cycle goes: one of them."""

    def waits(self) -> dict[HoldId, Wait]:
        """Return the waits by ticket, the first ticket's own first."""
        waits: dict[HoldId, Wait] = {}
        found = deque(self.starts)
        while found:
            ticket = found.popleft()
            if ticket.hold_id in waits:
                continue
            wait = waits[ticket.hold_id] = Wait(ticket, {}, [])
            if twin := self._twin_of(ticket):
                wait.needed = {twin.hold_id: _name_of(twin)}
                depends_on = [twin]
            else:
                depends_on = self._wait_for_locks(wait)
                for name, count in permits_in(ticket):
                    depends_on += self._wait_for_permits(wait, name, count)
            found.extend(other for other in depends_on if other.hold_id not in waits)
        return waits

    def _twin_of(self, ticket: Ticket) -> Ticket | None:
        """Return what `tickets.twin_of` does, if the first ticket were queued."""
        if self._wish is not None and wish_of(ticket) == self._wish:
            return self._first
        twin, first = twin_of(self._state, ticket), self._first
        if not self._is_ahead or first.kind is HoldKind.SEMAPHORE or first is ticket:
            return twin
        place = precedence(first)
        if place < precedence(ticket) and (twin is None or place < precedence(twin)):
            wish = wish_of(first)
            return first if wish is not None and wish == wish_of(ticket) else twin
        return twin

    def _wait_for_locks(self, wait: Wait) -> list[Ticket]:
        ticket = wait.ticket
        claims = claims_of_hold(ticket)
        depends_on: list[Ticket] = []
        holds = conflicting_holds(self._state, claims, (ticket.changes,))
        for name, in_the_way in chain(self._earlier(ticket, claims), holds):
            self._step()
            if in_the_way is self._gone:
                continue
            for other in self._keeping(in_the_way):
                wait.needed.setdefault(other.hold_id, name)
                depends_on.append(other)
        return depends_on

    def _wait_for_permits(self, wait: Wait, name: str, count: int) -> list[Ticket]:
        semaphore = self._state.semaphores[name]
        queue = permits_of(name)[0]
        depends_on = list(dict.fromkeys(self._before(queue, 0, semaphore.queue, wait.ticket)))
        if name in self._permits and precedence(self._first) < precedence(wait.ticket):
            depends_on.append(self._first)
        for earlier in depends_on:
            wait.needed.setdefault(earlier.hold_id, queue)
        pool = Pool(queue, semaphore.limit - count)
        wait.pools.append(pool)
        for record in chain(semaphore.holders.values(), tuple(depends_on)):
            self._step()
            keeping = [other for other in self._keeping(record) if other is not record]
            if keeping:
                permits = dict(permits_in(record))[name]
                pool.permits.append((permits, [other.hold_id for other in keeping]))
                depends_on += keeping
        return depends_on

    def _keeping(self, record: Claimant) -> list[Ticket]:
        """Return the tickets of the party of `record`: while one of them is stuck it keeps `record`."""
        party = party_of(record)
        if party not in self._kept_for:
            tickets = list(self._state.party_tickets.get(party, {}).values())
            if party == self._party:
                tickets.append(self._first)
            self._kept_for[party] = tickets
        self._step(len(self._kept_for[party]))
        return self._kept_for[party]

    def _earlier(self, ticket: Ticket, claims: Claims) -> Iterator[tuple[str, Ticket]]:
        """Yield the earlier tickets that `ticket` has to wait for, each with the name where it does.

        The first ticket may come before others: as a conversion, or by its priority.
        """
        is_later = precedence(self._first) < precedence(ticket)
        for name, claim in claims:
            lock = self._state.locks.get(name)
            if lock is not None and lock.waiting & CONFLICTS[claim]:
                queues = lock.queues or {}
                lanes = (CONVERSION,) if ticket.is_conversion else lanes_of(queues)
                others = conflicting_among(lock.waiting, claim)
                for slot in [other + lane for other in others for lane in lanes]:
                    for earlier in self._before(name, slot, queues.get(slot, {}), ticket):
                        yield name, earlier
            if is_later and not self._claims.get(name, frozenset()).isdisjoint(CONFLICTING[claim]):
                yield name, self._first

    def _before(self, name: str, slot: int, queue: dict[HoldId, Ticket], ticket: Ticket) -> Iterator[Ticket]:
        """Yield the tickets before `ticket` in a queue that stand for all of them."""
        if self._is_ahead and queue and precedence(next(iter(queue.values()))) > precedence(ticket):
            return
        if (name, slot) not in self._queues:
            self._queues[name, slot] = self._alike(queue)
        for alike in self._queues[name, slot]:
            for earlier in alike.before(precedence(ticket)):
                self._step()
                yield earlier

    def _alike(self, queue: dict[HoldId, Ticket]) -> Collection[_Alike]:
        self._step(len(queue) // _PER_STEP)
        self._state.searched_count += len(queue)
        found: dict[tuple[object, ...], _Alike] = {}
        for ticket in queue.values():
            is_busy = ticket.session_id and self._is_busy(ticket)
            if is_busy and self._twin_of(ticket):
                continue
            permits = permits_in(ticket) if ticket.is_of_kinds else ()
            wanted = (ticket.name, ticket.mode, ticket.scope, ticket.locks, ticket.changes, permits)
            alike = found.setdefault(wanted, _Alike())
            alike.tickets.append(ticket)
            alike.places.append(precedence(ticket))
            if is_busy:
                alike.busy.append(ticket)
        return found.values()

    def _is_busy(self, ticket: Ticket) -> bool:
        party = party_of(ticket)
        return party == self._party or len(self._state.party_tickets[party]) > 1

    def _step(self, count: int = 1) -> None:
        self._steps += count
        self._state.searched_count += count
        if self._steps > limits.DEADLOCK_STEPS_MAX:
            raise _TooMuchError


def _name_of(ticket: Ticket) -> str:
    is_permits = ticket.kind is HoldKind.SEMAPHORE
    return permits_of(ticket.name)[0] if is_permits else claims_of_hold(ticket)[0][0]
