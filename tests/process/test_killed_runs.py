"""Programs of ours that are killed with -9 while their nodes run: no node outlives them."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.processes import processes_with, wait_until

pytestmark = pytest.mark.process

PROJECT = Path(__file__).resolve().parents[2]
START_S = 60.0
"""Seconds for a program to start its three nodes, on a loaded machine."""


def nodes_of(folder: Path) -> list[int]:
    """Return the node processes whose data are below a folder."""
    return [pid for pid, line in processes_with(f"{folder}/").items() if "--data-dir" in line]


def check_nothing_outlives(command: Sequence[str], folder: Path) -> None:
    """Start a program that starts three nodes below `folder`, kill it, and wait for the end of the nodes."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", *command],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT), "TMPDIR": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(lambda: len(nodes_of(folder)) == 3 or process.poll() is not None, "the nodes run", START_S)
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_until(lambda: not processes_with(f"{folder}/"), "no process is left")


def test_a_killed_test_run_leaves_no_nodes_behind(tmp_path: Path) -> None:
    """Nodes of a session-wide fixture end with the pytest that is killed."""
    base = tmp_path / "base"
    options = ["-q", "-p", "no:cacheprovider", f"--basetemp={base}"]
    check_nothing_outlives(["pytest", *options, "tests/process/test_leader_loss.py"], base)


def test_a_killed_demo_leaves_no_nodes_behind(tmp_path: Path) -> None:
    """The nodes of scripts/demo end with it."""
    check_nothing_outlives(["scripts.demo"], tmp_path)


def test_a_killed_benchmark_leaves_no_nodes_behind(tmp_path: Path) -> None:
    """The nodes of scripts/bench end with it."""
    check_nothing_outlives(["lab.bench.command", "idle", "--disk", str(tmp_path)], tmp_path)
