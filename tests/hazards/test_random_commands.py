"""Commands of clients through whole nodes, without sockets, while connections break and nodes die.

Every command takes a lock of its own, so what the cluster has applied can be read from its state.
"""

import asyncio
import os
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from cluster.commands.clock import STALL_COUNTED_MS_MAX
from cluster.commands.encoded_command import EncodedCommand, encode
from cluster.commands.forwarded import Forwarded
from cluster.config import Address, NodeConfig
from cluster.consensus import snapshot_transfer
from cluster.consensus.handover import Handover
from cluster.errors import ClusterError, DataDirError, NodeFailed, OutcomeUnknown
from cluster.node import Node
from cluster.storage.files import Files
from cluster.storage.snapshot_format import Snapshot, write_snapshot
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words import codec
from lockstate.words.commands.holds import Acquire
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.modes import Mode
from lockstate.words.results import Granted
from tests.hazards.test_random_histories import Chaos
from tests.hazards.virtual_cluster import Cluster
from tests.hazards.whole_nodes import TTL_MS, Clients, WholeNode, run_callbacks, whole_cluster

IDS = "abc"
MOVES = 3000
_FIRST, _, _LAST = os.environ.get("HOLDFAST_SEEDS", "1-8").partition("-")
SEEDS = range(int(_FIRST), int(_LAST) + 1)


class CommandChaos(Chaos):
    """As Chaos; proposals are commands of clients of any node."""

    def __init__(self, cluster: Cluster, random: Random, clients: Clients) -> None:
        super().__init__(cluster, random)
        self._clients = clients
        self.handovers: list[Handover] = []

    def hand_over(self, leader: Any, successor: str) -> None:
        """Hand over as an operator does."""
        handover = leader.loop.call(leader.parts.handovers.begin, successor)
        if handover is not None:
            self.handovers.append(handover)

    def propose(self) -> None:
        """Give any node a few commands."""
        node = cast("WholeNode", self._any_node())
        for _ in range(self._random.randint(1, 4)):
            self._clients.ask(node)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_command_is_applied_once_or_its_outcome_is_unknown(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often commands are sent, a client that was told of a grant has it, and none waits for ever."""
    random = Random(seed)
    monkeypatch.setattr(snapshot_transfer, "CHUNK_BYTES", 4096)
    cluster = whole_cluster(tmp_path, monkeypatch, seed, compact_entries=random.choice((100, 20_000)))
    clients, clock = Clients(), cluster.clock
    cluster.run_ms(2000)
    chaos = CommandChaos(cluster, random, clients)
    for _ in range(MOVES):
        chaos.move()
        clock.rest()
        run_callbacks(cluster)
    cluster.heal()
    for handover in chaos.handovers:
        # Its patience is in real time: a second at most.
        cluster["a"].loop.wait(handover.wait())
    cluster.run_ms(10_000)

    state = cluster["a"].machine
    for node_id in IDS:
        node = cluster[node_id]
        assert not node.parts.loop.failure.done(), node.parts.loop.failure.result()
        assert len(node.parts.outbox) == 0, "a command waits for ever"
        assert snapshot.encode(node.machine.state) == snapshot.encode(state.state)
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


def lone_config(directory: Path, *, heartbeat_ms: int = 100) -> NodeConfig:
    """Return the configuration of a node that is a cluster of its own."""
    here = Address("127.0.0.1", 0)
    election_ms = heartbeat_ms * 4
    return NodeConfig(
        "a",
        directory,
        here,
        here,
        {},
        b"",
        "http://127.0.0.1:1",
        heartbeat_ms,
        election_ms,
        election_ms + 500,
    )


async def lone_node(directory: Path) -> Node:
    """Return a node that is a cluster of its own, leads it, and has nothing left to propose."""
    node = Node(lone_config(directory))
    await node.start()
    async with asyncio.timeout(20):
        while not node.parts.replica.may_propose:
            node.parts.loop._on_timer()
            await asyncio.sleep(0)
    return node


async def test_commands_for_another_leadership_are_not_taken(tmp_path: Path) -> None:
    """What was forwarded to this leader in an earlier term may miss its beginning, so all of it is dropped.

    Its sender sends everything again for the new term; taking the rest first would make the lower numbers
    look like repetitions.
    """
    node = await lone_node(tmp_path)
    parts = node.parts
    command = codec.encode_command(
        Acquire("name", Mode.EXCLUSIVE, HoldId("hold"), AttemptId("attempt"), ttl_ms=TTL_MS)
    )
    for term in (parts.replica.role.term - 1, parts.replica.role.term + 1):
        parts.group.forwarded(Forwarded(term, "other", [6], [EncodedCommand(command)]))
    assert not parts.group.has_entry()
    parts.group.forwarded(Forwarded(parts.replica.role.term, "other", [1], [EncodedCommand(command)]))
    async with asyncio.timeout(20):
        while parts.machine.applied_seq("other") == 0:  # noqa: ASYNC110 - the node works on this loop
            await asyncio.sleep(0)
    assert parts.machine.attempt(HoldId("hold")) is not None
    await node.stop()


async def test_an_apply_that_raises_stops_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H8: the node fails for good, its clients get an honest answer, and it takes no more."""
    node = await lone_node(tmp_path)
    parts = node.parts

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(LockMachine, "apply", broken)
    command = Acquire("name", Mode.EXCLUSIVE, HoldId("hold"), AttemptId("attempt"), ttl_ms=TTL_MS)
    pending = parts.outbox.submit(encode(command, parts.machine), 60)
    parts.outgoing.request_flush()
    async with asyncio.timeout(20):
        failure = await asyncio.shield(parts.loop.failure)
        with pytest.raises(OutcomeUnknown):
            await pending.future
    assert isinstance(failure, NodeFailed)
    with pytest.raises(ClusterError):
        parts.outbox.submit(EncodedCommand(b""), 60)
    await node.stop()


async def test_a_slow_heartbeat_does_not_slow_cluster_time_down(tmp_path: Path) -> None:
    """A leader with nothing to do looks at its clock often enough to count all of the time that passes."""
    node = Node(lone_config(tmp_path, heartbeat_ms=10_000))
    await node.start()
    timer = node.parts.loop._timer
    assert timer is not None
    assert timer.when() - asyncio.get_running_loop().time() <= STALL_COUNTED_MS_MAX / 1000
    await node.stop()


async def test_a_state_of_another_version_is_a_clear_error(tmp_path: Path) -> None:
    """A whole snapshot whose state this version cannot read stops the start, with advice and not a trace."""
    node = await lone_node(tmp_path)
    await node.stop()
    later = Snapshot((b"\x00", 1, 1), (b"\x00", 2, 1), b"\x91\x02")
    write_snapshot(tmp_path / "snapshot", later, Files())
    with pytest.raises(DataDirError, match="snapshot"):
        await Node(lone_config(tmp_path)).start()
