"""The benchmarks of a cluster that are judged by bars, small but on real nodes, and how they end."""

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from lab.bench import command as bench
from lab.measuring.findings import Found
from scripts.local_cluster import LocalCluster
from tests.process.nodes import slow
from tests.support.processes import processes_with, wait_until

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 120.0


def parse(*argv: str) -> argparse.Namespace:
    """Return what the command line makes of arguments."""
    return bench.build_parser().parse_args(argv)


def measured(cluster: LocalCluster, *argv: str) -> Found:
    """Run a benchmark on a cluster."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(bench._JUDGED[argv[0]].measure(cluster, parse(*argv)))


def test_hand_offs_are_counted(cluster: LocalCluster) -> None:
    """One lock goes from worker to worker in each way of asking, without an error."""
    found = measured(cluster, "handoff", "--waiters", "3", "--seconds", "0.5")
    assert found.errors == []
    assert [row["way"] for row in found.rows] == ["holdfast-http", "holdfast-stream", "holdfast-shared"]
    assert all(row["cycles_per_s"] > 0 and row["is_contended"] for row in found.rows)
    assert [bar["found"] for bar in found.bars] == [row["cycles_per_s"] for row in found.rows]


@pytest.mark.slow
def test_failovers_are_timed_and_the_nodes_come_back(cluster: LocalCluster) -> None:
    """Each kind of change takes the lead from the leader, has a gap, and leaves three nodes that serve."""
    terms = []
    for flags in (("1", "0", "0"), ("0", "1", "0"), ("0", "0", "1")):
        options = zip(("--kills", "--stops", "--transfers"), flags, strict=True)
        view = cluster.view(cluster.leader())
        assert view is not None
        terms.append(view["term"])
        found = measured(cluster, "failover", "--clients", "3", *[word for pair in options for word in pair])
        (row,) = found.rows
        assert (found.errors, row["errors_count"], row["times"]) == ([], 0, 1)
        assert 0 < row["median_ms"] == row["worst_ms"] == row["gaps_ms"][0] < DEADLINE_S * 1000
        assert row["quiet_p99_ms"] > 0
        cluster.wait_ready()
    view = cluster.view(cluster.leader())
    assert view is not None
    terms.append(view["term"])
    assert terms == sorted(set(terms)), "each change ended a term"


@pytest.mark.slow
def test_sizing_has_a_row_for_each_size(tmp_path: Path) -> None:
    """Every figure of it is there, and the locks of one size are still held at the next."""
    with LocalCluster.up(tmp_path) as cluster:
        found = measured(cluster, "sizing", "--sizes", "50/0/0,120/6/15", "--seconds", "1")
        assert found.errors == []
        first, second = found.rows
        for row in found.rows:
            assert min(row[key] for key in ("memory_mib", "disk_mib", "requests_per_s", "restart_s")) > 0
        assert [row["locks"] for row in (first, second)] == [50, 120]
        view = cluster.ask(cluster.leader(), "/v1/locks?prefix=sizing/&limit=1000")
        assert view is not None
        assert len(view[1]["locks"]) == 120


@pytest.mark.slow
def test_growth_has_a_row_for_each_subject(tmp_path: Path) -> None:
    """Locks, sessions, watchers, names, request ids and streams are all there, and nothing was an error."""
    flags = ["--locks", "300", "--sessions", "50", "--watchers", "6", "--streams", "60"]
    with LocalCluster.up(tmp_path) as cluster:
        found = measured(cluster, "growth", *flags, "--workers", "4", "--seconds", "1", "--lock-steps", "2")
        assert found.errors == []
        by_key = {row["key"]: row for row in found.rows if "key" in row}
        assert list(by_key) == ["sessions", "watchers", "names", "once", "locks"]
        assert all(row["share_percent"] > 0 for row in by_key.values())
        assert 0 < by_key["locks"]["worst_percent"] <= by_key["locks"]["share_percent"]
        assert by_key["sessions"]["theirs_per_s"] > 0
        assert by_key["watchers"]["theirs_per_s"] > 0
        assert 0 <= by_key["watchers"]["theirs_percent"] <= 100
        begun, back = [row for row in found.rows if "streams" in row]
        assert begun["per_s"] > 0
        assert back["per_s"] > 0
        answer = cluster.ask(cluster.leader(), "/v1/locks?prefix=orders/&limit=1000")
        assert answer is not None
        assert len(answer[1]["locks"]) == 300
        sessions = cluster.ask(cluster.leader(), "/v1/sessions?limit=1000")
        assert sessions is not None
        assert len(sessions[1]["sessions"]) < 50, "those that were kept alive have been closed"


def test_a_victim_is_measured_alone_and_beside_others(cluster: LocalCluster) -> None:
    """Each kind of others has answers, the victim has a ratio, and nothing is held afterwards."""
    found = measured(cluster, "fairness", "--only", "listing,deep,busy", "--seconds", "0.5")
    assert found.errors == []
    assert [row["key"] for row in found.rows] == ["listing", "deep", "busy"]
    assert all(row["theirs_per_s"] > 0 and row["ratio"] > 0 for row in found.rows)
    answer = cluster.ask(cluster.leader(), "/v1/locks?prefix=fairness/")
    assert answer is not None
    assert answer[1]["locks"] == []


@pytest.mark.slow
def test_what_tls_and_tokens_cost_is_measured(tmp_path: Path) -> None:
    """Both clusters do something, in turns; nothing of the second one is left."""
    with LocalCluster.up(tmp_path) as cluster:
        found = measured(cluster, "secure", "--workers", "4", "--rounds", "1", "--seconds", "0.5")
        assert found.errors == []
        assert [row["title"] for row in found.rows] == ["in the clear", "TLS and tokens"]
        assert all(row["cycles_per_s"] > 0 for row in found.rows)
        (bar,) = found.bars
        assert bar["found"] > 0
        assert bar["is_met"] is None, "of four workers the bar does not speak"
        assert not list(tmp_path.glob("secure-*"))
    assert not processes_with(f"{tmp_path}/secure-")


@contextlib.contextmanager
def running(folder: Path, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start scripts/bench with its nodes below `folder`."""
    command = [sys.executable, "-P", "-m", "lab.bench.command", *argv, "--disk", str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def crowds() -> dict[int, str]:
    """Return the processes with clients in the background."""
    return processes_with("lab.loads.crowd ")


@pytest.mark.parametrize("number", [*map(slow, [signal.SIGINT, signal.SIGTERM]), signal.SIGKILL])
def test_a_run_that_is_ended_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C, SIGTERM or kill -9 amid a step ends nodes and clients, and removes the data."""
    before = set(crowds())
    with running(tmp_path, "fairness", "--only", "busy", "--seconds", "2") as process:
        wait_until(
            lambda: set(crowds()) - before or process.poll() is not None, "the clients begin", DEADLINE_S
        )
        assert process.poll() is None
        mine = set(crowds()) - before
        os.killpg(process.pid, number)  # as a terminal does, and a supervisor
        assert process.wait(DEADLINE_S) == (-number if number == signal.SIGKILL else 130)
    wait_until(lambda: not processes_with(f"{tmp_path}/"), "the nodes have ended")
    wait_until(lambda: not mine & set(crowds()), "the clients have ended")
    wait_until(lambda: not list(tmp_path.iterdir()), "the data is gone")
