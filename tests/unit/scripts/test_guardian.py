"""The guardian: what a guarded program has started dies with it; what no guard watches lives on."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lib import guardian, processes
from tests.support.processes import processes_with, wait_until

ROOT = Path(__file__).resolve().parents[3]
SLEEP = "import time; time.sleep(600)"

PROGRAM = """
import subprocess, sys, time
from scripts.lib import guardian
folder = sys.argv[1]
sleeper = [sys.executable, "-c", "import time; time.sleep(600)", folder]
starter = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"
with guardian.guarded():
    guardian.run_if_killed(["touch", folder + "/cleaned"])
    guardian.run_if_killed(["no-such-command"])
    subprocess.run([sys.executable, "-c", starter, *sleeper], check=True)
    subprocess.Popen(sleeper)
    print("up", flush=True)
    sys.stdin.readline()
print("over", flush=True)
time.sleep(600)
"""
"""Starts one child, and a grandchild in a session of its own; a line on stdin ends the guarded region."""


def sleepers(folder: Path) -> list[int]:
    """Return the processes that sleep for a test."""
    return [pid for pid, line in processes_with(str(folder)).items() if f"-c {SLEEP} {folder}" in line]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A guarded program that has started a child and a grandchild."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            wait_until(lambda: len(sleepers(tmp_path)) == 2, "both have started")
            yield process
        finally:
            process.kill()


def test_a_killed_program_takes_its_grandchildren_along(
    program: subprocess.Popen[str], tmp_path: Path
) -> None:
    """After SIGKILL neither child nor grandchild is left, and the cleanup commands have run."""
    program.kill()
    wait_until(lambda: not sleepers(tmp_path), "both have ended")
    wait_until((tmp_path / "cleaned").exists, "the cleanup command has run")


def test_a_paused_process_dies_with_its_program(program: subprocess.Popen[str], tmp_path: Path) -> None:
    """A child that is held by SIGSTOP is killed, too."""
    for pid in sleepers(tmp_path):
        os.kill(pid, signal.SIGSTOP)
    program.kill()
    wait_until(lambda: not sleepers(tmp_path), "both have ended")


def test_the_end_of_a_region_ends_what_was_started_in_it(
    program: subprocess.Popen[str], tmp_path: Path
) -> None:
    """The region returns when all its processes are gone; the program lives on, its own cleanup is enough."""
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write("\n")
    program.stdin.flush()
    assert program.stdout.readline() == "over\n"
    assert sleepers(tmp_path) == []
    assert program.poll() is None
    assert not (tmp_path / "cleaned").exists()


def test_a_region_in_a_region_has_the_same_guard() -> None:
    """A second guard for the same process would only kill what the first one watches too early."""
    with guardian.guarded():
        mark = os.environ[guardian.VARIABLE]
        with guardian.guarded():
            assert os.environ[guardian.VARIABLE] == mark
        assert os.environ[guardian.VARIABLE] == mark


def test_what_no_guard_watches_lives_on(tmp_path: Path) -> None:
    """A process that a killed program has started without a guard stays, as the nodes of `cluster up` do."""
    source = PROGRAM.replace("with guardian.guarded():", "if True:")
    source = "\n".join(line for line in source.splitlines() if "run_if_killed" not in line)
    with subprocess.Popen(
        [sys.executable, "-c", source, str(tmp_path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            wait_until(lambda: len(sleepers(tmp_path)) == 2, "both have started")
            process.kill()
            process.wait()
            time.sleep(2 * guardian.QUIET_S)
            assert len(sleepers(tmp_path)) == 2
        finally:
            for pid in sleepers(tmp_path):
                processes.send_signal(pid, [str(tmp_path)], signal.SIGKILL)
