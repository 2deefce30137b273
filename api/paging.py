"""How a large answer is found: a few rows in each step, so that a node does something else in between.

Of names what the caller may not read is left out. The place to go on after is always one that may be read,
so it gives no name away.
"""

from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from api.problems import ProblemError
from api.rights import Rights
from holdfast.token_lines import Right
from lockstate import limits
from lockstate.audit import Linked, row
from lockstate.audit_record import AuditEvent
from lockstate.machine import LockMachine

STEP_ROWS: Final = 200
"""Rows that are looked for in one step, which takes a millisecond or two."""
ASKED_MIN: Final = 100
"""Rows that are looked at together, at least: to find the place to go on costs more than a row."""

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
    """How much a row is, of which a page has so much at most (`limits.LIST_ROWS_MAX`)."""


def named(name_of: Callable[[Row], str]) -> Shape[Row, str]:
    """Return the shape of rows whose name is their place."""
    return Shape(name_of, name_of)


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
    ) -> None:
        """Begin behind the first of `page`, for so many rows as it says; `is_whole`: all may be read."""
        self._rights = rights
        self._last: Place | None
        self._last, self._limit = page
        self._find: Callable[[LockMachine, Place, int], Found[Row, Place]] = find
        self._shape: Shape[Row, Place] = shape
        self._is_whole = is_whole
        self._rows: list[Row] = []
        self._looked = self._size = 0

    def step(self, machine: LockMachine, rows_max: int = STEP_ROWS) -> tuple[Found[Row, Place], int] | None:
        """Look a bit further; return the page and how many rows were left out, None if there is more to do.

        Raises ProblemError if nothing was found that may be read, and there is more behind it.
        """
        assert self._last is not None, "the page is found"
        missing = self._limit - len(self._rows)
        asked = min(missing if self._is_whole else max(missing, ASKED_MIN), rows_max)
        found, self._last = self._find(machine, self._last, asked)
        self._rows += found if self._is_whole else [row for row in found if self._is_seen(row)]
        self._looked += len(found)
        self._size += sum([self._shape.size_of(row) for row in found])
        is_full = len(self._rows) >= self._limit or self._size >= limits.LIST_ROWS_MAX
        # What is shorter than asked has looked at as much as may be looked at in one piece.
        return self._page() if is_full or self._last is None or len(found) < asked else None

    def _is_seen(self, row: Row) -> bool:
        return self._rights.covers(Right.READ, self._shape.name_of(row))

    def _page(self) -> tuple[Found[Row, Place], int]:
        rows, last, shape = self._rows, self._last, self._shape
        if len(rows) > self._limit:
            # Some of them are left for the next page; what was hidden between them counts there again.
            return (rows[: self._limit], shape.place_of(rows[self._limit - 1])), self._looked - len(rows)
        if last is None or self._is_whole or self._may_tell(last):
            return (rows, last), self._looked - len(rows)
        if not rows:
            raise nothing_seen(self._looked)
        return (rows, shape.place_of(rows[-1])), self._looked - len(rows)

    def _may_tell(self, place: Place) -> bool:
        name_of_place = self._shape.name_of_place
        return name_of_place is not None and self._rights.covers(Right.READ, name_of_place(place))

    def at_once(self, machine: LockMachine) -> tuple[Found[Row, Place], int]:
        """Return the page as it is at one moment. Raises ProblemError, as `step` does."""
        while (page := self.step(machine, limits.LIST_LIMIT_MAX)) is None:
            pass
        return page


class Records:
    """The search for records of the audit: found at one moment, then written out some at a time.

    What happened never changes, so it does not matter when. `find` also says how many were left out.
    """

    def __init__(self, find: Callable[[LockMachine], tuple[list[Linked], int]]) -> None:
        self._find = find
        self._found: tuple[list[Linked], int] | None = None
        self._rows: list[AuditEvent] = []

    def step(self, machine: LockMachine) -> tuple[list[AuditEvent], int] | None:
        """Do a bit more; return all records and how many were left out, None if there is more to do."""
        if self._found is None:
            self._found = self._find(machine)
        else:
            records, start = self._found[0], len(self._rows)
            self._rows += [row(*record) for record in records[start : start + STEP_ROWS]]
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
