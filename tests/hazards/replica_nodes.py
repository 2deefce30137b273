"""Our nodes in the harness: RaftReplica with its guards over a real journal and snapshot store."""

import os
from collections import deque
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import cast

import msgspec
import pysyncobj.syncobj as library
import pytest

from cluster.consensus.guards import Message
from cluster.consensus.member_list import Member, Members
from cluster.consensus.replica import RaftReplica
from cluster.storage.files import Files
from cluster.storage.forked_child import ChildState
from cluster.storage.journal import Journal
from cluster.storage.snapshot_store import SnapshotStore
from tests.hazards.virtual_cluster import Checker, Clock, Cluster, Network


@dataclass(frozen=True)
class Config:
    """What RaftReplica needs of a configuration; the defaults are those of a real node."""

    node_id: str
    heartbeat_ms: int = 100
    election_ms_min: int = 500
    election_ms_max: int = 1000
    compact_entries: int = 20_000


class _MemoryFiles(Files):
    """Real files, without waiting for the disk: a crash here is a kill, which keeps the page cache."""

    def fdatasync(self, fd: int) -> None:
        """Do not wait."""

    def fsync_dir(self, directory: Path) -> None:
        """Do not wait."""


class InlineChild:
    """Writes the snapshot at once, so that runs repeat; `poll` tells it later, as for a real child."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._outcome: ChildState = "idle"

    @property
    def is_running(self) -> bool:
        """Whether the end has not been told yet."""
        return self._outcome != "idle"

    def start(self, work: Callable[[], None]) -> None:
        """Work."""
        work()
        self._outcome = "done"

    def poll(self) -> ChildState:
        """Tell the outcome once."""
        outcome, self._outcome = self._outcome, "idle"
        return outcome

    def kill(self) -> None:
        """Fail, though all is written."""
        self._outcome = "failed"

    def stop(self) -> None:
        """Forget it."""
        self._outcome = "idle"


class OurNode:
    """RaftReplica as a node drives it, with a list of applied entries for a state machine."""

    def __init__(
        self,
        directory: Path,
        network: Network,
        checker: Checker,
        config: Config,
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
        self._network = network
        self._checker = checker
        self._sync_is_due = False
        files = files or _MemoryFiles()
        self.journal = Journal.open(directory, files=files)
        checker.recovered(self.node_id, self.journal.getCurrentTerm())
        self.store = SnapshotStore(directory, files)
        self.store._child = InlineChild()  # type: ignore[assignment]
        voters = {voter: Member(f"127.0.0.1:{ord(voter)}", is_voter=True) for voter in member_ids}
        self.replica = RaftReplica(config, Members(voters), self.journal, self.store, self)
        self.replica.in_flight_max = in_flight_max
        self.journal.sync()
        self._wants_tick = False

    @property
    def is_leader(self) -> bool:
        """Whether it leads, as far as it knows."""
        return self.replica.is_leader

    @property
    def leader_id(self) -> str | None:
        """Whom it follows, or itself."""
        return self.replica.leader_id

    @property
    def term(self) -> int:
        """Its term."""
        return self.replica.term

    @property
    def values(self) -> list[bytes]:
        """The applied entries."""
        return [entry for _, entry in self.entries]

    def propose(self, *entries: bytes) -> None:
        """Hand entries to the node, as its clients do."""
        self.queue.extend(entries)
        self._wants_tick = True

    def be_patient(self) -> None:
        """Start no election soon."""
        self.replica._raft.election_deadline_s = self.replica._raft.now_s() + 5

    # -- cluster --------------------------------------------------------------------------------------------

    def connect(self, peer_id: str) -> None:
        """Take note of a connection."""
        self.replica.peer_up(peer_id)

    def disconnect(self, peer_id: str) -> None:
        """Take note of its end."""
        self.replica.peer_down(peer_id)

    def take(self, peer_id: str, message: Message) -> None:
        """Take a message as it comes from the wire."""
        self.replica.receive(peer_id, msgspec.msgpack.decode(msgspec.msgpack.encode(message)))

    def timer(self) -> None:
        """Tick, because time has passed."""
        self._tick()

    def work(self) -> bool:
        """Tick or sync if it is due."""
        if self.replica.wants_tick or self._wants_tick:
            self._tick()
            return True
        if self._sync_is_due:
            self.sync()
            return True
        return False

    def sync(self) -> None:
        """Sync, which lets promises out."""
        self._sync_is_due = False
        self.replica.sync()
        self._checker.stored(self.node_id, self.journal.getCurrentTerm())

    def crash(self) -> None:
        """Let go of the disk without writing anything."""
        os.close(self.journal._fd)
        self.store.abort_receive()
        self.replica.close()

    def _tick(self) -> None:
        self._wants_tick = False
        self.replica.tick()
        if self.replica.is_leader:
            self._checker.leads(self.node_id, self.replica.term)

    # -- replica.Host ---------------------------------------------------------------------------------------

    def send(self, peer_id: str, message: Message) -> None:
        """Send, and look whether it promises more than is on this disk."""
        self._checker.sent(self.node_id, peer_id, message)
        if message["type"] in ("request_vote", "response_vote"):
            assert not self.journal.is_dirty, f"{self.node_id} shows a vote that is not on its disk"
        if message["type"] == "next_node_idx" and message["success"] and message["term"] == self.term:
            on_disk = self.journal.synced_index
            assert message["next_node_idx"] <= on_disk + 1, f"{self.node_id} has only {on_disk} on its disk"
        self._network.send(self.node_id, peer_id, message)

    def link_has_room(self, peer_id: str) -> bool:
        """Whether few messages wait in the queue."""
        return len(self._network.queues[self.node_id, peer_id]) < self.room

    def has_entry(self) -> bool:
        """Whether there is something to propose."""
        return bool(self.queue)

    def next_entry(self) -> bytes | None:
        """Return what is to be proposed."""
        return self.queue.popleft() if self.queue else None

    def apply(self, entry: bytes) -> None:
        """Apply an entry, or break."""
        if self.is_broken:
            raise RuntimeError("a bug in apply")
        index = self.replica._raft.applied_index + 1
        self._checker.applied(self.node_id, index, entry)
        self.entries.append((index, entry))

    def encode_state(self) -> bytes:
        """Return the applied entries."""
        return msgspec.msgpack.encode(self.entries)

    def decode_state(self, state: bytearray) -> Generator[None, None, object]:
        """Decode in two steps."""
        yield
        return msgspec.msgpack.decode(state, type=list[tuple[int, bytes]])

    def restore_state(self, state: object) -> None:
        """Take over the applied entries."""
        if isinstance(state, bytes):
            state = msgspec.msgpack.decode(state, type=list[tuple[int, bytes]])
        self.entries = cast("list[tuple[int, bytes]]", state)
        for index, entry in self.entries:
            self._checker.applied(self.node_id, index, entry)

    def leadership_changed(self) -> None:
        """Take note."""
        if self.replica.is_leader:
            self._checker.leads(self.node_id, self.replica.term)

    def members_changed(self) -> None:
        """Take note: this network connects everybody."""

    def tick_ended(self) -> None:
        """Sync later: messages may come in between."""
        self._sync_is_due = self._sync_is_due or self.replica.needs_sync


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
    clock, network, checker = Clock(), Network(node_ids), Checker()
    monkeypatch.setattr(library, "monotonicTime", clock.read)
    monkeypatch.setattr(library, "random", Random(seed))

    def make(node_id: str) -> OurNode:
        config = Config(node_id, compact_entries=compact_entries)
        first = () if member_ids is not None and node_id not in member_ids else member_ids or node_ids
        return OurNode(
            directory / node_id, network, checker, config, first, in_flight_max=in_flight_max, files=files
        )

    cluster = Cluster(clock, network, make)
    cluster.heal()
    return cluster, checker
