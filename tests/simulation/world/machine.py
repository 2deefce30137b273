"""A machine of the simulated world, and one run of the node's process on it.

The process does what `http_api/__main__.py` does around a node, without HTTP: start, serve, stop when told,
end when the node breaks.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from cluster.config import NodeConfig
from cluster.consensus.guards import Message
from cluster.core import Core
from cluster.errors import NodeFailed, StartupError
from cluster.node import Node
from cluster.storage.files import Files
from cluster.storage.forked_child import Child
from tests.simulation.world.disk import Disk
from tests.simulation.world.event_loop import Current, NodeLoop, make_loop
from tests.simulation.world.files import SimFiles
from tests.simulation.world.forked_child import SimChild
from tests.simulation.world.network import Network
from tests.simulation.world.scheduler import Clock, Scheduler

CLOSE_S: Final = 5.0
"""How long open calls may take when the node is told to stop."""
RUN_COST_US: Final = 20
"""What one run of a loop takes."""


class Facts(Protocol):
    """Who is told of what happens in a node, as it happens."""

    def made(self, node_id: str, core: Core) -> None:
        """A node has recovered from its disk."""

    def applied(self, node_id: str, core: Core, entry: bytes) -> None:
        """A node has applied a committed entry."""

    def restored(self, node_id: str, core: Core) -> None:
        """A node has taken over a snapshot."""

    def sent(self, node_id: str, core: Core, target: str, message: Message) -> None:
        """A node sends a Raft message."""

    def received(self, node_id: str, source: str, message: Message) -> None:
        """A Raft message has arrived at a node."""

    def members_changed(self, node_id: str, core: Core) -> None:
        """Another member list counts for a node, or one is committed."""

    def stored(self, node_id: str, core: Core) -> None:
        """A node's journal was synced."""

    def led(self, node_id: str, core: Core) -> None:
        """A node has seen a change of leadership."""

    def started(self, process: "Process") -> None:
        """A node has started to take part."""

    def ended(self, process: "Process", reason: str, exit_code: int) -> None:
        """A node's process has ended by itself."""

    def uncaught(self, loop: NodeLoop, context: dict[str, Any]) -> None:
        """Nobody caught an exception."""


class WatchedCore(Core):
    """The core of a node, which tells what it does."""

    def __init__(self, config: NodeConfig, files: Files, child: Child, *, facts: Facts) -> None:
        self._facts = facts
        self._node_id = config.node_id
        self._is_made = False
        super().__init__(config, files, child)
        self._is_made = True
        journal = self._journal
        sync = journal.sync

        def watched_sync() -> bool:
            has_written = sync()
            facts.stored(self._node_id, self)
            return has_written

        journal.sync = watched_sync  # type: ignore[method-assign]
        facts.made(self._node_id, self)

    def apply(self, entry: bytes) -> None:
        """Apply, and tell."""
        super().apply(entry)
        self._facts.applied(self._node_id, self, entry)

    def restore_state(self, state: object) -> None:
        """Restore, and tell; at the start, `made` tells."""
        super().restore_state(state)
        if self._is_made:
            self._facts.restored(self._node_id, self)

    def send(self, peer_id: str, message: Message) -> None:
        """Tell, and send."""
        self._facts.sent(self._node_id, self, peer_id, message)
        super().send(peer_id, message)

    def members_changed(self) -> None:
        """Take note, and tell."""
        super().members_changed()
        self._facts.members_changed(self._node_id, self)

    def raft_message(self, peer_id: str, message: Message) -> None:
        """Tell, and take it."""
        self._facts.received(self._node_id, peer_id, message)
        super().raft_message(peer_id, message)

    def leadership_changed(self) -> None:
        """Take note, and tell."""
        super().leadership_changed()
        self._facts.led(self._node_id, self)


class Process:
    """One run of a node on its machine."""

    def __init__(self, machine: "Machine", loop: NodeLoop, pid: int, next_pid: Callable[[], int]) -> None:
        self.machine = machine
        self.loop = loop
        self.pid = pid
        self.files = SimFiles(machine.disk, loop.spend, machine.kill)
        self.child = SimChild(machine.scheduler, loop, self.files, next_pid)
        self.node = Node(machine.config, files=self.files, child=self.child)
        self.is_serving = False
        self._stop_asked = asyncio.Event()
        self._calls: dict[asyncio.Task[Any], None] = {}
        loop.on_kill = machine.kill
        self._main = loop.create_task(self._live())
        self._main.add_done_callback(loop.tell_failure)

    def ask_to_stop(self) -> None:
        """Send SIGTERM."""
        self.loop.call_soon(self._stop_asked.set)

    def serve(self, work: Callable[[Node], Coroutine[Any, Any, Any]]) -> "asyncio.Task[Any]":
        """Begin to answer a call. Runs in this process."""
        task = self.loop.create_task(work(self.node))
        self._calls[task] = None
        task.add_done_callback(self._calls.pop)
        return task

    async def _live(self) -> None:
        node = self.node
        try:
            await node.start()
        except (StartupError, NodeFailed) as error:
            self._end(f"does not start: {error}", error.exit_code)
            return
        self.machine.facts.started(self)
        self.is_serving = True
        await self._until_stopped()
        self.is_serving = False
        if node.failure is None:
            await node.hand_over()
        node.begin_shutdown()
        if self._calls:
            await asyncio.wait(list(self._calls), timeout=CLOSE_S)
            for task in self._calls:
                task.cancel()
        try:
            if node.failure is None:
                await node.stop()
        except NodeFailed as error:
            self._end(f"broke at its last write: {error}", error.exit_code)
            return
        if node.failure is None:
            self._end("stopped", 0)
        else:
            await self._close_failed(node.failure)

    async def _close_failed(self, failure: BaseException) -> None:
        """Close what is left of a broken node."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.node.stop()
        except Exception as error:  # noqa: BLE001 - a broken node is closed as far as it can be
            self.machine.facts_text = repr(error)
        code = failure.exit_code if isinstance(failure, NodeFailed | StartupError) else NodeFailed.exit_code
        self._end(f"broke: {failure}", code)

    async def _until_stopped(self) -> None:
        """Return when told to stop, or when the node broke."""
        stopping = asyncio.ensure_future(self._stop_asked.wait())
        failing = asyncio.ensure_future(self.node.wait_failed())
        await asyncio.wait({stopping, failing}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        failing.cancel()

    def _end(self, reason: str, exit_code: int) -> None:
        machine = self.machine
        machine.kill()
        machine.facts.ended(self, reason, exit_code)


class Machine:
    """A host with a clock and a disk; a node's process runs on it, or not."""

    def __init__(
        self,
        config: NodeConfig,
        scheduler: Scheduler,
        network: Network,
        current: Current,
        *,
        disk: Disk,
        clock: Clock,
        facts: Facts,
    ) -> None:
        self.config = config
        self.node_id = config.node_id
        self.scheduler = scheduler
        self.network = network
        self.disk = disk
        self.clock = clock
        self.facts = facts
        self.facts_text = ""
        self.process: Process | None = None
        self.on_end: Callable[[bool], None] = _nothing
        """Called when a process has ended; true if nobody can be told of it."""
        self.is_lost = False
        """The node has refused to start from its damaged disk."""
        self.is_damaged = False
        """A bit of its disk was flipped."""
        self.starts_count = 0
        self._current = current
        self._pids = 100

    def next_pid(self) -> int:
        """Return a pid that no process of this machine had."""
        self._pids += 1
        return self._pids

    def start(self) -> None:
        """Start the node's process."""
        if self.process is not None:
            return
        self.starts_count += 1
        self.network.host_is_up(self.node_id)
        loop = make_loop(
            self.scheduler,
            self.clock,
            self.node_id,
            self._current,
            self.facts.uncaught,
            wires=self.network,
            run_cost_us=RUN_COST_US,
        )
        self.process = Process(self, loop, self.next_pid(), self.next_pid)

    def kill(self) -> None:
        """End the process with kill -9. The kernel closes its connections, and the page cache stays."""
        process = self._forget_process()
        if process is not None:
            self.network.process_ended(process.loop)
            self.on_end(False)

    def lose_power(self, boot_clock_us: int) -> None:
        """End everything at once; the clock begins anew."""
        process = self._forget_process()
        if process is not None:
            self.network.host_lost_power(process.loop)
            self.on_end(True)
        self.network.down.add(self.node_id)
        self.disk.lose_power()
        self.clock.restart(boot_clock_us, self.scheduler.now_us)

    def _forget_process(self) -> Process | None:
        process, self.process = self.process, None
        if process is not None:
            process.files.is_dead = True
            process.child.stop()
            process.loop.kill()
            self.clock.go_if_stopped(self.scheduler.now_us)
            self.disk.forget_owner(process.files)
            self.disk.kill_after_operations = None
        return process

    @property
    def core(self) -> Core | None:
        """Return the core of a node that has started."""
        process = self.process
        return process.node._core if process is not None else None


def watched_core(facts: Facts) -> Callable[[NodeConfig, Files, Child], Core]:
    """Return what stands in the place of `Core` while a world runs."""
    return functools.partial(WatchedCore, facts=facts)


def _nothing(_: bool) -> None:  # noqa: FBT001 - a callback
    """Do nothing."""
