"""What operators do by mistake to one node: the others go on, and the node is whole when it is put right."""

import secrets
import shutil
import signal
import tempfile
from pathlib import Path
from typing import ClassVar, Final

from lab.chaos.faults.fault import Fault
from lab.chaos.targets.processes import ProcessTarget
from lab.chaos.targets.target import Ability
from scripts.lib import ports, processes
from scripts.local_cluster import node_environment

NEEDED: Final[frozenset[Ability]] = frozenset({"processes", "directories"})


class _Mistake(Fault[ProcessTarget]):
    """A node that is started in a wrong way, and in the right one at the end."""

    needs: ClassVar = NEEDED
    lasts_s: ClassVar = (2.0, 5.0)
    gap_s_max = 1.0
    _hit: str | None = None

    def wrong(self, node_id: str) -> list[str]:
        """Return the arguments that are wrong."""
        raise NotImplementedError

    def begin(self) -> list[str]:
        """Start it again, with the mistake; it may end, or wait."""
        cluster = self.target.cluster
        node_id = self._hit = self.some_node()
        cluster.terminate(node_id)
        cluster.node_arguments[node_id] = self.wrong(node_id)
        cluster.start(node_id)
        return [node_id]

    def end(self) -> None:
        """Start it as it should be."""
        node_id, self._hit = self._hit, None
        if node_id is not None:
            cluster = self.target.cluster
            cluster.terminate(node_id)
            cluster.node_arguments.pop(node_id, None)
            cluster.start(node_id)


class WrongPeers(_Mistake):
    """`peers` that contradict the log."""

    name = "wrong-peers"
    text = "a node is started with peers that are wrong: itself alone, two more, or addresses exchanged"

    def wrong(self, node_id: str) -> list[str]:
        """Return a list that is none of this cluster."""
        peers = {node.id: node.peer for node in self.target.cluster.nodes()}
        alone = {node_id: peers[node_id]}
        more = peers | {"n8": f"{ports.HOST}:1", "n9": f"{ports.HOST}:2"}
        others = [other for other in peers if other != node_id]
        swapped = peers | dict(zip(others, reversed([peers[other] for other in others]), strict=True))
        chosen = self.chance.choice([alone, more, swapped])
        return ["--peers", ",".join(f"{key}={address}" for key, address in chosen.items())]


class ChangedSecret(_Mistake):
    """A secret that only one node has."""

    name = "changed-secret"
    text = "a node is started with another secret than the others have"

    def wrong(self, node_id: str) -> list[str]:
        """Return a secret of its own."""
        path = self.target.cluster.directory / f"{node_id}.wrong-secret"
        path.touch(mode=0o600)
        path.write_text(secrets.token_hex(32) + "\n")
        return ["--secret-file", str(path)]


class _Stranger(Fault[ProcessTarget]):
    """A further process with the id of a node."""

    needs: ClassVar = NEEDED
    lasts_s: ClassVar = (2.0, 5.0)
    gap_s_max = 1.0
    _hit: str | None = None
    _pid = 0
    _directory: Path | None = None

    def run_stranger(self, node_id: str, peer: str, peers: str) -> None:
        """Start it on `self._directory`; clients do not find it."""
        cluster = self.target.cluster
        assert self._directory is not None
        http_port, redis_port = ports.reserve(2)
        argv = cluster.command(node_id)
        own = {
            "--data-dir": str(self._directory / "data"),
            "--http": f"{ports.HOST}:{http_port}",
            "--peer": peer,
            "--peers": peers,
        }
        if "--redis" in argv:
            own["--redis"] = f"{ports.HOST}:{redis_port}"
        for flag, value in own.items():
            argv[argv.index(flag) + 1] = value
        self._pid = processes.start(
            argv,
            log=cluster.directory / "strangers.log",
            cwd=cluster.tree(node_id),
            env=node_environment(cluster.tree(node_id)),
        )

    def remove_stranger(self) -> None:
        """End it, and remove what it had."""
        pid, self._pid = self._pid, 0
        if pid:
            words = ("http_api", str(self._directory / "data") if self._directory else "")
            processes.send_signal(pid, words, signal.SIGKILL)
            processes.wait_end(pid, words, 10.0)
        directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)


class ForeignNode(_Stranger):
    """A node of another cluster, with the same secret, where a member should be."""

    name = "foreign-node"
    text = "a member's place is taken by a node of another cluster that has the same secret and id"

    def begin(self) -> list[str]:
        """Stop the member, and start a cluster of one at its address."""
        cluster = self.target.cluster
        node_id = self._hit = self.some_node()
        cluster.terminate(node_id)
        self._directory = Path(tempfile.mkdtemp(prefix="foreign-", dir=cluster.directory))
        peer = cluster.node(node_id).peer
        self.run_stranger(node_id, peer, f"{node_id}={peer}")
        return [node_id]

    def end(self) -> None:
        """Give the member its place back."""
        self.remove_stranger()
        node_id, self._hit = self._hit, None
        if node_id is not None:
            self.target.start(node_id)


class CopiedDirectory(_Stranger):
    """Two processes run on copies of one directory."""

    name = "copied-directory"
    text = "a node's directory is copied, and a second process runs on the copy, with the same id"

    def begin(self) -> list[str]:
        """Copy the directory of a stopped node, start it again, and then one on the copy.

        The original is back first. If the leader lets the copy in before it, the copy is the node: what it
        acknowledges is on its own disk, which goes at the end, and the original is refused for ever.
        """
        cluster = self.target.cluster
        node_id = self._hit = self.some_node()
        cluster.terminate(node_id)
        self._directory = Path(tempfile.mkdtemp(prefix="copy-", dir=cluster.directory))
        shutil.copytree(cluster.data_dir(node_id), self._directory / "data")
        cluster.start(node_id)
        self.target.wait_ready()
        (peer_port,) = ports.reserve(1)
        peers = ",".join(f"{node.id}={node.peer}" for node in cluster.nodes())
        self.run_stranger(node_id, f"{ports.HOST}:{peer_port}", peers)
        return [node_id]

    def end(self) -> None:
        """End the copy; the original may have stopped because of it."""
        self.remove_stranger()
        node_id, self._hit = self._hit, None
        if node_id is not None:
            self.target.start(node_id)
