"""ZooKeeper: an ensemble of three, as Debian has it.

Own locks are ephemeral nodes, made and deleted. A contended lock is the recipe of ZooKeeper's own
documentation: sequential ephemeral nodes, each contender watching the one before its own.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lab.peers.closed_loop import Lean
from lab.peers.connection import Address
from lab.peers.system import Programs, Running, Way, ask_line, find_program, free_addresses, programs
from lab.peers.zookeeper_client import OwnLocks, Queue

NODES: Final = 3
JAR: Final = Path("/usr/share/java/zookeeper.jar")
HEAP: Final = "-Xmx1g"
"""Of each node: without it a JVM takes a quarter of the machine's memory."""
OWN, SHARED = "a connection each", "one connection"


class ZooKeeper:
    """ZooKeeper, three nodes."""

    name: Final = "zookeeper"
    nodes: Final = NODES

    def missing(self) -> list[str]:
        """Return the packages of ZooKeeper and Java that are not there."""
        needed = {"zookeeper": JAR.exists(), "default-jre-headless": find_program("java") is not None}
        return [package for package, is_there in needed.items() if not is_there]

    @contextmanager
    def running(self, directory: Path, workers: int) -> Iterator[Running]:
        """Start three nodes."""
        del workers
        with programs(self.name) as started:
            clients = _start(started, directory)
            started.wait(lambda: _leader(clients) is not None)
            yield Running(started.pids, _ways(clients))


def _start(started: Programs, directory: Path) -> list[Address]:
    """Start the nodes; return where clients find them."""
    java = find_program("java")
    assert java, "asked before: missing()"
    clients, peers, elections = (free_addresses(NODES) for _ in range(3))
    servers = [
        f"server.{number}={peer.netloc}:{election.port}"
        for number, (peer, election) in enumerate(zip(peers, elections, strict=True), 1)
    ]
    for number, client in enumerate(clients, 1):
        node = directory / f"n{number}"
        (node / "data").mkdir(parents=True)
        (node / "data" / "myid").write_text(f"{number}\n")
        settings = [
            f"dataDir={node / 'data'}",
            f"clientPort={client.port}",
            f"clientPortAddress={client.host}",
            "tickTime=2000",
            "initLimit=10",
            "syncLimit=5",
            "maxClientCnxns=0",  # all clients have one address; 60 would be the most
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
            *servers,
        ]
        (node / "zoo.cfg").write_text("\n".join([*settings, ""]))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        started.start([java, HEAP, "-cp", str(JAR), main, str(node / "zoo.cfg")], node / "log")
    return clients


def _leader(clients: Sequence[Address]) -> Address | None:
    """Return the node that leads; None as long as not every node serves."""
    leader = None
    for address in clients:
        mode = re.search(rb"^Mode: (leader|follower)$", ask_line(address, b"srvr"), re.MULTILINE)
        if mode is None:
            return None
        if mode[1] == b"leader":
            leader = address
    return leader


def _ways(clients: list[Address]) -> list[Way]:
    """Return the ways of asking ZooKeeper."""

    async def own(workers: int) -> Sequence[Lean]:
        return [await OwnLocks.open(clients[number % NODES]) for number in range(workers)]

    async def shared(_: int) -> Sequence[Lean]:
        return [await OwnLocks.open(_leader(clients) or clients[0])]

    async def queue(workers: int) -> Sequence[Lean]:
        return [await Queue.open(clients[number % NODES]) for number in range(workers)]

    return [
        Way("zookeeper", f"ZooKeeper, {OWN}", own),
        Way("zookeeper-shared", f"ZooKeeper, {SHARED}", shared),
        Way("zookeeper", f"ZooKeeper, {OWN}", queue, is_contended=True),
    ]
