"""Our nodes in the harness: Replica with its guards over a real journal and snapshot store."""

import os
from collections import deque
from collections.abc import Collection, Generator, Iterator
from pathlib import Path
from random import Random
from typing import cast

import msgspec
import pysyncobj.syncobj as library
import pytest

from cluster.consensus import messages
from cluster.consensus.library_words import EngineJournal
from cluster.consensus.member_list import MemberRecord, Members
from cluster.consensus.messages import Acknowledgement, Message, Vote, VoteRequest
from cluster.consensus.ready import Ready
from cluster.consensus.replica import Replica
from cluster.storage.files import Files
from cluster.storage.forked_child import Child
from cluster.storage.journal import Sync
from cluster.storage.snapshot_store import SnapshotStore
from tests.hazards.virtual_cluster import Checker, Cluster, Network, WireMessage
from tests.support.replica_parts import InlineChild, LibraryClock, ReplicaConfig, UnsyncedFiles


class OurNode:
    """A Replica as the loop of a node drives it, with a list of applied entries for a state machine.

    The network carries messages as they are on the wire.
    """

    def __init__(
        self,
        directory: Path,
        network: Network,
        checker: Checker,
        config: ReplicaConfig,
        member_ids: Collection[str],
        *,
        in_flight_max: int = 1,
        files: Files | None = None,
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.node_id = config.node_id
        self.queue: deque[bytes] = deque()
        self.entries: list[tuple[int, bytes]] = []
        self.room = 1_000_000
        self.is_broken = False
        self.is_disk_hanging = False
        """Whether a sync that is begun does not end, until this is taken back."""
        self._present: tuple[Sync, list[tuple[str, Message]]] | None = None
        self._network = network
        self._checker = checker
        self._promises: list[tuple[str, Message]] = []
        self._is_sync_due = self._is_tick_due = False
        files = files or UnsyncedFiles()
        self.journal = EngineJournal.open(directory, files=files)
        checker.recovered(self.node_id, self.journal.term)
        self.child = InlineChild()
        self.store = SnapshotStore(directory, files, cast("Child", self.child))
        voters = {voter: MemberRecord(f"127.0.0.1:{ord(voter)}", is_voter=True) for voter in member_ids}
        self.replica = Replica(
            config,
            Members(voters),
            self.journal,
            self.store,
            room_bytes=self._room_bytes,
            decode_state=_decode_state,
        )
        if self.replica.loaded_state is not None:
            self._restore(msgspec.msgpack.decode(cast("bytes", self.replica.loaded_state), type=_State))
        self.replica.engine.in_flight_max = in_flight_max
        self.journal.sync()

    @property
    def is_leader(self) -> bool:
        """Whether it leads, as far as it knows."""
        return self.replica.engine.is_leader

    @property
    def leader_id(self) -> str | None:
        """Whom it follows, or itself."""
        return self.replica.engine.leader_id

    @property
    def term(self) -> int:
        """Its term."""
        return self.replica.engine.term

    @property
    def values(self) -> list[bytes]:
        """The applied entries."""
        return [entry for _, entry in self.entries]

    def propose(self, *entries: bytes) -> None:
        """Hand entries to the node, as its clients do."""
        self.queue.extend(entries)
        self.request_tick()

    def request_tick(self) -> None:
        """Tick when the cluster lets this node work."""
        self._is_tick_due = True

    def be_patient(self) -> None:
        """Start no election soon."""
        engine = self.replica.engine
        engine.election_deadline_s = engine.now_s() + 5
        self.replica.prevote._may_hurry = False

    def transfer(self, to: str) -> None:
        """Ask a follower that has the whole log to take over."""
        ready = self.replica.transfer(to)
        if ready is not None:
            self._act(ready)

    # -- cluster --------------------------------------------------------------------------------------------

    def connect(self, peer_id: str) -> None:
        """Record a connection."""
        self._is_tick_due |= self.replica.peer_up(peer_id)

    def disconnect(self, peer_id: str, *, is_replaced: bool = False) -> None:
        """Record its end."""
        self._promises = [promise for promise in self._promises if promise[0] != peer_id]
        if self._present is not None:
            sync, promises = self._present
            self._present = sync, [promise for promise in promises if promise[0] != peer_id]
        self.replica.peer_down(peer_id, is_replaced=is_replaced)

    def take(self, peer_id: str, message: WireMessage) -> None:
        """Take a message as it comes from the wire."""
        decoded = messages.decode(msgspec.msgpack.encode(message))
        assert not isinstance(decoded, str), f"nobody sends {decoded}"
        self._act(self.replica.receive(peer_id, decoded))

    def timer(self) -> None:
        """Tick, because time has passed."""
        self._tick()

    def work(self) -> bool:
        """Tick or sync if it is due."""
        if self._is_tick_due:
            self._tick()
            return True
        if self._is_sync_due and self._present is None:
            self.sync()
            return True
        if self._present is not None and not self.is_disk_hanging:
            self._end_sync()
            return True
        return False

    def sync(self) -> None:
        """Sync, which lets promises out; if the disk hangs, it only begins."""
        self._is_sync_due = False
        promises, self._promises = self._promises, []
        sync = self.journal.begin_sync()
        if sync is None:
            for peer_id, message in promises:
                self._send(peer_id, message)
            return
        self._present = sync, promises
        if not self.is_disk_hanging:
            self._end_sync()

    def _end_sync(self) -> None:
        assert self._present is not None, "no sync was begun"
        (sync, promises), self._present = self._present, None
        sync.run()
        self.journal.end_sync(sync)
        for peer_id, message in promises:
            self._send(peer_id, message)
        if sync.block is not None:
            self._checker.stored(self.node_id, sync.block.term)
        self._is_tick_due |= self.replica.engine.has_work
        self._is_sync_due |= bool(self._promises) or self.journal.wants_sync

    def crash(self) -> None:
        """Let go of the disk without writing anything."""
        os.close(self.journal._fd)
        self.store.abort_receive()
        self.replica.close()

    def _tick(self) -> None:
        self._is_tick_due = False
        self._act(self.replica.tick(has_entry=bool(self.queue)))
        self._act(self.replica.propose(self._entries()))
        if self.is_leader:
            self._checker.leads(self.node_id, self.term)

    def _entries(self) -> Iterator[bytes]:
        while self.queue:
            yield self.queue.popleft()

    # -- what comes of it (ready.Ready) ---------------------------------------------------------------------

    def _act(self, ready: Ready) -> None:
        """Do it in the order of the fields, as cluster/loop.py does."""
        if ready.restored is not None:
            self._restore(cast("list[tuple[int, bytes]]", ready.restored))
        if ready.is_role_changed and self.is_leader:
            self._checker.leads(self.node_id, self.term)
        for peer_id, message in ready.messages:
            self._send(peer_id, message)
        for index, entry in ready.committed:
            self._apply(index, entry)
        if ready.snapshot is not None:
            self.replica.write_snapshot(ready.snapshot, self.encode_state)
        self._promises += ready.promises
        self._is_sync_due |= ready.needs_sync
        self._is_tick_due |= ready.wants_tick

    def _send(self, peer_id: str, message: Message) -> None:
        """Send, and look whether it promises more than is on this disk."""
        wire: WireMessage = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
        self._checker.sent(self.node_id, peer_id, wire)
        if isinstance(message, VoteRequest | Vote):
            assert not self.journal.is_dirty, f"{self.node_id} shows a vote that is not on its disk"
        if isinstance(message, Acknowledgement) and message.success and message.term == self.term:
            on_disk = self.journal.synced_index
            assert message.next_index <= on_disk + 1, f"{self.node_id} has only {on_disk} on its disk"
        self._network.send(self.node_id, peer_id, wire)

    def _room_bytes(self, peer_id: str) -> int:
        """Return a byte for each message that the queue has room for."""
        return self.room - len(self._network.queues[self.node_id, peer_id])

    def _apply(self, index: int, entry: bytes) -> None:
        """Apply an entry, or break."""
        if self.is_broken:
            raise RuntimeError("a bug in apply")
        self._checker.applied(self.node_id, index, entry)
        self.entries.append((index, entry))

    def snapshot_begun(self) -> None:
        """Tell nobody."""

    def encode_state(self) -> bytes:
        """Return the applied entries."""
        return msgspec.msgpack.encode(self.entries)

    def _restore(self, state: list[tuple[int, bytes]]) -> None:
        """Take over the applied entries."""
        self.entries = state
        for index, entry in self.entries:
            self._checker.applied(self.node_id, index, entry)


_State = list[tuple[int, bytes]]


def _decode_state(state: bytearray) -> Generator[None, None, object]:
    """Decode in two steps."""
    yield
    return msgspec.msgpack.decode(state, type=_State)


def our_cluster(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int = 1,
    *,
    node_ids: str = "abc",
    compact_entries: int = 20_000,
    in_flight_max: int = 1,
    files: Files | None = None,
    member_ids: str | None = None,
) -> tuple[Cluster, Checker]:
    """Return a cluster of our nodes, connected, and its checker.

    `files` are the disks of all of them, `member_ids` those that the cluster begins with, if not all.
    """
    clock, network, checker = LibraryClock(), Network(node_ids), Checker()
    clock.install(monkeypatch)
    monkeypatch.setattr(library, "random", Random(seed))

    def make(node_id: str) -> OurNode:
        config = ReplicaConfig(node_id, compact_entries=compact_entries)
        first = () if member_ids is not None and node_id not in member_ids else member_ids or node_ids
        return OurNode(
            directory / node_id, network, checker, config, first, in_flight_max=in_flight_max, files=files
        )

    cluster = Cluster(clock, network, make)
    cluster.heal()
    return cluster, checker
