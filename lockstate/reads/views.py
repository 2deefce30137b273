"""Reads of the state, for people and programs: computed on request. None of them shows a secret."""

import heapq
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice
from typing import Final, NamedTuple

import msgspec

from lockstate.tables.audit import Linked
from lockstate.tables.blockers import covering_holds, names_below
from lockstate.tables.cells import Cell
from lockstate.tables.owners import own_id, session_name, shown_owner
from lockstate.tables.records import (
    NOTHING,
    Claimant,
    Delay,
    Hold,
    Plea,
    Semaphore,
    Session,
    Ticket,
    each_lock,
    permits_in,
    place_among,
)
from lockstate.tables.state import State, claims_of_hold
from lockstate.words import limits
from lockstate.words.claims import FIRST_OF_LOCKS, Claims, ancestors, record_name
from lockstate.words.events import Event, EventKind
from lockstate.words.ids import NO_OWNER, HoldId, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import CONFLICTS, NAMED, UNIT, Mode, Scope, claim_of, is_intent, is_tree
from lockstate.words.views import (
    CellView,
    ElectionView,
    FenceView,
    HolderView,
    HoldView,
    LockView,
    RevocationView,
    RevokedView,
    SemaphoreView,
    SessionView,
    WaiterView,
)

ENDINGS_SEARCHED_MAX: Final = 1000
"""Newest events among which the end of a hold or session is looked for: a refusal must stay cheap."""
POSITION_QUEUE_MAX: Final = 1000
"""Waits in a queue up to which one whose time is over is told its place: finding it looks at all of them."""
HOLD_ENDINGS: Final = frozenset(
    {EventKind.RELEASED, EventKind.EXPIRED, EventKind.FORCED, EventKind.HANDED_OVER}
)
"""What a hold ends with."""
SESSION_ENDINGS: Final = frozenset({EventKind.SESSION_EXPIRED, EventKind.SESSION_FORCED})
"""What a session ends with that its client does not close."""


def remaining_ms(state: State, hold: Hold) -> int | None:
    """Return how much of the lease of `hold` is left; None if it has no deadline.

    A lease is worth nothing beyond the moment up to which the hold may be held.
    """
    if hold.is_endless or state.pleas.bounds_count:
        return None if hold.is_endless else _bounded_ms(state, hold)
    return max(0, state.lease_of(hold).expires_at_ms - state.now_ms)


def _bounded_ms(state: State, hold: Hold) -> int:
    """Return how much is left of a lease, or of the time for which the hold may be held if that is less."""
    bounds = [plea.ends_at_ms for plea in state.pleas.of_hold(hold.hold_id).values() if plea.is_bound]
    return max(0, min([state.lease_of(hold).expires_at_ms, *bounds]) - state.now_ms)


def available(semaphore: Semaphore) -> int:
    """Return how many permits nobody has; negative after a resize below what is held."""
    return semaphore.limit - semaphore.used


class Part(NamedTuple):
    """One thing of those that a hold has or a ticket wants."""

    kind: HoldKind
    name: str
    mode: Mode = Mode.EXCLUSIVE
    scope: Scope = Scope.NODE
    permits: int = 0


def parts_of(record: Claimant) -> list[Part]:
    """Return all things that a hold has or a ticket wants: the locks, then the permits."""
    if record.kind is not HoldKind.LOCK:
        return [Part(record.kind, record.name, record.mode, record.scope, record.permits)]
    locks = [Part(HoldKind.LOCK, lock.name, lock.mode, lock.scope) for lock in each_lock(record)]
    return locks + [Part(HoldKind.SEMAPHORE, name, permits=n) for name, n in permits_in(record)]


def part_of(record: Claimant, name: str, kind: HoldKind) -> Part:
    """Return the part of this name, and of this kind if it is one of several kinds.

    Of several locks that cover a name but do not have it, it is what they have in common.
    """
    if record.is_of_kinds and kind is HoldKind.SEMAPHORE:
        return Part(kind, name, permits=dict(permits_in(record))[name])
    mode, scope = record.mode, record.scope
    for lock in record.locks:
        if lock.name == name:
            mode, scope = lock.mode, lock.scope
    return Part(record.kind, name, mode, scope, 0 if record.is_of_kinds else record.permits)


def holder_view(state: State, hold: Hold, name: str, kind: HoldKind = HoldKind.LOCK) -> HolderView:
    """Return `hold` as others may see it, as a holder of `name`; one of several kinds as one of `kind`."""
    part = part_of(hold, name, kind)
    owner = shown_owner(hold.owner, hold.hold_id)
    left_ms = remaining_ms(state, hold)
    return HolderView(
        owner, part.mode, hold.token, left_ms, hold.details.note, name, part.scope, part.kind, part.permits
    )


def told_value(record: Hold | Ticket) -> str:
    """Return the value of `record` as others may see it: no secret one, and of waiters only a candidate's."""
    rare = record.rare
    if rare is None:
        return ""
    is_told = not (rare.is_secret or isinstance(record, Ticket)) or record.kind is HoldKind.ELECTION
    return rare.value if is_told else ""


def revocations_of(state: State, hold: Hold) -> tuple[RevocationView, ...]:
    """Return what the holder of `hold` is to give up: each name once, the first that was asked for first."""
    pleas = state.pleas.told(hold.hold_id) if state.pleas else ()
    asked = dict.fromkeys([(plea.kind, plea.name) for plea in pleas])
    found = [revocation_of(state, hold, kind, name) for kind, name in asked]
    return tuple([one for one in found if one is not None])


def revocation_of(state: State, hold: Hold, kind: HoldKind, name: str) -> RevocationView | None:
    """Return until when the holder of `hold` is to give up this name of it; None if nobody has asked."""
    pleas = state.pleas.of_name(hold.hold_id, kind, name) if state.pleas else ()
    plea = min(
        [plea for plea in pleas if plea.is_told],
        key=lambda plea: (plea.expires_at_ms, plea.order),
        default=None,
    )
    return None if plea is None else _revocation_view(state, plea)


def _revocation_view(state: State, plea: Plea) -> RevocationView:
    ends_in_ms = max(0, plea.ends_at_ms - state.now_ms)
    return RevocationView(plea.name, plea.reason, ends_in_ms, plea.ticket, plea.is_put_off)


def revoked_view(state: State, hold: Hold, kind: HoldKind, revocation: RevocationView) -> RevokedView:
    """Return a hold that is to be given up, as a holder of what is to be given up."""
    shown = holder_view(state, hold, revocation.name, kind)
    return RevokedView(**msgspec.structs.asdict(shown), revocation=revocation)


def revoked_of(state: State, session: Session) -> tuple[tuple[RevokedView, ...], int]:
    """Return what a session is to give up, what ends first, and until when it knows enough by that.

    Its lease is that of all its holds, so it is told of every bound that ends before. If more do than are
    shown, its lease is worth nothing beyond the first of the others: the next keepalive tells of that.
    """
    pleas, holds, until_ms = state.pleas, session.holds, session.expires_at_ms
    if len(pleas) < len(holds):
        known = [plea for plea in pleas.rows.values() if plea.hold_id in holds]
    else:
        known = [plea for hold_id in holds for plea in pleas.of_hold(hold_id).values()]
    found = [plea for plea in known if plea.is_told or plea.ends_at_ms < until_ms]
    count = limits.HOLDERS_SHOWN_MAX
    first = heapq.nsmallest(count + 1, found, key=lambda one: (one.ends_at_ms, one.order))
    views = [revoked_view(state, holds[one.hold_id], one.kind, _revocation_view(state, one)) for one in first]
    return tuple(views[:count]), min([until_ms, *[one.ends_at_ms for one in first[count:]]])


def is_in_the_way(hold: Hold, ticket: Ticket, kind: HoldKind, name: str) -> bool:
    """Whether what `hold` has of a name may not stand beside what `ticket` wants of it.

    Permits always are: with fewer of them in use, those who wait get theirs earlier. A hold is not in the way
    of its own change.
    """
    if hold.hold_id == ticket.changes:
        return False
    if kind is HoldKind.SEMAPHORE:
        return True
    has, wants = part_of(hold, name, kind), part_of(ticket, name, kind)
    return bool(UNIT[claim_of(has.mode, has.scope)] & CONFLICTS[claim_of(wants.mode, wants.scope)])


def hold_view(state: State, hold: Hold, name: str, kind: HoldKind = HoldKind.LOCK) -> HoldView:
    """Return `hold` as reads show it, as a holder of `name`."""
    # Not by way of `holder_view`: a listing shows a thousand of them in one piece.
    session = state.sessions.get(hold.session_id)
    part = part_of(hold, name, kind)
    return HoldView(
        shown_owner(hold.owner, hold.hold_id),
        part.mode,
        hold.token,
        remaining_ms(state, hold),
        hold.details.note,
        name,
        part.scope,
        part.kind,
        part.permits,
        state.now_ms - hold.since_ms,
        session_name(session) if session is not None else "",
        session.labels if session is not None else NOTHING,
        revocation_of(state, hold, part.kind, name) if state.pleas else None,
        told_value(hold) if hold.kind is not HoldKind.ELECTION else "",
        state.principals.of(hold) if state.owners else "",
    )


def hold_views(
    state: State, holds: Iterable[tuple[str, Hold]], kind: HoldKind = HoldKind.LOCK
) -> tuple[HoldView, ...]:
    """Return holds as reads show them, each as a holder of the name that comes with it."""
    return tuple([hold_view(state, hold, name, kind) for name, hold in holds])


def lock_view(state: State, name: str) -> LockView:
    """Return the lock `name`, with the holders of subtrees that cover it."""
    holders = lock_holders(state, name)
    lock = state.locks.get(name)
    tickets = lock.queue() if lock is not None else ()
    condition = "held" if holders else "delayed" if _delays(state, name) else "free"
    return LockView(
        name,
        condition,
        holders,
        tuple([waiter_view(state, ticket, name, place) for place, ticket in enumerate(tickets, 1)]),
    )


def lock_holders(state: State, name: str) -> tuple[HoldView, ...]:
    """Return who holds a lock, or a subtree that covers it, in order of their tokens."""
    holds = list(covering_holds(state, name))
    if len(holds) > 1:
        holds.sort(key=lambda named: named[1].token)
    return hold_views(state, holds)


def lock_views(
    state: State, prefix: str, after: str, limit: int, longer_than_ms: int = 0
) -> tuple[list[LockView], str | None]:
    """Return a page of active locks whose names start with `prefix` and follow `after`, and its cursor.

    With `longer_than_ms` only locks that somebody has held for longer are shown.
    """
    limit = min(max(limit, 1), limits.LIST_LIMIT_MAX)
    views: list[LockView] = []
    rows, place = 0, ""
    for name in _names(state, prefix, after):
        if len(views) == limit or rows >= limits.LIST_ROWS_MAX:
            return views, place
        view, place = lock_view(state, name), name
        rows += 1 + len(view.holders) + len(view.queue)
        if not longer_than_ms or any(hold.since_ms > longer_than_ms for hold in view.holders):
            views.append(view)
    return views, None


def _names(state: State, prefix: str, after: str) -> Iterator[str]:
    """Yield the names that are held, wanted or delayed themselves; other records have only intents."""
    start, inclusive = (after, False) if after >= prefix else (prefix, True)
    if start < FIRST_OF_LOCKS:
        start, inclusive = FIRST_OF_LOCKS, True
    for name in state.names.after(start, inclusive=inclusive):
        if not name.startswith(prefix):
            return
        lock = state.locks[name]
        if (lock.held | lock.waiting) & NAMED:
            yield name


def semaphore_view(state: State, name: str) -> SemaphoreView:
    """Return a semaphore; its limit is 0 while nobody holds or wants it."""
    semaphore = state.semaphores.get(name)
    if semaphore is None:
        return SemaphoreView(name, 0, 0)
    return SemaphoreView(
        name,
        semaphore.limit,
        available(semaphore),
        hold_views(state, [(name, hold) for hold in semaphore.holders.values()], HoldKind.SEMAPHORE),
        tuple(
            [
                waiter_view(state, ticket, name, place, HoldKind.SEMAPHORE)
                for place, ticket in enumerate(semaphore.queue.values(), 1)
            ]
        ),
    )


def election_view(state: State, name: str) -> ElectionView:
    """Return an election, with its leader if it has one."""
    lock = state.locks.get(record_name(HoldKind.ELECTION, name))
    if lock is None:
        return ElectionView(name)
    queue = tuple([waiter_view(state, ticket, name, place) for place, ticket in enumerate(lock.queue(), 1)])
    hold = lock.holder
    if hold is None:
        return ElectionView(name, queue=queue)
    return ElectionView(name, hold_view(state, hold, name), hold.details.value, queue)


def fence_view(state: State, name: str, token: int, kind: HoldKind | None = None) -> FenceView:
    """Return whether `token` belongs to a hold of `name`, of one kind or of any.

    Holders of a subtree hold the locks that it covers. A token belongs to one hold, so it has one kind; of a
    hold of several kinds, all count that it has of this name.
    """
    tokens = [_tokens(state, name, one) for one in HoldKind if kind in (None, one)]
    found = [of_kind for of_kind in tokens if token in of_kind]
    return FenceView(bool(found), max(chain(*(found or tokens)), default=0))


def _tokens(state: State, name: str, kind: HoldKind) -> list[int]:
    """Return the tokens of all that hold a lock, a semaphore or an election."""
    if kind is HoldKind.LOCK:
        return [hold.token for _, hold in covering_holds(state, name)]
    return [hold.token for hold in holders_of(state, kind, name)]


def holders_of(state: State, kind: HoldKind, name: str) -> Collection[Hold]:
    """Return all that hold exactly this name of a kind, in order of their tokens."""
    if kind is HoldKind.SEMAPHORE:
        semaphore = state.semaphores.get(name)
        return semaphore.holders.values() if semaphore is not None else ()
    lock = state.locks.get(record_name(kind, name))
    return lock.all_holders() if lock is not None else ()


def queue_of(state: State, kind: HoldKind, name: str) -> Collection[Ticket]:
    """Return all that wait for exactly this name of a kind, in their order."""
    if kind is HoldKind.SEMAPHORE:
        semaphore = state.semaphores.get(name)
        return semaphore.queue.values() if semaphore is not None else ()
    lock = state.locks.get(record_name(kind, name))
    return lock.queue() if lock is not None else ()


def holder_with_token(state: State, kind: HoldKind, name: str, token: int) -> Hold | None:
    """Return the one that holds exactly this name of a kind with this token."""
    crowd = state.crowds.of(kind, name)
    if crowd is not None:
        return crowd.with_token(token)
    return next((hold for hold in holders_of(state, kind, name) if hold.token == token), None)


def holders_meant(state: State, kind: HoldKind, name: str, token: int) -> Collection[Hold]:
    """Return those that hold exactly this name of a kind: the one with `token`, or all if that is 0."""
    if not token:
        return holders_of(state, kind, name)
    hold = holder_with_token(state, kind, name, token)
    return () if hold is None else (hold,)


def session_view(state: State, session_id: SessionId) -> SessionView | None:
    """Return the session, or None if it has expired or never existed."""
    session = state.sessions.get(session_id)
    if session is None:
        return None
    return SessionView(
        session.ttl_ms,
        max(0, session.expires_at_ms - state.now_ms),
        session.owner,
        session.labels,
        tuple(
            [
                hold_view(state, hold, part.name, part.kind)
                for hold in session.holds.values()
                for part in parts_of(hold)
            ]
        ),
        tuple(_tickets(state, session)),
        session_name(session),
    )


def _tickets(state: State, session: Session) -> Iterator[WaiterView]:
    """Yield the waits of a session, looking at each queue once however many of its tickets are in it."""
    places: dict[tuple[str, HoldId], int] = {}
    queues: dict[str, Iterable[Ticket]] = {}
    for ticket in session.tickets.values():
        for part in parts_of(ticket):
            name = record_name(part.kind, part.name)
            if part.kind is HoldKind.SEMAPHORE:
                queues[name] = state.semaphores[part.name].queue.values()
            elif name not in queues:
                queues[name] = state.locks[name].queue()
    for name, queue in queues.items():
        for place, ticket in enumerate(queue, 1):
            places[name, ticket.hold_id] = place
    for ticket in session.tickets.values():
        for part in parts_of(ticket):
            place = places[record_name(part.kind, part.name), ticket.hold_id]
            yield waiter_view(state, ticket, part.name, place, part.kind)


def cell_view(state: State, cell: Cell) -> CellView:
    """Return a cell, with the owner and what is left of the session that it lives with, or of its lease."""
    owner, expires_at_ms = NO_OWNER, cell.expires_at_ms
    if cell.session_id:
        session = state.sessions[cell.session_id]
        owner, expires_at_ms = session.owner, session.expires_at_ms
    left_ms = max(0, expires_at_ms - state.now_ms) if expires_at_ms else None
    return CellView(
        cell.key, cell.value, cell.create_revision, cell.mod_revision, cell.version, owner, left_ms
    )


def cell_views(state: State, prefix: bytes, after: bytes, limit: int) -> tuple[list[CellView], bytes | None]:
    """Return a page of the cells whose keys begin with `prefix` and follow `after`, and its cursor."""
    limit = min(max(limit, 1), limits.LIST_LIMIT_MAX)
    views: list[CellView] = []
    size_bytes = 0
    for cell in state.cells.below(prefix, after):
        if len(views) == limit or size_bytes >= limits.LIST_CELL_BYTES_MAX:
            return views, views[-1].key
        views.append(cell_view(state, cell))
        size_bytes += len(cell.key) + len(cell.value)
    return views, None


def audit(
    state: State,
    name: str,
    session_id: SessionId | HoldId,
    limit: int,
    behind: int | None,
    *,
    by_operators: bool,
) -> list[Linked]:
    """Return what happened last, the newest first: to a name, by a session, or at all.

    Behind the number of a record the oldest come first. `by_operators`: only what operators did to others.
    """
    limit = min(max(limit, 1), limits.AUDIT_LIMIT_MAX)

    def is_wanted(event: Event) -> bool:
        return (
            (not name or event.name == name)
            and (not session_id or event.session_id == session_id)
            and (not by_operators or event.concerns_others)
        )

    return list(islice(state.audit.records(is_wanted, behind), limit))


def ending(state: State, session_id: SessionId, hold_id: HoldId) -> Event | None:
    """Return what ended a session, or else a hold with a lease of its own; None if that was long ago."""
    lease_id, kinds = (session_id, SESSION_ENDINGS) if session_id else (hold_id, HOLD_ENDINGS)
    newest = islice(reversed(state.audit.events), ENDINGS_SEARCHED_MAX if lease_id else 0)
    return next((one for one in newest if one.session_id == lease_id and one.kind in kinds), None)


# -- places in queues, and what is in the way ----------------------------------------------------------------


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


def waiter_view(
    state: State, ticket: Ticket, name: str, place: int, kind: HoldKind = HoldKind.LOCK
) -> WaiterView:
    """Return `ticket` as others may see it, at its place in the queue for `name`."""
    part = part_of(ticket, name, kind)
    return WaiterView(
        shown_owner(ticket.owner, own_id(ticket)),
        part.mode,
        place,
        state.now_ms - ticket.since_ms,
        name,
        part.scope,
        part.kind,
        part.permits,
        ticket.is_conversion,
        ticket.order,
        session_name(session) if (session := state.sessions.get(ticket.session_id)) is not None else "",
        ticket.details.priority,
        state.principals.of(ticket) if state.owners else "",
    )
