"""The unmodified library in the harness."""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pysyncobj.syncobj as library
import pytest
from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node as LibraryNode
from pysyncobj.transport import Transport as LibraryTransport

from tests.hazards.virtual_cluster import Cluster, Network, WireMessage
from tests.support.replica_parts import LibraryClock


class _BareTransport(LibraryTransport):  # type: ignore[misc]
    """The library's messages, into our network."""

    def __init__(self, node_id: str, network: Network) -> None:
        super().__init__(None, None, [])
        self._node_id = node_id
        self._network = network

    @property
    def ready(self) -> bool:
        """Always."""
        return True

    def send(self, node: LibraryNode, message: WireMessage) -> bool:
        """Send."""
        self._network.send(self._node_id, node.id, message)
        return True

    def destroy(self) -> None:
        """Do nothing."""


class BareNode(SyncObj):  # type: ignore[misc]
    """The unmodified library with a list for a state machine."""

    def __init__(self, node_id: str, network: Network, conf: SyncObjConf, member_ids: str) -> None:
        self.node_id = node_id
        self.outcomes: list[int] = []
        self._wire = _BareTransport(node_id, network)
        peers = [LibraryNode(peer_id) for peer_id in member_ids if peer_id != node_id]
        super().__init__(LibraryNode(node_id), peers, conf, transport=self._wire)
        self.values: list[Any] = []

    @replicated  # type: ignore[untyped-decorator]
    def note(self, value: Any) -> None:
        """Append a value, or break."""
        if value == "break":
            raise RuntimeError("a bug in apply")
        self.values.append(value)

    def propose(self, *values: Any) -> None:
        """Propose values; `outcomes` gets the library's answers."""
        for value in values:
            self.note(value, callback=lambda _, outcome: self.outcomes.append(outcome))

    @property
    def is_leader(self) -> bool:
        """Whether it leads, as far as it knows."""
        return bool(self._isLeader())

    @property
    def leader_id(self) -> str | None:
        """Whom it follows, or itself."""
        leader = self._getLeader()
        return None if leader is None else str(leader.id)

    @property
    def term(self) -> int:
        """Its term."""
        return int(self._getTerm())

    def be_patient(self) -> None:
        """Start no election soon."""
        self._SyncObj__raftElectionDeadline = library.monotonicTime() + 5

    def connect(self, peer_id: str) -> None:
        """Record a connection."""
        self._wire._onNodeConnected(LibraryNode(peer_id))

    def disconnect(self, peer_id: str, *, is_replaced: bool = False) -> None:  # noqa: ARG002
        """Record its end."""
        self._wire._onNodeDisconnected(LibraryNode(peer_id))

    def take(self, peer_id: str, message: WireMessage) -> None:
        """Take a message."""
        self._wire._onMessageReceived(LibraryNode(peer_id), message)

    def timer(self) -> None:
        """Tick."""
        self.doTick(0.0)

    def work(self) -> bool:
        """Never on its own: the library works in its ticks."""
        return False

    def crash(self) -> None:
        """Be forgotten."""


def bare_cluster(
    monkeypatch: pytest.MonkeyPatch,
    seed: int = 1,
    *,
    node_ids: str = "abc",
    directory: Path | None = None,
    members: Mapping[str, str] | None = None,
    kinds: Mapping[str, type[BareNode]] | None = None,
    **conf: Any,
) -> Cluster:
    """Return a connected cluster of bare library nodes; their logs and snapshots are files in `directory`.

    `members` has whom a node is told to be a cluster with, if not all; `kinds` nodes of other classes.
    """
    clock, network = LibraryClock(reading_s=0.0005), Network(node_ids)
    clock.install(monkeypatch)
    monkeypatch.setattr(library, "random", Random(seed))
    monkeypatch.setattr(library, "PIPE_NOTIFIER_ENABLED", False)

    def make(node_id: str) -> BareNode:
        files = {}
        if directory is not None:
            files = {
                "journalFile": str(directory / f"{node_id}.journal"),
                "fullDumpFile": str(directory / f"{node_id}.snapshot"),
            }
        make_node = (kinds or {}).get(node_id, BareNode)
        member_ids = (members or {}).get(node_id, node_ids)
        return make_node(node_id, network, SyncObjConf(autoTick=False, **files, **conf), member_ids)

    cluster = Cluster(clock, network, make)
    cluster.heal()
    return cluster
