"""Reads of the state, for people and programs: computed on request, no secret in any of them."""

from collections.abc import Iterable
from itertools import islice

from lockstate import limits
from lockstate.results import HolderView, LockView, SessionView, WaiterView
from lockstate.state import State
from lockstate.tables import Hold, Lock, Ticket


def remaining_ms(state: State, hold: Hold) -> int:
    """Return how much of the lease of `hold` is left."""
    return max(0, state.sessions[hold.session_id].expires_at_ms - state.now_ms)


def holder_view(state: State, hold: Hold) -> HolderView:
    """Return `hold` as others may see it."""
    return HolderView(hold.owner, hold.mode, hold.token, remaining_ms(state, hold), hold.note, hold.name)


def holder_views(state: State, lock: Lock, count_max: int | None = None) -> tuple[HolderView, ...]:
    """Return the holders of `lock` in order of their tokens, the first `count_max` of them."""
    return tuple([holder_view(state, hold) for hold in islice(lock.holders.values(), count_max)])


def lock_view(state: State, name: str) -> LockView:
    """Return the lock `name`; one that nobody holds, wants or delays is free."""
    lock = state.locks.get(name)
    if lock is None:
        return LockView(name, "free")
    held_or_not = "delayed" if lock.delay is not None else "free"
    return LockView(
        name,
        "held" if lock.holders else held_or_not,
        holder_views(state, lock),
        tuple([_waiter_view(state, ticket, at) for at, ticket in enumerate(lock.queue.values(), 1)]),
    )


def lock_views(state: State, prefix: str, after: str, limit: int) -> tuple[list[LockView], str | None]:
    """Return active locks whose names start with `prefix`, behind `after`, in order, and where to go on."""
    limit = min(max(limit, 1), limits.LIST_LIMIT_MAX)
    views: list[LockView] = []
    rows = 0
    for name in _names(state, prefix, after):
        if len(views) == limit or rows >= limits.LIST_ROWS_MAX:
            return views, views[-1].name
        views.append(lock_view(state, name))
        rows += 1 + len(views[-1].holders) + len(views[-1].queue)
    return views, None


def session_view(state: State, session_id: str) -> SessionView | None:
    """Return the session, or None if it expired or never was. Leases of single holds are no sessions here."""
    session = state.sessions.get(session_id)
    if session is None or session.is_own:
        return None
    # Each queue is looked at once, however many of the session's tickets stand in it.
    names = dict.fromkeys(ticket.name for ticket in session.tickets.values())
    places = {hold_id: at for name in names for at, hold_id in enumerate(state.locks[name].queue, 1)}
    return SessionView(
        session.ttl_ms,
        max(0, session.expires_at_ms - state.now_ms),
        session.owner,
        session.labels,
        tuple([holder_view(state, hold) for hold in session.holds.values()]),
        tuple([_waiter_view(state, ticket, places[ticket.hold_id]) for ticket in session.tickets.values()]),
    )


def position(state: State, ticket: Ticket) -> int:
    """Return the place of `ticket` in its queue, from 1."""
    for at, hold_id in enumerate(state.locks[ticket.name].queue, 1):
        if hold_id == ticket.hold_id:
            return at
    raise AssertionError(f"ticket for {ticket.name!r} is in no queue")


def _waiter_view(state: State, ticket: Ticket, at: int) -> WaiterView:
    return WaiterView(ticket.owner, ticket.mode, at, state.now_ms - ticket.queued_at_ms, ticket.name)


def _names(state: State, prefix: str, after: str) -> Iterable[str]:
    start, inclusive = (after, False) if after >= prefix else (prefix, True)
    for name in state.names.after(start, inclusive=inclusive):
        if not name.startswith(prefix):
            return
        yield name
