"""How a large answer is found: a few rows in each step, so that a node does something else in between.

Of names what the caller may not read is left out. The place to go on after is always one that may be read,
so it gives no name away.
"""

from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from holdfast.token_lines import Right
from lockapi.problems import ProblemError
from lockapi.rights import Rights
from lockstate.machine import LockMachine
from lockstate.tables import audit
from lockstate.tables.audit_record import AuditEvent
from lockstate.words import limits

STEP_ROWS: Final = 200
"""Rows that are looked for in one step, which takes a millisecond or two."""
Row = TypeVar("Row")
Place = TypeVar("Place", str, bytes)

Found = tuple[list[Row], Place | None]
"""Rows, and the place to go on after if there may be more."""


class Shape(NamedTuple, Generic[Row, Place]):
    """What the rows of a listing are like."""

    name_of: Callable[[Row], str]
    """The name by which it is decided who may read a row."""
    place_of: Callable[[Row], Place]
    name_of_place: Callable[[Place], str] | None = None
    """The name that a place says; None if a place is always that of a row."""
    size_of: Callable[[Row], int] = lambda _: 1
    """How much a row is."""
    size_max: int = limits.LIST_ROWS_MAX
    """A page that has so much in all goes on to no other step."""
    is_of_one_moment: bool = False
    """Whether a page is found in one step, if all of it may be read."""


def named(name_of: Callable[[Row], str], *, is_of_one_moment: bool = False) -> Shape[Row, str]:
    """Return the shape of rows whose name is their place."""
    return Shape(name_of, name_of, is_of_one_moment=is_of_one_moment)


class Search(Generic[Row, Place]):
    """The search for one page. `find` takes a state, the place to go on after and a limit."""

    def __init__(
        self,
        rights: Rights,
        page: tuple[Place, int],
        find: Callable[[LockMachine, Place, int], Found[Row, Place]],
        shape: Shape[Row, Place],
        *,
        is_whole: bool,
        tells_hidden: bool = False,
    ) -> None:
        """Begin behind the first of `page`, for so many rows as it says; `is_whole`: all may be read.

        `tells_hidden`: the caller may know how much is left out.
        """
        self._rights = rights
        self._last: Place | None
        self._last, self._limit = page
        self._find: Callable[[LockMachine, Place, int], Found[Row, Place]] = find
        self._shape: Shape[Row, Place] = shape
        self._is_whole = is_whole
        self._tells_hidden = tells_hidden
        self._rows: list[Row] = []
        self._hidden = self._pending = self._size = 0

    def step(self, machine: LockMachine) -> tuple[Found[Row, Place], int] | None:
        """Look a bit further; return the page and how many rows were left out, None if there is more to do.

        Raises ProblemError if nothing was found that may be read, and there is more behind it.
        """
        assert self._last is not None, "the page is found"
        asked = STEP_ROWS
        if self._is_whole:
            missing = self._limit - len(self._rows)
            asked = missing if self._shape.is_of_one_moment else min(missing, STEP_ROWS)
        found, last = self._find(machine, self._last, asked)
        return self._page() if self._take(found, last) or self._is_over(is_short=len(found) < asked) else None

    def _take(self, found: list[Row], last: Place | None) -> bool:
        """Take what may be read and has room; return whether there was something for the next page."""
        self._last = last
        for row in found:
            if not (self._is_whole or self._rights.covers(Right.READ, self._shape.name_of(row))):
                self._pending += 1
            elif len(self._rows) == self._limit:
                self._last = self._shape.place_of(self._rows[-1])
                return True
            else:
                self._rows.append(row)
                self._size += self._shape.size_of(row)
                self._hidden, self._pending = self._hidden + self._pending, 0
        return False

    def _is_over(self, *, is_short: bool) -> bool:
        """Whether nothing more is looked for, `is_short` if less was found than asked for.

        What the caller may not read makes no difference but by its number: from where a page ends anything
        else could be found out, such as how many wait for a name. So a page that is full ends when something
        was found for the next one, or nothing more is there.
        """
        looked = len(self._rows) + self._hidden + self._pending
        if self._last is None or looked >= limits.LIST_ROWS_MAX or self._size >= self._shape.size_max:
            return True
        if self._is_whole and len(self._rows) == self._limit:
            return True
        # What is short ends the page with a filter, and for who may read everything: as much was looked at as
        # may be for one.
        return is_short and (self._is_whole or self._shape.name_of_place is not None)

    def _page(self) -> tuple[Found[Row, Place], int]:
        """Return what was found. What is hidden behind the last row of a page counts on the next one."""
        rows, last = self._rows, self._last
        if last is None:
            return (rows, None), self._hidden + self._pending
        if self._is_whole or self._may_tell(last):
            return (rows, last), self._hidden
        if not rows:
            raise nothing_seen(self._pending if self._tells_hidden else 0)
        return (rows, self._shape.place_of(rows[-1])), self._hidden

    def _may_tell(self, place: Place) -> bool:
        name_of_place = self._shape.name_of_place
        return name_of_place is not None and self._rights.covers(Right.READ, name_of_place(place))


class Records:
    """The search for records of the audit: found at one moment, then written out some at a time.

    What happened never changes, so it does not matter when. `find` also says how many were left out.
    """

    def __init__(self, find: Callable[[LockMachine], tuple[list[audit.Linked], int]]) -> None:
        self._find = find
        self._found: tuple[list[audit.Linked], int] | None = None
        self._rows: list[AuditEvent] = []

    def step(self, machine: LockMachine) -> tuple[list[AuditEvent], int] | None:
        """Do a bit more; return all records and how many were left out, None if there is more to do."""
        if self._found is None:
            self._found = self._find(machine)
        else:
            records, start = self._found[0], len(self._rows)
            self._rows += [audit.row(*record) for record in records[start : start + STEP_ROWS]]
        records, hidden = self._found
        return (self._rows, hidden) if len(self._rows) == len(records) else None


def nothing_seen(looked: int) -> ProblemError:
    """Return the refusal of a page of `looked` names, none of which may be read; 0 if that is not told."""
    names = f"{looked} names" if looked else "names"
    return ProblemError(
        "forbidden",
        f"prefix: the caller may read none of the {names} that come next: name a prefix that it may"
        f" read (right {Right.READ})",
    )
