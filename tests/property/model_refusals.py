"""The model's refusals of what cannot be granted, to requests that do not wait or have waited in vain."""

from lockstate import limits
from lockstate.results import HolderView, HoldKind, Reason, Refused
from tests.property.model_locks import (
    conflict,
    covers,
    delays_in_the_way,
    holds_in_the_way,
    names,
    queue,
)
from tests.property.model_records import ModelState, Ticket
from tests.property.model_views import available, holder_view, holders


def refuse_now(state: ModelState, ticket: Ticket) -> Refused:
    """Return the refusal of a ticket that can neither be granted nor wait."""
    if ticket.kind is HoldKind.SEMAPHORE:
        return no_permits(state, ticket)
    return lock_held(state, ticket)


def lock_held(state: ModelState, ticket: Ticket) -> Refused:
    """Return the refusal that says who is in the way, and when to ask again."""
    shown = _in_the_way(state, ticket) or _of_the_names(state, ticket)
    shown = shown[: limits.HOLDERS_SHOWN_MAX]
    queue_length = max(len(queue(state, ticket.kind, name)) for name in names(ticket))
    ends_ms = [d.until_ms - state.now_ms for d in delays_in_the_way(state, ticket)]
    return Refused(Reason.LOCK_HELD, "", tuple(shown), queue_length, _hint(shown, ends_ms))


def no_permits(state: ModelState, ticket: Ticket) -> Refused:
    """Return the refusal that says who has the permits."""
    (name,) = names(ticket)
    shown = holders(state, HoldKind.SEMAPHORE, name)[: limits.HOLDERS_SHOWN_MAX]
    ends_ms = [
        d.until_ms - state.now_ms for d in state.delays if d.kind is HoldKind.SEMAPHORE and d.name == name
    ]
    facts = {"available": max(0, available(state, name)), "limit": state.limits[name]}
    queue_length = len(queue(state, HoldKind.SEMAPHORE, name))
    return Refused(
        Reason.NO_PERMITS, "", tuple(shown), queue_length, _hint(list(shown), ends_ms), facts=facts
    )


def limit_mismatch(state: ModelState, name: str) -> Refused:
    """Return the limit that the semaphore really has."""
    return Refused(Reason.LIMIT_MISMATCH, "", facts={"limit": state.limits[name]})


def _in_the_way(state: ModelState, ticket: Ticket) -> list[HolderView]:
    return [
        next(
            holder_view(state, hold, lock)
            for lock in hold.locks
            if any(conflict(lock, wanted) for wanted in ticket.locks)
        )
        for hold in holds_in_the_way(state, ticket)
    ]


def _of_the_names(state: ModelState, ticket: Ticket) -> list[HolderView]:
    views = []
    for hold in state.holds:
        of_names = [lock for lock in hold.locks if any(covers(lock, name) for name in names(ticket))]
        if hold.kind is ticket.kind and of_names:
            views.append(holder_view(state, hold, of_names[0]))
    return views


def _hint(shown: list[HolderView], ends_ms: list[int]) -> int:
    return max(1, min([view.expires_in_ms for view in shown] + ends_ms, default=1000))
