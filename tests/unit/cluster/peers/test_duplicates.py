"""Two processes with one identity are noticed by what only processes have."""

import pytest

from cluster.peers.duplicates import RUNS_COUNT_MAX, Runs


def test_a_restarted_node_is_no_duplicate(caplog: pytest.LogCaptureFixture) -> None:
    """Every run is new, and a connection of the same run may be made again."""
    runs = Runs()
    for run_id in ("a", "a", "b", "b", "c"):
        assert not runs.connected("n2", run_id)
    assert not runs.connected("n3", "a")
    assert (runs.alternations_count, caplog.text) == (0, "")


def test_two_that_alternate_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """No process comes back with the run of another one before it: each time one does is counted."""
    runs = Runs()
    assert [runs.connected("n2", run_id) for run_id in ("a", "b", "a", "a", "b")] == [
        False,
        False,
        True,
        False,
        True,
    ]
    assert runs.alternations_count == 2
    assert "event=duplicate-node peer=n2 run=a other_run=b" in caplog.text


def test_what_is_remembered_has_a_bound() -> None:
    """A node that restarts all the time, and peers that are gone, take no memory."""
    runs = Runs()
    for number in range(RUNS_COUNT_MAX + 1):
        runs.connected("n2", str(number))
    assert not runs.connected("n2", "0"), "forgotten"
    assert runs.connected("n2", "2")
    runs.keep(frozenset({"n1"}))
    assert not runs.connected("n2", "2")


def test_each_refused_process_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """It tries again every two seconds; all of that is counted."""
    runs = Runs()
    runs.connected("n2", "a")
    for run_id in ("b", "b", "c", "b"):
        runs.refused("n2", run_id)
    assert runs.alternations_count == 4
    assert caplog.text.count("event=duplicate-node peer=n2 run=b other_run=a") == 1
    assert caplog.text.count("event=duplicate-node peer=n2 run=c other_run=a") == 1
    runs.keep(frozenset())
    runs.refused("n2", "b")
    assert caplog.text.count("run=b") == 2
