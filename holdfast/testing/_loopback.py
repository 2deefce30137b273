"""A real cluster for tests: nodes as processes on this machine, each with a disk of its own."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from holdfast import wire
from holdfast.client.client import Client
from holdfast.testing import _node_code
from holdfast.threads.sync_client import SyncClient
from holdfast.values.durations import Seconds

HOST: Final = "127.0.0.1"
READY_S: Final = 120.0
"""Seconds that the nodes have to make a cluster: a busy machine is slow at that."""
STOP_S: Final = 10.0
_POLL_S: Final = 0.05
_TRIES: Final = 3
"""Clusters begun before it is given up: another process may take a port that was just free."""
_LOG_CHARS: Final = 2000


class StartFailed(Exception):
    """The nodes did not make a cluster. The message has the end of a log."""


class LoopbackCluster:
    """Three nodes, or another number, on ports of this machine that were free. For use in a `with`.

    Their data and logs are in `directory`, and stay there. The processes end with the block.
    """

    def __init__(self, directory: Path | str, *, nodes: int = 3) -> None:
        """Prepare; nothing runs yet."""
        if nodes < 1:
            raise ValueError(f"nodes: {nodes} is less than one")
        self._directory = Path(directory)
        self._count = nodes
        self._ports: list[tuple[int, int]] = []
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        """Start it. Raises StartFailed, and OSError when a process or a file cannot be made."""
        for attempt in range(1, _TRIES + 1):
            folder = self._directory / f"cluster-{attempt}"
            try:
                self._start_all(folder)
            except StartFailed:
                self._stop_all()
                if attempt == _TRIES:
                    raise
            except BaseException:
                self._stop_all()
                raise
            else:
                return self
        raise AssertionError("the last attempt returns or raises")

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop_all()

    # -- clients --------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[str, ...]:
        """The URLs of the nodes."""
        return tuple(f"http://{HOST}:{port}" for port, _ in self._ports)

    @property
    def environment(self) -> Mapping[str, str]:
        """What programs need to find the cluster: HOLDFAST_NODES."""
        return {"HOLDFAST_NODES": ",".join(self.nodes)}

    def client(self, *, timeout: Seconds = 10.0, owner: str | None = None) -> Client:
        """Return a client for asyncio."""
        return Client(self.nodes, timeout=timeout, owner=owner)

    def sync_client(self, *, timeout: Seconds = 10.0, owner: str | None = None) -> SyncClient:
        """Return a client for threads."""
        return SyncClient(self.nodes, timeout=timeout, owner=owner)

    # -- what happens to nodes ------------------------------------------------------------------------------

    def kill(self, node: int) -> None:
        """End the node of this index at once, as kill -9 does."""
        process = self._process(node)
        process.kill()
        process.wait()

    def start(self, node: int) -> None:
        """Start a node again that was killed, and wait until it is ready. Raises StartFailed."""
        if self._process(node).poll() is None:
            raise ValueError(f"node: {node} runs")
        folder = self._folder
        self._start(folder, node)
        self._wait_ready(folder, [node])

    def _process(self, node: int) -> "subprocess.Popen[bytes]":
        if _id(node) not in self._running:
            raise ValueError(f"node: there is none of index {node}; {len(self._running)} were started")
        return self._running[_id(node)]

    # -- how it does ----------------------------------------------------------------------------------------

    def _start_all(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        secret = folder / "secret"
        secret.touch(0o600)
        secret.write_text(secrets.token_hex(32), "ascii")
        self._ports = _free_ports(self._count)
        for node in range(self._count):
            self._start(folder, node)
        self._wait_ready(folder, list(range(self._count)))

    def _start(self, folder: Path, node: int) -> None:
        http, peer = self._ports[node]
        peers = ",".join(f"{_id(i)}={HOST}:{port}" for i, (_, port) in enumerate(self._ports))
        command = [sys.executable, "-m", "http_api", "--node-id", _id(node), "--peers", peers]
        command += ["--data-dir", str(folder / _id(node)), "--secret-file", str(folder / "secret")]
        command += ["--http", f"{HOST}:{http}", "--peer", f"{HOST}:{peer}"]
        # Settings of the shell that runs the tests are not meant for these nodes.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        environment["PYTHONPATH"] = os.pathsep.join(_node_code.paths())
        with self._log(folder, node).open("ab") as log:
            self._running[_id(node)] = subprocess.Popen(  # noqa: S603 - our own program and arguments
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=folder
            )

    def _wait_ready(self, folder: Path, nodes: list[int]) -> None:
        deadline_s = time.monotonic() + READY_S
        for node in nodes:
            while not _is_ready(self._ports[node][0]):
                has_ended = self._running[_id(node)].poll() is not None
                if has_ended or time.monotonic() > deadline_s:
                    log = self._log(folder, node).read_text("utf-8", "replace")[-_LOG_CHARS:]
                    what = "has ended" if has_ended else f"is not ready after {READY_S:g} s"
                    raise StartFailed(f"{_id(node)} {what}; the end of its log:\n{log}")
                time.sleep(_POLL_S)

    def _log(self, folder: Path, node: int) -> Path:
        return folder / f"{_id(node)}.log"

    def _stop_all(self) -> None:
        """Stop the nodes, together; kill those that take long."""
        running, self._running = list(self._running.values()), {}
        try:
            for process in running:
                process.send_signal(signal.SIGTERM)
            deadline_s = time.monotonic() + STOP_S
            for process in running:
                try:
                    process.wait(max(0.0, deadline_s - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
        finally:
            # Also when Ctrl-C ends the wait: no node stays behind.
            for process in running:
                process.kill()
                process.wait()


def _id(node: int) -> str:
    """Return the node id of the node of this index."""
    return f"n{node + 1}"


def _free_ports(nodes: int) -> list[tuple[int, int]]:
    """Return two ports for each node that are free now."""
    sockets = [socket.socket() for _ in range(2 * nodes)]
    try:
        for listener in sockets:
            listener.bind((HOST, 0))
        ports = [listener.getsockname()[1] for listener in sockets]
    finally:
        for listener in sockets:
            listener.close()
    return list(zip(ports[::2], ports[1::2], strict=True))


def _is_ready(port: int) -> bool:
    """Whether the node at this port says that it serves."""
    connection = HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", wire.READYZ)
        return connection.getresponse().status == 200  # noqa: PLR2004 - OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
