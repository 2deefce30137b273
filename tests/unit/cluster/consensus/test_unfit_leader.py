"""An unfit leader hands over to a fit voter, once in a while, and leads on if there is none."""

import logging
from typing import cast

import pytest

from cluster.consensus.handover import Handovers
from cluster.consensus.replica import Replica, Role
from cluster.consensus.unfit_leader import RETRY_S, UnfitLeader


class Site:
    """A leader, its peers, and what it begins."""

    def __init__(self) -> None:
        self.role = Role("n1", 3, is_leader=True, is_candidate=False)
        self.connected = {"n2", "n3"}
        self.fit = {"n2", "n3"}
        self.at_s = 1000.0
        self.begun: list[str] = []
        self.unfit = UnfitLeader(
            cast("Replica", self), cast("Handovers", self), self.fit.__contains__, lambda: self.at_s
        )

    def most_caught_up(self, is_fit: object) -> str | None:
        """Return the last fit one in the order of ids."""
        assert is_fit == self.fit.__contains__
        return max(self.connected & self.fit, default=None)

    def begin(self, to: str) -> object:
        """Begin a handover."""
        self.begun.append(to)
        return self


def test_it_hands_over_to_a_fit_node() -> None:
    """And not again at once, if that fails: nothing is proposed during an attempt."""
    site = Site()
    site.fit.discard("n3")
    site.unfit.step("clock")
    site.unfit.step("clock")
    assert site.begun == ["n2"]
    site.at_s += RETRY_S
    site.unfit.step("clock")
    assert site.begun == ["n2", "n2"]


def test_a_fit_leader_stays(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is done, and nothing is said."""
    site = Site()
    site.unfit.step("")
    assert (site.begun, caplog.text) == ([], "")


def test_a_follower_hands_nothing_over() -> None:
    """What it once tried has no meaning for its next leadership."""
    site = Site()
    site.unfit.step("clock")
    site.role = Role("n2", 4, is_leader=False, is_candidate=False)
    site.unfit.step("clock")
    assert site.begun == ["n3"]
    site.role = Role("n1", 5, is_leader=True, is_candidate=False)
    site.unfit.step("clock")
    assert site.begun == ["n3", "n3"]


def test_it_leads_on_if_nobody_else_can(caplog: pytest.LogCaptureFixture) -> None:
    """It says so once, and hands over when somebody is back."""
    site = Site()
    site.connected.clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            site.unfit.step("clock")
    assert caplog.text.count("event=unfit-leader-stays") == 1
    site.connected.add("n2")
    site.unfit.step("clock")
    assert site.begun == ["n2"]
