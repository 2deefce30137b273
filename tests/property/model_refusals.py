"""The model's refusals of what cannot be granted, to requests that do not wait or have waited in vain."""

from lockstate.words import limits
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Reason, Refused
from lockstate.words.views import HolderView
from tests.property.model_locks import (
    can_have_locks,
    clash,
    conflict,
    covers,
    delays_in_the_way,
    freeze_over,
    holds_in_the_way,
    parts_of,
    queue,
    used,
)
from tests.property.model_records import Hold, ModelState, Ticket
from tests.property.model_views import available, holder_view, holders


def refuse_now(state: ModelState, ticket: Ticket, *but: Hold) -> Refused:
    """Return the refusal of a ticket that can neither be granted nor wait; `but` are not in its way."""
    freeze = freeze_over(state, ticket)
    if freeze is not None:
        left_ms = 1000 if freeze.until_ms is None else freeze.until_ms - state.now_ms
        return Refused(Reason.FROZEN, "", retry_after_ms=max(1, min(left_ms, 1000)))
    wanted = parts_of(ticket, HoldKind.SEMAPHORE)
    if not wanted or (ticket.locks and ticket.is_of_kinds and _is_a_lock_taken(state, ticket)):
        return lock_held(state, ticket, *but)
    lacking = [
        part.name
        for part in wanted
        if queue(state, part.kind, part.name)
        or used(state, part.name) + part.permits > state.limits[part.name]
    ]
    return no_permits(state, (lacking or [wanted[0].name])[0])


def _is_a_lock_taken(state: ModelState, ticket: Ticket) -> bool:
    """Whether somebody else has or wants any of the locks, also who came later."""
    others = [t for t in state.tickets if t is not ticket and t.kind is ticket.kind]
    return not can_have_locks(state, ticket) or any(clash(t.locks, ticket.locks) for t in others)


def lock_held(state: ModelState, ticket: Ticket, *but: Hold) -> Refused:
    """Return the refusal that says who is in the way, and when to ask again."""
    shown = _in_the_way(state, ticket, but) or _of_the_names(state, ticket)
    shown = shown[: limits.HOLDERS_SHOWN_MAX]
    queue_length = max(len(queue(state, ticket.kind, lock.name)) for lock in ticket.locks)
    ends_ms = [d.until_ms - state.now_ms for d in delays_in_the_way(state, ticket)]
    return Refused(Reason.LOCK_HELD, "", tuple(shown), queue_length, _hint(shown, ends_ms))


def no_permits(state: ModelState, name: str) -> Refused:
    """Return the refusal that says who has the permits."""
    shown = holders(state, HoldKind.SEMAPHORE, name)[: limits.HOLDERS_SHOWN_MAX]
    ends_ms = [
        d.until_ms - state.now_ms for d in state.delays if d.kind is HoldKind.SEMAPHORE and d.name == name
    ]
    ends_ms = ends_ms[: limits.HOLDERS_SHOWN_MAX]
    facts = {"available": max(0, available(state, name)), "limit": state.limits[name]}
    queue_length = len(queue(state, HoldKind.SEMAPHORE, name))
    return Refused(
        Reason.NO_PERMITS, "", tuple(shown), queue_length, _hint(list(shown), ends_ms), facts=facts
    )


def limit_mismatch(state: ModelState, name: str) -> Refused:
    """Return the limit that the semaphore really has."""
    return Refused(Reason.LIMIT_MISMATCH, "", facts={"limit": state.limits[name]})


def _in_the_way(state: ModelState, ticket: Ticket, but: tuple[Hold, ...]) -> list[HolderView]:
    return [
        next(
            holder_view(state, hold, lock)
            for lock in parts_of(hold, ticket.kind)
            if any(conflict(lock, wanted) for wanted in ticket.locks)
        )
        for hold in holds_in_the_way(state, ticket)
        if not any(hold is one for one in but)
    ]


def _of_the_names(state: ModelState, ticket: Ticket) -> list[HolderView]:
    views = []
    for hold in state.holds:
        mine = parts_of(hold, ticket.kind)
        of_names = [lock for lock in mine if any(covers(lock, other.name) for other in ticket.locks)]
        if of_names:
            views.append(holder_view(state, hold, of_names[0]))
    return views


def _hint(shown: list[HolderView], ends_ms: list[int]) -> int:
    lease_ends_ms = [view.expires_in_ms for view in shown if view.expires_in_ms is not None]
    return max(1, min([*lease_ends_ms, *ends_ms, 1000]))  # holders release long before their leases end
