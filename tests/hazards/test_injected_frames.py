"""Somebody on the path between two whole nodes, without the secret: a relay that adds frames (H10).

Before links were sealed, one added frame ended a foreign hold by force, removed a member, stopped a node, or
raised the term so far that no election was possible any more, after any restart. Real sockets on loopback.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest

import cluster.peers.links
from cluster.commands.encoded_command import EncodedCommand
from cluster.commands.forwarded import Forwarded
from cluster.config import load
from cluster.node import Node
from cluster.peers.cuts import Cut
from cluster.peers.link import FrameKind
from lockstate.words import codec
from lockstate.words.commands.holds import Acquire
from lockstate.words.commands.overrides import ForceRelease
from lockstate.words.ids import AttemptId, HoldId, OwnerName
from lockstate.words.modes import Mode
from lockstate.words.results import Granted
from tests.hazards.test_strangers import free_addresses

DEADLINE_S = 20.0


class Relay:
    """Carries the bytes of connections to `target`, and adds others when it is told to."""

    def __init__(self, target: str) -> None:
        self._target = target.rpartition(":")
        self._tasks: set[asyncio.Task[None]] = set()
        self._to_target: asyncio.StreamWriter | None = None
        self._to_dialer: asyncio.StreamWriter | None = None
        self.connections_count = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        try:
            far_reader, far_writer = await asyncio.open_connection(self._target[0], int(self._target[2]))
        except OSError:
            writer.close()
            return
        self._to_target, self._to_dialer = far_writer, writer
        self.connections_count += 1
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                sink.write(data)
        sink.close()

    def add(self, *, to_target: bool, data: bytes) -> None:
        """Put bytes into the newest connection."""
        writer = self._to_target if to_target else self._to_dialer
        assert writer is not None
        writer.write(data)


def frame(kind: FrameKind, body: object) -> bytes:
    """Return a frame as it was written to a link before links were sealed."""
    content = msgspec.msgpack.encode((int(kind), 0, body))
    return struct.pack(">I", len(content)) + content


def flags(directory: Path, node_id: str, addresses: dict[str, str]) -> list[str]:
    """Return how to start a node."""
    peers = ",".join(f"{peer_id}={address}" for peer_id, address in addresses.items())
    return [
        *("--node-id", node_id, "--data-dir", str(directory / node_id), "--peers", peers),
        *("--http", "127.0.0.1:0", "--advertise-http", "http://127.0.0.1:1", "--secret", "s" * 16),
    ]


@asynccontextmanager
async def relayed(directory: Path) -> AsyncIterator[tuple[dict[str, Node], Relay]]:
    """Run three nodes; all that n1 and n2 say to each other goes through a relay."""
    real = dict(zip(("n1", "n2", "n3"), free_addresses(3), strict=True))
    (relay_address,) = free_addresses(1)
    relay = Relay(real["n2"])
    host, _, port = relay_address.rpartition(":")
    server = await asyncio.start_server(relay.take, host, int(port))
    told = {"n1": real | {"n2": relay_address}, "n2": real, "n3": real}
    nodes = {node_id: Node(load(flags(directory, node_id, told[node_id]), {})) for node_id in real}
    try:
        for node in nodes.values():
            await node.start()
        yield nodes, relay
    finally:
        for node in nodes.values():
            await node.stop()
        server.close()
        for task in list(relay._tasks):
            task.cancel()


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition; fail after the deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - a condition of several nodes sets no event
            await asyncio.sleep(0.01)


async def lead(nodes: dict[str, Node], node_id: str) -> None:
    """Make a node lead, and wait until all follow it."""
    await until(lambda: nodes["n1"].status().leader is not None)
    await nodes["n1"].transfer_leadership(node_id, DEADLINE_S)
    await until(lambda: all(node.status().leader == node_id for node in nodes.values()))


def acquire(name: str) -> Acquire:
    """Return a command that takes a lock for long."""
    return Acquire(
        name,
        Mode.EXCLUSIVE,
        HoldId(f"hold-of-{name}"),
        AttemptId("attempt"),
        ttl_ms=600_000,
        owner=OwnerName("victim"),
    )


def attacks(nodes: dict[str, Node]) -> Iterable[tuple[bool, bytes]]:
    """Yield what somebody on the path adds, and whether to what n1 says to n2, which leads."""
    term = nodes["n2"].status().term
    outbox = nodes["n1"].parts.outbox
    stolen = codec.encode_command(ForceRelease("prize", "somebody on the path"))
    for seq in (1, 2, 3, 1000):
        yield True, frame(FrameKind.FORWARD, Forwarded(term, outbox.origin, [seq], [EncodedCommand(stolen)]))
    yield True, frame(FrameKind.CHANGE, (1, "n3", ""))
    for to_leader in (True, False):
        yield to_leader, frame(FrameKind.RAFT, {"type": "newer_term", "term": 2**64 - 1})
        yield to_leader, frame(FrameKind.REFUSED, ("your disk was removed", True))
        yield to_leader, frame(FrameKind.TRANSFER, "n3")
        yield to_leader, bytes(1)
        yield to_leader, struct.pack(">I", 64 << 20)


async def test_what_somebody_on_the_path_adds_is_taken_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each costs one connection, there again at once; members, locks and the term are what they were."""
    # On a slow machine n2 would dial n1 itself, past the relay.
    monkeypatch.setattr(cluster.peers.links, "MISSED_COUNT_MAX", 10**9)
    async with relayed(tmp_path) as (nodes, relay):
        await lead(nodes, "n2")
        granted = await nodes["n1"].submit(acquire("prize"), DEADLINE_S)
        assert isinstance(granted.result, Granted)
        term = nodes["n2"].status().term
        for number, (to_leader, data) in enumerate(attacks(nodes)):
            await attack(nodes, relay, to_leader=to_leader, data=data)
            again = await nodes["n1"].submit(acquire(f"after-{number}"), DEADLINE_S)
            assert isinstance(again.result, Granted)
            for node in nodes.values():
                await until(partial(is_held, node, f"hold-of-after-{number}"))
                assert is_held(node, "hold-of-prize")
                assert node.failure is None
                assert node.status().term < term + 20
                assert sorted(node.parts.replica.membership.latest.nodes) == ["n1", "n2", "n3"]


async def attack(nodes: dict[str, Node], relay: Relay, *, to_leader: bool, data: bytes) -> None:
    """Add bytes to the link between n1 and n2, and wait until there is a new one."""
    links = nodes["n2" if to_leader else "n1"].parts.links
    forged_count, connections_count = links.cuts.counts[Cut.FORGED], relay.connections_count
    relay.add(to_target=to_leader, data=data)
    await until(lambda: relay.connections_count > connections_count)
    await until(lambda: nodes["n1"].parts.links.is_up("n2") and nodes["n2"].parts.links.is_up("n1"))
    assert links.cuts.counts[Cut.FORGED] == forged_count + 1


def is_held(node: Node, hold_id: str) -> bool:
    """Whether a node knows of a hold."""
    return hold_id in node.machine.state.holds
