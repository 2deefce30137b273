"""`scripts/chaos` on real nodes: clean if all is well, red if a promise is broken, and gone when killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.chaos.checkers.catalogue import check_all
from lab.chaos.history import History, read_history
from lab.chaos.targets.processes import PREFIX
from lab.chaos.teeth.spoilers import SPOILERS
from scripts.local_cluster import PROJECT, LocalCluster
from tests.process.nodes import DEADLINE_S

pytestmark = pytest.mark.process

CLEAN, BROKEN, LAB_FAILED = 0, 1, 2
RUN_S = 150


def command(*arguments: str | Path) -> list[str]:
    """Return the command line of the lab."""
    return [sys.executable, "-P", "-m", "lab.chaos", *map(str, arguments)]


def environment(temporary: Path) -> dict[str, str]:
    """Return an environment whose temporary directory is the test's own."""
    return os.environ | {"PYTHONPATH": str(PROJECT), "TMPDIR": str(temporary)}


def chaos(tmp_path: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the lab to its end."""
    return subprocess.run(
        command(*arguments),
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )


def nodes_below(directory: Path) -> list[str]:
    """Return the command lines of all processes that name a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(str(directory)) in line and b"http_api" in line:
            found.append(line.decode())
    return found


def until(is_so: Callable[[], Any], what: str) -> None:
    """Wait for a condition."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.05)


SCHEDULE = """
0.5 kill-leader 1.5
0.2 pause-leader 2
0.2 torn-tail 0.5
0.2 transfer-storm 0
0.2 foreign-node 1
"""


@pytest.mark.slow
def test_a_cluster_that_is_well_is_clean_under_faults(tmp_path: Path) -> None:
    """A schedule of a person runs, is recorded, and breaks no promise; checked again it is still clean."""
    (tmp_path / "schedule").write_text(SCHEDULE)
    done = chaos(
        tmp_path,
        *("--minutes", "0.4", "--seed", "1", "--schedule", "schedule", "--dir", "run"),
        *("--budget-factor", "10", "--at", "1:touch was-here"),
    )
    assert done.returncode == CLEAN, done.stdout + done.stderr
    assert done.stdout.startswith("chaos: target processes, 3 nodes, seed 1, load ")
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert {"kill-leader": 1, "pause-leader": 1, "own": 1}.items() <= report["faults"].items()
    assert report["operations"]["ok"] > 200
    assert report["terms"] >= 2
    assert (tmp_path / "was-here").exists()
    assert nodes_below(tmp_path) == []
    assert list(tmp_path.glob(f"{PREFIX}*")) == []
    again = chaos(tmp_path, "check", "run")  # with the same budgets
    assert again.returncode == CLEAN, again.stdout + again.stderr


@pytest.mark.slow
@pytest.mark.parametrize("library", ["redis-py", "pottery"])
def test_locks_of_libraries_for_redis_are_clean_under_faults(tmp_path: Path, library: str) -> None:
    """Their grants have tokens, and none is left behind."""
    pytest.importorskip("pottery", reason="needs pottery: scripts/test --all installs it")
    (tmp_path / "schedule").write_text(SCHEDULE)
    done = chaos(
        tmp_path,
        *("--client", library, "--minutes", "0.4", "--seed", "1", "--schedule", "schedule"),
        *("--dir", "run", "--budget-factor", "10"),
    )
    assert done.returncode == CLEAN, done.stdout + done.stderr
    operations = read_history(tmp_path / "run" / "history.jsonl").of(library)
    assert sum(item.kind == "acquire" and item.outcome == "ok" for item in operations) > 100


def test_a_history_that_breaks_a_promise_is_red(tmp_path: Path) -> None:
    """What no cluster may answer, put into the recorded history of a real one."""
    done = chaos(tmp_path, "--minutes", "0.15", "--seed", "1", "--no-faults", "--dir", "run")
    assert done.returncode == CLEAN, done.stdout + done.stderr
    broken, without_place = [], []
    for spoiler in SPOILERS:
        lines = read_history(tmp_path / "run" / "history.jsonl").lines
        try:
            spoiler.spoil(lines)
        except StopIteration:  # on a slow machine little happens in so short a run
            without_place.append(spoiler.name)
            continue
        assert spoiler.checker in {found.checker for found in check_all(History(lines))}, spoiler.name
        broken = lines
    assert len(without_place) <= len(SPOILERS) // 4, without_place
    spoiled = b"".join(msgspec.json.encode(line) + b"\n" for line in broken)
    (tmp_path / "spoiled.jsonl").write_bytes(spoiled)
    judged = chaos(tmp_path, "check", "spoiled.jsonl")
    assert judged.returncode == BROKEN, judged.stdout + judged.stderr
    assert "A PROMISE WAS BROKEN" in judged.stdout
    page = (tmp_path / "timeline.html").read_text()
    assert '"verdict":"broken"' in page
    drawn = chaos(tmp_path, "timeline", "run")
    assert drawn.returncode == CLEAN, drawn.stdout + drawn.stderr
    assert '"violations":[]' in (tmp_path / "run" / "timeline.html").read_text()


def test_clients_and_checkers_at_a_cluster_that_somebody_else_runs(tmp_path: Path) -> None:
    """The nodes are told apart by what they say of themselves; two that are one are found out."""
    with LocalCluster.up(tmp_path / "theirs") as cluster:
        urls = ",".join(node.http for node in cluster.nodes())
        done = chaos(
            tmp_path,
            *("--target", urls, "--no-faults", "--minutes", "0.1", "--dir", "run"),
            *("--at", "1:echo pulled >pulled", "--workloads", "mutex,tokens"),
        )
        twice = chaos(tmp_path, "--target", f"{urls},{urls}", "--no-faults", "--minutes", "0.1")
    assert done.returncode == CLEAN, done.stdout + done.stderr
    assert (tmp_path / "pulled").read_text() == "pulled\n"
    lines = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert {line["node"] for line in lines if line["line"] == "node-state"} == {"n1", "n2", "n3"}
    assert twice.returncode == LAB_FAILED
    assert "lead to the same node" in twice.stderr
    nobody = chaos(tmp_path, "--target", urls, "--no-faults", "--minutes", "0.1")
    assert nobody.returncode == LAB_FAILED
    assert "no node answers" in nobody.stderr


def test_a_killed_lab_leaves_nothing(tmp_path: Path) -> None:
    """Neither nodes nor files, after kill -9 in the middle of a fault."""
    with subprocess.Popen(
        command("--minutes", "5", "--only", "pause-leader"),
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    ) as lab:
        assert lab.stdout is not None
        for line in lab.stdout:
            if line.startswith("pause-leader ("):
                break
        assert len(nodes_below(tmp_path)) == 3
        lab.send_signal(signal.SIGKILL)
    until(lambda: not nodes_below(tmp_path), "nodes are left")
    until(lambda: not list(tmp_path.glob(f"{PREFIX}*")), "files are left")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--prove", "--only", "kill-leader"), "there is no tooth 'kill-leader'; there are sound-node"),
        (("--only", "kill-leeder"), "there is no fault 'kill-leeder'; there are kill-follower"),
        (("--workloads", "mutexes"), "there is no workload 'mutexes'"),
        (("--target", "nowhere"), "there is no target 'nowhere'"),
        (("--target", "http://127.0.0.1:1,http://127.0.0.1:2"), "no node answers at http://127.0.0.1:1"),
        (("check", "no-such-file"), "no-such-file"),
    ],
)
def test_what_cannot_be_done_is_told(tmp_path: Path, arguments: Sequence[str], said: str) -> None:
    """With exit code 2, and what there is."""
    done = chaos(tmp_path, *arguments)
    assert done.returncode == LAB_FAILED
    assert said in done.stderr


def test_a_defect_of_one_real_node_is_noticed(tmp_path: Path) -> None:
    """`--prove` says who objected to a node that accepts the tokens of former holders."""
    done = chaos(tmp_path, *("--prove", "--only", "fence-accepts-stale", "--dir", "run", "--seed", "1"))
    assert done.returncode == CLEAN, done.stdout + done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("| `fence-accepts-stale`"))
    assert "fences" in row
    assert (tmp_path / "run" / "fence-accepts-stale" / "history.jsonl").exists()
    assert nodes_below(tmp_path) == []
