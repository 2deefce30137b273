"""Why leadership came to a node, or left it, as one line each."""

import pytest

from cluster.consensus import elections
from cluster.consensus.elections import Elections


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.at_s


def test_the_first_reason_stays_until_a_leader_is_heard() -> None:
    """What began it counts, not what every further attempt finds; it took as long as since then."""
    clock = Clock()
    told = Elections("n2", clock)
    told.wanted(elections.silent(0.3), "n1")
    told.settled()
    told.wanted(elections.silent(0.512), "n1")
    clock.at_s += 0.04
    told.wanted(elections.CUT_OFF, "n1")
    told.stood()
    told.voted("n3")
    assert told.won(5) == (
        "event=election result=won leader=n2 term=5 reason='silent 512 ms' by=n1 votes=n2,n3 took_ms=40"
    )


def test_a_request_to_take_over_is_the_reason_whatever_was_before() -> None:
    """Without it the node would not stand now."""
    clock = Clock()
    told = Elections("n2", clock)
    told.wanted(elections.CUT_OFF, "n1")
    clock.at_s += 9.0
    told.asked_to("n1")
    told.asked_to("n1")
    clock.at_s += 0.001
    assert " reason='handed over' by=n1 votes=n2 took_ms=1" in told.won(2)


def test_votes_are_those_of_the_election_that_was_won() -> None:
    """An election before it, that failed, had others."""
    told = Elections("n2", Clock())
    told.stood()
    told.voted("n4")
    told.stood()
    told.voted("n3")
    assert " reason='start' by=- votes=n2,n3 " in told.won(2)
    assert " votes=n2 " in told.won(3)


@pytest.mark.parametrize(
    ("handed_to", "newer_from", "stall_s", "said"),
    [
        ("n2", "n2", 1.4, "reason='handed over' by=n2"),
        ("", "n3", 1.4, "reason='own loop stalled 1.4 s' by=n3"),
        ("", "", 1.4, "reason='own loop stalled 1.4 s' by=-"),
        ("", "n3", 0.0, "reason='newer term' by=n3"),
        ("", "", 0.0, "reason='stood down' by=n1"),
    ],
)
def test_a_leadership_ends_for_one_reason(handed_to: str, newer_from: str, stall_s: float, said: str) -> None:
    """What the leader wanted itself counts first, then what it could not know while it stood still."""
    clock = Clock()
    told = Elections("n1", clock)
    told.won(4)
    if handed_to:
        told.handing_over(handed_to)
    clock.at_s += 2.0
    line = told.lost(5, newer_from=newer_from, stall_s=stall_s)
    assert line == f"event=election result=lost leader=n1 term=5 {said} led_ms=2000"
    assert " reason='stood down' " in told.lost(5, newer_from="", stall_s=0.0)
