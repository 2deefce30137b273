"""Listings: pages of what there is of each kind, in order, and what somebody holds and waits for.

A page looks at a limited number of records, so that a node never does anything else for long. What a filter
leaves out counts too: a page may have fewer things than asked for, or none, and yet not be the last.
"""

import heapq
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice, takewhile
from typing import Final, NamedTuple, TypeVar

import msgspec

from lockstate.reads.held import available, hold_view, hold_views, waiter_view
from lockstate.reads.history import HOLD_ENDINGS
from lockstate.reads.parts import parts_of
from lockstate.reads.places import position
from lockstate.tables.namespaces import Namespaces
from lockstate.tables.owners import order_in, own_id, session_name, shown_owner
from lockstate.tables.principals import NOBODY
from lockstate.tables.rate_algorithms import Limiter
from lockstate.tables.records import Hold, Session, Ticket
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.claims import FIRST_OF_LOCKS, is_lock, record_name, shown_name
from lockstate.words.events import EventKind
from lockstate.words.kinds import Algorithm, HoldKind
from lockstate.words.views import (
    ElectionSummary,
    HighestToken,
    Holdings,
    HoldView,
    NamespaceSummary,
    PrincipalRow,
    RateRowView,
    SemaphoreSummary,
    SessionSummary,
    TicketView,
    WaiterView,
)

Row = TypeVar("Row")
Found = TypeVar("Found")

Page = tuple[list[Row], str | None]
"""Rows, and the place to go on after if there may be more."""

_LOCK: Final = HoldKind.LOCK
_SEMAPHORE: Final = HoldKind.SEMAPHORE
_ELECTION: Final = HoldKind.ELECTION
_WALK: Final = (_ELECTION, _LOCK, _SEMAPHORE)
"""The order in which holdings are listed."""


class Whose(NamedTuple):
    """Which holds and waits are meant: all conditions that are not empty must be met."""

    owner: str = ""
    label: tuple[str, str] | None = None
    """Name and value of a label of the session."""
    longer_than_ms: int = 0
    """For more than so many milliseconds held, or waited for."""
    is_endless: bool | None = None
    """Whether it is held without a deadline."""
    principal: str = ""

    def has(self, state: State, record: Hold | Ticket) -> bool:
        """Whether a hold or a ticket is meant."""
        if self.longer_than_ms and state.now_ms - record.since_ms <= self.longer_than_ms:
            return False
        is_endless = isinstance(record, Hold) and record.is_endless
        if self.is_endless not in (None, is_endless):
            return False
        if self.owner and shown_owner(record.owner, own_id(record)) != self.owner:
            return False
        if self.principal and state.principals.of(record) != self.principal:
            return False
        if self.label is None:
            return True
        session = state.sessions.get(record.session_id)
        return session is not None and self._is_labelled(session)

    def has_session(self, state: State, session: Session) -> bool:
        """Whether a session is meant."""
        if self.owner and session.owner != self.owner:
            return False
        if self.principal and state.principals.rows.get(session.session_id) != self.principal:
            return False
        return self._is_labelled(session)

    def _is_labelled(self, session: Session) -> bool:
        return self.label is None or session.labels.get(self.label[0]) == self.label[1]


def _page(
    found: Iterator[tuple[str, Found]], show: Callable[[Found], Row | None], limit: int
) -> tuple[list[Row], str | None]:
    """Return what `show` makes of what was found, each with its place; None is left out."""
    limit = min(max(limit, 1), limits.LIST_LIMIT_MAX)
    rows: list[Row] = []
    place = ""
    for seen, (next_place, record) in enumerate(found):
        if len(rows) == limit or seen == limits.LIST_ROWS_MAX:
            return rows, place
        place = next_place
        row = show(record)
        if row is not None:
            rows.append(row)
    return rows, None


def _start(prefix: str, after: str) -> tuple[str, bool]:
    """Return where a listing begins, and whether what has this very name belongs to it."""
    return (after, False) if after >= prefix else (prefix, True)


# -- one kind of thing ---------------------------------------------------------------------------------------


def semaphores(state: State, prefix: str, after: str, limit: int) -> Page[SemaphoreSummary]:
    """Return a page of semaphores by name, each with the first of its holders."""
    start, inclusive = _start(prefix, after)
    found = state.semaphores_in_order.after(start, inclusive=inclusive)
    below = takewhile(lambda semaphore: semaphore.name.startswith(prefix), found)
    return _page(
        ((semaphore.name, semaphore) for semaphore in below),
        lambda semaphore: SemaphoreSummary(
            semaphore.name,
            semaphore.limit,
            available(semaphore),
            hold_views(
                state,
                [
                    (semaphore.name, hold)
                    for hold in islice(semaphore.holders.values(), limits.HOLDERS_SHOWN_MAX)
                ],
                _SEMAPHORE,
            ),
            len(semaphore.holders),
            len(semaphore.queue),
        ),
        limit,
    )


def elections(state: State, prefix: str, after: str, limit: int) -> Page[ElectionSummary]:
    """Return a page of elections that have a leader or candidates, by name."""
    start, inclusive = _start(prefix, after)
    found = state.names.after(record_name(_ELECTION, start), inclusive=inclusive)
    full_prefix = record_name(_ELECTION, prefix)
    below = takewhile(lambda name: name.startswith(full_prefix), found)

    def row(name: str) -> ElectionSummary:
        lock, shown = state.locks[name], shown_name(name)
        leader = lock.holder
        if leader is None:
            return ElectionSummary(shown, None, "", lock.queue_length)
        return ElectionSummary(
            shown, hold_view(state, leader, shown), leader.details.value, lock.queue_length
        )

    return _page(((shown_name(name), name) for name in below), row, limit)


def rate_limits(state: State, prefix: str, after: str, limit: int) -> Page[RateRowView]:
    """Return a page of the rate limits that are not whole, by name, algorithm and window."""
    key, inclusive = _rate_place(after), False
    if key is None or key[0] < prefix:
        key, inclusive = (prefix, "", 0), True
    found = state.rates.in_order.after(key, inclusive=inclusive)
    below = takewhile(lambda limiter: limiter.name.startswith(prefix), found)

    def row(limiter: Limiter) -> RateRowView:
        left_ms = max(limiter.expires_at_ms - state.now_ms, 0)
        key = (limiter.name, limiter.algorithm, limiter.window_ms)
        waiting = state.rates.places_count(key)
        return RateRowView(*key, left_ms, waiting, limiter.principal, limiter.last_principal)

    return _page(((_place_of_rate(limiter), limiter) for limiter in below), row, limit)


def _place_of_rate(limiter: Limiter) -> str:
    return f"{limiter.algorithm} {limiter.window_ms} {limiter.name}"


def _rate_place(after: str) -> tuple[str, str, int] | None:
    """Return the key that a place stands for, None if it stands for none."""
    algorithm, _, rest = after.partition(" ")
    window, _, name = rest.partition(" ")
    is_window = window.isascii() and window.isdigit() and len(window) <= len(str(limits.RATE_WINDOW_MS_MAX))
    return (name, algorithm, int(window)) if algorithm in set(Algorithm) and is_window else None


def fences(state: State, prefix: str, after: str, limit: int) -> Page[HighestToken]:
    """Return a page of the highest tokens, by name."""
    start, inclusive = _start(prefix, after)
    found = state.fences_in_order.after(start, inclusive=inclusive)
    below = takewhile(lambda name: name.startswith(prefix), found)
    return _page(
        ((name, name) for name in below),
        lambda name: HighestToken(name, state.fences[name]),
        limit,
    )


def sessions(state: State, whose: Whose, after: str, limit: int) -> Page[SessionSummary]:
    """Return a page of sessions, the oldest first. The place of one is its public name."""

    def row(session: Session) -> SessionSummary | None:
        return session_row(state, session) if whose.has_session(state, session) else None

    found = state.sessions_in_order.after(order_in(after), inclusive=False)
    return _page(((session_name(session), session) for session in found), row, limit)


def principals(state: State, after: str, limit: int) -> Page[PrincipalRow]:
    """Return a page of the principals that have anything or a quota, by name; the first is that of all."""
    known = state.principals
    limit = min(max(limit, 1), limits.LIST_LIMIT_MAX)
    names = {name for table in (known.quotas, known.usage) for name in table if name > after}
    first = heapq.nsmallest(limit + 1, names)
    rows = [principal(state, name) for name in first[:limit]]
    return rows, rows[-1].principal if len(first) > limit else None


def principal(state: State, name: str) -> PrincipalRow:
    """Return what a principal has and may have: it need not have anything."""
    used = state.principals.used_by(name)
    return PrincipalRow(name, state.principals.quotas.get(name), **msgspec.structs.asdict(used))


def namespaces(state: State, prefix: str, after: str, limit: int) -> Page[NamespaceSummary]:
    """Return a page of namespaces by prefix, of those whose own prefix begins with `prefix`."""
    table = state.namespaces
    limit = min(max(limit, 1), limits.LIST_LIMIT_MAX)
    found = heapq.nsmallest(limit + 1, [one for one in table.rows if one > after and one.startswith(prefix)])
    rows = [_namespace_row(table, one) for one in found[:limit]]
    return rows, rows[-1].name if len(found) > limit else None


def namespace(state: State, prefix: str) -> NamespaceSummary | None:
    """Return one namespace, None if there is none with this prefix."""
    return _namespace_row(state.namespaces, prefix) if prefix in state.namespaces.rows else None


def _namespace_row(table: Namespaces, prefix: str) -> NamespaceSummary:
    used = msgspec.structs.asdict(table.usage[prefix])
    return NamespaceSummary(prefix, table.rows[prefix].settings, **used)


def is_session_name(text: str) -> bool:
    """Whether a text is such as the public names of sessions are."""
    return order_in(text) > 0


def session_row(state: State, session: Session) -> SessionSummary:
    """Return what anybody may know of a session."""
    return SessionSummary(
        session_name(session),
        session.owner,
        session.labels,
        session.ttl_ms,
        max(0, session.expires_at_ms - state.now_ms),
        len(session.holds),
        len(session.tickets),
        state.principals.rows.get(session.session_id, NOBODY),
    )


# -- what somebody holds and waits for -----------------------------------------------------------------------


def holdings(state: State, whose: Whose, prefix: str, after: str, limit: int) -> Holdings:
    """Return a page of what is meant by `whose`: elections, locks, then semaphores, each by name.

    Of several locks held together each is listed by itself. A page ends with the name that fills it.
    """
    limit = min(max(limit, 1), limits.LIST_LIMIT_MAX)
    holds: list[HoldView] = []
    tickets: list[WaiterView] = []
    work, place = 0, None
    for kind, name, holders, queue in walk(state, prefix, after):
        if place is not None and (len(holds) + len(tickets) >= limit or work >= limits.LIST_ROWS_MAX):
            return Holdings(tuple(holds), tuple(tickets), place)
        holds += [hold_view(state, hold, name, kind) for hold in holders if whose.has(state, hold)]
        tickets += [
            waiter_view(state, ticket, name, number, kind)
            for number, ticket in enumerate(queue, 1)
            if whose.has(state, ticket)
        ]
        work, place = work + 1 + len(holders) + len(queue), f"{kind} {name}"
    return Holdings(tuple(holds), tuple(tickets), None)


def walk(
    state: State, prefix: str, after: str, kinds: Sequence[HoldKind] = _WALK
) -> Iterator[tuple[HoldKind, str, Collection[Hold], Collection[Ticket]]]:
    """Yield the kind, the name, the holders and the queue of everything behind a place."""
    kind_of_place, _, name_of_place = after.partition(" ")
    known = [kind.value for kind in kinds]
    first = known.index(kind_of_place) if kind_of_place in known else 0
    for kind in kinds[first:]:
        start, inclusive = _start(prefix, name_of_place if kind == kind_of_place else "")
        if kind is _SEMAPHORE:
            for semaphore in state.semaphores_in_order.after(start, inclusive=inclusive):
                if not semaphore.name.startswith(prefix):
                    break
                yield kind, semaphore.name, semaphore.holders.values(), semaphore.queue.values()
            continue
        if kind is _LOCK and start < FIRST_OF_LOCKS:
            start, inclusive = FIRST_OF_LOCKS, True
        full_prefix = record_name(kind, prefix)
        for name in state.names.after(record_name(kind, start), inclusive=inclusive):
            if not name.startswith(full_prefix) or is_lock(name) is not (kind is _LOCK):
                break
            lock = state.locks[name]
            yield kind, shown_name(name), lock.all_holders(), lock.queue()


# -- waiters by their numbers --------------------------------------------------------------------------------


class WaitOf(NamedTuple):
    """A wait by its number, and one of the things that it is for."""

    number: int
    kind: HoldKind
    name: str


def waits_of(state: State, principal: str, after: int, limit: int) -> tuple[list[WaitOf], int | None]:
    """Return waits of a principal in order, and the number to go on behind if there may be more."""
    found: list[WaitOf] = []
    number = after
    for seen, one in enumerate(state.tickets_in_order.after(after, inclusive=False)):
        if len(found) == limit or seen == limits.LIST_ROWS_MAX:
            return found, number
        number = one.order
        if state.principals.of(one) == principal:
            part = parts_of(one)[0]
            found.append(WaitOf(number, part.kind, part.name))
    return found, None


_EVENTS_SEARCHED_MAX: Final = 1000
_SAMPLES_MAX: Final = 16
"""Events of the audit that an estimate looks at, and the hold times that it is made of, at most."""
_ENDS: Final = HOLD_ENDINGS | {EventKind.RESIGNED}


def ticket(state: State, number: int) -> TicketView | None:
    """Return what there is to know of a waiter, None if nobody waits with this number."""
    found = state.tickets_in_order.get(number)
    if found is None:
        return None
    session = state.sessions.get(found.session_id)
    place = position(state, found)
    return TicketView(
        found.order,
        found.kind,
        tuple([part.name for part in parts_of(found)]),
        shown_owner(found.owner, own_id(found)),
        place,
        state.now_ms - found.since_ms,
        max(0, found.expires_at_ms - state.now_ms),
        _estimate_ms(state, found, place),
        session_name(session) if session is not None else "",
        found.is_conversion,
        found.details.priority,
        state.principals.of(found),
    )


def _estimate_ms(state: State, waiter: Ticket, place: int) -> int | None:
    """Return how long a waiter may still have to wait, None if nothing speaks for any number.

    The median of the last hold times, for everybody before it and for who holds now: as many at a time as
    hold now. What is held longest counts as begun that long ago. Of several locks the slowest one counts.
    """
    estimates_ms: list[int] = []
    for part in parts_of(waiter):
        events = islice(reversed(state.audit.events), _EVENTS_SEARCHED_MAX)
        of_it = (one for one in events if one.kind in _ENDS and (one.of, one.name) == (part.kind, part.name))
        lasted_ms = sorted([one.lasted_ms for one in islice(of_it, _SAMPLES_MAX)])
        if lasted_ms:
            median_ms = lasted_ms[len(lasted_ms) // 2]
            holders = _holders(state, part.kind, part.name)
            begun_ms = max([state.now_ms - hold.since_ms for hold in holders], default=median_ms)
            rounds = -(-place // max(len(holders), 1))
            estimates_ms.append(rounds * median_ms - min(begun_ms, median_ms))
    return max(estimates_ms, default=None)


def _holders(state: State, kind: HoldKind, name: str) -> list[Hold]:
    """Return the first of those that hold exactly this, in order of their tokens."""
    if kind is _SEMAPHORE:
        holders: Collection[Hold] = state.semaphores[name].holders.values()
    else:
        holders = state.locks[record_name(kind, name)].all_holders()
    return list(islice(holders, limits.LIST_ROWS_MAX))
