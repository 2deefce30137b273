"""Rate limits against a naive model: a list of all that was admitted, searched millisecond by millisecond.

The model says what every answer must be. Apart from it, the promise of each algorithm is checked on the list
alone, over all windows there are.
"""

from itertools import accumulate
from typing import NamedTuple
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lockstate.tables.deadlines import Deadlines
from lockstate.tables.rate_algorithms import Limiter, SlidingWindow
from lockstate.tables.rates import RateLimits, RateRow
from lockstate.words import limits
from lockstate.words.commands import Algorithm, TakeRate
from lockstate.words.results import RateTaken
from tests.property.model_rates import Admission, RateModel

FIXED, SLIDING, GCRA = Algorithm
WINDOWS_MS = (10, 11, 12, 17, 25, 30)


class Table:
    """The real thing, with one rate limit in it."""

    def __init__(self, model: RateModel, rows: bytes = b"\x90") -> None:
        self.model = model
        self.deadlines = Deadlines()
        self.rates = RateLimits(self.deadlines, lambda: 7)
        self.rates.load(msgspec.msgpack.decode(rows, type=list[RateRow]))

    def rows(self) -> bytes:
        """What a snapshot would have."""
        return msgspec.msgpack.encode(self.rates.dump())

    def restored(self) -> "Table":
        """A table made of a snapshot of this one."""
        return Table(self.model, self.rows())

    def drop(self, now_ms: int) -> None:
        """Forget what is whole."""
        while (record := self.deadlines.due(now_ms)) is not None:
            assert isinstance(record, Limiter)
            self.rates.end(record)

    def take(self, now_ms: int, limit: int, cost: int, wait_ms: int) -> RateTaken:
        """What the answer is."""
        model = self.model
        command = TakeRate("a", limit, model.window_ms, model.algorithm, cost, wait_ms)
        taken = self.rates.take(command, now_ms)
        assert isinstance(taken, RateTaken)
        return taken


class Step(NamedTuple):
    """Time passes, then somebody asks; `is_restart` replaces the table by its snapshot in between."""

    pass_ms: int
    limit: int
    cost: int
    wait_ms: int
    is_restart: bool


@st.composite
def steps(draw: st.DrawFn, limits_drawn: st.SearchStrategy[int]) -> Step:
    """A step with a cost within its limit; most costs are small and most waits none or short."""
    limit = draw(limits_drawn)
    return Step(
        draw(st.sampled_from([0, 0, 1, 2, 3, 7]) | st.sampled_from(WINDOWS_MS) | st.integers(0, 90)),
        limit,
        draw(st.integers(1, min(2, limit)) | st.integers(1, limit)),
        draw(st.sampled_from([0, 0, 5]) | st.integers(0, 100)),
        draw(st.booleans()),
    )


windows_ms = st.sampled_from(WINDOWS_MS)
constant = st.integers(1, 13).flatmap(lambda limit: st.lists(steps(st.just(limit)), max_size=30))
changing = st.lists(steps(st.integers(1, 13)), max_size=30)
starts_ms = st.integers(0, 60) | st.just(10**12 + 7)


def check_retry(table: Table, step: Step, now_ms: int, taken: RateTaken) -> None:
    """The refused request would be admitted after `retry_after_ms`, and not a millisecond earlier."""
    retry_ms = now_ms + taken.retry_after_ms
    request = (step.limit, step.cost, step.wait_ms)
    assert table.restored().take(retry_ms - 1, *request).retry_after_ms == 1
    again = table.restored().take(retry_ms, *request)
    assert (again.allowed, again.at_ms) == (True, retry_ms + step.wait_ms)


def check_promises(model: RateModel) -> None:
    """No two admissions are out of order, and no window has more than it may."""
    admissions, window_ms = model.admissions, model.window_ms
    moments_ms = [admission.at_ms for admission in admissions]
    assert moments_ms == sorted(moments_ms)
    sums = [0, *accumulate(admission.cost for admission in admissions)]
    for last, end in enumerate(admissions):
        for first, begin in enumerate(admissions[: last + 1]):
            cost, length_ms = sums[last + 1] - sums[first], end.at_ms - begin.at_ms
            match model.algorithm:
                case Algorithm.FIXED_WINDOW:
                    if begin.at_ms // window_ms == end.at_ms // window_ms:
                        assert cost <= end.limit
                case Algorithm.SLIDING_WINDOW:
                    if length_ms < window_ms:
                        assert cost <= end.limit
                case Algorithm.GCRA:
                    largest = max(admission.limit for admission in admissions[first : last + 1])
                    assert cost <= end.limit + largest * length_ms // window_ms


@pytest.mark.parametrize("algorithm", Algorithm)
@given(windows_ms, starts_ms, constant | changing)
@example(10, 0, [Step(0, 1, 1, 0, False), Step(10, 1, 1, 0, False), Step(9, 1, 1, 0, False)])
@example(10, 0, [Step(0, 1, 1, 0, False), Step(0, 1, 1, 100, True), Step(0, 9, 1, 100, False)])
def test_every_answer_is_that_of_the_model(
    algorithm: Algorithm, window_ms: int, now_ms: int, program: list[Step]
) -> None:
    """Whatever is asked, the answer is exact: with restarts, and whether what is whole was dropped or not."""
    model = RateModel(algorithm, window_ms)
    kept, dropped, restarted = Table(model), Table(model), Table(model)
    for step in program:
        now_ms += step.pass_ms
        if step.is_restart:
            restarted = restarted.restored()
        for table in (dropped, restarted):
            table.drop(now_ms)
        is_whole = not model.admissions or model.whole_ms(0) < now_ms
        assert len(dropped.rates) == len(dropped.deadlines) == (not is_whole)
        before = dropped.rows()
        request = (now_ms, step.limit, step.cost, step.wait_ms)
        expected = model.take(*request)
        for table in (kept, dropped, restarted):
            assert table.take(*request) == expected
        assert dropped.rows() == restarted.rows()
        assert kept.deadlines.next_ms() == dropped.deadlines.next_ms()
        if not expected.allowed:
            assert dropped.rows() == before
            check_retry(dropped, step, now_ms, expected)
    check_promises(model)


@given(windows_ms, starts_ms, constant | changing)
def test_a_coarse_log_is_short_and_never_early(window_ms: int, now_ms: int, program: list[Step]) -> None:
    """A log that counts in steps keeps the promise, frees less than a step late, and has as many rows."""
    rows_max = 4
    step_ms = -(-window_ms // rows_max)
    model, late = RateModel(SLIDING, window_ms), RateModel(SLIDING, window_ms + step_ms - 1)
    late.admissions = model.admissions
    table = Table(model)
    with patch.object(limits, "RATE_ROWS_MAX", rows_max):
        for step in program:
            now_ms += step.pass_ms
            request = (now_ms, step.limit, step.cost)
            taken = table.take(*request, step.wait_ms)
            at_ms = taken.at_ms if taken.allowed else now_ms + step.wait_ms + taken.retry_after_ms
            assert model.earliest_ms(*request) <= at_ms <= late.earliest_ms(*request)
            if taken.allowed:
                model.admissions.append(Admission(at_ms, step.cost, step.limit))
            else:
                check_retry(table, step, now_ms, taken)
            (log,) = table.rates._limiters.values()
            assert isinstance(log, SlidingWindow)
            is_constant = all(other.limit == step.limit for other in program)
            assert log.rows_count == table.rates._rows_count <= (1 if is_constant else 2) * rows_max + 1
            assert len(log.sums) <= 2 * log.rows_count + 3
            assert log.earliest_ms(now_ms, 1, 1) == log.expires_at_ms == table.deadlines.next_ms()
            restored = table.restored()
            assert restored.rows() == table.rows()
            assert restored.rates._rows_count == table.rates._rows_count
    check_promises(model)


@pytest.mark.parametrize("algorithm", Algorithm)
@given(st.permutations("abcdef"), st.integers(1, 5))
def test_limits_are_stored_in_order_of_creation(
    algorithm: Algorithm, names: list[str], restored_count: int
) -> None:
    """Tables that were made by the same requests have the same rows, restored or not."""
    orders = iter(range(100))
    whole = RateLimits(Deadlines(), orders.__next__)
    for name in names[:restored_count]:
        whole.take(TakeRate(name, 5, 1000, algorithm), 0)
    part = RateLimits(Deadlines(), iter(range(restored_count, 100)).__next__)
    part.load(msgspec.msgpack.decode(msgspec.msgpack.encode(whole.dump()), type=list[RateRow]))
    for table in (whole, part):
        for name in names:
            table.take(TakeRate(name, 5, 1000, algorithm), 400)
    assert [row.name for row in whole.dump()] == names
    assert msgspec.msgpack.encode(whole.dump()) == msgspec.msgpack.encode(part.dump())
