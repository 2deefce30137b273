"""The guardian: what a guarded program has started dies with it; what no guard watches lives on."""

import contextlib
import os
import signal
import subprocess
import sys
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

FORKING = """
import os, sys, time
from scripts.lib import guardian
folder = sys.argv[1]
with guardian.guarded():
    guardian.run_if_killed(["touch", folder + "/cleaned"])
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    print(pid, flush=True)
    sys.stdin.readline()
print("over", os.waitpid(pid, 0)[1], flush=True)
"""
"""Forks a child, which has a copy of everything and starts no other program."""


def sleepers(folder: Path) -> list[int]:
    """Return the processes that sleep for a test."""
    return [
        pid for pid, line in processes_with(str(folder)).items() if line.endswith(f"-c {SLEEP} {folder} ")
    ]


@contextlib.contextmanager
def started(source: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a program and give it when its sleepers run. They are killed afterwards."""
    command = [sys.executable, "-c", source, str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            wait_until(lambda: len(sleepers(folder)) == 2, "both have started")
            yield process
        finally:
            process.kill()
            for pid in sleepers(folder):
                processes.send_signal(pid, [str(folder)], signal.SIGKILL)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A guarded program that has started a child and a grandchild."""
    with started(PROGRAM, tmp_path) as process:
        yield process


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


def test_what_no_guard_watches_lives_on(program: subprocess.Popen[str], tmp_path: Path) -> None:
    """A process that a killed program has started without a guard stays, as the nodes of `cluster up` do."""
    source = PROGRAM.replace("with guardian.guarded():", "if True:").replace("guardian.run_if_killed", "len")
    folder = tmp_path / "unguarded"
    folder.mkdir()
    with started(source, folder) as unguarded:
        unguarded.kill()
        program.kill()
        wait_until(lambda: not sleepers(tmp_path), "the guarded ones have ended")
        assert len(sleepers(folder)) == 2


@pytest.fixture
def forking(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A guarded program that has forked a child, and the child's pid."""
    command, pipe = [sys.executable, "-c", FORKING, str(tmp_path)], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            yield process, child
        finally:
            process.kill()
            processes.send_signal(child, [str(tmp_path)], signal.SIGKILL)


def test_a_forked_child_dies_with_its_program(
    forking: tuple[subprocess.Popen[str], int], tmp_path: Path
) -> None:
    """It has no mark, and its copy of the pipe stays open: it is killed nevertheless."""
    program, child = forking
    program.kill()
    wait_until(lambda: child not in processes_with(str(tmp_path)), "the child has ended")
    wait_until((tmp_path / "cleaned").exists, "the cleanup command has run")


def test_a_region_ends_although_a_forked_child_holds_the_pipe(
    forking: tuple[subprocess.Popen[str], int], tmp_path: Path
) -> None:
    """Goodbye is enough for the guard: it does not wait for the end of the pipe, and ends the child."""
    program, _ = forking
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write("\n")
    program.stdin.flush()
    assert program.stdout.readline() == f"over {int(signal.SIGKILL)}\n"
    assert not (tmp_path / "cleaned").exists()
