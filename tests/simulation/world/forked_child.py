"""The forked writer of snapshots, in simulated time: the state as it was, the writes later, one by one."""

from collections.abc import Callable
from typing import Any

from cluster.storage.forked_child import Child, ChildState
from tests.simulation.world.event_loop import Killed, NodeLoop
from tests.simulation.world.files import SimFiles
from tests.simulation.world.scheduler import Event, Scheduler


class SimChild(Child):
    """One process's child. It dies with its parent, which may be at any of its operations."""

    def __init__(
        self,
        scheduler: Scheduler,
        loop: NodeLoop,
        files: SimFiles,
        next_pid: Callable[[], int],
        *,
        step_us: Callable[[], int],
    ) -> None:
        """`step_us` tells how long each operation of the next child takes."""
        super().__init__()
        self.on_start: Callable[[], None] = _nothing
        self._step_us = step_us
        self._pace_us = 0
        self.failed_us = -1
        """When a child failed the last time; -1: none did."""
        self.done_us = -1
        """When a child was done the last time; -1: none was."""
        self._scheduler = scheduler
        self._loop = loop
        self._files = files
        self._next_pid = next_pid
        self._script: list[tuple[str, tuple[Any, ...]]] = []
        self._fd = -1
        self._outcome: ChildState = "idle"
        self._next: Event | None = None
        self.encoding_pid = 0
        """The child's pid while it works; 0 else."""

    @property
    def is_running(self) -> bool:
        """Whether a child was started whose end `poll` has not told yet."""
        return self._outcome != "idle"

    def start(self, work: Callable[[], None]) -> None:
        """Note what `work` writes; it is written later."""
        assert not self.is_running, "the last child's end was not polled"
        self.pid = self.encoding_pid = self._next_pid()
        self._files.recording = self._script = []
        try:
            work()
        finally:
            self._files.recording = None
            self.encoding_pid = 0
        self._outcome = "running"
        self._pace_us = self._step_us()
        self._next = self._scheduler.at(self._loop.now_us + self._pace_us, self._step)
        self.on_start()

    def _step(self) -> None:
        """Do the next operation."""
        if self._loop.is_dead:
            return
        if not self._script:
            self._outcome = "done"
            return
        operation, arguments = self._script.pop(0)
        try:
            with self._loop.not_blocked():
                if operation == "create":
                    self._fd = self._files.create(*arguments)
                else:
                    getattr(self._files, operation)(self._fd, *arguments)
        except OSError:
            self._outcome = "failed"
            return
        except Killed:
            return
        self._next = self._scheduler.after(self._pace_us, self._step)

    def poll(self) -> ChildState:
        """Return how the child is; "done" and "failed" exactly once."""
        outcome = self._outcome
        if outcome == "failed":
            self.failed_us = self._loop.now_us
        if outcome == "done":
            self.done_us = self._loop.now_us
        if outcome in ("done", "failed"):
            self._outcome, self.pid = "idle", 0
        return outcome

    def kill(self) -> None:
        """Make it fail, even if it has just finished."""
        if self.is_running:
            self._drop()
            self._outcome = "failed"

    def stop(self) -> None:
        """End it; nothing is polled of it any more."""
        self._drop()
        self._outcome, self.pid = "idle", 0

    def _drop(self) -> None:
        if self._next is not None:
            self._next.cancel()
        self._script = []


def _nothing() -> None:
    """Nobody wants to know."""
