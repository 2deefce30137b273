"""One thing as people and programs see it: a lock, a semaphore, an election, a session, a fence or a cell.

All of it is computed on request, and none of it shows a secret.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from lockstate.reads.held import available, hold_view, hold_views, waiter_view
from lockstate.reads.holders import holders_of
from lockstate.reads.parts import parts_of
from lockstate.reads.places import is_delayed
from lockstate.tables.blockers import covering_holds
from lockstate.tables.cells import Cell
from lockstate.tables.owners import session_name
from lockstate.tables.records import Session, Ticket
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.claims import FIRST_OF_LOCKS, record_name
from lockstate.words.ids import NO_OWNER, HoldId, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import NAMED
from lockstate.words.views import (
    CellView,
    ElectionView,
    FenceView,
    HoldView,
    LockView,
    SemaphoreView,
    SessionView,
    WaiterView,
)


def lock_view(state: State, name: str) -> LockView:
    """Return the lock `name`, with the holders of subtrees that cover it."""
    holders = lock_holders(state, name)
    lock = state.locks.get(name)
    tickets = lock.queue() if lock is not None else ()
    condition = "held" if holders else "delayed" if is_delayed(state, name) else "free"
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
