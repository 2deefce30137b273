"""What every kind of client of a simulated world is: a process that does several things at a time."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from tests.simulation.workload.caller import Caller
from tests.simulation.world.event_loop import NodeLoop


class AnyClient:
    """One client, which asks through `caller`. `is_active` is false while the world wants it to be quiet."""

    def __init__(self, loop: NodeLoop, caller: Caller) -> None:
        self.name = loop.name
        self.is_active = True
        self.caller = caller
        self._loop = loop
        self._tasks: set[asyncio.Task[Any]] = set()

    def told_of_nodes(self, node_ids: list[str]) -> None:
        """Ask these nodes from now on."""
        self.caller.node_ids = list(node_ids)

    def leave(self) -> None:
        """End the client's process."""
        self._loop.kill()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Do something beside all else."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        self._loop.tell_failure(task)
