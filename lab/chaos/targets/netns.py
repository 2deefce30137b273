"""Nodes as processes, each in a network namespace of its own; clients sit in another one.

All packets between them pass a switch that the lab tells what to do with them (netns/network.py). The lab
asks a node from inside of the node's own namespace: that way is loopback, and no fault cuts it.
"""

import http.client
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import aiohttp

from lab.chaos import http_client
from lab.chaos.history import HistoryWriter
from lab.chaos.lab import Lab
from lab.chaos.netns.network import Network, missing
from lab.chaos.targets.processes import LabCluster, ProcessTarget
from lab.chaos.targets.target import LabFailure
from scripts.lib import cluster_file

CLIENTS: Final = "clients"
"""The end at which all clients sit."""
SPARE: Final = 2
"""How many nodes may join: their ends are there from the beginning."""
HTTP_PORT: Final = 7700
PEER_PORT: Final = 7800
OPEN: Final = ("env", "HOLDFAST_INSECURE_HTTP=true", "HOLDFAST_INSECURE_PEERS=true")
"""What lets nodes start without TLS at addresses that are not loopback: only the lab reaches these."""


class NetnsTarget(ProcessTarget):
    """Three to five nodes with a network between them that can be broken in every way. Needs root."""

    name: ClassVar = "netns"

    def __init__(self, nodes: int, directory: Path | None = None, extra_args: Sequence[str] = ()) -> None:
        super().__init__(nodes, directory, extra_args)
        self._network: Network | None = None
        if reason := missing():
            self.abilities = frozenset()
            self.lacking = {"network": reason}
        else:
            self.abilities |= {"network"}

    @property
    def network(self) -> Network:
        """The network, once it is open."""
        assert self._network is not None, "not open"
        return self._network

    def open(self) -> None:
        """Build the network, and start a new cluster in it."""
        if reason := missing():
            raise LabFailure(reason)
        try:
            self._network = Network([*self._nodes(self._count + SPARE), CLIENTS])
            super().open()
        except BaseException:
            self.close()
            raise

    def _start(self, directory: Path) -> LabCluster:
        """Start a new cluster, each node at its end."""
        nodes = self._nodes(self._count)
        addresses = {node_id: _addresses(self.network, node_id) for node_id in nodes}
        cluster_file.create_at(directory, addresses, self._extra_args)
        self._cluster = cluster = _NetnsCluster(directory, self.network)
        for node_id in nodes:
            cluster.start(node_id)
        cluster.wait_ready()
        return cluster

    def _nodes(self, count: int) -> list[str]:
        """Return the ids of so many nodes."""
        return [f"n{number}" for number in range(1, count + 1)]

    def close(self) -> None:
        """Heal the network, stop the nodes, and take all down."""
        network, self._network = self._network, None
        try:
            if network is not None:
                network.clear()  # a leader that stops hands over
        finally:
            super().close()
            if network is not None:
                network.close()

    def lab(self, history: HistoryWriter, *, seed: int, scale: float) -> Lab:
        """Return the cluster as it is seen from where the clients sit."""
        return _NetnsLab(self.network, self.urls(), history, seed=seed, scale=scale)

    def connection(self, node_id: str, timeout_s: float) -> http.client.HTTPConnection:
        """Return a connection that begins in the node's own namespace."""
        return self.cluster.connection(node_id, timeout_s)


class _NetnsLab(Lab):
    """A lab whose clients sit in a namespace."""

    def __init__(self, network: Network, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._network = network

    def open_session(self) -> aiohttp.ClientSession:
        """Return a session whose connections begin in the clients' namespace."""
        connector = aiohttp.TCPConnector(
            limit=0,
            socket_factory=lambda info: self._network.socket(CLIENTS, info[0], info[1], info[2]),
        )
        return http_client.open_session(connector)


class _NetnsCluster(LabCluster):
    """A cluster whose nodes start in their namespaces."""

    def __init__(self, directory: Path | str, network: Network) -> None:
        super().__init__(directory)
        self._network = network

    def _argv(self, node_id: str, document: dict[str, object]) -> list[str]:
        """Return the command that starts a node where it belongs."""
        return [*self._network.enter(node_id), *OPEN, *super()._argv(node_id, document)]

    def command(self, node_id: str) -> list[str]:
        """Return the command that starts a node where it belongs, without what makes it special."""
        return [*self._network.enter(node_id), *OPEN, *super().command(node_id)]

    def make_node(self, node_id: str) -> str:
        """Prepare a further node at an end that is still free. Raises LabFailure."""
        if node_id not in self._network.addresses:
            raise LabFailure(f"there is no end for {node_id}: {SPARE} nodes may join, no more")
        return cluster_file.make_node(self.directory, node_id, _addresses(self._network, node_id))

    def connection(self, node_id: str, timeout_s: float) -> http.client.HTTPConnection:
        """Return a connection that begins in the node's own namespace."""
        return _InsideConnection(self._network, node_id, urlsplit(self.node(node_id).http).netloc, timeout_s)


class _InsideConnection(http.client.HTTPConnection):
    """A connection to a node from inside of its namespace."""

    def __init__(self, network: Network, node_id: str, netloc: str, timeout_s: float) -> None:
        super().__init__(netloc, timeout=timeout_s)
        self._network = network
        self._node_id = node_id

    def connect(self) -> None:
        """Open it. Raises OSError."""
        self.sock = self._network.socket(self._node_id)
        self.sock.settimeout(self.timeout)
        self.sock.connect((self.host, self.port))


def _addresses(network: Network, node_id: str) -> tuple[str, str]:
    """Return where a node listens to clients, and to its peers."""
    address = network.addresses[node_id]
    return f"{address}:{HTTP_PORT}", f"{address}:{PEER_PORT}"
