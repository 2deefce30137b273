"""What only few holds and tickets have: one field of theirs, `rare`, which is None for all others.

So an ordinary hold pays for one pointer, whatever there is here. A `Rare` never changes: a record that is to
say something else gets another one (`changed`), and one that says nothing has none, so equal records have
equal bytes. A hold keeps what its ticket had, but for what only waits have (`of_hold`).
"""

from typing import Annotated, Any, Final, TypeAlias

import msgspec

from lockstate.words import limits
from lockstate.words.ids import AttemptId
from lockstate.words.kinds import IfHeld
from lockstate.words.wanted import PRIORITY_DEFAULT, Asking, WantedPermits, WantedRate

Others: TypeAlias = tuple[tuple[AttemptId, str], ...]
"""Attempts, each with the node process that keeps the connection of its client; the newest is the last."""


class Rare(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """What one hold or ticket has that most have not. Only what differs from its default is stored."""

    note: str = ""
    value: str = ""
    """What an elected leader says, or what marks any other hold."""
    is_secret: bool = False
    """Whether only its holder is told the value."""
    lock_delay_ms: int = 0
    """How long nobody gets what the hold had, after it expired or was ended by force."""
    depth: int = 1
    """How many releases end a hold: one for each acquire that was to be counted. 0 until a session acquires
    what it was handed over, which one release ends as well."""
    attempts: Others = ()
    """The attempts at the request but for the newest one, which the record has (rules/attempts.py)."""
    permits: tuple[WantedPermits, ...] = ()
    """What a hold or a ticket of several kinds has beside its locks."""
    at_ms: int = 0
    """The moment from which on a hold may be used, if its rates were reserved for a later one."""
    rates: tuple[WantedRate, ...] = ()
    """What a ticket takes from rate limits with its grant. Nothing of it is ever given back."""
    if_held: IfHeld = IfHeld.RENEW
    """What a ticket means if another one of its session gets the same before."""
    priority: Annotated[int, msgspec.Meta(ge=0, le=limits.PRIORITY_MAX)] = PRIORITY_DEFAULT
    """The priority of a ticket. A hold keeps it: waits of a higher one may ask it to give up."""
    is_addition: bool = False
    """Whether a ticket that changes a hold adds to it, and does not convert it."""
    asks: Asking | None = None
    """When a ticket asks those that are in its way to give up, if it does so by itself."""


PLAIN: Final = Rare()
"""What nearly all records have: nothing."""


def changed(rare: Rare | None, **fields: Any) -> Rare | None:
    """Return what a record has if these fields of `rare` change; None if that is nothing."""
    after: Rare = msgspec.structs.replace(rare or PLAIN, **fields)
    return None if after == PLAIN else after


def of_hold(rare: Rare | None) -> Rare | None:
    """Return what a hold keeps of what its ticket had."""
    if rare is None:
        return None
    return changed(rare, rates=(), if_held=IfHeld.RENEW, is_addition=False, asks=None)
