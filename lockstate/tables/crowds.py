"""Holders of names that many hold, to be found by their tokens and by their values.

A few holders are looked through. A name that has more gets a *crowd*, the same holders once more in two
orders, so that a command that means one of them costs as much with ten thousand as with ten. It goes when few
are left, and is derived: no snapshot has it.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from lockstate.tables.principals import NOBODY, Principals
from lockstate.tables.rare import Rare
from lockstate.tables.record_index import RecordIndex
from lockstate.tables.records import Hold
from lockstate.words.claims import record_name
from lockstate.words.ids import HoldId
from lockstate.words.kinds import HoldKind

SEARCHED_MAX = 32
"""Holders of one name that are looked through. With more it has a crowd, until half of these are left."""
_YOUNG_MAX: Final = 16
"""Holders that are sorted in at a time: a command that looks for one must not have to do so with many."""
_BEHIND: Final = "\0"
"""What a name and this sorts right behind it, before any other: it is in no principal's name."""
_token: Final = attrgetter("token")


class Crowd:
    """The holders of one name. What it knows of a hold changes only while that is taken out."""

    def __init__(self, principals: Principals) -> None:
        self._principals = principals
        self._tokens = array("q")
        self._by_token: list[Hold | None] = []
        """Holders at the places of their tokens, which rise; None for one that has left."""
        self._left_count = 0
        self._by_value: RecordIndex[Hold] = RecordIndex(self._place, _YOUNG_MAX)

    def _place(self, hold: Hold) -> tuple[str, str, int]:
        return hold.details.value, self._principals.of(hold), hold.token

    def add(self, hold: Hold) -> None:
        """Add a holder."""
        self._tokens.append(hold.token)
        self._by_token.append(hold)
        if is_known_by_value(hold):
            self._by_value.add(hold)

    def remove(self, hold: Hold) -> None:
        """Take a holder out."""
        self._by_token[bisect_left(self._tokens, hold.token)] = None
        self._left_count += 1
        if self._left_count > len(self._by_token) // 2:
            self._close_up()
        if is_known_by_value(hold):
            self._by_value.remove(hold)

    def set_rare(self, hold: Hold, rare: Rare | None) -> None:
        """Let a holder, which has only this name, have something else that few have: a value, perhaps."""
        if is_known_by_value(hold):
            self._by_value.remove(hold)
        hold.rare = rare
        if is_known_by_value(hold):
            self._by_value.add(hold)

    def by_token(self) -> list[Hold]:
        """Return all holders in order of their tokens."""
        return [hold for hold in self._by_token if hold is not None]

    def by_value(self) -> list[Hold]:
        """Return those that may be meant by their values, in order of these, of principals and of tokens."""
        return list(self._by_value.after(("", NOBODY, 0), inclusive=True))

    def with_token(self, token: int) -> Hold | None:
        """Return the holder that has this token."""
        place = bisect_left(self._tokens, token)
        is_there = place < len(self._tokens) and self._tokens[place] == token
        return self._by_token[place] if is_there else None

    def _close_up(self) -> None:
        """Forget the places of those who have left."""
        holders = self.by_token()
        self._by_token[:] = holders
        self._tokens = array("q", [hold.token for hold in holders])
        self._left_count = 0

    def with_value(self, value: str) -> Hold | None:
        """Return the oldest holder that has this value and is not foreign to the principal that asks."""
        principals = self._principals
        if principals.asking:
            owners = {NOBODY, principals.asking}
        else:
            owners = set(self._owners(value)) if principals.rows else {NOBODY}
        firsts = [self._from(value, owner) for owner in owners]
        found = [one for one in firsts if one is not None and one.details.value == value]
        return min([one for one in found if principals.of(one) in owners], key=_token, default=None)

    def _from(self, value: str, owner: str) -> Hold | None:
        """Return the first holder in the order of values and principals, from these on."""
        return next(self._by_value.after((value, owner, 0), inclusive=True), None)

    def _owners(self, value: str) -> Iterator[str]:
        """Yield the principals that have holds with this value."""
        after = NOBODY
        while (hold := self._from(value, after)) is not None and hold.details.value == value:
            owner = self._principals.of(hold)
            yield owner
            after = owner + _BEHIND


class Crowds:
    """The crowds of all names that have one."""

    def __init__(self, principals: Principals) -> None:
        self.rows: dict[str, Crowd] = {}
        """By the names of records."""
        self._principals = principals

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.rows)

    def of(self, kind: HoldKind, name: str) -> Crowd | None:
        """Return the crowd of a name, if it has one."""
        return self.rows.get(record_name(kind, name)) if self.rows else None

    def joined(self, row_name: str, holders: dict[HoldId, Hold], hold: Hold) -> None:
        """Record that `hold` has come to be one of the holders of a name."""
        crowd = self.rows.get(row_name)
        if crowd is not None:
            crowd.add(hold)
        elif len(holders) > SEARCHED_MAX:
            crowd = self.rows[row_name] = Crowd(self._principals)
            for one in holders.values():
                crowd.add(one)

    def left(self, row_name: str, hold: Hold, left_count: int) -> None:
        """Record that `hold` is no longer among the holders of a name, of which so many are left."""
        crowd = self.rows.get(row_name)
        if crowd is None:
            return
        if left_count > SEARCHED_MAX // 2:
            crowd.remove(hold)
        else:
            del self.rows[row_name]


def is_known_by_value(hold: Hold) -> bool:
    """Whether a hold may be meant by its value: one of several things never is."""
    return hold.rare is not None and bool(hold.rare.value and hold.name)
