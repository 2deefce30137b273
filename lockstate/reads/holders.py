"""Who holds exactly one name of a kind, and who waits for it."""

from collections.abc import Collection

from lockstate.tables.records import Hold, Ticket
from lockstate.tables.state import State
from lockstate.words.claims import record_name
from lockstate.words.kinds import HoldKind


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
