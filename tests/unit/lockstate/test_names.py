"""The index of names: all of them in order, whenever they were added; by itself and through the machine."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstate.tables import names, sorted_runs
from lockstate.tables.names import GONE_MAX
from lockstate.tables.sorted_runs import SortedRuns
from lockstate.tables.state import State
from lockstate.words.commands.entries import Cancel
from lockstate.words.commands.holds import Acquire, Release
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.modes import Mode, Scope
from tests.unit.lockstate.machine_driver import MachineDriver, wanted
from tests.unit.lockstate.short_of_memory import ShortOfMemory, short_of_memory
from tests.unit.lockstate.work_meter import Meter


class Names(Meter):
    """A machine in which somebody holds each name that was added."""

    def add(self, *names: str) -> None:
        """Make names active, in this order."""
        self.run(
            *[Acquire(name, Mode.EXCLUSIVE, HoldId(name), AttemptId("a1"), ttl_ms=1000) for name in names]
        )

    def remove(self, *names: str) -> None:
        """Let names be idle again."""
        self.run(*[Release(HoldId(name)) for name in names])

    def all(self, after: str = "", *, inclusive: bool = True) -> list[str]:
        """Return the names from a place on."""
        return list(self.machine.state.names.after(after, inclusive=inclusive))


def test_a_name_that_comes_back_is_there_once() -> None:
    """A name that went and came again before anybody listed is listed once."""
    index = Names()
    for _ in range(3):
        index.add("a", "b")
        index.remove("a")
        index.add("a")
        index.remove("b")
        assert index.all() == ["a"]
        index.remove("a")
    assert index.all() == []


@pytest.mark.parametrize(
    "key", [lambda n: n, lambda n: -n, lambda n: (n * 7919) % 3001], ids=["up", "down", "mixed"]
)
@pytest.mark.parametrize("is_listed", [False, True])
def test_a_large_index_stays_in_order(key: Callable[[int], int], *, is_listed: bool) -> None:
    """Names are sorted in as others come, and no name is lost as many come and go."""
    index = Names()
    names = [f"{number:05}" for number in range(3000)]
    in_order = [names[number] for number in sorted(range(3000), key=key)]
    index.add(*in_order)
    if is_listed:
        assert index.all() == names
        for start in (0, 511, 512, 1500, 2999):
            assert index.all(names[start], inclusive=False) == names[start + 1 :]
    index.remove(*[name for name in in_order if int(name) % 7])
    assert index.all() == names[::7]
    assert index.all("00700") == names[700::7]
    index.remove(*names[::7])
    assert index.all() == []


def test_names_that_are_soon_gone_are_never_sorted() -> None:
    """A name that is held for a moment costs the same whether few or thousands are active."""
    index = Names()
    index.add("x/few")
    few = [index.cost(*_passing(number)) for number in range(2000)]
    index.add(*[f"{number:05}" for number in range(5000)])
    many = [index.cost(*_passing(number)) for number in range(2000)]
    assert sum(many) < 1.2 * sum(few)


def _passing(number: int) -> tuple[Acquire, Release]:
    name = f"y{number}"
    return Acquire(name, Mode.EXCLUSIVE, HoldId(name), AttemptId("a1"), ttl_ms=1000), Release(HoldId(name))


def test_a_name_that_is_only_wanted_goes_with_the_wait() -> None:
    """A name that was never held is in the index too while somebody waits for it, listed or not."""
    index = Names()
    subtree = Acquire("t", Mode.EXCLUSIVE, HoldId("t"), AttemptId("a1"), ttl_ms=1000, scope=Scope.SUBTREE)
    wish = Acquire("t/a", Mode.EXCLUSIVE, HoldId("w"), AttemptId("a1"), ttl_ms=1000, wait_ms=500)
    index.run(subtree, wish, Cancel(HoldId("w"), AttemptId("a1")))
    assert index.all() == ["t"]
    index.run(wish)
    assert index.all() == ["t", "t/a"]
    index.run(Cancel(HoldId("w"), AttemptId("a1")))
    assert index.all() == ["t"]


@given(st.lists(st.tuples(st.booleans(), st.text("abc", min_size=1, max_size=3)), max_size=60))
def test_an_index_agrees_with_a_set(steps: list[tuple[bool, str]]) -> None:
    """Under any history of coming, going and listing, the index has the names of a set, in order."""
    index = Names()
    expected: set[str] = set()
    for is_listed, name in steps:
        if name in expected:
            expected.remove(name)
            index.remove(name)
        else:
            expected.add(name)
            index.add(name)
        if is_listed:
            assert index.all() == sorted(expected)
            assert index.all(name, inclusive=False) == sorted(other for other in expected if other > name)
    assert index.all() == sorted(expected)


def test_names_that_were_only_wanted_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits for ever new names leave nothing in the index, also when nobody gets anything meanwhile."""
    monkeypatch.setattr(names, "YOUNG_MAX", 20)
    driver = MachineDriver()
    driver.granted("held")
    for number in range(60):
        ticket = driver.queued(locks=wanted("held", f"name-{number}"))
        driver.run(Cancel(ticket.hold_id, AttemptId(ticket.hold_id.replace("h", "a"))))
    assert driver.machine.counts()["tickets"] == 0
    assert len(driver.machine.state.names.young) <= 20


def test_names_that_went_do_not_stay() -> None:
    """Names that were sorted in and went are forgotten when there are some hundreds, though nobody lists."""
    index = Names()
    names = [f"{number:04}" for number in range(GONE_MAX + 2)]
    index.add(*names)
    assert index.all() == names
    index.remove(*names[:GONE_MAX])
    assert len(index.machine.state.names.gone) == GONE_MAX
    index.add(names[0])
    index.remove(names[GONE_MAX])
    assert not index.machine.state.names.gone
    assert index.all() == [names[0], names[-1]]


@given(st.lists(st.tuples(st.booleans(), st.sets(st.text("ab/", min_size=1, max_size=6))), max_size=12))
def test_keys_that_come_and_go_together(steps: list[tuple[bool, set[str]]]) -> None:
    """Runs have what was added and not removed, in order, however short they are and many come at once.

    What is there already, or is not there, is passed over.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_runs, "_RUN_MAX", 6)
        patch.setattr(sorted_runs, "_FEW", 2)
        runs, expected = SortedRuns[str](), set[str]()
        for is_added, keys in steps:
            if is_added:
                runs.add(keys)
                expected |= keys
            else:
                runs.remove(keys)
                expected -= keys
            assert list(runs.after("", inclusive=True)) == sorted(expected)
            assert list(runs.after("ab", inclusive=False)) == sorted(key for key in expected if key > "ab")


@given(st.lists(st.text("ab/", min_size=1, max_size=6), unique=True), st.sets(st.text("ab/", max_size=6)))
def test_very_many_keys_are_sorted_in_steps(keys: list[str], more: set[str]) -> None:
    """In parts, which are then merged: all keys are there in order, and others can come and go."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_runs, "_RUN_MAX", 6)
        patch.setattr(sorted_runs, "_PART", 5)
        patch.setattr(sorted_runs, "_APART", 2)
        runs = SortedRuns[str]()
        for _ in runs.fill(keys):
            pass
        assert list(runs.after("", inclusive=True)) == sorted(keys)
        runs.add(more)
        runs.remove(keys)
        assert list(runs.after("", inclusive=True)) == sorted(more - set(keys))


@pytest.mark.parametrize("comparisons", range(1, 60))
def test_a_listing_that_fails_for_want_of_memory_leaves_the_names_in_order(
    monkeypatch: pytest.MonkeyPatch, comparisons: int
) -> None:
    """Wherever it stops: names that came, went or came back before it and after it are listed as they are."""
    monkeypatch.setattr(sorted_runs, "_RUN_MAX", 6)
    monkeypatch.setattr(sorted_runs, "_FEW", 2)
    table, names = State().claimed, [ShortOfMemory(f"{number:02}") for number in range(24)]
    for name in names[:12]:
        table.record_of(name)
    assert list(table.names.after("", inclusive=True)) == names[:12]
    for name in names[2:9]:
        table.drop(table.locks[name])
    for name in names[3:5] + names[12:20]:
        table.record_of(name)
    with short_of_memory(comparisons):
        table.names.after("", inclusive=True)
    for name in names[4:5] + names[10:16]:
        table.drop(table.locks[name])
    for name in names[4:7] + names[14:15] + names[20:]:
        table.record_of(name)
    left = [*names[:2], *names[3:7], *names[9:10], *names[14:15], *names[16:]]
    assert list(table.names.after("", inclusive=True)) == left == sorted(table.locks)
