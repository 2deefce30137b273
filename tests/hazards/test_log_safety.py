"""The log while messages are late or repeated (H2), and what one command can do to it (H6, H8)."""

from pathlib import Path
from typing import Any

import pytest
from pysyncobj import FAIL_REASON

from cluster.consensus import library
from tests.hazards.bare_library import bare_cluster
from tests.hazards.replica_nodes import our_cluster
from tests.hazards.virtual_cluster import Cluster

COUNT = 15
UNLUCKY_BYTES = 131_010
"""A little less than twice the size at which the library splits entries."""
FIRST_PART = 300
"""Bytes of one message: a few of the entries below."""


def lose_acknowledged_entries(cluster: Cluster, values: list[Any]) -> list[Any]:
    """Make a commit `values` with b alone, let b handle late and repeated messages, kill a.

    Return what c gets.

    The network is ordinary: one connection that breaks once, first in, first out in each direction.
    """
    cluster.elect("a")
    cluster.isolate("c")
    leader, network = cluster["a"], cluster.network
    network.held |= {("a", "b"), ("b", "a")}
    leader.propose(*values[:-2])
    leader.timer()
    cluster.disconnect("a", "b")
    cluster.connect("a", "b")
    for value in values[-2:]:
        # Two messages whose beginning b does not have: two resets are on their way back.
        leader.propose(value)
        leader.timer()
    deliver_all(cluster, "a", "b")
    first_reset, second_reset = 0, 0
    while first_reset == 0:
        first_reset = cluster.deliver("b", "a")["reset"]
    cluster.clock.pass_ms(150)
    leader.timer()
    deliver_all(cluster, "a", "b")
    while second_reset == 0:
        second_reset = cluster.deliver("b", "a")["reset"]
    cluster.clock.pass_ms(150)
    leader.timer()
    deliver_all(cluster, "b", "a")
    leader.timer()
    assert set(values) <= set(leader.values), "a has committed and answered"
    cluster.deliver("a", "b")
    cluster["b"].work()
    cluster.crash("a")
    network.held.clear()
    cluster.connect("b", "c")
    cluster.run_until(lambda: cluster.leader_of("bc") in ("b", "c"))
    cluster.run_ms(1000)
    return list(cluster["c"].values)


def deliver_all(cluster: Cluster, source: str, target: str) -> None:
    """Deliver everything of one direction, and let the target sync."""
    while cluster.network.queues[source, target]:
        cluster.deliver(source, target)
    while cluster[target].work():
        pass


def test_the_bare_library_loses_what_it_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """H2: a follower cuts its log at a late message, and commands that were answered are gone."""
    cluster = bare_cluster(
        monkeypatch,
        appendEntriesUseBatch=False,
        appendEntriesBatchSizeBytes=FIRST_PART,
        leaderFallbackTimeout=3600,
    )
    leader = cluster["a"]
    values = [f"value {number:50d}" for number in range(COUNT)]
    left = lose_acknowledged_entries(cluster, values)
    assert leader.outcomes == [FAIL_REASON.SUCCESS] * COUNT
    assert len(left) < COUNT


def test_late_messages_take_nothing_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H2: after the same moves the next leader has everything that was committed."""
    monkeypatch.setattr(library, "SPLIT_BYTES", FIRST_PART)
    cluster, _ = our_cluster(tmp_path, monkeypatch, in_flight_max=10**6)
    values = [b"value %50d" % number for number in range(COUNT)]
    assert lose_acknowledged_entries(cluster, values) == values


def test_the_bare_library_chokes_on_an_entry_of_an_unlucky_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """H6: an entry a little shorter than a multiple of the split size cannot be put together again."""
    cluster = bare_cluster(monkeypatch)
    cluster.elect("a")
    cluster["a"].propose("x" * UNLUCKY_BYTES)
    with pytest.raises(EOFError):
        cluster.run_ms(1000)


@pytest.mark.parametrize("size", [65_500, 65_536, 130_957, UNLUCKY_BYTES, 131_072, 1 << 20])
def test_entries_of_all_sizes_arrive(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H6: an entry of any size up to the largest batch is replicated whole."""
    cluster, _ = our_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    cluster["a"].propose(b"x" * size, b"next")
    cluster.run_ms(500)
    assert cluster["c"].values == [b"x" * size, b"next"]


def test_the_bare_library_retries_a_bad_command_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """H8: what raises in apply is tried again in every tick, and nothing behind it is ever applied."""
    cluster = bare_cluster(monkeypatch)
    cluster.elect("a")
    cluster["a"].propose("break", "next")
    for _ in range(5):
        with pytest.raises(RuntimeError, match="a bug in apply"):
            cluster.run_ms(1000)
    assert cluster["a"].values == []
    assert cluster["a"].outcomes == []


def test_a_bad_apply_reaches_the_host_that_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H8: what cannot be applied reaches whoever drives the replica, once: it is never handed out again."""
    cluster, _ = our_cluster(tmp_path, monkeypatch)
    cluster.elect("a")
    cluster["a"].is_broken = True
    cluster["a"].propose(b"break", b"next")
    with pytest.raises(RuntimeError, match="a bug in apply"):
        cluster.run_ms(500)
    assert cluster["a"].values == []
    assert cluster["a"].replica.tick(has_entry=False).committed == []


def test_a_long_log_is_sent_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that was away gets what the link takes: all at once would break it, again and again."""
    monkeypatch.setattr(library, "SPLIT_BYTES", 1000)
    cluster, _ = our_cluster(tmp_path, monkeypatch, in_flight_max=10**6)
    cluster.elect("a")
    cluster.isolate("c")
    cluster["a"].propose(*[b"%d" % number * 100 for number in range(100, 300)])
    cluster.run_until(lambda: len(cluster["b"].values) == 200)
    cluster["a"].room = 5
    most = 0
    cluster.connect("a", "c")
    cluster.network.held.add(("a", "c"))
    for _ in range(100):
        cluster.step()
        cluster.settle()
        queue = cluster.network.queues["a", "c"]
        most = max(most, sum(bool(message.get("entries")) for message in queue))
        while queue:
            cluster.deliver("a", "c")
    assert 1 <= most <= 5
    cluster.network.held.clear()
    cluster.run_until(lambda: len(cluster["c"].values) == 200)
