"""The rates of the last ten minutes."""

from http_api.ui.activity import KEPT_S, Activity, Totals


class Counters:
    """A clock, and counters that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.totals = Totals(0, 0)
        self.activity = Activity(lambda: self.totals, lambda: self.now_s)

    def after(self, seconds: float, grants: int = 0, waits: int = 0) -> None:
        """Let time pass in which so much happens, and look."""
        self.now_s += seconds
        self.totals = Totals(self.totals.grants + grants, self.totals.waits + waits)
        self.activity.look()


def test_rates_are_counted_between_looks() -> None:
    """A point every five seconds, with how long ago it ended."""
    counters = Counters()
    counters.activity.look()
    assert counters.activity.rates() == []
    counters.after(5, grants=10, waits=5)
    counters.after(1, grants=1)
    counters.after(4, grants=19)
    counters.now_s += 2
    assert counters.activity.rates() == [(7.0, 2.0, 1.0), (2.0, 4.0, 0.0)]


def test_only_ten_minutes_are_kept() -> None:
    """However long the node runs, and whenever it looked last."""
    counters = Counters()
    for _ in range(500):
        counters.after(5, grants=5)
    assert len(counters.activity.rates()) == KEPT_S / 5
    counters.now_s += KEPT_S
    assert [age for age, _, _ in counters.activity.rates()] == [KEPT_S]


def test_a_counter_that_went_back_counts_as_nothing() -> None:
    """No rate is below zero."""
    counters = Counters()
    counters.after(5, grants=100)
    counters.totals = Totals(3, 0)
    counters.after(5, waits=10)
    assert counters.activity.rates() == [(0.0, 0.0, 2.0)]
