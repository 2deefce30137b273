"""An index of records: all of them in order of their keys, whenever they came and went."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstate.tables import record_index
from lockstate.tables.record_index import RecordIndex
from tests.unit.lockstate.short_of_memory import ShortOfMemoryNumber, short_of_memory


class Record:
    """Something with a key."""

    def __init__(self, key: int) -> None:
        self.key = key


def _index() -> RecordIndex[Record]:
    return RecordIndex(lambda record: record.key)


def _keys(index: RecordIndex[Record], after: int = 0, *, inclusive: bool = True) -> list[int]:
    return [record.key for record in index.after(after, inclusive=inclusive)]


def test_an_empty_index_has_nothing() -> None:
    """There is nothing to yield or to find in an index that was never filled, or is empty again."""
    index, record = _index(), Record(7)
    assert _keys(index) == []
    assert index.get(7) is None
    index.add(record)
    assert index.get(7) is record
    index.remove(record)
    assert _keys(index) == []
    assert index.get(7) is None


def test_a_record_that_was_never_sorted_in_goes_without_a_trace() -> None:
    """A record that comes and goes between two listings is in neither."""
    index, record = _index(), Record(7)
    index.add(record)
    index.remove(record)
    assert _keys(index) == []


@pytest.mark.parametrize("order", ["up", "down", "mixed"])
def test_thousands_of_records_stay_in_order(order: str) -> None:
    """Runs are split and dropped as records come and go; each record is found by its key."""
    index = _index()
    records = [Record(key) for key in range(3000)]
    coming = records if order == "up" else records[::-1] if order == "down" else records.copy()
    if order == "mixed":
        Random(1).shuffle(coming)
    for record in coming:
        index.add(record)
    assert _keys(index) == list(range(3000))
    assert _keys(index, 511, inclusive=False) == list(range(512, 3000))
    assert index.get(1500) is records[1500]
    for record in coming:
        if record.key % 7:
            index.remove(record)
    assert _keys(index) == list(range(0, 3000, 7))
    assert _keys(index, 8) == list(range(14, 3000, 7))
    assert index.get(8) is None
    for record in coming:
        if not record.key % 7:
            index.remove(record)
    assert _keys(index) == []


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=60))
def test_an_index_agrees_with_a_table(steps: list[tuple[bool, int]]) -> None:
    """Under any history of coming, going and listing, the index has the keys of a table, in order."""
    index = _index()
    table: dict[int, Record] = {}
    for is_listed, key in steps:
        if key in table:
            index.remove(table.pop(key))
        else:
            table[key] = Record(key)
            index.add(table[key])
        if is_listed:
            assert _keys(index) == sorted(table)
            assert _keys(index, key, inclusive=False) == sorted(other for other in table if other > key)
            assert index.get(key) is table.get(key)
    assert _keys(index) == sorted(table)


@pytest.mark.parametrize("comparisons", range(1, 60))
def test_a_listing_that_fails_for_want_of_memory_leaves_all_in_order(
    monkeypatch: pytest.MonkeyPatch, comparisons: int
) -> None:
    """Wherever it stops, each record is there once, and goes when it goes."""
    monkeypatch.setattr(record_index, "_RUN_MAX", 4)
    index, records = _index(), [Record(ShortOfMemoryNumber(key)) for key in range(20)]
    for record in records[:10]:
        index.add(record)
    assert _keys(index) == list(range(10))
    for record in records[10:]:
        index.add(record)
    with short_of_memory(comparisons):
        _keys(index)
    for record in records[::3]:
        index.remove(record)
    assert _keys(index) == [key for key in range(20) if key % 3]


def test_no_run_gets_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many records come, a change touches few of them."""
    monkeypatch.setattr(record_index, "_RUN_MAX", 8)
    index = _index()
    for key in Random(1).sample(range(500), 500):
        index.add(Record(key))
    assert _keys(index) == list(range(500))
    assert max(map(len, index._runs)) <= 8
    assert len(index._runs) < 200
