"""A cluster of real node processes on loopback, for people (`scripts/cluster`), tests and benchmarks.

Everything about it is in its directory: `cluster.json` (which node listens where, with which pid), and the
data and the `log` of each node. Nodes outlive the process that started them; any process may take the cluster
up again by its directory.
"""

import contextlib
import fcntl
import http.client
import json
import os
import signal
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

from scripts.lib import cluster_file, ports, processes

PROJECT = Path(__file__).resolve().parent.parent
UP_S = 60.0
STARTED_S = 2.0
"""A first start on a loaded machine: three interpreters, an election."""
ALIVE_S = 30.0
STOP_S = 10.0
POLL_S = 0.05
ASK_S = 2.0
LOG_TAIL_LINES = 20
SLOWNESS: Final = "LOCAL_CLUSTER_SLOWNESS"
"""The variable that says how many times slower than usual this machine is: see `machine_speed.py`."""
SLOWNESS_MAX: Final = 4.0
"""More patience than this nodes never get: elections are to take seconds, not minutes."""
ELECTIONS_MS: Final = {"HOLDFAST_ELECTION_MS_MIN": 500, "HOLDFAST_ELECTION_MS_MAX": 1000}
"""How long nodes wait for a leader that are told nothing, by the variable that tells."""


class ClusterFailure(Exception):
    """The cluster is not as asked for. The message says what to do."""


class LocalNode(NamedTuple):
    """One node: where it listens, and the process that it was last seen as."""

    id: str
    http: str
    peer: str
    pid: int


class LocalCluster:
    """Handles the cluster of one directory, from one thread. Several processes may handle it at once."""

    def __init__(self, directory: Path | str) -> None:
        """Take up the cluster that stands in `directory`. Raises ClusterFailure when there is none."""
        self.directory = Path(directory).resolve()
        if not self._file.exists():
            raise ClusterFailure(
                f"no cluster in {self.directory}; make one with: scripts/cluster up --dir DIR"
            )

    @classmethod
    def up(
        cls,
        directory: Path | str,
        *,
        nodes: int = 3,
        base_port: int = 0,
        extra_args: Sequence[str] = (),
        tls: bool = False,
        peer_tls: bool = False,
        redis: bool = False,
        timeout_s: float = UP_S,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Self:
        """Start the cluster of `directory`, made new if there is none, and return when it answers.

        All nodes must be up: a cluster's first election needs every one of them. An existing cluster
        keeps its nodes, ports, arguments and secret. `base_port` 0 finds free ports. With `tls` a new cluster
        speaks TLS, and wants certificates of its clients: `client_environment` has them. With `peer_tls` its
        nodes speak TLS with each other, with `redis` each has a port for clients of Redis: `redis_addresses`.
        Raises ClusterFailure with the tail of a log, and PortsBusyError; what was started is stopped again.
        """
        path = Path(directory).resolve()
        redis_ports: list[int] = []
        if not (path / cluster_file.FILE).exists():
            if redis:
                redis_ports = ports.for_redis(base_port, nodes) if base_port else ports.reserve(nodes)
            base_port = base_port or ports.find_base(nodes)
            ports.check_free(base_port, nodes, redis_ports)  # before anything is written
        with _only_up(path):
            if not (path / cluster_file.FILE).exists():
                cluster_file.create(
                    *(path, nodes, base_port, extra_args), tls=tls, peer_tls=peer_tls, redis_ports=redis_ports
                )
            cluster = cls(path)
            dead = [node.id for node in cluster.nodes() if not cluster.is_alive(node.id)]
            try:
                for node_id in dead:
                    progress(f"starting {node_id}")
                    cluster.start(node_id)
                progress("waiting until every node is ready")
                cluster.wait_ready(timeout_s)
            except BaseException:
                for node_id in dead:
                    cluster.kill(node_id)
                raise
        return cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.down()

    # --- what stands in cluster.json

    @property
    def _file(self) -> Path:
        return self.directory / cluster_file.FILE

    @property
    def secret(self) -> str:
        """The secret that the nodes share."""
        return str(cluster_file.read(self.directory)["secret"])

    @property
    def client_environment(self) -> dict[str, str]:
        """The variables by which clients find the nodes and, if these have TLS, are let in."""
        found = {"HOLDFAST_NODES": ",".join(node.http for node in self.nodes())}
        if cluster_file.has_tls(cluster_file.read(self.directory)):
            cert, key = cluster_file.certificate(self.directory, cluster_file.CLIENT)
            ca, _ = cluster_file.certificate(self.directory, "ca")
            found |= {"HOLDFAST_CA": str(ca), "HOLDFAST_CERT": str(cert), "HOLDFAST_KEY": str(key)}
        return found

    @property
    def redis_addresses(self) -> dict[str, str]:
        """Where each node serves clients of Redis; empty if none does."""
        return dict(cluster_file.read(self.directory).get("redis", {}))

    def nodes(self) -> list[LocalNode]:
        """Return all nodes, in order."""
        return [LocalNode(**node) for node in cluster_file.read(self.directory)["nodes"]]

    def node(self, node_id: str) -> LocalNode:
        """Return one node. Raises ClusterFailure when there is none of this id."""
        nodes = self.nodes()
        for node in nodes:
            if node.id == node_id:
                return node
        raise ClusterFailure(f"no node {node_id!r}; there are {', '.join(node.id for node in nodes)}")

    def data_dir(self, node_id: str) -> Path:
        """Return where a node keeps its data."""
        return self.directory / node_id / "data"

    def log(self, node_id: str) -> Path:
        """Return the file that holds what a node has said since it was made."""
        return self.directory / node_id / "log"

    def tree(self, node_id: str) -> Path:
        """Return the checkout whose code a node runs: this one, unless a test says otherwise."""
        del node_id
        return PROJECT

    def environment(self, node_id: str) -> dict[str, str]:
        """Return the environment in which a node is started."""
        return node_environment(self.tree(node_id))

    # --- processes

    def is_alive(self, node_id: str) -> bool:
        """Whether the node's process runs (or is paused)."""
        return processes.is_alive(self.node(node_id).pid, self._words(node_id))

    def is_paused(self, node_id: str) -> bool:
        """Whether the node's process is held by SIGSTOP."""
        return self.is_alive(node_id) and processes.is_stopped(self.node(node_id).pid)

    def start(self, node_id: str) -> None:
        """Start a node that does not run; do not wait for it. Raises ClusterFailure when it runs."""
        with self._locked():
            if self.is_alive(node_id):
                raise ClusterFailure(f"{node_id} runs already (pid {self.node(node_id).pid})")
            document = cluster_file.read(self.directory)
            tree = self.tree(node_id)
            pid = processes.start(
                self._argv(node_id, document), log=self.log(node_id), cwd=tree, env=self.environment(node_id)
            )
            for node in document["nodes"]:
                if node["id"] == node_id:
                    node["pid"] = pid
            cluster_file.write(self._file, document)

    def kill(self, node_id: str) -> None:
        """End a node at once, as kill -9 does. A node that does not run stays so."""
        self.send_signal(node_id, signal.SIGKILL)
        if not self.wait_exit(node_id, STOP_S):
            raise ClusterFailure(
                f"{node_id} (pid {self.node(node_id).pid}) survived SIGKILL; is its disk stuck?"
            )

    def terminate(self, node_id: str) -> None:
        """Ask a node to stop, and kill it when it has not after 10 seconds."""
        self.send_signal(node_id, signal.SIGTERM)
        self.resume(node_id)  # a paused process would never hear it
        if not self.wait_exit(node_id, STOP_S):
            self.kill(node_id)

    def restart(self, node_id: str, timeout_s: float = ALIVE_S) -> None:
        """Stop a node if it runs, start it, and return when it answers /livez."""
        self.terminate(node_id)
        self.start(node_id)
        self._wait([node_id], "/livez", timeout_s)
        self._watch_start(node_id)

    def pause(self, node_id: str) -> None:
        """Hold a node's process where it is (SIGSTOP). Raises ClusterFailure when it does not run."""
        if not self.send_signal(node_id, signal.SIGSTOP):
            raise ClusterFailure(f"{node_id} does not run; start it with: scripts/cluster restart {node_id}")

    def resume(self, node_id: str) -> None:
        """Let a paused node run on."""
        self.send_signal(node_id, signal.SIGCONT)

    def send_signal(self, node_id: str, number: signal.Signals) -> bool:
        """Signal a node's process if it runs; return whether it does."""
        return processes.send_signal(self.node(node_id).pid, self._words(node_id), number)

    def wait_exit(self, node_id: str, timeout_s: float) -> bool:
        """Wait until a node's process has ended; return whether it has."""
        return processes.wait_end(self.node(node_id).pid, self._words(node_id), timeout_s)

    def exit_code(self, node_id: str, timeout_s: float) -> int:
        """Wait until a node that this very process has started ends by itself; return its exit code."""
        return processes.exit_code(self.node(node_id).pid, timeout_s)

    def down(self) -> None:
        """Stop all nodes, together; kill those that have not stopped after 10 seconds. The data stays."""
        nodes = [node.id for node in self.nodes()]
        deadline_s = time.monotonic() + STOP_S
        try:
            for node_id in nodes:
                self.send_signal(node_id, signal.SIGTERM)
                self.resume(node_id)
            for node_id in nodes:
                self.wait_exit(node_id, max(0.0, deadline_s - time.monotonic()))
        finally:
            # Also when a second Ctrl-C ends the wait: no node stays behind.
            for node_id in nodes:
                self.send_signal(node_id, signal.SIGKILL)
        for node_id in nodes:
            self.wait_exit(node_id, STOP_S)

    # --- how it does

    def ask(self, node_id: str, path: str, timeout_s: float = ASK_S) -> tuple[int, Any] | None:
        """Send one GET; return status and decoded JSON (None for other bodies), or None if unanswered."""
        connection = self.connection(node_id, timeout_s)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        try:
            return response.status, json.loads(body)
        except ValueError:
            return response.status, None

    def connection(self, node_id: str, timeout_s: float) -> http.client.HTTPConnection:
        """Return a connection to a node, which is opened by the first request."""
        url = urlsplit(self.node(node_id).http)
        if url.scheme == "http":
            return http.client.HTTPConnection(url.netloc, timeout=timeout_s)
        ca, _ = cluster_file.certificate(self.directory, "ca")
        context = ssl.create_default_context(cafile=ca)
        context.load_cert_chain(*cluster_file.certificate(self.directory, cluster_file.CLIENT))
        return http.client.HTTPSConnection(url.netloc, timeout=timeout_s, context=context)

    def view(self, node_id: str, timeout_s: float = ASK_S) -> dict[str, Any] | None:
        """Return the cluster as a node sees it (/v1/cluster), None if it does not say."""
        match self.ask(node_id, "/v1/cluster", timeout_s):
            case (200, dict() as view):
                return view
            case _:
                return None

    def wait_ready(self, timeout_s: float = UP_S) -> None:
        """Wait until every node is ready and all name the same leader. Raises ClusterFailure."""
        deadline_s = time.monotonic() + timeout_s
        nodes = [node.id for node in self.nodes()]
        self._wait(nodes, "/readyz", timeout_s)
        while True:
            leaders = {(self.view(node_id) or {}).get("leader") for node_id in nodes}
            if len(leaders) == 1 and None not in leaders:
                return
            if time.monotonic() > deadline_s:
                raise ClusterFailure(f"the nodes agree on no leader after {timeout_s:.0f} s: {leaders}")
            time.sleep(POLL_S)

    def leader(self, timeout_s: float = 30.0) -> str:
        """Return the node that most nodes, itself included, take for the leader; wait until there is one."""
        deadline_s = time.monotonic() + timeout_s
        nodes = [node.id for node in self.nodes()]
        while True:
            votes = [self._leader_by(node_id) for node_id in nodes]
            for node_id, vote in zip(nodes, votes, strict=True):
                if vote == node_id and votes.count(node_id) > len(nodes) // 2:
                    return node_id
            if time.monotonic() > deadline_s:
                raise ClusterFailure(f"no leader after {timeout_s:.0f} s; the nodes say {votes}")
            time.sleep(POLL_S)

    def _leader_by(self, node_id: str) -> str | None:
        """Return the node that a node takes for the leader; None if it does not answer soon."""
        if not self.is_alive(node_id) or self.is_paused(node_id):
            return None
        leader = (self.view(node_id) or {}).get("leader")
        return leader if isinstance(leader, str) else None

    def log_tail(self, node_id: str, lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines of a node's log."""
        text = self.log(node_id).read_text(errors="replace") if self.log(node_id).exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    # --- helpers

    def _watch_start(self, node_id: str) -> None:
        """Wait until a node is ready or has lived for a while: one that is refused ends soon."""
        deadline_s = time.monotonic() + STARTED_S
        while (answer := self.ask(node_id, "/readyz")) is None or answer[0] != http.client.OK:
            if not self.is_alive(node_id):
                raise ClusterFailure(f"{node_id} has ended; its last words:\n{self.log_tail(node_id)}")
            if time.monotonic() > deadline_s:
                return
            time.sleep(POLL_S)

    def _wait(self, node_ids: Sequence[str], path: str, timeout_s: float) -> None:
        """Wait until each of the nodes answers `path` with 200. Raises ClusterFailure with its log."""
        deadline_s = time.monotonic() + timeout_s
        for node_id in node_ids:
            while (answer := self.ask(node_id, path)) is None or answer[0] != http.client.OK:
                if not self.is_alive(node_id):
                    raise ClusterFailure(f"{node_id} has ended; its last words:\n{self.log_tail(node_id)}")
                if time.monotonic() > deadline_s:
                    said = f"{path}: {answer[0] if answer else 'no answer'}"
                    raise ClusterFailure(
                        f"{node_id} is not there after {timeout_s:.0f} s ({said}); its last words:\n"
                        f"{self.log_tail(node_id)}"
                    )
                time.sleep(POLL_S)

    def _words(self, node_id: str) -> tuple[str, ...]:
        """Return what stands in the command line of this node's process, and of no other."""
        return ("http_api", str(self.data_dir(node_id)))

    def _argv(self, node_id: str, document: dict[str, Any]) -> list[str]:
        """Return the command that starts a node."""
        node = self.node(node_id)
        # Nodes that join later get all addresses; the first ones keep those that they began with.
        joins = node_id in document.get("joined", [])
        peers = document.get("first_peers", "") if not joins else ""
        peers = peers or ",".join(f"{peer['id']}={peer['peer']}" for peer in document["nodes"])
        argv = [
            sys.executable,
            "-m",
            "http_api",
            "--node-id",
            node_id,
            "--data-dir",
            str(self.data_dir(node_id)),
        ]
        argv += ["--http", urlsplit(node.http).netloc, "--peer", node.peer, "--peers", peers]
        return [
            *argv,
            *(["--join"] if joins else []),
            "--secret-file",
            str(self.directory / cluster_file.SECRET_FILE),
            *self._tls_args(node_id, document),
            *(["--redis", document["redis"][node_id]] if node_id in document.get("redis", {}) else []),
            *document["extra_args"],
        ]

    def _tls_args(self, node_id: str, document: dict[str, Any]) -> list[str]:
        """Return what a node is told of its certificates, if it has any."""
        told = []
        if cluster_file.has_tls(document):
            cert, key = cluster_file.certificate(self.directory, node_id)
            ca, _ = cluster_file.certificate(self.directory, "ca")
            told += ["--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(ca)]
        if cluster_file.has_peer_tls(self.directory):
            cert, key, ca = cluster_file.peer_certificate(self.directory, node_id)
            told += ["--peer-cert", str(cert), "--peer-key", str(key), "--peer-ca", str(ca)]
        return told

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from changing cluster.json inside this block."""
        with (self.directory / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


@contextlib.contextmanager
def _only_up(directory: Path) -> Iterator[None]:
    """Let one `up` at a time make and start the cluster of a directory: a second one finds it running."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "up.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def node_environment(tree: Path = PROJECT) -> dict[str, str]:
    """Return the environment of nodes: the checkout `tree` first, none of the caller's Holdfast settings.

    What has to be allowed is allowed. On a machine that is said to be slow (`SLOWNESS`) nodes wait longer
    for a leader, unless their flags say how long.
    """
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    path = [str(tree), *filter(None, [inherited.get("PYTHONPATH")])]
    settings = {"HOLDFAST_ALLOW_PRIORITY": "*"} | _patience()
    return inherited | settings | {"PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"}


def _patience() -> dict[str, str]:
    """Return the settings for elections on a machine that is said to be slow, none on any other."""
    slowness = min(float(os.environ.get(SLOWNESS) or 1), SLOWNESS_MAX)
    if slowness <= 1:
        return {}
    return {name: str(round(usual_ms * slowness)) for name, usual_ms in ELECTIONS_MS.items()}
