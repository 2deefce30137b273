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
from msgspec.structs import replace

from lockstate.rules import rates
from lockstate.stored import snapshot
from lockstate.tables.rate_algorithms import Limiter, SlidingWindow
from lockstate.tables.rates import Place, RateRow
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.ids import AttemptId
from lockstate.words.kinds import Algorithm
from lockstate.words.results import RateTaken
from tests.property.model_rates import Admission, RateModel

FIXED, SLIDING, GCRA = Algorithm
WINDOWS_MS = (10, 11, 12, 17, 25, 30)


class Table:
    """The real thing, with one rate limit in it."""

    def __init__(self, model: RateModel, rows: bytes = b"\x92\x90\x90") -> None:
        self.model = model
        self.state = State()
        self.state.next_order = 1_000
        self.rates, self.deadlines = self.state.rates, self.state.deadlines
        stored, places = msgspec.msgpack.decode(rows, type=tuple[list[RateRow], list[Place]])
        self.rates.load(stored)
        self.rates.load_places(places)

    def rows(self) -> bytes:
        """What a snapshot would have, but for the order of creation."""
        places = [replace(place, order=at) for at, place in enumerate(self.rates.places.values(), 1)]
        rows = [replace(row, order=0) for row in self.rates.dump()]
        return msgspec.msgpack.encode((rows, places))

    def restored(self) -> "Table":
        """A table made of a snapshot of this one."""
        return Table(self.model, self.rows())

    def drop(self, now_ms: int) -> None:
        """Count the places that have come, and forget what is whole."""
        while (record := self.deadlines.due(now_ms)) is not None:
            if isinstance(record, Place):
                self.rates.arrive(record)
            else:
                assert isinstance(record, Limiter)
                self.rates.end(record)

    def give_back(self, now_ms: int, number: int) -> None:
        """Give back a place whose moment is to come."""
        self.rates.give_back(str(number), now_ms)
        self.rates.settle(now_ms)

    def take(self, now_ms: int, limit: int, cost: int, wait_ms: int, number: int = 0) -> RateTaken:
        """What the answer is; `number` is that of the request."""
        model, attempt_id = self.model, AttemptId(str(number))
        command = TakeRate("a", limit, model.window_ms, model.algorithm, cost, wait_ms, attempt_id=attempt_id)
        self.state.now_ms = now_ms
        taken = rates.take(self.state, command)
        assert isinstance(taken, RateTaken)
        return taken


class Step(NamedTuple):
    """Time passes, then somebody asks; `is_restart` replaces the table by its snapshot in between.

    Then somebody who waits for a place may give it back: `back` says which one of them, 0 none.
    """

    pass_ms: int
    limit: int
    cost: int
    wait_ms: int
    is_restart: bool
    back: int = 0


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
        draw(st.sampled_from([0, 0, 1, 2, 5])),
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
    model, key = RateModel(algorithm, window_ms), ("a", algorithm, window_ms)
    kept, dropped, restarted = Table(model), Table(model), Table(model)
    admitted: dict[int, Admission] = {}
    given_back = False
    for number, step in enumerate(program):
        now_ms += step.pass_ms
        if step.is_restart:
            restarted = restarted.restored()
        for table in (dropped, restarted):
            table.drop(now_ms)
        is_whole = not model.admissions or model.whole_ms(0) < now_ms
        assert len(dropped.rates) == (not is_whole) or given_back
        before = dropped.rows()
        request = (now_ms, step.limit, step.cost, step.wait_ms)
        expected = model.take(*request)
        for table in (kept, dropped, restarted):
            assert table.take(*request, number) == expected
        assert dropped.rows() == restarted.rows()
        assert kept.rates.whole_ms(key) == dropped.rates.whole_ms(key)
        if expected.allowed:
            admitted[number] = model.admissions[-1]
        else:
            assert dropped.rows() == before
            check_retry(dropped, step, now_ms, expected)
        waiting = [one for one, place in admitted.items() if place.at_ms > now_ms]
        given_back = bool(step.back and waiting)
        if given_back:
            back = waiting[step.back % len(waiting)]
            place = admitted.pop(back)
            model.admissions = [one for one in model.admissions if one is not place]
            for table in (kept, dropped, restarted):
                table.give_back(now_ms, back)
            assert dropped.rows() == restarted.rows()
    check_promises(model)


@given(windows_ms, starts_ms, constant | changing)
def test_a_coarse_log_is_short_and_never_early(window_ms: int, now_ms: int, program: list[Step]) -> None:
    """A log that counts in steps keeps the promise, frees less than a step late, and has as many rows."""
    rows_max = 4
    step_ms = -(-window_ms // rows_max)
    model, late = RateModel(SLIDING, window_ms), RateModel(SLIDING, window_ms + step_ms - 1)
    late.admissions = model.admissions
    table, key = Table(model), ("a", SLIDING, window_ms)
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
            log = table.rates.get(key)
            assert isinstance(log, SlidingWindow)
            is_constant = all(other.limit == step.limit for other in program)
            assert log.rows_count <= (1 if is_constant else 2) * rows_max + 1
            (base,) = table.rates.all()
            copied_count = 0 if log is base else log.rows_count
            assert table.rates.rows_count == base.rows_count + copied_count
            assert len(log.sums) <= 2 * log.rows_count + 3
            assert log.earliest_ms(now_ms, 1, 1) == table.rates.whole_ms(key)
            restored = table.restored()
            assert restored.rows() == table.rows()
            assert restored.rates.rows_count == table.rates.rows_count
    check_promises(model)


@pytest.mark.parametrize("algorithm", Algorithm)
@given(st.permutations("abcdef"), st.integers(1, 5))
def test_limits_are_stored_in_order_of_creation(
    algorithm: Algorithm, names: list[str], restored_count: int
) -> None:
    """Tables that were made by the same requests have the same rows, restored or not."""
    whole = State()
    for name in names[:restored_count]:
        rates.take(whole, TakeRate(name, 5, 1000, algorithm))
    part = snapshot.decode(snapshot.encode(whole))
    for state in (whole, part):
        state.now_ms = 400
        for name in names:
            rates.take(state, TakeRate(name, 5, 1000, algorithm))
    assert [row.name for row in whole.rates.dump()] == names
    assert snapshot.encode(whole) == snapshot.encode(part)
