"""What a replica needs around it in tests: configuration, clock, files, the child that writes snapshots."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import pytest

from cluster.storage.files import Files
from cluster.storage.forked_child import ChildState

READINGS_MAX: Final = 20_000
"""Readings of the clock without time passing after which a node is taken to wait for time in a loop."""


@dataclass(frozen=True)
class ReplicaConfig:
    """What a replica needs of a configuration; the defaults are those of a real node."""

    node_id: str
    heartbeat_ms: int = 100
    election_ms_min: int = 500
    election_ms_max: int = 1000
    compact_entries: int = 20_000


class Spinning(AssertionError):
    """A node waits for time to pass in a loop, and blocks everything else meanwhile."""


class LibraryClock:
    """The Raft library's monotonic time: it stands still until the test moves it.

    `reading_s` passes at each reading: the bare library spins without.
    """

    def __init__(self, reading_s: float = 0.0) -> None:
        self.now_s = 1000.0
        self._reading_s = reading_s
        self._readings = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Self:
        """Let the library see this clock from now on."""
        monkeypatch.setattr("cluster.consensus.library.syncobj.monotonicTime", self.read)
        return self

    def read(self) -> float:
        """Return the time in seconds."""
        self._readings += 1
        if self._readings > READINGS_MAX:
            raise Spinning(f"{READINGS_MAX} readings of the clock without a message or a step")
        self.now_s += self._reading_s
        return self.now_s

    def pass_ms(self, milliseconds: float) -> None:
        """Let time pass."""
        self.now_s += milliseconds / 1000
        self.rest()

    def rest(self) -> None:
        """Record that a node has come to the end of its work."""
        self._readings = 0


class UnsyncedFiles(Files):
    """Real files, without waiting for the disk: a crash here is a kill, which keeps the page cache."""

    def fdatasync(self, fd: int) -> None:
        """Do not wait."""

    def fsync_dir(self, directory: Path) -> None:
        """Do not wait."""


class FullDisk(Files):
    """A real disk that refuses every write while it is told to be full."""

    is_full = False

    def write(self, fd: int, data: bytes) -> None:
        """Write, or fail."""
        self._refuse()
        super().write(fd, data)

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        """Write, or fail."""
        self._refuse()
        super().write_at(fd, data, offset)

    def _refuse(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class InlineChild:
    """Does a child's work at once, so that runs repeat; `poll` tells it later, as for a real one."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.is_slow = False
        """Whether it only seems to be running when it has written, until this is taken back."""
        self._outcome: ChildState = "idle"

    @property
    def is_running(self) -> bool:
        """Whether the end has not been told yet."""
        return self._outcome != "idle"

    def start(self, work: Callable[[], None]) -> None:
        """Work."""
        work()
        self._outcome = "done"

    def poll(self) -> ChildState:
        """Tell the outcome once."""
        if self.is_slow and self._outcome == "done":
            return "running"
        outcome, self._outcome = self._outcome, "idle"
        return outcome

    def kill(self) -> None:
        """Fail, though all is written."""
        self._outcome = "failed"

    def stop(self) -> None:
        """Forget it."""
        self._outcome = "idle"
