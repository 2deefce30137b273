"""What only few holds, tickets and sessions have beside their fields: a table of its own.

So it costs nothing where there is nothing of it. Ids of holds, tickets and sessions differ, so they share the
table. A hold keeps what its ticket had.
"""

from typing import Final

import msgspec

from lockstate.tables import marks
from lockstate.tables.ledger import Ledger
from lockstate.words.commands import PRIORITY_DEFAULT, IfHeld, WantedPermits, WantedRate
from lockstate.words.ids import AttemptId


class Extra(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """What one record has beside its fields. A new field has a default, and is stored only if it differs."""

    depth: int = 1
    """How many releases end a hold: one for each acquire that was to be counted."""
    if_held: IfHeld = IfHeld.RENEW
    """What a ticket means if another one of its session gets the same before."""
    attempts: tuple[tuple[AttemptId, str], ...] = ()
    """The other attempts at the request, each with the node process of its client (rules/attempts.py)."""
    is_secret: bool = False
    """Whether only its holder is told the value."""
    priority: int = PRIORITY_DEFAULT
    """The priority of a ticket. A hold keeps none: it is never preempted."""
    permits: tuple[WantedPermits, ...] = ()
    """What a hold or a ticket of several kinds has beside its locks."""
    rates: tuple[WantedRate, ...] = ()
    """What a ticket takes from rate limits with its grant. Nothing of it is ever given back."""
    is_addition: bool = False
    """Whether a ticket that changes a hold adds to it, and does not convert it."""
    at_ms: int = 0
    """The moment from which on a hold may be used, if its rates were reserved for a later one."""


NO_EXTRA: Final = Extra()
"""What nearly all records have."""


class Extras:
    """What records have beside their fields, by id; only of those that have something."""

    def __init__(self, ledger: Ledger) -> None:
        self.rows: dict[str, Extra] = {}
        """What there is, by id. Others only look at it: with every command, whether there is anything."""
        self._ledger = ledger

    def __len__(self) -> int:
        """Return how many records have something."""
        return len(self.rows)

    def __contains__(self, record_id: str) -> bool:
        """Whether a record has something."""
        return record_id in self.rows

    def get(self, record_id: str) -> Extra:
        """Return what a record has."""
        return self.rows.get(record_id, NO_EXTRA)

    def put(self, record_id: str, extra: Extra) -> None:
        """Say what a record has from now on."""
        self.drop(record_id)
        if extra != NO_EXTRA:
            self.rows[record_id] = extra
            self._ledger.settled_sum += marks.of_content((record_id, extra))

    def drop(self, record_id: str) -> None:
        """Forget what a record has, because it is gone."""
        extra = self.rows.pop(record_id, None)
        if extra is not None:
            self._ledger.settled_sum -= marks.of_content((record_id, extra))

    def dump(self) -> list[tuple[str, Extra]]:
        """Return everything in order of the ids, for a snapshot."""
        return sorted(self.rows.items(), key=lambda item: item[0])

    def load(self, rows: list[tuple[str, Extra]]) -> None:
        """Add a part of what `dump` returned."""
        for record_id, extra in rows:
            self.put(record_id, extra)

    def recomputed_sum(self) -> int:
        """Return the sum of the marks of all of them (see `marks`)."""
        return sum([marks.of_content(item) for item in self.rows.items()])
