"""Commands of clients through whole nodes, without sockets, while connections break and nodes die.

Each node is a real `Core` on its own directory; only its links are ours. Every command takes a lock of its
own, so what the cluster has applied can be read from its state.
"""

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast

import msgspec
import pysyncobj.syncobj as library
import pytest

from cluster import snapshot_transfer
from cluster.clock import STALL_COUNTED_MS_MAX
from cluster.config import Address, NodeConfig
from cluster.core import Core
from cluster.errors import ClusterError, DataDirError, NodeFailed, OutcomeUnknown
from cluster.files import Files
from cluster.link import Kind
from cluster.outbox import Pending
from cluster.snapshot_file import Snapshot, write_snapshot
from cluster.transport import PeerLinks
from lockstate import codec, snapshot
from lockstate.commands import Acquire
from lockstate.machine import LockMachine
from lockstate.modes import Mode
from lockstate.results import Granted
from tests.hazards.harness import STEP_MS, Clock, Cluster, Network
from tests.hazards.ours import InlineChild
from tests.hazards.test_random import Chaos

IDS = "abc"
MOVES = 3000
TTL_MS = 600_000
_FIRST, _, _LAST = os.environ.get("HOLDFAST_SEEDS", "1-8").partition("-")
SEEDS = range(int(_FIRST), int(_LAST) + 1)


class Links:
    """The links of one node, through our network."""

    def __init__(self, node_id: str, network: Network) -> None:
        self._node_id = node_id
        self._network = network

    def send(self, peer_id: str, kind: Kind, body: Any) -> bool:
        """Send a frame, if there is a connection."""
        if not self.is_up(peer_id):
            return False
        frame = {"type": kind.name, "kind": int(kind), "body": msgspec.msgpack.encode(body)}
        self._network.send(self._node_id, peer_id, frame)
        return True

    def is_up(self, peer_id: str) -> bool:
        """Whether there is a connection."""
        return (self._node_id, peer_id) in self._network.connected

    def has_room(self, peer_id: str) -> bool:
        """Whether there is a connection: ours take everything."""
        return self.is_up(peer_id)

    def flush(self) -> None:
        """Do nothing: what is sent is on its way."""

    def ping(self) -> None:
        """Tell nobody."""

    async def stop(self) -> None:
        """Do nothing."""


class CoreNode:
    """A core as the cluster drives it. Its callbacks run when the test lets its loop run."""

    def __init__(self, config: NodeConfig, network: Network) -> None:
        self.core = Core(config)
        self.core._store._child = InlineChild()  # type: ignore[assignment]
        self.core.links = cast("PeerLinks", Links(config.node_id, network))
        self.core.peering.is_established = True
        self.core._journal.sync()

    @property
    def is_leader(self) -> bool:
        """Whether it leads, as far as it knows."""
        return self.core.replica.is_leader

    @property
    def machine(self) -> LockMachine:
        """Its state."""
        return self.core.machine

    def connect(self, peer_id: str) -> None:
        """Take note of a connection."""
        self.core.peer_up(peer_id)

    def disconnect(self, peer_id: str) -> None:
        """Take note of its end."""
        self.core.peer_down(peer_id)

    def take(self, peer_id: str, message: dict[str, Any]) -> None:
        """Take a frame."""
        self.core.peering.frame(peer_id, message["kind"], msgspec.Raw(message["body"]))

    def timer(self) -> None:
        """Do what the node's timer does."""
        self.core._guarded(self.core._on_timer)

    def work(self) -> bool:
        """Do nothing: the event loop does it."""
        return False

    def crash(self) -> None:
        """Let go of the disk without writing anything."""
        self.core._is_stopped = True
        self.core._expiry.stop()
        os.close(self.core._journal._fd)
        self.core._datadir.close()


@dataclass
class Clients:
    """What was asked for: per command its hold, its future, and the node that it was given to."""

    asked: list[tuple[str, Pending, CoreNode]] = field(default_factory=list)

    def ask(self, node: CoreNode) -> None:
        """Give a node a command."""
        hold_id = f"hold-{len(self.asked):020d}"
        command = Acquire(hold_id, Mode.EXCLUSIVE, hold_id, f"attempt-{hold_id}", ttl_ms=TTL_MS)
        pending = node.core.outbox.submit(codec.encode_command(command), 3600)
        node.core.request_flush()
        self.asked.append((hold_id, pending, node))


class CommandChaos(Chaos):
    """As Chaos; proposals are commands of clients of any node."""

    def __init__(self, cluster: Cluster, random: Random, clients: Clients) -> None:
        super().__init__(cluster, random)
        self._clients = clients

    def hand_over(self, leader: Any, successor: str) -> None:
        """Hand over as an operator does."""
        leader.core.begin_handover(successor)

    def propose(self) -> None:
        """Give any node a few commands."""
        node = cast("CoreNode", self._any_node())
        for _ in range(self._random.randint(1, 4)):
            self._clients.ask(node)


async def run_callbacks() -> None:
    """Let every node do what it has put off."""
    for _ in range(3):
        await asyncio.sleep(0)


async def run_well(cluster: Cluster, milliseconds: int) -> None:
    """Let time pass with everything delivered at once."""
    for _ in range(milliseconds // STEP_MS):
        cluster.step()
        await run_callbacks()
        while waiting := cluster.network.waiting():
            for source, target in waiting:
                cluster.deliver(source, target)
            await run_callbacks()


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_command_is_applied_once_or_its_outcome_is_unknown(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often commands are sent, who was told of a grant has it, and nobody waits for ever."""
    random = Random(seed)
    monkeypatch.setattr(Files, "fdatasync", lambda *_: None)
    monkeypatch.setattr(Files, "fsync_dir", lambda *_: None)
    monkeypatch.setattr(snapshot_transfer, "CHUNK_BYTES", 4096)
    clock, network = Clock(), Network(IDS)
    monkeypatch.setattr(library, "monotonicTime", clock.read)
    monkeypatch.setattr(library, "random", Random(seed))
    peers = {node_id: Address("127.0.0.1", 7000 + number) for number, node_id in enumerate(IDS)}
    compact_entries = random.choice((100, 20_000))

    def make(node_id: str) -> CoreNode:
        config = NodeConfig(
            node_id,
            tmp_path / node_id,
            Address("127.0.0.1", 0),
            peers[node_id],
            peers,
            b"0123456789abcdef",
            "http://127.0.0.1:1",
            compact_entries=compact_entries,
        )
        return CoreNode(config, network)

    cluster, clients = Cluster(clock, network, make), Clients()
    cluster.heal()
    await run_well(cluster, 2000)
    chaos = CommandChaos(cluster, random, clients)
    for _ in range(MOVES):
        chaos.move()
        clock.rest()
        await run_callbacks()
    cluster.heal()
    for node in cluster.nodes.values():
        if node.core._handover is not None:
            # Its patience is in real time: a second at most.
            await node.core._handover.wait()
    await run_well(cluster, 10_000)

    state = cluster["a"].machine
    for node_id in IDS:
        node = cluster[node_id]
        assert not node.core.failed.done(), node.core.failed.result()
        assert len(node.core.outbox) == 0, "a command waits for ever"
        assert snapshot.encode(node.machine) == snapshot.encode(state)
    outcomes = {"granted": 0, "unknown": 0}
    for hold_id, pending, node in clients.asked:
        is_alive = node in cluster.nodes.values()
        if pending.future.done() and pending.future.exception() is None:
            result = pending.future.result().result
            assert isinstance(result, Granted)
            held = state.attempt(hold_id)
            assert isinstance(held, Granted)
            assert held.token == result.token
            outcomes["granted"] += 1
        else:
            assert not is_alive or isinstance(pending.future.exception(), OutcomeUnknown)
            outcomes["unknown"] += 1
    assert outcomes["granted"], "a run that grants nothing shows nothing"
    for node_id in IDS:
        cluster.crash(node_id)


async def lone_core(directory: Path) -> Core:
    """Return a core that is a cluster of its own, and leads it."""
    here = Address("127.0.0.1", 0)
    core = Core(NodeConfig("a", directory, here, here, {}, b"", "http://127.0.0.1:1"))
    await core.start()
    async with asyncio.timeout(20):
        while not core.replica.is_leader:
            core._on_timer()
            await run_callbacks()
    return core


async def test_commands_for_another_leadership_are_not_taken(tmp_path: Path) -> None:
    """What was forwarded to this leader in an earlier term may miss its beginning, so all of it is dropped.

    Its sender sends everything again for the new term; taking the rest first would make the lower numbers
    look like repetitions.
    """
    core = await lone_core(tmp_path)
    command = codec.encode_command(Acquire("name", Mode.EXCLUSIVE, "hold", "attempt", ttl_ms=TTL_MS))
    for term in (core.replica.term - 1, core.replica.term + 1):
        core.forwarded(term, "other", [6], [command])
    assert core._batcher.is_empty
    core.forwarded(core.replica.term, "other", [1], [command])
    async with asyncio.timeout(20):
        while core.machine.applied_seq("other") == 0:
            await run_callbacks()
    assert core.machine.attempt("hold") is not None
    await core.stop()


async def test_an_apply_that_raises_stops_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H8: the node fails for good, its clients get an honest answer, and it takes no more."""
    core = await lone_core(tmp_path)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(LockMachine, "apply", broken)
    command = Acquire("name", Mode.EXCLUSIVE, "hold", "attempt", ttl_ms=TTL_MS)
    pending = core.outbox.submit(codec.encode_command(command), 60)
    core.request_flush()
    async with asyncio.timeout(20):
        failure = await asyncio.shield(core.failed)
        with pytest.raises(OutcomeUnknown):
            await pending.future
    assert isinstance(failure, NodeFailed)
    with pytest.raises(ClusterError):
        core.outbox.submit(b"", 60)
    await core.stop()


async def test_a_slow_heartbeat_does_not_slow_cluster_time_down(tmp_path: Path) -> None:
    """A leader with nothing to do looks at its clock often enough to count all of the time that passes."""
    here = Address("127.0.0.1", 0)
    core = Core(NodeConfig("a", tmp_path, here, here, {}, b"", "http://127.0.0.1:1", 10_000, 40_000, 50_000))
    await core.start()
    assert core._timer is not None
    assert core._timer.when() - asyncio.get_running_loop().time() <= STALL_COUNTED_MS_MAX / 1000
    await core.stop()


async def test_a_state_of_another_version_is_a_clear_error(tmp_path: Path) -> None:
    """A whole snapshot whose state this version cannot read stops the start, with advice and not a trace."""
    here = Address("127.0.0.1", 0)
    core = await lone_core(tmp_path)
    await core.stop()
    later = Snapshot((b"\x00", 1, 1), (b"\x00", 2, 1), b"\x91\x02")
    write_snapshot(tmp_path / "snapshot", later, Files())
    with pytest.raises(DataDirError, match="snapshot"):
        Core(NodeConfig("a", tmp_path, here, here, {}, b"", "http://127.0.0.1:1"))
