"""A machine of the simulated world, and one run of the node's process on it.

The process does what `http_api/__main__.py` does around a node, without HTTP: start, serve, stop when told,
end when the node breaks.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Protocol

from cluster.assembly import Parts
from cluster.config import NodeConfig
from cluster.consensus.library_words import EngineJournal
from cluster.consensus.messages import Message
from cluster.errors import NodeFailed, PeerFault, StartupError
from cluster.loop import Loop, LoopWork
from cluster.node import Node
from cluster.storage.disk_work import WorkInPlace
from cluster.storage.journal import Sync
from tests.simulation.checks.liveness import Vitals
from tests.simulation.world.disk import Disk
from tests.simulation.world.event_loop import Current, NodeLoop, make_loop
from tests.simulation.world.files import SimFiles
from tests.simulation.world.forked_child import SimChild
from tests.simulation.world.network import Network
from tests.simulation.world.redis_face import MakeFace
from tests.simulation.world.scheduler import Clock, Scheduler
from tests.simulation.world.sync_thread import SimSyncs

CLOSE_S: Final = 5.0
"""How long open calls may take when the node is told to stop."""
AFTER_FAILURE_US: Final = 70_000_000
"""So long a node may wait before it tries again to write a snapshot."""
REMOVAL_US: Final = 1_000_000
"""How long it takes at most to remove one segment that a snapshot has made obsolete, if nothing is synced."""
CHILD_STEP_US: Final = 2_000
RUN_COST_US: Final = 20
"""What one run of a loop takes."""


class Facts(Protocol):
    """A listener that is told of what happens in a node, as it happens."""

    def rules_known(self, node_id: str) -> int:
        """Return the newest rules that a node's release knows."""

    def made(self, node_id: str, parts: Parts) -> None:
        """A node has recovered from its disk."""

    def applied(self, node_id: str, parts: Parts, index: int, entry: bytes) -> None:
        """A node has applied a committed entry."""

    def restored(self, node_id: str, parts: Parts) -> None:
        """A node has taken over a snapshot."""

    def connected(self, node_id: str, peer_id: str) -> None:
        """A node and a peer have let each other in."""

    def sent(self, node_id: str, parts: Parts, target: str, message: Message) -> None:
        """A node sends a Raft message."""

    def received(self, node_id: str, source: str, message: Message) -> None:
        """A Raft message has arrived at a node."""

    def faulted(self, node_id: str, source: str, reason: str) -> None:
        """A node holds what a peer said for a fault of that peer."""

    def members_changed(self, node_id: str, parts: Parts) -> None:
        """Another member list counts for a node, or one is committed."""

    def stored(self, node_id: str, parts: Parts, term: int, voted_for: str | None) -> None:
        """A node's journal was synced, with this term and vote."""

    def led(self, node_id: str, parts: Parts) -> None:
        """A node has seen a change of leadership."""

    def forked(self, node_id: str) -> None:
        """A node has begun to write a snapshot."""

    def snapshot_placed(self, node_id: str, before: bytes | None, after: bytes) -> None:
        """A node has put a snapshot file in place; `before` is the one that was there."""

    def record_stored(self, node_id: str, identity: bytes, record: bytes) -> None:
        """A node's disk has another identity.json and cluster.json, durably."""

    def started(self, process: "Process") -> None:
        """A node has started to take part."""

    def ended(self, process: "Process", reason: str, exit_code: int) -> None:
        """A node's process has ended by itself."""

    def uncaught(self, loop: NodeLoop, context: dict[str, Any]) -> None:
        """Nobody caught an exception."""


class WatchedParts(Parts):
    """The parts of a node, which tell what they do."""

    def __init__(self, *args: Any, facts: Facts, **kwargs: Any) -> None:
        self._facts = facts
        super().__init__(*args, **kwargs)
        node_id, journal, loop = self.node_id, self.journal, self.loop
        assert isinstance(loop, WatchedLoop)
        loop.parts = self
        end_sync = journal.end_sync

        def watched_end(sync: Sync) -> None:
            end_sync(sync)
            if sync.block is not None:
                facts.stored(node_id, self, sync.block.term, sync.block.voted_for)

        journal.end_sync = watched_end  # type: ignore[method-assign]
        send_now = self.links.send_now

        def watched_send(messages: Iterable[tuple[str, Message]]) -> None:
            for peer_id, message in messages:
                facts.sent(node_id, self, peer_id, message)
            send_now(messages)

        self.links.send_now = watched_send  # type: ignore[method-assign]
        _tell_moments(journal)
        self.peering.rules_newest = facts.rules_known(node_id)
        facts.made(node_id, self)

    def _loop_work(self) -> LoopWork:
        """Return what the loop does around the log, and tells."""
        node_id, facts, work = self.node_id, self._facts, super()._loop_work()
        return work._replace(
            apply=_then(work.apply, lambda index, entry: facts.applied(node_id, self, index, entry)),
            restore=_then(work.restore, lambda _: facts.restored(node_id, self)),
            members_changed=_then(work.members_changed, lambda: facts.members_changed(node_id, self)),
            role_changed=_then(work.role_changed, lambda: facts.led(node_id, self)),
            greet=_then(work.greet, lambda peer_id: facts.connected(node_id, peer_id)),
        )


def _then(work: Callable[..., None], tell: Callable[..., None]) -> Callable[..., None]:
    """Return what does a piece of work, and tells."""

    def watched(*args: Any) -> None:
        work(*args)
        tell(*args)

    return watched


class WatchedLoop(Loop):
    """The loop of a node, which tells which messages come."""

    parts: Parts

    def __init__(self, *args: Any, facts: Facts, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._facts = facts

    def receive(self, peer_id: str, message: Message) -> None:
        """Tell, and take it."""
        self._facts.received(self.parts.node_id, peer_id, message)
        try:
            super().receive(peer_id, message)
        except PeerFault as fault:
            self._facts.faulted(self.parts.node_id, peer_id, str(fault))
            raise


class Process:
    """One run of a node on its machine."""

    def __init__(self, machine: "Machine", loop: NodeLoop, pid: int, next_pid: Callable[[], int]) -> None:
        self.machine = machine
        self.loop = loop
        self.pid = pid
        self.name = machine.process_name
        self.files = SimFiles(machine.disk, loop.spend, machine.kill)
        self.child = SimChild(
            machine.scheduler,
            loop,
            self.files,
            next_pid,
            step_us=lambda: machine.usual_step_us + machine.slow_step_us,
        )
        self.child.on_start = lambda: machine.facts.forked(machine.node_id)
        self.syncs = SimSyncs(machine.scheduler, loop, machine.disk)
        self.node = Node(
            machine.config, files=self.files, child=self.child, syncs=self.syncs, work=WorkInPlace()
        )
        self.face = machine.make_face(self.node, loop, self.name) if machine.make_face is not None else None
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
        if self.face is not None:
            await self.face.serve()
        await self._until_stopped()
        await self._stop_serving()
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

    async def _stop_serving(self) -> None:
        """Take nothing new, and let what is under way come to its end."""
        node, face = self.node, self.face
        self.is_serving = False
        if face is not None:
            face.close()
        if node.failure is None:
            await node.hand_over()
        node.begin_shutdown()
        if face is not None:
            await face.stop(CLOSE_S)
        if self._calls:
            await asyncio.wait(list(self._calls), timeout=CLOSE_S)
            for task in self._calls:
                task.cancel()

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
        host: str = "",
    ) -> None:
        self.config = config
        self.node_id = config.node_id
        self.host = host or config.node_id
        """Its name in the network: that of its node, but for strangers."""
        self.scheduler = scheduler
        self.network = network
        self.disk = disk
        self.clock = clock
        self.facts = facts
        self.facts_text = ""
        disk.on_snapshot = lambda before, after: facts.snapshot_placed(self.node_id, before, after)
        disk.on_record = lambda identity, record: facts.record_stored(self.node_id, identity, record)
        self.process: Process | None = None
        self.make_face: MakeFace | None = None
        """Makes the Redis face of each process, if there are clients of Redis."""
        self.on_end: Callable[[bool], None] = _nothing
        """Called when a process has ended; true if nobody can be told of it."""
        self.is_lost = False
        """The node has refused to start from its damaged disk."""
        self.is_damaged = False
        """A bit of its disk was flipped."""
        self.has_lost_disk = False
        """Its disk is an empty one in the place of the one that it had."""
        self.is_displaced = False
        """It is switched off, and another machine has its address."""
        self.is_misconfigured = False
        """Its configuration is wrong, for a while."""
        self.starts_count = 0
        self.usual_step_us = CHILD_STEP_US
        """How long an operation of a forked child takes."""
        self.slow_step_us = 0
        """Added while children are slow."""
        self._current = current
        self._pids = 100

    @property
    def process_name(self) -> str:
        """Return a name for this run of the node's process, or for the last one."""
        return f"{self.node_id}.{self.starts_count}"

    def next_pid(self) -> int:
        """Return a pid that no process of this machine had."""
        self._pids += 1
        return self._pids

    def start(self) -> None:
        """Start the node's process."""
        if self.process is not None or self.is_displaced:
            return
        self.starts_count += 1
        self.network.host_is_up(self.host)
        loop = make_loop(
            self.scheduler,
            self.clock,
            self.host,
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
        self.network.down.add(self.host)
        self.disk.lose_power()
        self.clock.restart(boot_clock_us, self.scheduler.now_us)

    def _forget_process(self) -> Process | None:
        process, self.process = self.process, None
        if process is not None:
            process.files.is_dead = True
            process.child.stop()
            process.loop.kill()
            if process.face is not None:
                process.face.process_ended()
            self.clock.go_if_stopped(self.scheduler.now_us)
            self.disk.forget_owner(process.files)
            self.disk.kill_after_operations = None
        return process

    def vitals(self) -> Vitals | None:
        """Return what the node shows; None while it does not run, or stands still."""
        process, parts = self.process, self.parts
        if process is None or parts is None or not process.is_serving or process.loop.is_held:
            return None
        role, child = parts.replica.role, process.child
        names = [path.name for path in self.disk.names]
        now_us = self.scheduler.now_us
        segments = len([name for name in names if name.startswith("journal-")])
        return Vitals(
            node_id=self.node_id,
            leader_id=role.leader_id,
            is_leader=role.is_leader,
            voters=parts.replica.membership.voters,
            log_entries=len(parts.journal),
            log_bytes=parts.journal.bytes_count,
            segments=segments,
            files=len(names) - segments,
            stood_us=process.loop.stood_us,
            is_removing=0 <= child.done_us > now_us - segments * REMOVAL_US,
            is_compacting=child.is_running or 0 <= child.failed_us > now_us - AFTER_FAILURE_US,
        )

    @property
    def parts(self) -> Parts | None:
        """Return the parts of a node that has started."""
        process = self.process
        return process.node._parts if process is not None else None


def _tell_moments(journal: EngineJournal) -> None:
    """Let the disk of a journal know when the log is cut, and when a term or vote changes."""
    files = journal._disk._files
    assert isinstance(files, SimFiles)
    remove_from, set_vote, disk = journal.remove_from, journal.set_vote, files.disk

    def watched_remove(position: int) -> None:
        disk.reach("cut")
        remove_from(position)

    def watched_vote(term: int, voted_for: str | None) -> None:
        if (term, voted_for) != (journal.term, journal.voted_for):
            disk.reach("term")
        set_vote(term, voted_for)

    journal.remove_from = watched_remove  # type: ignore[method-assign]
    journal.set_vote = watched_vote  # type: ignore[method-assign]


def watched_parts(facts: Callable[[], Facts]) -> Callable[..., Parts]:
    """Return what stands in the place of `Parts` while a world runs; `facts` are those of who runs now."""
    return lambda *args, **kwargs: WatchedParts(*args, facts=facts(), **kwargs)


def watched_loop(facts: Callable[[], Facts]) -> Callable[..., Loop]:
    """Return what stands in the place of `Loop` while a world runs; `facts` are those of who runs now."""
    return lambda *args, **kwargs: WatchedLoop(*args, facts=facts(), **kwargs)


def _nothing(_: bool) -> None:  # noqa: FBT001 - a callback
    """Do nothing."""
