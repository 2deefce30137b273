"""Rate limits by example: what each algorithm admits, and what the answers mean."""

import msgspec
import pytest

from lockstate.invariants.tables import places_are_to_come
from lockstate.machine import LockMachine
from lockstate.rules import rates
from lockstate.stored import snapshot
from lockstate.tables.rate_algorithms import SlidingWindow
from lockstate.words import limits
from lockstate.words.commands.entries import Entry
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.kinds import Algorithm
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import RateTaken

FIXED, SLIDING, GCRA = Algorithm
SECOND_MS = 1000


class Table:
    """Rate limits with a clock, and without the rest of the machine."""

    def __init__(self, stored: bytes = b"") -> None:
        self.machine = LockMachine(snapshot.decode(stored) if stored else None)
        self.state = self.machine.state
        self.rates, self.deadlines = self.state.rates, self.state.deadlines

    @property
    def now_ms(self) -> int:
        """Cluster time."""
        return self.state.now_ms

    def pass_to(self, now_ms: int) -> None:
        """Let time pass, and what is whole be gone."""
        self.machine.apply(Entry(now_ms))
        places_are_to_come(self.state)

    def stored(self) -> bytes:
        """What a snapshot has."""
        return snapshot.encode(self.state)

    def rows(self) -> bytes:
        """What a snapshot would have."""
        return msgspec.msgpack.encode(self.rates.dump())

    def answer(self, command: TakeRate) -> RateTaken | Refused:
        """Whatever the table says."""
        result = rates.take(self.state, command)
        assert isinstance(result, RateTaken | Refused)
        return result

    def take(
        self, algorithm: Algorithm, limit: int = 5, cost: int = 1, wait_ms: int = 0, name: str = "mail"
    ) -> RateTaken:
        """Take from a limit with a window of one second."""
        taken = self.answer(TakeRate(name, limit, SECOND_MS, algorithm, cost, wait_ms))
        assert isinstance(taken, RateTaken)
        return taken

    def refused(self, command: TakeRate) -> Refused:
        """The refusal of a command that is wrong, or for which there is no room."""
        refused = self.answer(command)
        assert isinstance(refused, Refused)
        return refused


@pytest.fixture
def table() -> Table:
    """An empty table at cluster time 0."""
    return Table()


# -- what all have in common ---------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", Algorithm)
def test_the_limit_goes_at_once_and_no_more(table: Table, algorithm: Algorithm) -> None:
    """A limit nobody has used admits its whole number at one moment, and then nothing."""
    table.pass_to(10_000)
    taken = [table.take(algorithm, limit=3) for _ in range(4)]
    assert [one.allowed for one in taken] == [True, True, True, False]
    assert [one.remaining for one in taken] == [2, 1, 0, 0]
    assert [one.at_ms for one in taken] == [10_000, 10_000, 10_000, 0]
    assert all(one.limit == 3 for one in taken)


@pytest.mark.parametrize("algorithm", Algorithm)
def test_a_refused_request_changes_nothing(table: Table, algorithm: Algorithm) -> None:
    """A request that is not admitted takes nothing, and does not keep the limit from being whole in time."""
    table.take(algorithm, limit=3, cost=2)
    before = table.rows()
    reset_in_ms = table.take(algorithm, limit=3, cost=2).reset_in_ms
    assert table.rows() == before
    assert table.take(algorithm, limit=3, cost=1).allowed
    assert 0 < reset_in_ms <= SECOND_MS


@pytest.mark.parametrize("algorithm", Algorithm)
def test_retry_after_is_exact(table: Table, algorithm: Algorithm) -> None:
    """The same request is admitted after `retry_after_ms`, and not a millisecond before."""
    table.pass_to(10_300)
    table.take(algorithm, limit=3, cost=3)
    taken = table.take(algorithm, limit=3, cost=2, wait_ms=100)
    assert (taken.allowed, taken.retry_after_ms > 0) == (False, True)
    table.pass_to(10_300 + taken.retry_after_ms - 1)
    assert table.take(algorithm, limit=3, cost=2, wait_ms=100).retry_after_ms == 1
    table.pass_to(10_300 + taken.retry_after_ms)
    later = table.take(algorithm, limit=3, cost=2, wait_ms=100)
    assert (later.allowed, later.retry_after_ms, later.at_ms) == (True, 0, table.now_ms + 100)


@pytest.mark.parametrize("algorithm", Algorithm)
def test_a_reservation_is_not_overtaken(table: Table, algorithm: Algorithm) -> None:
    """Once a large request waits for its place, a small one that would fit before it comes after it."""
    table.take(algorithm, limit=3, cost=2)
    large = table.take(algorithm, limit=3, cost=3, wait_ms=5000)
    small = table.take(algorithm, limit=3, cost=1, wait_ms=5000)
    assert large.allowed
    assert small.allowed
    assert table.now_ms < large.at_ms <= small.at_ms
    assert (large.remaining, small.remaining) == (0, 0)
    assert not table.take(algorithm, limit=3, cost=1).allowed


@pytest.mark.parametrize("algorithm", Algorithm)
def test_a_larger_limit_does_not_overtake_either(table: Table, algorithm: Algorithm) -> None:
    """A request with a larger limit, for which there is room, still comes after those that wait already."""
    table.take(algorithm, limit=1)
    assert table.take(algorithm, limit=1, wait_ms=1000).at_ms == 1000
    assert table.take(algorithm, limit=9).retry_after_ms == 1000
    assert table.take(algorithm, limit=9, wait_ms=1000).at_ms == 1000


@pytest.mark.parametrize("algorithm", Algorithm)
def test_a_limit_is_gone_when_it_is_whole(table: Table, algorithm: Algorithm) -> None:
    """A rate limit is remembered for as long as `reset_in_ms` says, and no longer."""
    taken = table.take(algorithm, cost=5)
    assert table.deadlines.next_ms() == taken.reset_in_ms == SECOND_MS
    table.pass_to(SECOND_MS)
    assert len(table.rates) == 1
    table.pass_to(SECOND_MS + 1)
    assert len(table.rates) == len(table.deadlines) == 0
    assert table.rows() == b"\x90"


@pytest.mark.parametrize("algorithm", Algorithm)
def test_a_whole_limit_that_is_still_there_is_whole(table: Table, algorithm: Algorithm) -> None:
    """At the end of its `reset_in_ms`, and when nobody dropped it yet, a limit gives all that it has."""
    table.take(algorithm, cost=5)
    for now_ms in (SECOND_MS, 7777):
        table.state.now_ms = now_ms
        taken = table.take(algorithm, cost=5)
        assert (taken.allowed, taken.at_ms, len(table.rates)) == (True, now_ms, 1)
    assert table.deadlines.next_ms() == taken.reset_in_ms + table.now_ms


@pytest.mark.parametrize("algorithm", Algorithm)
def test_another_limit_counts_what_was_taken(table: Table, algorithm: Algorithm) -> None:
    """What was admitted stays taken when the limit changes, and is compared with the new one."""
    table.take(algorithm, limit=4, cost=4)
    assert not table.take(algorithm, limit=4).allowed
    assert table.take(algorithm, limit=6, cost=1).remaining == 1
    assert table.take(algorithm, limit=5).remaining == 0
    assert not table.take(algorithm, limit=5).allowed
    assert table.take(algorithm, limit=6).allowed


@pytest.mark.parametrize("algorithm", Algorithm)
def test_a_whole_limit_has_all_remaining(table: Table, algorithm: Algorithm) -> None:
    """What remains rises to the whole limit while nobody asks, until the millisecond at which it is whole."""
    table.take(algorithm, cost=5)
    (limiter,) = table.rates.all()
    assert limiter.remaining(SECOND_MS - 1, 5) < 5
    assert limiter.remaining(SECOND_MS, 5) == limiter.remaining(7777, 5) == 5


def test_name_algorithm_and_window_make_a_limit(table: Table) -> None:
    """Limits that differ in name, algorithm or window have nothing in common."""
    for name in ("a", "b"):
        for algorithm in Algorithm:
            for window_ms in (SECOND_MS, 2 * SECOND_MS):
                taken = table.answer(TakeRate(name, 1, window_ms, algorithm))
                assert isinstance(taken, RateTaken)
                assert taken.allowed
    assert len(table.rates) == len(table.deadlines) == 12


@pytest.mark.parametrize("algorithm", Algorithm)
def test_rows_survive_a_snapshot(table: Table, algorithm: Algorithm) -> None:
    """A restored table has the same rows, and goes on where the stored one stopped."""
    for now_ms in (100, 200, 300, 2300, 2400):
        table.pass_to(now_ms)
        table.take(algorithm, cost=2, wait_ms=600)
        table.take(algorithm, cost=1, name=f"at {now_ms}")
    restored = Table(table.stored())
    assert restored.stored() == table.stored()
    assert len(restored.rates) == len(table.rates)
    assert len(restored.deadlines) == len(table.deadlines)
    assert restored.rates.rows_count == table.rates.rows_count
    for now_ms in (2500, 3100, 3500, 9000):
        for each in (table, restored):
            each.pass_to(now_ms)
        assert restored.take(algorithm, cost=3, wait_ms=50) == table.take(algorithm, cost=3, wait_ms=50)
        assert restored.stored() == table.stored()


# -- fixed window --------------------------------------------------------------------------------------------


def test_windows_are_aligned(table: Table) -> None:
    """A fixed window ends at the next multiple of its length, whenever its first request came."""
    table.pass_to(10_990)
    assert table.take(FIXED, cost=5).reset_in_ms == 10
    assert table.take(FIXED).retry_after_ms == 10
    table.pass_to(11_000)
    assert table.take(FIXED, cost=5).allowed


def test_a_waiter_gets_the_next_window(table: Table) -> None:
    """A request that can wait goes at the start of the next window that has room; the next one after it."""
    table.pass_to(10_400)
    taken = [table.take(FIXED, limit=2, wait_ms=1700) for _ in range(7)]
    assert [one.at_ms for one in taken] == [10_400, 10_400, 11_000, 11_000, 12_000, 12_000, 0]
    assert [one.allowed for one in taken] == [True] * 6 + [False]
    assert (taken[5].reset_in_ms, taken[6].reset_in_ms) == (2600, 2600)
    assert taken[6].retry_after_ms == 13_000 - 1700 - 10_400


def test_nobody_goes_before_a_reserved_window(table: Table) -> None:
    """While a later window is partly reserved, nobody gets the rest of this one; in its turn all counts."""
    table.take(FIXED, limit=5, cost=3)
    table.take(FIXED, limit=5, cost=3, wait_ms=1000)
    assert table.take(FIXED, limit=5).retry_after_ms == 1000
    table.pass_to(1000)
    assert table.take(FIXED, limit=5).remaining == 1


def test_a_lower_limit_leaves_nothing(table: Table) -> None:
    """When more was taken than a new limit allows, nothing remains, and nothing less than that either."""
    table.take(FIXED, limit=5, cost=4)
    taken = table.take(FIXED, limit=2)
    assert (taken.allowed, taken.limit, taken.remaining) == (False, 2, 0)


# -- sliding window ------------------------------------------------------------------------------------------


def test_a_sliding_window_has_no_seam(table: Table) -> None:
    """What was taken is free again exactly one window later, each part at its own time."""
    for now_ms, cost in ((800, 2), (900, 3)):
        table.pass_to(now_ms)
        table.take(SLIDING, cost=cost)
    table.pass_to(1100)
    assert table.take(SLIDING, cost=2).retry_after_ms == 700
    assert table.take(SLIDING, cost=3).retry_after_ms == 800
    assert table.take(SLIDING, cost=3).reset_in_ms == 800
    table.pass_to(1800)
    assert table.take(SLIDING, cost=1).remaining == 1


def test_sliding_reservations_stand_in_order(table: Table) -> None:
    """Waiting requests get the moments at which earlier ones leave the window."""
    for now_ms in (0, 100, 200):
        table.pass_to(now_ms)
        table.take(SLIDING, limit=3)
    waiting = [table.take(SLIDING, limit=3, wait_ms=2000) for _ in range(4)]
    assert [one.at_ms for one in waiting] == [1000, 1100, 1200, 2000]
    assert [one.reset_in_ms for one in waiting] == [1800, 1900, 2000, 2800]


def _log(table: Table) -> SlidingWindow:
    (limiter,) = table.rates.all()
    assert isinstance(limiter, SlidingWindow)
    return limiter


def test_requests_of_one_millisecond_share_a_row(table: Table) -> None:
    """The log of a sliding window grows by a row for each millisecond, not for each request."""
    for now_ms in (5, 6):
        table.pass_to(now_ms)
        for _ in range(10):
            table.take(SLIDING, limit=50)
    assert _log(table).rows_count == table.rates.rows_count == 2


def test_the_log_of_a_busy_window_stays_small(table: Table) -> None:
    """Rows that have left the window are dropped, in memory as well, and are not counted any more."""
    for now_ms in range(0, 100_000, 100):
        table.pass_to(now_ms)
        assert table.take(SLIDING, limit=10).allowed
    assert _log(table).rows_count == table.rates.rows_count == 10
    assert len(_log(table).sums) == len(_log(table).moments_ms) <= 22
    table.pass_to(200_000)
    assert table.rates.rows_count == 0


def test_a_large_limit_counts_in_steps(table: Table) -> None:
    """Above a limit of 1,000, what was taken is free again up to a thousandth of the window late."""
    window_ms = 60_000
    table.pass_to(120_001)
    for limit, free_ms in ((1001, 180_060), (1000, 180_001)):
        command = TakeRate(f"limit {limit}", limit, window_ms, SLIDING, cost=limit)
        table.answer(command)
        refused = table.answer(command)
        assert isinstance(refused, RateTaken)
        assert refused.retry_after_ms == free_ms - table.now_ms


def test_a_small_limit_after_a_large_one_joins_its_step(table: Table) -> None:
    """The log stays in order of time when a limit becomes small enough to be exact."""
    window_ms = 60_000
    for now_ms, limit in ((120_001, 2000), (120_002, 1000), (120_061, 1000)):
        table.pass_to(now_ms)
        table.answer(TakeRate("mail", limit, window_ms, SLIDING))
    assert list(_log(table).moments_ms[1:]) == [120_060, 120_061]
    assert list(_log(table).sums) == [0, 2, 3]


# -- generic cell rate algorithm -----------------------------------------------------------------------------


def test_cells_come_back_one_by_one(table: Table) -> None:
    """After a burst, one of five is back every fifth of the window."""
    table.take(GCRA, cost=5)
    assert table.take(GCRA).retry_after_ms == 200
    table.pass_to(399)
    assert table.take(GCRA).remaining == 0
    table.pass_to(400)
    assert table.take(GCRA, limit=5).allowed
    assert table.take(GCRA, cost=2).retry_after_ms == 400


def test_cells_are_spread_for_waiting_requests(table: Table) -> None:
    """Waiting requests go one after the other at the sustained rate; fractions of a millisecond add up."""
    table.take(GCRA, limit=3, cost=3)
    waiting = [table.take(GCRA, limit=3, wait_ms=1500) for _ in range(5)]
    assert [one.at_ms for one in waiting] == [334, 667, 1000, 1334, 0]
    assert waiting[4].retry_after_ms == 1667 - 1500


def test_a_bucket_leaks_at_the_rate_of_its_last_admission(table: Table) -> None:
    """With a lower limit, the first request waits until the old rate has made room for it."""
    table.take(GCRA, limit=100, cost=100)
    assert table.take(GCRA, limit=10).retry_after_ms == 910
    table.pass_to(910)
    assert table.take(GCRA, limit=10).reset_in_ms == 1000
    assert table.take(GCRA, limit=10).retry_after_ms == 100


# -- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "detail"),
    [
        (TakeRate("a//b", 1, 1000), "name: no part between two '/' may be empty"),
        (TakeRate("a", -1, 1000), "limit: -1; must be 1 to 1000000"),
        (TakeRate("a", 1_000_001, 1000), "limit: 1000001; must be 1 to 1000000"),
        (TakeRate("a", 5, 1000, cost=0), "cost: 0; must be 1 to 5"),
        (TakeRate("a", 5, 1000, cost=6), "cost: 6; must be 1 to 5"),
        (TakeRate("a", 5, 9), "window_ms: 9; must be 10 to 2678400000"),
        (TakeRate("a", 5, 2_678_400_001), "window_ms: 2678400001; must be 10 to 2678400000"),
        (TakeRate("a", 5, 1000, wait_ms=-1), "wait_ms: -1; must be 0 to 86400000"),
    ],
)
def test_a_wrong_request_is_refused_with_the_reason(table: Table, command: TakeRate, detail: str) -> None:
    """A request that could never be admitted is refused, with the field that is wrong."""
    assert table.refused(command) == Refused(Reason.INVALID_REQUEST, detail)
    assert len(table.rates) == 0


def test_a_long_name_has_its_own_code(table: Table) -> None:
    """A name of more than 512 bytes is refused as too long."""
    assert table.refused(TakeRate("a" * 513, 5, 1000)).reason is Reason.NAME_TOO_LONG


@pytest.mark.parametrize("algorithm", Algorithm)
def test_the_largest_numbers_are_counted(table: Table, algorithm: Algorithm) -> None:
    """The largest limit in the largest window, late in time, is taken and stored."""
    table.pass_to(1 << 53)
    command = TakeRate(
        "a",
        limits.RATE_LIMIT_MAX,
        limits.RATE_WINDOW_MS_MAX,
        algorithm,
        limits.RATE_LIMIT_MAX,
        limits.WAIT_MS_MAX,
    )
    taken = table.answer(command)
    assert isinstance(taken, RateTaken)
    assert (taken.allowed, taken.remaining, taken.at_ms) == (True, 0, 1 << 53)
    assert table.deadlines.next_ms() == table.now_ms + taken.reset_in_ms
    assert Table(table.stored()).stored() == table.stored()


def test_there_is_a_most_of_rate_limits(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """When there are too many rate limits, those that exist go on, and a new one is refused."""
    monkeypatch.setattr(limits, "RATE_LIMITERS_COUNT_MAX", 2)
    for name in ("a", "b", "a"):
        assert table.take(GCRA, name=name).allowed
    refused = table.refused(TakeRate("c", 5, SECOND_MS, GCRA))
    assert (refused.reason, refused.retry_after_ms) == (Reason.OVERLOADED, 1000)
    table.pass_to(SECOND_MS)
    assert table.take(GCRA, name="c").allowed


def test_there_is_a_most_of_rows(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the logs are full, sliding windows admit nothing more until some of it is over; others do."""
    monkeypatch.setattr(limits, "RATE_ROWS_COUNT_MAX", 3)
    for now_ms in (0, 1, 2):
        table.pass_to(now_ms)
        table.take(SLIDING, name=f"at {now_ms}")
    for name in ("at 0", "new"):
        refused = table.refused(TakeRate(name, 5, SECOND_MS, SLIDING))
        assert (refused.reason, refused.retry_after_ms) == (Reason.OVERLOADED, 1000)
    assert not table.take(SLIDING, name="at 1", cost=5).allowed
    assert table.take(GCRA).allowed
    table.pass_to(SECOND_MS + 1)
    assert table.take(SLIDING, name="new").allowed
