"""When two locks conflict in the model, and which ticket goes first.

No intents and no counts: the covered names themselves are compared, against everything there is.
"""

from lockstate.words import limits
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode, Scope
from lockstate.words.wanted import PRIORITY_DEFAULT, Wanted
from tests.property.model_records import Delay, Hold, ModelFreeze, ModelState, Ticket

MAY_SHARE = [
    {Mode.SHARED},
    {Mode.SHARED, Mode.UPDATE},
    {Mode.CONCURRENT_READ},
    {Mode.CONCURRENT_READ, Mode.SHARED},
    {Mode.CONCURRENT_READ, Mode.UPDATE},
    {Mode.CONCURRENT_READ, Mode.CONCURRENT_WRITE},
    {Mode.CONCURRENT_WRITE},
]
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


def is_shared(one: Hold | Ticket, other: Hold | Ticket) -> bool:
    """Whether two that are the same get one hold: each acquire of permits takes new ones."""
    return is_the_same(one, other) and one.kind is not HoldKind.SEMAPHORE


def is_the_same(one: Hold | Ticket, other: Hold | Ticket) -> bool:
    """Whether a session has, or asks for, the same twice for one owner. A change is like nothing else."""
    if not one.session_id or one.is_of_kinds or other.is_of_kinds:
        return False
    if any(isinstance(item, Ticket) and item.changes is not None for item in (one, other)):
        return False
    of_one, of_other = (
        (item.kind, item.session_id, item.owner, item.permits, sorted(item.locks, key=lambda lock: lock.name))
        for item in (one, other)
    )
    return of_one == of_other


def twin(state: ModelState, ticket: Ticket) -> Ticket | None:
    """Return the first earlier ticket that asks for the same: `ticket` will share its hold."""
    return next((t for t in earlier(state, ticket) if is_shared(t, ticket)), None)


def place(ticket: Ticket) -> tuple[bool, int, int]:
    """Return what tickets are sorted by: a step of priority is worth some time of waiting."""
    ahead_ms = (ticket.priority - PRIORITY_DEFAULT) * limits.PRIORITY_STEP_MS
    return ticket.converts is None, ticket.queued_at_ms - ahead_ms, ticket.created


def line(state: ModelState) -> list[Ticket]:
    """Return all tickets in the order in which they come: conversions ahead of all others."""
    return sorted(state.tickets, key=place)


def earlier(state: ModelState, ticket: Ticket) -> list[Ticket]:
    """Return the tickets that come before `ticket`, which need not be queued yet."""
    return [t for t in line(state) if place(t) < place(ticket)]


def overtakes(state: ModelState, ticket: Ticket) -> bool:
    """Whether a new ticket, not a conversion, comes before one that will have to wait for it."""
    later = [t for t in state.tickets if place(t) > place(ticket)]
    return ticket.converts is None and any(meet(ticket, t) for t in later)


def meet(one: Ticket, other: Ticket) -> bool:
    """Whether the later of two waits for the earlier: at a lock, or in the queue of a semaphore."""
    if one.kind is other.kind and clash(one.locks, other.locks):
        return True
    of_one, of_other = ({part.name for part in parts_of(t, HoldKind.SEMAPHORE)} for t in (one, other))
    return not of_one.isdisjoint(of_other)


class Part(Wanted, frozen=True):
    """One of the things that somebody holds or wants."""

    kind: HoldKind = HoldKind.LOCK
    permits: int = 0


def parts(thing: Hold | Ticket) -> list[Part]:
    """Return all that something holds or wants: locks, then permits."""
    beside = [Part(one.name, kind=HoldKind.SEMAPHORE, permits=one.permits) for one in thing.beside]
    locks = [Part(lock.name, lock.mode, lock.scope, thing.kind, thing.permits) for lock in thing.locks]
    return locks + beside


def parts_of(thing: Hold | Ticket, kind: HoldKind, name: str = "") -> list[Part]:
    """Return the parts of one kind, and of one name if one is given."""
    return [part for part in parts(thing) if part.kind is kind and name in {"", part.name}]


def names(thing: Hold | Ticket) -> list[str]:
    """Return the names that something holds or wants."""
    return [part.name for part in parts(thing)]


def permits_of(thing: Hold | Ticket, name: str) -> int:
    """Return how many permits of a semaphore something holds or wants."""
    return sum(part.permits for part in parts_of(thing, HoldKind.SEMAPHORE, name))


def holds_in_the_way(state: ModelState, ticket: Ticket) -> list[Hold]:
    """Return the holds that conflict with what the ticket wants, in order of token; its own never does."""
    return [
        hold
        for hold in state.holds
        if hold.kind is ticket.kind and hold is not ticket.converts and clash(hold.locks, ticket.locks)
    ]


def tickets_in_the_way(state: ModelState, ticket: Ticket) -> list[Ticket]:
    """Return the earlier tickets that conflict with what the ticket wants."""
    return [t for t in earlier(state, ticket) if t.kind is ticket.kind and clash(t.locks, ticket.locks)]


def tickets_ahead(state: ModelState, ticket: Ticket, name: str) -> list[Ticket]:
    """Return the earlier tickets for permits of a semaphore."""
    return [t for t in earlier(state, ticket) if permits_of(t, name)]


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
        sum(bool(parts_of(hold, ticket.kind, lock.name)) for hold in state.holds) >= limits.HOLDERS_COUNT_MAX
        for lock in ticket.locks
    )


def used(state: ModelState, name: str) -> int:
    """Return how many permits of a semaphore are held or withheld."""
    held = sum(permits_of(h, name) for h in state.holds)
    return held + sum(d.permits for d in state.delays if d.kind is HoldKind.SEMAPHORE and d.name == name)


def is_grantable(state: ModelState, ticket: Ticket) -> bool:
    """Whether the ticket can be granted now."""
    return (
        freeze_over(state, ticket) is None
        and can_have_permits(state, ticket)
        and can_have_locks(state, ticket)
    )


def freeze_over(state: ModelState, ticket: Ticket) -> ModelFreeze | None:
    """Return a freeze that keeps the ticket from what it wants: of its first part, the nearest above it."""
    for part in parts(ticket):
        above = [one for one in state.freezes if f"{part.name}/".startswith(f"{one.prefix}/")]
        below = [one for one in state.freezes if covers(part, one.prefix)]
        if above:
            return max(above, key=lambda one: len(one.prefix))
        if below:
            return min(below, key=lambda one: one.prefix)
    return None


def is_left_in(prefix: str, thing: Hold | Ticket) -> bool:
    """Whether something is held or waited for at or below a prefix, or a subtree with it is held."""
    covering = parts(thing) if isinstance(thing, Hold) and thing.kind is HoldKind.LOCK else []
    return any(f"{name}/".startswith(f"{prefix}/") for name in names(thing)) or any(
        covers(part, prefix) for part in covering
    )


def can_have_permits(state: ModelState, ticket: Ticket) -> bool:
    """Whether it is the first that wants each of its permits, and they are there."""
    return all(
        not tickets_ahead(state, ticket, part.name)
        and used(state, part.name) + part.permits <= state.limits[part.name]
        for part in parts_of(ticket, HoldKind.SEMAPHORE)
    )


def can_have_locks(state: ModelState, ticket: Ticket) -> bool:
    """Whether nothing is in the way of what it wants beside permits."""
    return ticket.kind is HoldKind.SEMAPHORE or not (
        holds_in_the_way(state, ticket)
        or tickets_in_the_way(state, ticket)
        or delays_in_the_way(state, ticket)
        or is_full(state, ticket)
    )


def queue(state: ModelState, kind: HoldKind, name: str) -> list[Ticket]:
    """Return the tickets for exactly this name, in order."""
    return [t for t in line(state) if parts_of(t, kind, name)]


def position(state: ModelState, ticket: Ticket) -> int:
    """Return the place of the ticket in its queues, from 1; of several, the one furthest behind."""
    return max(queue(state, part.kind, part.name).index(ticket) + 1 for part in parts(ticket))


def claims(thing: Hold | Ticket) -> int:
    """Return how many claims something has: its names and all above them, each once for each mode.

    Of several kinds each semaphore and each rate limit is one more.
    """
    if thing.kind is not HoldKind.LOCK:
        return 1
    claimed = {(lock.name, lock.mode, "itself") for lock in thing.locks}
    for lock in thing.locks:
        parts = lock.name.split("/")
        claimed |= {("/".join(parts[:end]), lock.mode, "below") for end in range(1, len(parts))}
    return (len(claimed) or 1) + len(thing.beside) + len(thing.rates)
