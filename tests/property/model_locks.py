"""When two locks conflict in the model, and which ticket goes first.

No intents and no counts: the covered names themselves are compared, against everything there is.
"""

from lockstate import limits
from lockstate.commands import Wanted
from lockstate.modes import Mode, Scope
from lockstate.results import HoldKind
from lockstate.versions import RULES_EXPLICIT
from tests.property.model_records import Delay, Hold, ModelState, Ticket

MAY_SHARE = [{Mode.SHARED}, {Mode.SHARED, Mode.UPDATE}]
"""The sets of modes that two holders of one name may have."""


def modes_agree(one: Mode, other: Mode) -> bool:
    """Whether a name may be held in both modes at once."""
    return {one, other} in MAY_SHARE


def covers(lock: Wanted, name: str) -> bool:
    """Whether `name` is the lock's own, or lies in its subtree."""
    return name == lock.name or (lock.scope is Scope.SUBTREE and name.startswith(lock.name + "/"))


def conflict(one: Wanted, other: Wanted) -> bool:
    """Whether two locks cover a common name in modes that disagree."""
    common = covers(one, other.name) or covers(other, one.name)
    return common and not modes_agree(one.mode, other.mode)


def clash(ones: list[Wanted], others: list[Wanted]) -> bool:
    """Whether any lock of one list conflicts with any of the other."""
    return any(conflict(one, other) for one in ones for other in others)


def is_shared(state: ModelState, one: Hold | Ticket, other: Hold | Ticket) -> bool:
    """Whether two that are the same get one hold: by rules 5 each acquire of permits takes new ones."""
    return is_the_same(one, other) and not (state.rules >= RULES_EXPLICIT and one.kind is HoldKind.SEMAPHORE)


def is_the_same(one: Hold | Ticket, other: Hold | Ticket) -> bool:
    """Whether a session has, or asks for, the same twice for one owner. A conversion is like nothing else."""
    if not one.session_id or any(
        isinstance(item, Ticket) and item.converts is not None for item in (one, other)
    ):
        return False
    of_one, of_other = (
        (item.kind, item.session_id, item.owner, item.permits, sorted(item.locks, key=lambda lock: lock.name))
        for item in (one, other)
    )
    return of_one == of_other


def twin(state: ModelState, ticket: Ticket) -> Ticket | None:
    """Return the first earlier ticket that asks for the same: `ticket` will share its hold."""
    return next((t for t in earlier(state, ticket) if is_shared(state, t, ticket)), None)


def line(state: ModelState) -> list[Ticket]:
    """Return all tickets in the order in which they come: conversions ahead of all others."""
    return sorted(state.tickets, key=lambda t: (t.converts is None, t.created))


def earlier(state: ModelState, ticket: Ticket) -> list[Ticket]:
    """Return the tickets of its kind that come before `ticket`, which need not be queued yet."""
    place = (ticket.converts is None, ticket.created)
    return [t for t in line(state) if t.kind is ticket.kind and (t.converts is None, t.created) < place]


def names(thing: Hold | Ticket) -> list[str]:
    """Return the names that something holds or wants."""
    return [lock.name for lock in thing.locks]


def holds_in_the_way(state: ModelState, ticket: Ticket) -> list[Hold]:
    """Return the holds that conflict with what the ticket wants, in order of token; its own never does."""
    return [
        hold
        for hold in state.holds
        if hold.kind is ticket.kind and hold is not ticket.converts and clash(hold.locks, ticket.locks)
    ]


def tickets_in_the_way(state: ModelState, ticket: Ticket) -> list[Ticket]:
    """Return the earlier tickets that conflict with what the ticket wants."""
    return [t for t in earlier(state, ticket) if clash(t.locks, ticket.locks)]


def delays_in_the_way(state: ModelState, ticket: Ticket) -> list[Delay]:
    """Return the delays that cover anything of what the ticket wants."""
    return [
        delay
        for delay in state.delays
        if delay.kind is ticket.kind
        and clash([Wanted(delay.name, Mode.EXCLUSIVE, delay.scope)], ticket.locks)
    ]


def is_full(state: ModelState, ticket: Ticket) -> bool:
    """Whether a name that the ticket wants has as many holders as it may have."""
    if ticket.converts is not None:
        return False
    return any(
        sum(name in names(hold) for hold in state.holds if hold.kind is ticket.kind)
        >= limits.HOLDERS_COUNT_MAX
        for name in names(ticket)
    )


def used(state: ModelState, name: str) -> int:
    """Return how many permits of a semaphore are held or withheld."""
    held = sum(h.permits for h in state.holds if h.kind is HoldKind.SEMAPHORE and names(h) == [name])
    return held + sum(d.permits for d in state.delays if d.kind is HoldKind.SEMAPHORE and d.name == name)


def is_grantable(state: ModelState, ticket: Ticket) -> bool:
    """Whether the ticket can be granted now."""
    if ticket.kind is HoldKind.SEMAPHORE:
        (name,) = names(ticket)
        first = not any(names(t) == [name] for t in earlier(state, ticket))
        return first and used(state, name) + ticket.permits <= state.limits[name]
    return not (
        holds_in_the_way(state, ticket)
        or tickets_in_the_way(state, ticket)
        or delays_in_the_way(state, ticket)
        or is_full(state, ticket)
    )


def queue(state: ModelState, kind: HoldKind, name: str) -> list[Ticket]:
    """Return the tickets for exactly this name, in order."""
    return [t for t in line(state) if t.kind is kind and name in names(t)]


def position(state: ModelState, ticket: Ticket) -> int:
    """Return the place of the ticket in its queues, from 1; of several, the one furthest behind."""
    return max(queue(state, ticket.kind, name).index(ticket) + 1 for name in names(ticket))
