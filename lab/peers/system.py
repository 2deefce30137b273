"""A system that is measured: which programs it needs, how it is started, and in which ways it is asked."""

import contextlib
import os
import re
import shutil
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from lab.peers.closed_loop import Lean
from lab.peers.connection import Address
from scripts.lib import ports, processes
from scripts.local_cluster import ClusterFailure

START_S: Final = 60.0
"""Seconds until a system must answer. A JVM on a busy machine is slow to start."""
STOP_S: Final = 10.0
POLL_S: Final = 0.05
LOG_TAIL_LINES: Final = 15

Connect = Callable[[int], Awaitable[Sequence[Lean]]]
"""Opens the connections for so many workers: one for each, or fewer that they share."""


class Way(NamedTuple):
    """One way of asking a running system."""

    key: str
    """What it is called in JSON, such as `etcd-grpc`."""
    title: str
    connect: Connect
    is_contended: bool = False
    """Whether all workers want one lock, and `acquire` waits for it."""


class Running(NamedTuple):
    """A system that answers."""

    pids: list[int]
    """Its processes; those that they start count as well."""
    ways: list[Way]


class System(Protocol):
    """A lock service, or what people use as one."""

    @property
    def name(self) -> str:
        """What it is called on the command line and in the table."""

    @property
    def nodes(self) -> int:
        """How many nodes are started."""

    def missing(self) -> list[str]:
        """Return Debian's packages that are not installed and needed."""

    def running(self, directory: Path, workers: int) -> AbstractContextManager[Running]:
        """Start it, its data in `directory`, for so many workers; it has ended when the block is left."""


def find_program(name: str, *folders: str) -> str | None:
    """Return the path of a program: on the PATH, or in the newest folder that one of the patterns matches."""
    found = [
        str(path / name)
        for pattern in folders
        for path in sorted(Path("/").glob(pattern), key=_version)
        if os.access(path / name, os.X_OK)
    ]
    return shutil.which(name) or (found[-1] if found else None)


def _version(path: Path) -> list[int]:
    """Return the numbers in a path, by which 10 comes after 9."""
    return [int(number) for number in re.findall(r"\d+", str(path))]


def free_addresses(count: int) -> list[Address]:
    """Return addresses on loopback that nobody listens on, reserved for this process."""
    return [Address(ports.HOST, port) for port in ports.reserve(count)]


class Programs:
    """Processes that are started one after the other and end together, when the block is left."""

    def __init__(self, name: str, stop: signal.Signals = signal.SIGTERM) -> None:
        """`stop` is the signal by which they are asked to end; what does not within STOP_S is killed."""
        self.name = name
        self._stop = stop
        self._started: list[tuple[int, Sequence[str], Path]] = []

    @property
    def pids(self) -> list[int]:
        """The processes, in the order in which they were started."""
        return [pid for pid, _, _ in self._started]

    def start(self, argv: Sequence[str], log: Path) -> None:
        """Start a process that says what it has to say in `log`."""
        pid = processes.start(argv, log=log, cwd=log.parent, env=os.environ)
        self._started.append((pid, argv, log))

    def wait(self, is_ready: Callable[[], bool], timeout_s: float = START_S) -> None:
        """Wait until the system is ready. Raises ClusterFailure with the end of a log."""
        deadline_s = time.monotonic() + timeout_s
        while not is_ready():
            for pid, argv, log in self._started:
                if not processes.is_alive(pid, argv):
                    raise ClusterFailure(f"{self.name} has ended; its last words:\n{_tail(log)}")
            if time.monotonic() > deadline_s:
                words = _tail(self._started[0][2])
                raise ClusterFailure(f"{self.name} is not ready after {timeout_s:.0f} s:\n{words}")
            time.sleep(POLL_S)

    def end(self) -> None:
        """End all processes, and wait for that. Raises ClusterFailure if one survives SIGKILL."""
        deadline_s = time.monotonic() + STOP_S
        try:
            for pid, argv, _ in self._started:
                processes.send_signal(pid, argv, self._stop)
            for pid, argv, _ in self._started:
                processes.wait_end(pid, argv, max(0.0, deadline_s - time.monotonic()))
        finally:
            # Also when Ctrl-C ends the wait: nothing stays behind.
            for pid, argv, _ in self._started:
                processes.send_signal(pid, argv, signal.SIGKILL)
        for pid, argv, _ in self._started:
            if not processes.wait_end(pid, argv, STOP_S):
                raise ClusterFailure(f"{self.name} (pid {pid}) survived SIGKILL; is its disk stuck?")


@contextlib.contextmanager
def programs(name: str, stop: signal.Signals = signal.SIGTERM) -> Iterator[Programs]:
    """Give somewhere to start processes; they have ended when the block is left, however that happens."""
    started = Programs(name, stop)
    try:
        yield started
    finally:
        started.end()


def ask_line(address: Address, line: bytes, timeout_s: float = 2.0) -> bytes:
    """Send a line and return all that comes until the other side closes; b"" if nobody is there."""
    with contextlib.suppress(OSError), socket.create_connection(address, timeout_s) as connection:
        connection.sendall(line)
        data = b""
        while part := connection.recv(1 << 16):
            data += part
        return data
    return b""


def _tail(log: Path) -> str:
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(text.splitlines()[-LOG_TAIL_LINES:])
