"""How soon a node that differs is stopped: in virtual time, at any rate of entries, however far nodes lag."""

import random
from typing import Final

import pytest

from cluster.errors import StateDiverged
from tests.unit.cluster.consensus.test_divergence import RIGHT, WRONG, Site

STOPS_WITHIN_S: Final = 10
RATES: Final = (0.2, 1, 3, 4.1, 17, 64, 130, 700, 1_024, 2_900, 5_000)
"""Entries a second."""


class Traffic:
    """Entries that come at a rate, evenly or in bursts, to nodes that ping at moments of their own."""

    def __init__(self, seed: int, nodes_count: int, rate: float, lag_s_max: float) -> None:
        chance = random.Random(seed)
        self.ids = [f"n{number}" for number in range(1, nodes_count + 1)]
        self.sites = [Site(node_id, frozenset(self.ids)) for node_id in self.ids]
        self.wrong = self.sites[0]
        """The node that differs after `wrong_since_s`."""
        self.wrong_since_s = 20 + 5 * chance.random()
        self._rate = rate
        self._burst_s = chance.choice((0.0, 0.0, 2 * chance.random()))
        self._first = chance.randrange(1_000_000)
        self._phases_s = [chance.random() for _ in self.ids]
        self._lags_s = [lag_s_max * chance.choice((0.0, chance.random(), 1.0)) for _ in self.ids]
        for site in self.sites:
            site.restart(self._first, RIGHT + self._first)

    def applied_at(self, number: int, now_s: float) -> int:
        """Return the revision that a node has reached."""
        proposed_s = max(0.0, now_s - self._lags_s[number])
        if self._burst_s:
            proposed_s = proposed_s // self._burst_s * self._burst_s
        return self._first + int(self._rate * proposed_s)

    def go_on(self, number: int, now_s: float) -> None:
        """Let a node apply what it has reached; the wrong one makes something else of it."""
        site = self.sites[number]
        since = site.divergence._newest + 1
        is_wrong = site is self.wrong and now_s >= self.wrong_since_s
        site.apply(range(since, self.applied_at(number, now_s) + 1), WRONG if is_wrong else RIGHT)

    def stopped_after_s(self) -> float:
        """Return the time from the first revision that differs until the wrong node stops."""
        moments = sorted(
            (second + phase_s, number)
            for second in range(60)
            for number, phase_s in enumerate(self._phases_s)
        )
        differs_s: float | None = None
        for now_s, number in moments:
            before = self.wrong.divergence._newest
            self.go_on(0, now_s)
            self.go_on(number, now_s)
            if differs_s is None and now_s >= self.wrong_since_s and self.wrong.divergence._newest > before:
                differs_s = now_s
            self.wrong.now_s = 100.0 + now_s
            if number:
                report = self.sites[number].divergence.report()
                self.wrong.divergence.heard(self.ids[number], report)
            self.wrong.divergence.look()
            if self.wrong.failures:
                assert differs_s is not None, "nothing differed yet"
                return now_s - differs_s
        pytest.fail(f"the wrong node was never stopped; lags {self._lags_s}")


@pytest.mark.parametrize("lag_s_max", [0.0, 0.3, 3.0, 7.0])
@pytest.mark.parametrize("rate", RATES)
def test_a_node_that_differs_stops_within_ten_seconds(rate: float, lag_s_max: float) -> None:
    """Also if it, or those who know better, are seconds behind: what they say meets what the others said."""
    for seed, nodes_count in enumerate((3, 5, 3, 7)):
        traffic = Traffic(seed, nodes_count, rate, lag_s_max)
        assert traffic.stopped_after_s() <= STOPS_WITHIN_S
        failure = traffic.wrong.failures[0]
        assert isinstance(failure, StateDiverged)
        assert "differs from that of the majority at revision" in str(failure)
