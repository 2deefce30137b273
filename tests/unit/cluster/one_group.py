"""One node's group for tests: real log, disk and state machine; the links write down what is sent."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

from cluster.assembly import Parts
from cluster.config import Address, load
from cluster.consensus.library_words import EngineJournal
from cluster.consensus.messages import AppendEntries, Message
from cluster.peers.channels import Published
from cluster.peers.link import FrameKind
from cluster.peers.links import PeerLinks
from cluster.storage.data_directory import DataDir
from cluster.storage.snapshot_store import SnapshotStore
from lockstate.words import codec
from lockstate.words.commands.entries import Command
from tests.support.founded import store_founding

DEADLINE_S = 20.0
SECRET = ("--secret", "the secret of these tests")
ALONE = ("--peers", "n1=127.0.0.1:1", *SECRET)
AMONG_THREE = ("--node-id", "n2", "--peers", "n1=127.0.0.1:1,n2=127.0.0.1:2,n3=127.0.0.1:3", *SECRET)


class Links:
    """Connections that the test makes and breaks, and on which nothing travels."""

    def __init__(self) -> None:
        self.connected: set[str] = set()
        self.sent: list[tuple[str, FrameKind, object]] = []
        self.peers: dict[str, Address] = {}
        self.pings = 0

    def send(self, peer_id: str, kind: FrameKind, body: object) -> bool:
        """Write a frame down, if the peer is connected."""
        if peer_id in self.connected:
            self.sent.append((peer_id, kind, body))
        return peer_id in self.connected

    def send_now(self, messages: list[tuple[str, Message]]) -> None:
        """Write Raft messages down."""
        for peer_id, message in messages:
            self.send(peer_id, FrameKind.RAFT, message)

    def ping(self) -> None:
        """Count."""
        self.pings += 1

    def publish(self, published: Published) -> None:
        """Pass a message of clients on to all that are connected."""
        for peer_id in sorted(self.connected):
            self.send(peer_id, FrameKind.PUBLISHED, published)

    def room_bytes(self, _: str) -> int:
        """Have room for everything."""
        return 1_000_000

    def is_up(self, peer_id: str) -> bool:
        """Whether a peer is connected."""
        return peer_id in self.connected

    def dialed(self, peer_id: str) -> str:
        """Return the address of a peer."""
        return f"at-{peer_id}"

    def is_alive(self, peer_id: str) -> bool:
        """Whether a peer is connected."""
        return self.is_up(peer_id)

    def up(self) -> frozenset[str]:
        """Return the connected peers."""
        return frozenset(self.connected)

    def set_peers(self, peers: Mapping[str, Address]) -> None:
        """Write down who is to be connected."""
        self.peers = dict(peers)

    def take(self, kind: FrameKind) -> list[tuple[str, object]]:
        """Return the frames of a kind that were sent, and forget all frames."""
        sent, self.sent = self.sent, []
        return [(peer_id, body) for peer_id, sent_kind, body in sent if sent_kind is kind]


class Node:
    """A group, its links, and what a test does to it."""

    def __init__(self, parts: Parts, links: Links) -> None:
        self.parts = parts
        self.links = links

    def connect(self, *peer_ids: str) -> None:
        """Let peers be reachable."""
        for peer_id in peer_ids:
            self.links.connected.add(peer_id)
            self.parts.loop.peer_up(peer_id)

    def disconnect(self, peer_id: str) -> None:
        """Let a connection break."""
        self.links.connected.discard(peer_id)
        self.parts.loop.peer_down(peer_id)

    def hear(
        self, leader_id: str, *, term: int = 1, commands: tuple[Command, ...] = (), origin: str = ""
    ) -> None:
        """Hear a leader, which is connected; with an entry of commands if there are any.

        They are the first ones of `origin`, or of the leader's own clients.

        The entry is the only one behind what is committed here, and committed at once.
        """
        log = self.parts.replica.log
        entries = []
        index, last_term = log.last_index, log.term_at(log.last_index)
        assert last_term is not None
        if commands:
            encoded = [codec.encode_command(command) for command in commands]
            first = 1 if origin else index
            batch = (origin or f"{leader_id}.run", list(range(first, first + len(commands))), encoded)
            entries = [(b"\x00" + codec.encode_entry(0, [batch]), index + 1, term)]
        message = AppendEntries(
            term=term,
            commit_index=index + len(entries),
            entries=entries,
            previous_index=index,
            previous_term=last_term,
        )
        self.parts.loop.receive(leader_id, message)


@asynccontextmanager
async def made(directory: Path, *flags: str, is_new: bool = False) -> AsyncIterator[Node]:
    """Run a group of the node with these flags, which has not begun to tick yet.

    Its cluster was founded, unless it `is_new`, or joins: then it has no part in one yet.
    """
    config = load(["--data-dir", str(directory), "--http", "127.0.0.1:0", *flags], {})
    datadir = DataDir.open(config.data_dir, config.node_id, joins=config.join)
    journal, store = EngineJournal.open(config.data_dir, datadir.disk_id), SnapshotStore(config.data_dir)
    links = Links()
    if not (is_new or config.join or datadir.cluster_id):
        store_founding(datadir, config.founders, {config.node_id: datadir.disk_id})
    parts = Parts(config, datadir, journal, store, cast("PeerLinks", links))
    journal.sync()
    try:
        yield Node(parts, links)
    finally:
        # Each of them, even if one before it fails.
        with ExitStack() as stack:
            for close in (datadir.close, journal.close, store.close, parts.replica.close, parts.stop):
                stack.callback(close)


@asynccontextmanager
async def leading_alone(directory: Path) -> AsyncIterator[Node]:
    """Run a group of one node, which leads, and has nothing to do."""
    async with made(directory, *ALONE) as node:
        node.parts.loop.start()
        replica = node.parts.replica
        await until(lambda: replica.may_propose)
        await until(lambda: bool(replica.membership.committed.cluster_id) and replica.may_change_members)
        yield node


@asynccontextmanager
async def following(directory: Path) -> AsyncIterator[Node]:
    """Run n2 of three, which follows n1 in term 1. It ticks only when something happens."""
    async with made(directory, *AMONG_THREE) as node:
        node.connect("n1", "n3")
        node.hear("n1")
        await settle()
        node.links.sent.clear()
        yield node


async def settle() -> None:
    """Let everything happen that is due."""
    for _ in range(10):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - a log has no event to tell of it
            await asyncio.sleep(0.001)
