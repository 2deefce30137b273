"""Deadlines: what ends by itself, in which order, and what remembering it costs."""

from hypothesis import given
from hypothesis import strategies as st

from lockstate.tables.deadlines import Deadlines, Timed

FAR_MS = 10_000


def _record(order: int, expires_at_ms: int) -> Timed:
    return Timed(order=order, expires_at_ms=expires_at_ms)


def _end_all(deadlines: Deadlines, now_ms: int) -> list[int]:
    ended = []
    while (record := deadlines.due(now_ms)) is not None:
        deadlines.remove(record)
        ended.append(record.order)
    return ended


def test_what_ends_now_is_not_over_yet() -> None:
    """A record is due once time has passed its end, not before."""
    deadlines = Deadlines()
    deadlines.add(_record(1, 100))
    assert deadlines.due(100) is None
    assert _end_all(deadlines, 101) == [1]
    assert len(deadlines) == 0


def test_what_is_due_stays_until_it_is_taken_out() -> None:
    """Asking what is due changes nothing: the same record is due again until it is taken out."""
    deadlines = Deadlines()
    record = _record(1, 100)
    deadlines.add(record)
    assert deadlines.due(101) is deadlines.due(101) is record
    assert deadlines.next_ms() == 100


def test_records_end_in_order() -> None:
    """The first to end comes first; of equal ones, the first to be made."""
    deadlines = Deadlines()
    for order, expires_at_ms in ((2, 50), (1, 50), (3, 40), (4, 9000)):
        deadlines.add(_record(order, expires_at_ms))
    assert _end_all(deadlines, FAR_MS) == [3, 1, 2, 4]


def test_what_comes_later_may_end_earlier() -> None:
    """A record that is added after the order was asked for takes its place in it."""
    deadlines = Deadlines()
    deadlines.add(_record(1, 50))
    assert deadlines.next_ms() == 50
    deadlines.add(_record(2, 40))
    assert deadlines.next_ms() == 40
    assert _end_all(deadlines, FAR_MS) == [2, 1]


def test_a_later_end_counts() -> None:
    """A renewed record is not due at its old end, and is ordered by its new one."""
    deadlines = Deadlines()
    first, second = _record(1, 50), _record(2, 60)
    for record in (first, second):
        deadlines.add(record)
    assert deadlines.next_ms() == 50
    deadlines.move(first, 61)
    assert deadlines.next_ms() == 60
    assert deadlines.due(60) is None
    assert _end_all(deadlines, FAR_MS) == [2, 1]


def test_an_earlier_end_counts() -> None:
    """A record whose end comes nearer is due at the new end, and only once."""
    deadlines = Deadlines()
    record = _record(1, 500)
    deadlines.add(record)
    for expires_at_ms in (50, 500, 500, 60):
        deadlines.move(record, expires_at_ms)
    assert deadlines.next_ms() == 60
    assert _end_all(deadlines, FAR_MS) == [1]
    assert deadlines.next_ms() is None


def test_a_removed_record_never_ends() -> None:
    """What was taken out is not due any more."""
    deadlines = Deadlines()
    record = _record(1, 50)
    deadlines.add(record)
    deadlines.remove(record)
    assert deadlines.next_ms() is None
    assert deadlines.due(FAR_MS) is None


def test_memory_follows_the_records() -> None:
    """However many records come and go, what is kept stays near the number of those that live."""
    deadlines = Deadlines()
    deadlines.add(_record(0, FAR_MS))
    assert deadlines.next_ms() == FAR_MS
    for order in range(1, 5000):
        passing = _record(order, FAR_MS + 64 * order)
        deadlines.add(passing)
        deadlines.remove(passing)
    assert len(deadlines._buckets) <= 2 + 1024
    assert len(deadlines._heap) <= 2 + 1024
    assert _end_all(deadlines, 300 * FAR_MS) == [0]


def test_memory_within_one_moment_follows_the_records() -> None:
    """Deadlines that were moved away leave little behind, even when they are near each other."""
    deadlines = Deadlines()
    first = _record(0, 64)
    moving = _record(1, 65)
    for record in (first, moving):
        deadlines.add(record)
    assert deadlines.next_ms() == 64
    for step in range(5000):
        deadlines.move(moving, 65 + step % 2)
        assert deadlines.next_ms() == 64
    (bucket,) = deadlines._buckets.values()
    assert bucket.keys is not None
    assert len(bucket.keys) <= 2 * 2 + 1024 + 1


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "remove", "pass"]), st.integers(0, 5), st.integers(0, 300)),
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
        if verb == "add" and pick >= len(keys):
            order += 1
            expected[order] = _record(order, number)
            deadlines.add(expected[order])
        elif verb == "add":
            deadlines.move(expected[keys[pick]], number)
        elif verb == "remove" and pick < len(keys):
            deadlines.remove(expected.pop(keys[pick]))
        else:
            due = sorted((r.expires_at_ms, r.order) for r in expected.values() if r.expires_at_ms < number)
            assert _end_all(deadlines, number) == [order for _, order in due]
            for _, over in due:
                del expected[over]
        assert len(deadlines) == len(expected)
        assert deadlines.next_ms() == min((r.expires_at_ms for r in expected.values()), default=None)
