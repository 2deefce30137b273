"""Large answers are found step by step: the same as at once, as long as nothing changes in between."""

import bisect
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.token_lines import Right
from lockapi import paging
from lockapi.paging import STEP_ROWS, Records, Search, named
from lockapi.problems import ProblemError
from lockapi.rights import EVERYTHING, Rights
from lockstate.machine import LockMachine
from lockstate.tables.audit import AuditLink, Linked
from lockstate.words import limits
from lockstate.words.events import Event, EventKind
from lockstate.words.ids import HoldId, OwnerName
from lockstate.words.modes import Mode

MACHINE = LockMachine()
OPEN = Rights({"open": frozenset({Right.READ})})


class Table:
    """Names in order, and how often a part of them was asked for."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = sorted(names)
        self.asked: list[int] = []

    def find(self, _machine: LockMachine, after: str, limit: int) -> paging.Found[str, str]:
        """Return the next names."""
        self.asked.append(limit)
        left = [name for name in self.names if name > after]
        return left[:limit], left[limit - 1] if len(left) > limit else None

    def search(self, rights: Rights, limit: int, after: str = "") -> Search[str, str]:
        """Return the search for a page of them."""
        return Search(rights, (after, limit), self.find, named(str), is_whole=rights is EVERYTHING)


def in_steps(search: Search[paging.Row, str]) -> tuple[paging.Found[paging.Row, str], int]:
    """Return what the steps of a search find."""
    while (page := search.step(MACHINE)) is None:
        pass
    return page


def test_a_large_page_is_found_in_steps() -> None:
    """No step looks for more than so many rows, and the last one for what is missing."""
    table = Table([f"{number:04}" for number in range(1500)])
    (rows, place), hidden = in_steps(table.search(EVERYTHING, 3 * STEP_ROWS + 5))
    assert table.asked == [STEP_ROWS] * 3 + [5]
    assert rows == table.names[: 3 * STEP_ROWS + 5]
    assert (place, hidden) == (rows[-1], 0)


def test_a_page_of_one_moment_is_asked_for_once() -> None:
    """What has to be of one moment is found in one piece, by who may read all of it."""
    table = Table([f"open/{number:04}" for number in range(1500)])
    shape: paging.Shape[str, str] = named(str, is_of_one_moment=True)
    search: Search[str, str] = Search(EVERYTHING, ("", 1000), table.find, shape, is_whole=True)
    assert search.step(MACHINE) == ((table.names[:1000], "open/0999"), 0)
    assert table.asked == [1000]
    search = Search(OPEN, ("", 1000), table.find, shape, is_whole=False)
    assert in_steps(search) == ((table.names[:1000], "open/0999"), 0)
    assert table.asked[1:] == [STEP_ROWS] * 6, "also whether there is a next page"


class Wide(NamedTuple):
    """A row with others in it."""

    name: str
    size: int


def test_a_page_is_not_too_large_in_all() -> None:
    """Rows with much in them fill it: as many steps as there are do not make it larger than one may be."""
    rows = [Wide(f"{number:04}", 30) for number in range(1000)]

    def find(_machine: LockMachine, after: str, limit: int) -> paging.Found[Wide, str]:
        left = [row for row in rows if row.name > after]
        return left[:limit], left[limit - 1].name if len(left) > limit else None

    shape: paging.Shape[Wide, str] = paging.Shape(
        lambda row: row.name, lambda row: row.name, size_of=lambda row: row.size
    )
    search: Search[Wide, str] = Search(EVERYTHING, ("", 1000), find, shape, is_whole=True)
    assert len(in_steps(search)[0][0]) == 2 * STEP_ROWS
    assert 30 * (2 * STEP_ROWS) >= limits.LIST_ROWS_MAX > 30 * STEP_ROWS


def test_what_has_looked_at_enough_ends_the_page() -> None:
    """`find` returns less than was asked for when it has looked at as much as it may in one piece."""

    def find(_machine: LockMachine, after: str, _limit: int) -> paging.Found[str, str]:
        return [after + "a"], after + "a"

    search: Search[str, str] = Search(EVERYTHING, ("b", 100), find, named(str), is_whole=True)
    assert search.step(MACHINE) == ((["ba"], "ba"), 0)


@pytest.mark.parametrize("waiting", [0, 300])
def test_who_may_not_read_a_name_finds_nothing_out_about_it(waiting: int) -> None:
    """Neither what is shown, nor where a page ends, nor a refusal depends on how many wait for it."""
    rows = [*[Wide(f"closed/{number:05}", 1 + waiting) for number in range(6_000)], Wide("open/a", 1)]

    def find(_machine: LockMachine, after: str, limit: int) -> paging.Found[Wide, str]:
        """Look at so much in one piece as may be, as the state machine does."""
        left: list[Wide] = []
        size = 0
        for row in rows[bisect.bisect_right(rows, after, key=lambda row: row.name) :]:
            if len(left) == limit or size >= limits.LIST_ROWS_MAX:
                return left, left[-1].name
            left.append(row)
            size += row.size
        return left, None

    shape: paging.Shape[Wide, str] = paging.Shape(
        lambda row: row.name, lambda row: row.name, size_of=lambda row: row.size
    )
    search: Search[Wide, str] = Search(OPEN, ("", 100), find, shape, is_whole=False)
    assert in_steps(search) == (([Wide("open/a", 1)], None), 6_000)


def test_what_is_hidden_is_counted_up_to_the_end_of_the_page() -> None:
    """And once: what comes behind the last row of a page counts on the next one."""
    names = ["closed/1", "open/1", "open2/1", "open/2", "open2/2", "open2/3", "open/3", "open2/4"]

    def find(_machine: LockMachine, after: str, _limit: int) -> paging.Found[str, str]:
        return names[names.index(after) + 1 if after else 0 :], None

    def page(after: str) -> tuple[paging.Found[str, str], int]:
        search: Search[str, str] = Search(OPEN, (after, 2), find, named(str), is_whole=False)
        return in_steps(search)

    assert page("") == ((["open/1", "open/2"], "open/2"), 2)
    assert page("open/2") == ((["open/3"], None), 3)


@pytest.mark.parametrize("hidden", [0, 1, STEP_ROWS - 2, STEP_ROWS, 5 * STEP_ROWS])
@pytest.mark.parametrize("has_next", [False, True])
@pytest.mark.parametrize("is_filtered", [False, True])
def test_whether_a_page_is_the_last_says_nothing_of_what_is_hidden(
    hidden: int, *, has_next: bool, is_filtered: bool
) -> None:
    """A full page has a next one if there is more that the caller may read, however far away."""
    names = ["open/1", "open/2", *[f"open2/{number:04}" for number in range(hidden)]]
    table = Table([*names, "open3"] if has_next else names)
    rights = Rights({"open": frozenset({Right.READ}), "open3": frozenset({Right.READ})})
    shape: paging.Shape[str, str] = paging.Shape(str, str, name_of_place=str if is_filtered else None)
    page, counted = in_steps(Search(rights, ("", 2), table.find, shape, is_whole=False))
    assert page == (["open/1", "open/2"], "open/2" if has_next else None)
    assert counted == (0 if has_next else hidden)


def test_who_may_read_nothing_of_much_is_refused() -> None:
    """There is no place to go on that would give no name away."""
    table = Table([f"closed/{number:05}" for number in range(limits.LIST_ROWS_MAX + 1)])
    with pytest.raises(ProblemError, match="may read none of the names"):
        in_steps(table.search(OPEN, 10))


@given(
    st.sets(st.from_regex(r"(open|closed|open2|opener)/[a-c]{1,3}", fullmatch=True), max_size=60),
    st.integers(1, 7),
    st.integers(1, 9),
    st.sampled_from([EVERYTHING, OPEN]),
)
def test_pages_show_everything_that_may_be_read_once(
    names: set[str], limit: int, step_rows: int, rights: Rights
) -> None:
    """In order, however many rows a step looks for; and what was left out is counted."""
    table = Table(list(names))
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(paging, "STEP_ROWS", step_rows)
            (rows, place), hidden = in_steps(table.search(rights, limit, after))
        assert len(rows) <= limit
        assert hidden >= 0
        assert place is None or rights.covers(Right.READ, place)
        seen += rows
        after = place
    assert seen == [name for name in table.names if rights.covers(Right.READ, name)]


def records(count: int) -> list[Linked]:
    """Return so many records of the audit."""
    happened = [(1, 1, EventKind.RELEASED, f"{number}", Mode.EXCLUSIVE) for number in range(count)]
    return [(Event(*what, OwnerName("o"), 1, HoldId("h"), 0), AuditLink(1)) for what in happened]


@pytest.mark.parametrize("count", [0, 1, STEP_ROWS, STEP_ROWS + 1])
def test_records_are_found_once_and_written_out_in_steps(count: int) -> None:
    """All of them are of one moment, whatever happens between the steps."""
    found = records(count)
    asked: list[LockMachine] = []

    def find(machine: LockMachine) -> tuple[list[Linked], int]:
        asked.append(machine)
        return found, 3

    search, steps = Records(find), 1
    while (page := search.step(MACHINE)) is None:
        steps += 1
    assert [event.name for event in page[0]] == [event.name for event, _ in found]
    assert (page[1], steps, len(asked)) == (3, 1 + -(-count // STEP_ROWS), 1)
