"""Processes that outlive the script that started them: start, recognise, signal. Linux only (/proc, pidfd).

A pid alone does not name a process: after its process ended, the kernel gives it to another one. A process
is ours only while its command line holds the words it was started with, and it is signalled through a
descriptor opened before that was checked, so that no stranger is ever hit.
"""

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Started by this very process, and therefore its own to reap. By pid."""


def start(argv: Sequence[str], *, log: Path, cwd: Path, env: Mapping[str, str]) -> int:
    """Start a process in a session of its own, its output appended to `log`; return its pid."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    _children[child.pid] = child
    return child.pid


def is_alive(pid: int, words: Sequence[str]) -> bool:
    """Whether `pid` runs and its command line holds all `words`. Reaps it if it was our child."""
    child = _children.get(pid)
    if child is not None:
        # Its command line can still be empty, just after the start; but a child's pid is not given away.
        if child.poll() is None:
            assert isinstance(child.args, list)
            return all(word in child.args for word in words)
        del _children[pid]
        return False
    try:
        command_line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    # A zombie has no command line.
    return all(os.fsencode(word) in command_line for word in words)


def send_signal(pid: int, words: Sequence[str], number: signal.Signals) -> bool:
    """Signal the process if it is alive and holds `words`; return whether it was."""
    with _opened(pid) as descriptor:
        if descriptor is None or not is_alive(pid, words):
            return False
        try:
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        return True


def wait_end(pid: int, words: Sequence[str], timeout_s: float) -> bool:
    """Wait until the process has ended; return whether it has within `timeout_s`."""
    with _opened(pid) as descriptor:
        if descriptor is None:
            return True
        if is_alive(pid, words):
            # A pidfd becomes readable when its process ends: no polling.
            select.select([descriptor], [], [], timeout_s)
        return not is_alive(pid, words)


def exit_code(pid: int, timeout_s: float) -> int:
    """Wait until a process that this one has started ends; return its exit code, -N after signal N.

    Raises subprocess.TimeoutExpired, and KeyError for a process of somebody else, or one that was reaped.
    """
    return _children[pid].wait(timeout_s)


@contextlib.contextmanager
def _opened(pid: int) -> Iterator[int | None]:
    """Hold a descriptor that stays with the process which has this pid now; None if there is none."""
    try:
        descriptor = os.pidfd_open(pid) if pid > 0 else None
    except ProcessLookupError:
        descriptor = None
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def is_stopped(pid: int) -> bool:
    """Whether a process is held by SIGSTOP."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] == "T"


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used, in its own code and in the kernel's for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    utime, stime = int(fields[11]), int(fields[12])
    return (utime + stime) / os.sysconf("SC_CLK_TCK")


def family(pids: Iterable[int]) -> set[int]:
    """Return these processes and all that they have started, directly or not, as far as they run."""
    parents = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended since
            parents[int(file.parent.name)] = int(file.read_text().rpartition(")")[2].split()[1])
    found = set(pids) & parents.keys()
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def resident_bytes(pid: int) -> int:
    """Return how much memory a process occupies."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
