"""The things that a hold has or a ticket wants, one by one: each a kind and a name."""

from typing import NamedTuple

from lockstate.tables.records import Claimant, Hold, Ticket, each_lock, permits_in
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import CONFLICTS, UNIT, Mode, Scope, claim_of


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
