"""Starting, recognising and signalling processes that outlive a script; real processes throughout."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lib import processes

DEADLINE_S = 20
SLEEP = "import time; print('up', flush=True); time.sleep(600)"


@pytest.fixture
def child(tmp_path: Path) -> Iterator[int]:
    """A process of ours with a word in its command line that no other has."""
    argv = [sys.executable, "-c", SLEEP, str(tmp_path)]
    pid = processes.start(argv, log=tmp_path / "log", cwd=tmp_path, env=os.environ)
    yield pid
    processes.send_signal(pid, [str(tmp_path)], signal.SIGKILL)
    processes.wait_end(pid, [str(tmp_path)], DEADLINE_S)


def test_a_process_is_known_by_its_words(child: int, tmp_path: Path) -> None:
    """A pid counts as ours only while its command line holds our words."""
    assert processes.is_alive(child, [str(tmp_path)])
    assert not processes.is_alive(child, [str(tmp_path), "another"])
    assert not processes.is_alive(0, [str(tmp_path)])


def test_a_stranger_is_never_signalled(child: int, tmp_path: Path) -> None:
    """A recycled pid, that is one whose words are not ours, gets no signal."""
    assert not processes.send_signal(child, ["another"], signal.SIGKILL)
    assert processes.is_alive(child, [str(tmp_path)])
    assert processes.wait_end(child, ["another"], 0)


def test_a_killed_child_is_reaped(child: int, tmp_path: Path) -> None:
    """After kill and wait there is neither a process nor a zombie."""
    assert processes.send_signal(child, [str(tmp_path)], signal.SIGKILL)
    assert processes.wait_end(child, [str(tmp_path)], DEADLINE_S)
    assert not Path(f"/proc/{child}").exists()
    assert not processes.send_signal(child, [str(tmp_path)], signal.SIGKILL)


def test_waiting_for_a_process_that_lives_on_ends(child: int, tmp_path: Path) -> None:
    """The wait says whether the process has ended within its time."""
    assert not processes.wait_end(child, [str(tmp_path)], 0.01)


def test_a_process_of_somebody_else_is_signalled_by_its_words(tmp_path: Path) -> None:
    """What another script started is found again by pid and words alone."""
    other = subprocess.Popen([sys.executable, "-c", SLEEP, str(tmp_path)], stdout=subprocess.PIPE)
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == b"up\n"
        assert processes.is_alive(other.pid, [str(tmp_path)])
        assert processes.send_signal(other.pid, [str(tmp_path)], signal.SIGKILL)
        assert processes.wait_end(other.pid, [str(tmp_path)], DEADLINE_S)
    finally:
        other.kill()
        other.wait()
        other.stdout.close()


def test_a_stopped_process_is_told_from_a_running_one(child: int, tmp_path: Path) -> None:
    """SIGSTOP shows, and SIGCONT takes it back."""
    assert not processes.is_stopped(child)
    processes.send_signal(child, [str(tmp_path)], signal.SIGSTOP)
    os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOWAIT)
    assert processes.is_stopped(child)
    processes.send_signal(child, [str(tmp_path)], signal.SIGCONT)
    os.waitid(os.P_PID, child, os.WCONTINUED | os.WNOWAIT)
    assert not processes.is_stopped(child)


def test_what_a_process_uses_is_read_from_the_kernel() -> None:
    """Our own processor time and memory are as the kernel tells us by other ways."""
    before_s = sum(os.times()[:2])
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    assert before_s - 2 * tick_s <= processes.cpu_s(os.getpid()) <= sum(os.times()[:2]) + 2 * tick_s
    assert 2**20 < processes.resident_bytes(os.getpid()) < 2**34
