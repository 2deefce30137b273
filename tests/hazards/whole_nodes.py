"""Whole nodes in the harness, without sockets: a real `Group` each, on a directory; only links are ours.

They share one event loop, which runs when the cluster lets them work: everything happens by the same moves
as for the other kinds of nodes.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast

import msgspec
import pysyncobj.syncobj as library
import pytest

from cluster.assembly import Parts
from cluster.commands.encoded_command import encode
from cluster.commands.outbox import Answer, Pending
from cluster.config import Address, NodeConfig
from cluster.consensus.library_words import EngineJournal
from cluster.consensus.messages import Message
from cluster.peers.channels import Published
from cluster.peers.link import FrameKind
from cluster.peers.links import PeerLinks
from cluster.peers.peering import Peering
from cluster.storage.data_directory import DataDir
from cluster.storage.forked_child import Child
from cluster.storage.snapshot_store import SnapshotStore
from lockstate.machine import LockMachine
from lockstate.words.commands.holds import Acquire
from lockstate.words.ids import AttemptId, HoldId, OwnerName
from lockstate.words.modes import Mode
from tests.hazards.virtual_cluster import Cluster, Network
from tests.support.founded import disks_of, store_founding
from tests.support.hand_driven_loop import HandDrivenLoop
from tests.support.replica_parts import InlineChild, LibraryClock, UnsyncedFiles

TTL_MS = 600_000


class Links:
    """The links of one node, through our network."""

    def __init__(self, node_id: str, network: Network) -> None:
        self._node_id = node_id
        self._network = network
        self.host: Peering

    def send(self, peer_id: str, kind: FrameKind, body: Any) -> bool:
        """Send a frame, if there is a connection."""
        if not self.is_up(peer_id):
            return False
        frame = {"type": kind.name, "kind": int(kind), "body": msgspec.msgpack.encode(body)}
        self._network.send(self._node_id, peer_id, frame)
        return True

    def is_up(self, peer_id: str) -> bool:
        """Whether there is a connection."""
        return (self._node_id, peer_id) in self._network.connected

    def dialed(self, peer_id: str) -> str:
        """Return the address of a peer."""
        return f"at-{peer_id}"

    def is_alive(self, peer_id: str) -> bool:
        """Whether a peer is connected."""
        return self.is_up(peer_id)

    def up(self) -> frozenset[str]:
        """Return the connected peers."""
        return frozenset(target for source, target in self._network.connected if source == self._node_id)

    def set_peers(self, peers: Mapping[str, Address]) -> None:
        """Do nothing: connections are made by the test."""

    def room_bytes(self, peer_id: str) -> int:
        """Return much if there is a connection: ours take everything."""
        return 1 << 30 if self.is_up(peer_id) else 0

    def send_now(self, messages: list[tuple[str, Message]]) -> None:
        """Send Raft messages: what is sent is on its way."""
        for peer_id, message in messages:
            self.send(peer_id, FrameKind.RAFT, message)

    def ping(self) -> None:
        """Tell everybody how the node is. It does not happen by itself, as it does once a second in truth."""
        for peer_id in sorted(self.up()):
            self.send(peer_id, FrameKind.PING, self.host.ping())

    def publish(self, published: Published) -> None:
        """Pass a message of clients on to everybody."""
        for peer_id in sorted(self.up()):
            self.send(peer_id, FrameKind.PUBLISHED, published)

    async def stop(self) -> None:
        """Do nothing."""


class WholeNode:
    """The parts of a node, as the cluster drives them."""

    def __init__(
        self, config: NodeConfig, network: Network, loop: HandDrivenLoop, disks: Mapping[str, str]
    ) -> None:
        """Start inside `loop`, in the cluster that was founded with these disks."""
        self.node_id = config.node_id
        self.loop = loop
        loop.call(self._start, config, network, disks)

    def _start(self, config: NodeConfig, network: Network, disks: Mapping[str, str]) -> None:
        files = UnsyncedFiles()
        self._datadir = DataDir.open(config.data_dir, config.node_id, files=files)
        self.journal = EngineJournal.open(config.data_dir, self._datadir.disk_id, files=files)
        store = SnapshotStore(config.data_dir, files, cast("Child", InlineChild()))
        store_founding(self._datadir, config.founders, disks)
        links = Links(config.node_id, network)
        self.parts = Parts(config, self._datadir, self.journal, store, cast("PeerLinks", links))
        self.journal.sync()

    @property
    def is_leader(self) -> bool:
        """Whether it leads, as far as it knows."""
        return self.parts.replica.role.is_leader

    @property
    def leader_id(self) -> str | None:
        """Whom it follows, or itself."""
        return self.parts.replica.role.leader_id

    @property
    def term(self) -> int:
        """Its term."""
        return self.parts.replica.role.term

    @property
    def machine(self) -> LockMachine:
        """Its state."""
        return self.parts.machine

    def be_patient(self) -> None:
        """Start no election soon."""
        engine = self.parts.replica.engine
        engine.election_deadline_s = engine.now_s() + 5

    def connect(self, peer_id: str) -> None:
        """Record a connection."""
        self.loop.call(self.parts.loop.peer_up, peer_id)

    def disconnect(self, peer_id: str, *, is_replaced: bool = False) -> None:
        """Record its end."""
        self.loop.call(self.parts.loop.peer_down, peer_id, is_replaced=is_replaced)

    def take(self, peer_id: str, message: dict[str, Any]) -> None:
        """Take a frame."""
        self.loop.call(self.parts.peering.frame, peer_id, message["kind"], msgspec.Raw(message["body"]))

    def timer(self) -> None:
        """Do what the node's timer does."""
        self.loop.call(self.parts.loop.run, self.parts.loop._on_timer)

    def work(self) -> bool:
        """Do what all nodes have put off."""
        self.loop.run_callbacks()
        return False

    def crash(self) -> None:
        """Let go of the disk without writing anything."""
        self.loop.call(self.parts.loop.stop)
        self.parts.group._alarms.stop()
        os.close(self.journal._fd)
        self._datadir.close()


@dataclass
class Clients:
    """What was asked for: per command its hold, its future, and the node that it was given to."""

    asked: list[tuple[str, Pending, WholeNode]] = field(default_factory=list)

    def ask(self, node: WholeNode, request_id: str = "") -> "asyncio.Future[Answer]":
        """Give a node a command; the same request, if `request_id` is that of an earlier one."""
        number = len(self.asked)
        hold_id = HoldId(f"hold-{number:020d}")
        name = f"lock-of-{request_id or number}"
        attempt_id = AttemptId(f"attempt-{number}")
        command = Acquire(
            name,
            Mode.EXCLUSIVE,
            hold_id,
            attempt_id,
            ttl_ms=TTL_MS,
            owner=OwnerName("client"),
            request_id=request_id,
        )
        pending = node.parts.outbox.submit(encode(command, node.parts.machine), 3600)
        node.parts.outgoing.request_flush()
        self.asked.append((hold_id, pending, node))
        return pending.future


def run_callbacks(cluster: Cluster) -> None:
    """Let every node do what it has put off."""
    next(iter(cluster.nodes.values())).work()


def whole_cluster(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int = 1,
    *,
    node_ids: str = "abc",
    compact_entries: int = 20_000,
    state_bytes_max: Mapping[str, int] | None = None,
) -> Cluster:
    """Return a cluster of whole nodes, connected. `state_bytes_max` is what nodes say that they can bear."""
    bearable = state_bytes_max or {}
    clock, network, loop = LibraryClock(), Network(node_ids), HandDrivenLoop()
    clock.install(monkeypatch)
    monkeypatch.setattr(library, "random", Random(seed))
    peers = {node_id: Address("127.0.0.1", 7000 + number) for number, node_id in enumerate(node_ids)}
    disks = disks_of(directory, node_ids)

    def make(node_id: str) -> WholeNode:
        config = NodeConfig(
            node_id,
            directory / node_id,
            Address("127.0.0.1", 0),
            peers[node_id],
            peers,
            b"0123456789abcdef",
            "http://127.0.0.1:1",
            compact_entries=compact_entries,
            state_bytes_max=bearable.get(node_id, 0),
        )
        return WholeNode(config, network, loop, disks)

    cluster = Cluster(clock, network, make)
    cluster.heal()
    return cluster
