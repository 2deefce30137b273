"""A node that reaches no majority says so: once for each change, then once a minute, and when it is over."""

import pytest

from cluster.observing.quorum_watch import REPEAT_S, QuorumWatch

VOTERS = ("n1", "n2", "n3")
ADDRESSES = {"n2": "10.0.0.2:7800", "n3": "10.0.0.3:7800"}
PATIENCE_S = 2.0


@pytest.fixture
def watch(caplog: pytest.LogCaptureFixture) -> QuorumWatch:
    """Return the watch of n1, whose lines are captured."""
    caplog.set_level("INFO")
    return QuorumWatch("n1", PATIENCE_S)


def test_a_majority_is_nothing_to_tell(watch: QuorumWatch, caplog: pytest.LogCaptureFixture) -> None:
    """One of three nodes may be away for ever; nobody counts before the members are known."""
    for now_s in range(200):
        watch.look(VOTERS, {"n2"}, ADDRESSES.copy, now_s)
    watch.look((), (), ADDRESSES.copy, 200.0)
    assert not caplog.records


def test_a_lost_majority_is_told_with_names_and_times(
    watch: QuorumWatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The line names who is missed, where, since when, and how many there must be."""
    watch.look(VOTERS, {"n2"}, ADDRESSES.copy, 10.0)
    watch.look(VOTERS, set(), ADDRESSES.copy, 15.0)
    watch.look(VOTERS, set(), ADDRESSES.copy, 15.0 + PATIENCE_S)
    (line,) = caplog.messages
    assert "event=no-quorum" in line
    assert "n2 at 10.0.0.2:7800 for 2 s, n3 at 10.0.0.3:7800 for 7 s" in line
    assert "2 of 3 nodes" in line


def test_it_is_told_once_then_once_a_minute(watch: QuorumWatch, caplog: pytest.LogCaptureFixture) -> None:
    """A node alone for five minutes writes five or six lines."""
    for tenth_s in range(3000):
        watch.look(VOTERS, set(), ADDRESSES.copy, tenth_s / 10)
    assert len(caplog.messages) == 300 // REPEAT_S


def test_who_comes_back_without_a_majority_is_news(
    watch: QuorumWatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In a cluster of five, each change of who is missed has a line."""
    voters = ("n1", "n2", "n3", "n4", "n5")
    watch.look(voters, set(), ADDRESSES.copy, 0.0)
    watch.look(voters, set(), ADDRESSES.copy, 5.0)
    watch.look(voters, {"n2"}, ADDRESSES.copy, 6.0)
    watch.look(voters, {"n2"}, ADDRESSES.copy, 7.0)
    assert len(caplog.messages) == 2
    assert "n2 at" not in caplog.messages[1]


def test_its_end_is_told_only_if_it_was(watch: QuorumWatch, caplog: pytest.LogCaptureFixture) -> None:
    """A short gap leaves no line; a long one has an end, with who is still missed."""
    watch.look(VOTERS, set(), ADDRESSES.copy, 0.0)
    watch.look(VOTERS, {"n2"}, ADDRESSES.copy, 1.0)
    watch.look(VOTERS, set(), ADDRESSES.copy, 2.0)
    assert not caplog.messages
    watch.look(VOTERS, set(), ADDRESSES.copy, 4.0)
    watch.look(VOTERS, {"n3"}, ADDRESSES.copy, 12.0)
    watch.look(VOTERS, {"n3"}, ADDRESSES.copy, 13.0)
    assert caplog.messages[1:] == ["event=quorum-again after_s=10 unreachable=n2"]
