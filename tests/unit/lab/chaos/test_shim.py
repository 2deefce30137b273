"""The library that bends disks and clocks of a process, on a small process that says what it sees."""

import errno
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.chaos.shim import control as shim
from lab.chaos.shim.control import ShimControl, ShimFailure

CHILD = """
import os, sys, threading, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.pwrite(fd, bytes(100), 0)

def never_back():
    seen, lock = [], threading.Lock()
    def look():
        for _ in range(20000):
            with lock:
                seen.append(time.monotonic_ns())
    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen == sorted(seen)

for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except OSError as error:
        print("errno", error.errno, flush=True)
"""
MONOTONIC = "(time.monotonic_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME))"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the compiled library; skips where there is no compiler."""
    try:
        return shim.build(tmp_path_factory.mktemp("shim"))
    except ShimFailure as error:
        pytest.skip(str(error))


class Child:
    """A process under the library."""

    def __init__(self, library: Path, tmp_path: Path) -> None:
        self.control = ShimControl(tmp_path / "control")
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path / "file")],
            env=self.control.environment(library),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self.ask("'is there'") == "is there"

    def ask(self, expression: str) -> str:
        """Return what an expression comes to there."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(expression + "\n")
        return self._process.stdout.readline().strip()

    def number(self, expression: str) -> int:
        """Return a number from there."""
        return int(self.ask(expression))

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(20) == 0
        assert self._process.stdout is not None
        self._process.stdout.close()
        self.control.close()


@pytest.fixture
def child(library: Path, tmp_path: Path) -> Iterator[Child]:
    """Return such a process."""
    child = Child(library, tmp_path)
    yield child
    child.close()


def test_nothing_happens_unless_it_is_said(child: Child) -> None:
    """Syncs work, files grow, and the clock is the kernel's."""
    assert child.ask("os.fdatasync(fd), os.fsync(fd)") == "(None, None)"
    assert child.ask("os.pwrite(fd, bytes(200), 0), os.write(fd, bytes(300))") == "(200, 300)"
    before_ns = time.monotonic_ns()
    seen_ns = child.number("time.monotonic_ns()")
    assert before_ns <= seen_ns <= time.monotonic_ns()


def test_syncs_fail_and_are_slow_as_long_as_it_is_said(child: Child) -> None:
    """Both kinds; and then they are well again."""
    child.control.disk(sync_errno=errno.EIO)
    assert child.ask("os.fdatasync(fd)") == f"errno {errno.EIO}"
    assert child.ask("os.fsync(fd)") == f"errno {errno.EIO}"
    child.control.disk(delay_s=0.2)
    elapsed = "(lambda began: (os.fdatasync(fd), time.monotonic_ns() - began)[1])(time.monotonic_ns())"
    assert child.number(elapsed) >= 200_000_000
    child.control.disk()
    assert child.ask("os.fdatasync(fd)") == "None"


def test_a_full_disk_takes_what_fits(child: Child) -> None:
    """Overwriting goes on; what would make a file longer fails; standard output takes everything."""
    child.control.disk(grow_errno=errno.ENOSPC)
    assert child.ask("os.pwrite(fd, bytes(100), 0)") == "100"
    assert child.ask("os.pwrite(fd, bytes(101), 0)") == f"errno {errno.ENOSPC}"
    assert child.ask("os.lseek(fd, 0, os.SEEK_END) and os.write(fd, b'x')") == f"errno {errno.ENOSPC}"
    child.control.disk()
    assert child.ask("os.pwrite(fd, bytes(101), 0)") == "101"


def test_a_clock_runs_fast_steps_forward_and_never_back(child: Child) -> None:
    """Also when it is put right again: it goes on from where it was."""
    child.control.clock(rate_ppm=1_000_000)
    first_ns = child.number("time.monotonic_ns()")
    asked_ns = time.monotonic_ns()
    second_ns = child.number("(time.sleep(0.2), time.monotonic_ns())[1]")
    passed_ns = time.monotonic_ns() - asked_ns
    assert 400_000_000 <= second_ns - first_ns <= 2 * passed_ns + 200_000_000
    child.control.clock(step_s=100.0)
    third_ns = child.number("time.monotonic_ns()")
    assert third_ns - second_ns >= 100_000_000_000
    child.control.clock(rate_ppm=-900_000)
    assert third_ns <= child.number("time.monotonic_ns()")


def test_no_thread_sees_the_clock_go_back(child: Child) -> None:
    """While rates change, all threads together see times that only grow."""
    for rate in (500_000, -500_000, 900_000):
        child.control.clock(rate_ppm=rate)
        assert child.ask("never_back()") == "True"


def test_waiting_for_a_lock_takes_its_time_by_any_clock(child: Child) -> None:
    """A clock that is far ahead does not make a wait longer."""
    child.control.clock(step_s=1000.0)
    wait = "(lambda lock: (lock.acquire(), lock.acquire(timeout=0.05))[1])(threading.Lock())"
    assert child.ask(wait) == "False"


def test_the_wall_clock_is_another(child: Child) -> None:
    """It can be wrong by itself."""
    child.control.clock(wall_step_s=-86_400)
    assert child.number("time.time_ns()") < time.time_ns() - 86_000_000_000_000


def test_without_a_compiler_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is missing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ShimFailure, match="no C compiler"):
        shim.build(tmp_path)
