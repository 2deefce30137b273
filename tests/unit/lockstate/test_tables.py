"""The plain data structures: deadlines and the index of names."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstate.tables import EMPTY, Deadlines, NameIndex, Timed, joined, without

FAR_MS = 10_000


def _record(order: int, expires_at_ms: int) -> Timed:
    return Timed(order=order, expires_at_ms=expires_at_ms)


def _pop_all(deadlines: Deadlines, now_ms: int) -> list[int]:
    popped = []
    while (record := deadlines.pop_due(now_ms)) is not None:
        popped.append(record.order)
    return popped


def test_what_ends_now_is_not_over_yet() -> None:
    """A record is due once time has passed its end, not before."""
    deadlines = Deadlines()
    deadlines.set(_record(1, 100))
    assert deadlines.pop_due(100) is None
    assert _pop_all(deadlines, 101) == [1]
    assert len(deadlines) == 0


def test_records_end_in_order() -> None:
    """The first to end comes first; of equal ones, the first to be made."""
    deadlines = Deadlines()
    for order, expires_at_ms in ((2, 50), (1, 50), (3, 40)):
        deadlines.set(_record(order, expires_at_ms))
    assert _pop_all(deadlines, FAR_MS) == [3, 1, 2]


def test_a_later_end_counts() -> None:
    """A renewed record is not due at its old end, and is ordered by its new one."""
    deadlines = Deadlines()
    first, second = _record(1, 50), _record(2, 60)
    for record in (first, second):
        deadlines.set(record)
    first.expires_at_ms = 70
    deadlines.set(first)
    assert deadlines.next_ms() == 60
    assert deadlines.pop_due(60) is None
    assert _pop_all(deadlines, FAR_MS) == [2, 1]


def test_an_earlier_end_counts() -> None:
    """A record whose end comes nearer is due at the new end, and only once."""
    deadlines = Deadlines()
    record = _record(1, 500)
    deadlines.set(record)
    record.expires_at_ms = 50
    deadlines.set(record)
    record.expires_at_ms = 500
    deadlines.set(record)
    assert deadlines.next_ms() == 500
    record.expires_at_ms = 60
    deadlines.set(record)
    assert _pop_all(deadlines, FAR_MS) == [1]
    assert deadlines.next_ms() is None


def test_a_discarded_record_never_ends() -> None:
    """What was taken out is not due any more, and taking it out twice does no harm."""
    deadlines = Deadlines()
    record = _record(1, 50)
    deadlines.set(record)
    deadlines.discard(record)
    deadlines.discard(record)
    assert deadlines.next_ms() is None
    assert deadlines.pop_due(FAR_MS) is None


def test_memory_follows_the_records() -> None:
    """However many records come and go, the heap stays near the number of those that live."""
    deadlines = Deadlines()
    lasting = _record(0, FAR_MS)
    deadlines.set(lasting)
    for order in range(1, 5000):
        passing = _record(order, FAR_MS + order)
        deadlines.set(passing)
        deadlines.discard(passing)
    assert len(deadlines._heap) <= 2 + Deadlines._HUSKS_MIN
    assert _pop_all(deadlines, 3 * FAR_MS) == [0]


@given(
    st.lists(
        st.tuples(st.sampled_from(["set", "discard", "pass"]), st.integers(0, 5), st.integers(0, 30)),
        max_size=40,
    )
)
def test_deadlines_agree_with_a_dictionary(steps: list[tuple[str, int, int]]) -> None:
    """Under any history, the same records are due in the same order as in a dictionary searched through."""
    deadlines = Deadlines()
    expected: dict[int, Timed] = {}
    order = 0
    for verb, pick, number in steps:
        keys = sorted(expected)
        if verb == "set" and pick >= len(keys):
            order += 1
            expected[order] = _record(order, number)
            deadlines.set(expected[order])
        elif verb == "set":
            expected[keys[pick]].expires_at_ms = number
            deadlines.set(expected[keys[pick]])
        elif verb == "discard" and pick < len(keys):
            deadlines.discard(expected.pop(keys[pick]))
        else:
            due = sorted((r.expires_at_ms, r.order) for r in expected.values() if r.expires_at_ms < number)
            assert _pop_all(deadlines, number) == [order for _, order in due]
            for _, over in due:
                del expected[over]
        assert len(deadlines) == len(expected)
        assert deadlines.next_ms() == min((r.expires_at_ms for r in expected.values()), default=None)


def test_names_are_in_order() -> None:
    """Names come in order whatever the order in which they were added, and from any place on."""
    index = NameIndex()
    for name in ("b", "c", "a"):
        index.add(name)
    assert list(index.after("", inclusive=True)) == ["a", "b", "c"]
    assert list(index.after("b", inclusive=True)) == ["b", "c"]
    assert list(index.after("b", inclusive=False)) == ["c"]
    assert list(index.after("bb", inclusive=True)) == ["c"]
    assert list(index.after("z", inclusive=True)) == []


def test_an_empty_index_has_no_names() -> None:
    """An index is empty again when its last name is removed."""
    index = NameIndex()
    assert list(index.after("", inclusive=True)) == []
    index.add("a")
    index.remove("a")
    assert list(index.after("", inclusive=True)) == []


@pytest.mark.parametrize(
    "key", [lambda n: n, lambda n: -n, lambda n: (n * 7919) % 3001], ids=["up", "down", "mixed"]
)
def test_a_large_index_stays_in_order(key: Callable[[int], int]) -> None:
    """Runs are split and dropped as names come and go, and no name is lost."""
    index = NameIndex()
    names = [f"{number:05}" for number in range(3000)]
    for number in sorted(range(3000), key=key):
        index.add(names[number])
    assert list(index.after("", inclusive=True)) == names
    for start in (0, 511, 512, 1500, 2999):
        assert list(index.after(names[start], inclusive=False)) == names[start + 1 :]
    for number in sorted(range(3000), key=key):
        if number % 7:
            index.remove(names[number])
    assert list(index.after("", inclusive=True)) == names[::7]
    assert list(index.after("00700", inclusive=True)) == names[700::7]


@given(st.sets(st.text(max_size=4), max_size=200), st.integers(1, 20))
def test_a_loaded_index_is_like_one_made_name_by_name(names: set[str], step: int) -> None:
    """Names loaded together stand in order, and the index goes on from there."""
    index = NameIndex()
    index._STEP = step
    for _ in index.load(names):
        pass
    assert list(index.after("", inclusive=True)) == sorted(names)
    for name in ("m", "zzzzz"):
        if name not in names:
            index.add(name)
            names = names | {name}
    assert list(index.after("", inclusive=True)) == sorted(names)


def test_a_large_index_is_loaded_in_steps() -> None:
    """Many names make many steps and short runs, in order."""
    names = [f"{number * 7919 % 20_000:05}" for number in range(20_000)]
    index = NameIndex()
    assert sum(1 for _ in index.load(names)) > 5
    assert list(index.after("", inclusive=True)) == sorted(names)
    assert max(len(run) for run in index._runs) <= NameIndex._RUN_MAX


def test_loaded_deadlines_are_like_set_ones() -> None:
    """Records loaded together are due in order."""
    deadlines = Deadlines()
    deadlines.load([_record(2, 50), _record(1, 50)])
    deadlines.load([_record(3, 40)])
    deadlines.settle()
    assert len(deadlines) == 3
    assert _pop_all(deadlines, FAR_MS) == [3, 1, 2]


@given(st.lists(st.integers(0, 5), max_size=30))
def test_shared_items_never_change(keys: list[int]) -> None:
    """Adding and removing gives what a dictionary has, and who shares an older one of one item keeps it."""
    items: dict[str, int] = EMPTY
    expected: dict[str, int] = {}
    shared: list[tuple[dict[str, int], dict[str, int]]] = []
    for key in map(str, keys):
        if key in expected:
            del expected[key]
            items = without(items, key)
        else:
            expected[key] = int(key)
            items = joined(items, {key: int(key)})
        assert list(items.items()) == list(expected.items())
        if len(items) <= 1:
            shared.append((items, dict(items)))
    assert all(now == then for now, then in shared)
    assert EMPTY == {}
