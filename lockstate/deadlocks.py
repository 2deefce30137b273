"""Deadlocks: found when a waiter is about to be queued, from the tables alone, so the same on every node.

Who waits for a lock waits for all who are in its way; who waits for permits waits until enough of their
holders gave them back. So the wait-for graph has AND and OR nodes, and a cycle alone is no proof: a ticket is
stuck only if it cannot go even when everybody whose tickets are not stuck gives up everything (reduction of
the general resource graph: Holt 1972, Some Deadlock Properties of Computer Systems).
"""

import bisect
from collections import deque
from collections.abc import Iterator

import msgspec

from lockstate import limits
from lockstate.blockers import conflicting_holds
from lockstate.claims import Claims, permits_of, shown_name
from lockstate.modes import CONFLICTING, CONFLICTS, Claim
from lockstate.owners import Party, own_id, party_of, shown_owner
from lockstate.records import CONVERSION, Hold, Ticket, precedence
from lockstate.results import CycleView, Kind
from lockstate.state import State, claims_of_hold

_HOLDS_CHECKED_MAX = 64

_Place = tuple[bool, int]
_Alike = dict[tuple[object, ...], tuple[list[Ticket], list[_Place]]]
"""The tickets of a queue, those together that claim the same, with their places."""


class Cycle(msgspec.Struct, frozen=True):
    """A deadlock that a waiter would close. Each step waits for the owner of the next one."""

    steps: tuple[CycleView, ...]
    is_of_conversions: bool
    """Whether it is two conversions that wait for each other."""


class _Wait(msgspec.Struct, eq=False):
    """A ticket and the tickets it depends on, by id, each with the name where they meet.

    It needs all of `needed`; of the holders of permits it needs those back that `spare` does not do without.
    """

    ticket: Ticket
    needed: dict[str, str]
    permits: list[tuple[int, list[str]]]
    spare: int = 0

    def is_stuck(self, stuck: dict[str, "_Wait"]) -> bool:
        """Whether it cannot go as long as the `stuck` cannot."""
        return any(other in stuck for other in self.needed) or self._lacks_permits(stuck)

    def _lacks_permits(self, stuck: dict[str, "_Wait"]) -> bool:
        kept = sum([count for count, others in self.permits if any(other in stuck for other in others)])
        return kept > self.spare

    def in_the_way(self, stuck: dict[str, "_Wait"]) -> Iterator[tuple[str, str]]:
        """Yield the stuck tickets that it depends on, with names."""
        for other, name in self.needed.items():
            if other in stuck:
                yield other, name
        for _, others in self.permits if self._lacks_permits(stuck) else ():
            for other in others:
                if other in stuck:
                    yield other, self.ticket.name


class _TooMuchError(Exception):
    """The search has looked at as much as it may."""


def find(state: State, ticket: Ticket) -> Cycle | None:
    """Return the deadlock that `ticket`, which is not queued yet, would close by waiting."""
    if not (_blocks_anybody(state, ticket) or _blocks_itself(state, ticket)):
        return None
    try:
        waits = _Search(state, ticket).waits()
    except _TooMuchError:
        return None
    _reduce(waits)
    return _cycle(waits, ticket.hold_id) if ticket.hold_id in waits else None


def _blocks_anybody(state: State, ticket: Ticket) -> bool:
    """Whether anybody may wait for what the party of `ticket` holds. Mostly nobody does."""
    session = state.sessions.get(ticket.session_id)
    if ticket.converts:
        return True
    if session is None:
        return False
    holds = session.holds
    return len(holds) > _HOLDS_CHECKED_MAX or any(_is_wanted(state, hold) for hold in holds.values())


def _is_wanted(state: State, hold: Hold) -> bool:
    if hold.kind is Kind.SEMAPHORE:
        return bool(state.semaphores[hold.name].queue)
    return any(state.locks[name].waiting for name, _ in claims_of_hold(hold))


def _blocks_itself(state: State, ticket: Ticket) -> bool:
    """Whether a session wants what it cannot get because of what it has."""
    session = state.sessions.get(ticket.session_id)
    if session is None or not session.holds:
        return False
    if ticket.kind is Kind.SEMAPHORE:
        holders = state.semaphores[ticket.name].holders.values()
        return any(hold.session_id == ticket.session_id for hold in holders)
    in_the_way = conflicting_holds(state, claims_of_hold(ticket), ticket.converts)
    return any(hold.session_id == ticket.session_id for _, hold in in_the_way)


class _Search:
    """Gathers which tickets depend on which, as far as they can be reached from one."""

    def __init__(self, state: State, ticket: Ticket) -> None:
        self._state = state
        self._first = ticket
        self._claims: dict[str, set[Claim]] = {}
        for name, claim in claims_of_hold(ticket):
            self._claims.setdefault(name, set()).add(claim)
        self._queues: dict[tuple[str, int], _Alike] = {}
        self._kept_for: dict[Party, list[Ticket]] = {}
        self._steps = 0

    def waits(self) -> dict[str, _Wait]:
        """Return the waits, the first ticket's own first."""
        waits: dict[str, _Wait] = {}
        found = deque([self._first])
        while found:
            ticket = found.popleft()
            if ticket.hold_id in waits:
                continue
            wait = waits[ticket.hold_id] = _Wait(ticket, {}, [])
            if ticket.kind is Kind.SEMAPHORE:
                depends_on = self._wait_for_permits(wait)
            else:
                depends_on = self._wait_for_locks(wait)
            found.extend(other for other in depends_on if other.hold_id not in waits)
        return waits

    def _wait_for_locks(self, wait: _Wait) -> list[Ticket]:
        ticket = wait.ticket
        claims = claims_of_hold(ticket)
        depends_on: list[Ticket] = []
        for name, earlier in self._earlier(ticket, claims):
            self._step()
            wait.needed.setdefault(earlier.hold_id, name)
            depends_on.append(earlier)
        for name, hold in conflicting_holds(self._state, claims, ticket.converts):
            self._step()
            for other in self._keeping(hold):
                wait.needed.setdefault(other.hold_id, name)
                depends_on.append(other)
        return depends_on

    def _wait_for_permits(self, wait: _Wait) -> list[Ticket]:
        ticket = wait.ticket
        semaphore = self._state.semaphores[ticket.name]
        queue = permits_of(ticket.name)[0]
        depends_on = list(self._last_of_each(queue, 0, semaphore.queue, ticket))
        wait.needed = {other.hold_id: ticket.name for other in depends_on}
        wait.spare = semaphore.limit - ticket.permits
        for hold in semaphore.holders.values():
            self._step()
            keeping = self._keeping(hold)
            if keeping:
                wait.permits.append((hold.permits, [other.hold_id for other in keeping]))
                depends_on += keeping
        return depends_on

    def _keeping(self, hold: Hold) -> list[Ticket]:
        """Return the tickets for which the party of `hold` may keep it."""
        party = party_of(hold)
        if party not in self._kept_for:
            tickets = list(self._state.party_tickets.get(party, {}).values())
            if party == party_of(self._first):
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
                    for earlier in self._last_of_each(name, slot, queues.get(slot, {}), ticket):
                        yield name, earlier
            if is_later and not self._claims.get(name, frozenset()).isdisjoint(CONFLICTING[claim]):
                yield name, self._first

    def _last_of_each(
        self, name: str, slot: int, queue: dict[str, Ticket], ticket: Ticket
    ) -> Iterator[Ticket]:
        """Yield who is before `ticket` in a queue; of those that want the same, the last: it needs most."""
        if (name, slot) not in self._queues:
            self._queues[name, slot] = _alike(queue)
        place = precedence(ticket)
        for tickets, places in self._queues[name, slot].values():
            before = bisect.bisect_left(places, place)
            if before:
                self._step()
                yield tickets[before - 1]

    def _step(self, count: int = 1) -> None:
        self._steps += count
        if self._steps > limits.DEADLOCK_STEPS_MAX:
            raise _TooMuchError


def _alike(queue: dict[str, Ticket]) -> _Alike:
    alike: _Alike = {}
    for it in queue.values():
        tickets, places = alike.setdefault((it.name, it.mode, it.scope, it.locks, it.converts), ([], []))
        tickets.append(it)
        places.append(precedence(it))
    return alike


def _reduce(waits: dict[str, _Wait]) -> None:
    """Take out every ticket that can go, until only those are left that cannot."""
    users: dict[str, list[str]] = {}
    for hold_id, wait in waits.items():
        for other in (*wait.needed, *[other for _, others in wait.permits for other in others]):
            users.setdefault(other, []).append(hold_id)
    to_look_at = deque(waits)
    while to_look_at:
        hold_id = to_look_at.popleft()
        if hold_id in waits and not waits[hold_id].is_stuck(waits):
            del waits[hold_id]
            to_look_at.extend(users.get(hold_id, ()))


def _cycle(stuck: dict[str, _Wait], first: str) -> Cycle | None:
    """Return a deadlock through `first`: two conversions if there are, else the shortest way back."""
    way = _pair(stuck, first) or _shortest(stuck, first)
    if not way:
        return None
    return Cycle(
        tuple([_step(stuck[hold_id].ticket, name) for hold_id, name in way]),
        is_of_conversions=len(way) == 2  # noqa: PLR2004 - two that wait for each other
        and all(stuck[hold_id].ticket.converts for hold_id, _ in way),
    )


def _pair(stuck: dict[str, _Wait], first: str) -> list[tuple[str, str]]:
    """Return the conversion `first` and another one that wait for each other; nothing if there is none."""
    if stuck[first].ticket.converts:
        for other, name in stuck[first].in_the_way(stuck):
            back = dict(stuck[other].in_the_way(stuck)).get(first)
            if other != first and stuck[other].ticket.converts and back is not None:
                return [(first, name), (other, back)]
    return []


def _shortest(stuck: dict[str, _Wait], first: str) -> list[tuple[str, str]]:
    """Return the shortest way from `first` back to it over the stuck; nothing if it only waits for them."""
    came_from: dict[str, tuple[str, str]] = {}
    reached = deque([first])
    while reached and first not in came_from:
        at = reached.popleft()
        for other, name in stuck[at].in_the_way(stuck):
            if other not in came_from:
                came_from[other] = (at, name)
                reached.append(other)
    way: list[tuple[str, str]] = []
    at = first
    while first in came_from and (not way or at != first):
        at, name = came_from[at]
        way.append((at, name))
    return way[::-1]


def _step(ticket: Ticket, name: str) -> CycleView:
    owner = shown_owner(ticket.owner, own_id(ticket))
    return CycleView(owner, shown_name(name), ticket.kind)
