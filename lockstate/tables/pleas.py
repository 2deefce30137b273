"""What holders were asked to give up: the pleas, and which of them a hold, and a wait, has.

A plea hangs on one name of a hold, and is made for one wait or for none. It ends with the hold, with that
name of it, and with that wait. Each wait has pleas of its own, so none of them is lost with another wait.

A wait may also ask by itself, once, after some time: until then it has an `Ask` here.
"""

from typing import Final, TypeAlias, TypeVar

from lockstate.tables.deadlines import Deadlines
from lockstate.tables.ledger import Ledger
from lockstate.tables.records import NOTHING, Ask, Plea
from lockstate.words.ids import HoldId
from lockstate.words.kinds import HoldKind

PleaKey: TypeAlias = tuple[HoldKind, str, int]
"""What is asked of a hold: the kind and the name, and the number of the wait for which it is asked."""
_BOUND: Final = -1
"""In the place of that number: nobody asks, but a namespace says how long the name may be held."""

_Outer = TypeVar("_Outer")
_Inner = TypeVar("_Inner")


def key_of(plea: Plea) -> PleaKey:
    """Return what tells a plea from all others of its hold."""
    return plea.kind, plea.name, _BOUND if plea.is_bound else plea.ticket


class PleaTable:
    """All pleas, in order of creation, and the same again by hold and by wait."""

    def __init__(self, deadlines: Deadlines, ledger: Ledger) -> None:
        self._deadlines, self._ledger = deadlines, ledger
        self.rows: dict[int, Plea] = {}
        self.of_holds: dict[HoldId, dict[PleaKey, Plea]] = {}
        self.of_tickets: dict[int, dict[int, Plea]] = {}
        """The pleas of each wait for which one is made, by order."""
        self.bounds_count = 0
        """How many of them nobody made: where there is none, no lease has to be looked at twice."""
        self.asks: dict[HoldId, Ask] = {}
        """The waits that will ask by themselves, in order of creation, by the ids under which they wait."""

    def __len__(self) -> int:
        """Return how many pleas there are."""
        return len(self.rows)

    def of_hold(self, hold_id: HoldId) -> dict[PleaKey, Plea]:
        """Return the pleas to a hold, in order of creation. The caller does not change them."""
        return self.of_holds.get(hold_id, NOTHING)

    def told(self, hold_id: HoldId) -> list[Plea]:
        """Return what the holder of a hold has been told to give up, in order of creation."""
        return [plea for plea in self.of_hold(hold_id).values() if plea.is_told]

    def of_name(self, hold_id: HoldId, kind: HoldKind, name: str) -> list[Plea]:
        """Return the pleas to a hold for one of its names, in order of creation."""
        return [plea for plea in self.of_hold(hold_id).values() if (plea.kind, plea.name) == (kind, name)]

    def enter(self, plea: Plea) -> None:
        """Add the newest plea, whose key no other of its hold has, and its deadline."""
        self._deadlines.add(plea)
        self._ledger.noted[plea] = 0
        self.rows[plea.order] = plea
        self.bounds_count += plea.is_bound
        self.of_holds.setdefault(plea.hold_id, {})[key_of(plea)] = plea
        if plea.ticket:
            self.of_tickets.setdefault(plea.ticket, {})[plea.order] = plea

    def drop(self, plea: Plea) -> None:
        """Take out a plea."""
        self._deadlines.remove(plea)
        self._ledger.remove(plea)
        del self.rows[plea.order]
        self.bounds_count -= plea.is_bound
        _take_out(self.of_holds, plea.hold_id, key_of(plea))
        if plea.ticket:
            _take_out(self.of_tickets, plea.ticket, plea.order)

    def drop_hold(self, hold_id: HoldId) -> None:
        """Take out all pleas to a hold."""
        for plea in list(self.of_hold(hold_id).values()):
            self.drop(plea)

    def drop_ticket(self, ticket: int) -> None:
        """Take out all pleas that were made for a wait."""
        for plea in list(self.of_tickets.get(ticket, NOTHING).values()):
            self.drop(plea)

    def enter_ask(self, ask: Ask) -> None:
        """Let a wait that has none yet ask by itself, at the deadline of `ask`."""
        self._deadlines.add(ask)
        self._ledger.noted[ask] = 0
        self.asks[ask.hold_id] = ask

    def drop_ask(self, ask: Ask) -> None:
        """Let a wait not ask by itself any more."""
        self._deadlines.remove(ask)
        self._ledger.remove(ask)
        del self.asks[ask.hold_id]


def _take_out(table: dict[_Outer, dict[_Inner, Plea]], key: _Outer, inner: _Inner) -> None:
    """Take an entry out of a table of tables, and the inner table with its last entry."""
    del table[key][inner]
    if not table[key]:
        del table[key]
