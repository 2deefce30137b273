"""Three nodes and a real Prometheus that watches them, all on loopback, in one directory."""

import asyncio
import contextlib
import http.client
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from cluster.config import Address
from lab.alerts.short_rules import shortened
from lab.chaos.shim.control import ShimControl
from lab.chaos.targets.processes import LabCluster, ProcessTarget
from lab.chaos.targets.target import LabFailure, fetch
from scripts.lib import ports
from scripts.lib.cluster_file import PROJECT, SECRET_FILE
from tests.support.tap import Tap

RULES: Final = PROJECT / "deploy/prometheus/rules.yaml"
ODD: Final = "n3"
"""The node that can be made odd: its disk, its clock, its speed, its path to the others."""
LEADER: Final = "n1"
"""The node that leads when a fault begins."""
STATE_BYTES_MAX: Final = 16 << 20
COMPACT_ENTRIES: Final = 1000
STARTED_S: Final = 30.0
POLL_S: Final = 0.25


class FlippingPath(Tap):
    """The path of peers to the odd node: it flips a bit of the next bytes when it is told to."""

    flips = 0

    async def pass_on(self, data: bytes, sink: asyncio.StreamWriter) -> None:
        """Hand over what was read, as it is or nearly so."""
        if self.flips > 0:
            self.flips -= 1
            data = bytes([*data[:-1], data[-1] ^ 1])
        await super().pass_on(data, sink)


class WatchedCluster(ProcessTarget):
    """Three nodes, of which one can be made odd while it runs."""

    name: ClassVar = "processes"
    path: FlippingPath
    shim: ShimControl

    def __init__(self, directory: Path) -> None:
        self._work = directory
        self.certificates = directory / "tls"
        self.switches = directory / "odd"
        self.certify(days=365)
        super().__init__(3, directory, [
            "--state-bytes-max", str(STATE_BYTES_MAX), "--compact-entries", str(COMPACT_ENTRIES),
            "--tls", "accept", "--tls-cert", str(self.certificates / "node.pem"),
            "--tls-key", str(self.certificates / "node-key.pem"),
        ])  # fmt: skip
        self._ends = contextlib.ExitStack()

    def certify(self, *, days: int) -> None:
        """Give the nodes a certificate for their clients, or another one."""
        holdfast = [sys.executable, "-m", "holdfast", "cert"]
        there = ["--dir", str(self.certificates), "--force"]
        if not self.certificates.exists():
            subprocess.run([*holdfast, "ca", *there], check=True, cwd=PROJECT, stdout=subprocess.DEVNULL)
        words = ["node", "node", ports.HOST, "--days", str(days), *there]
        subprocess.run([*holdfast, *words], check=True, cwd=PROJECT, stdout=subprocess.DEVNULL)

    def _start(self, directory: Path) -> LabCluster:
        """Start a new cluster, and one of its nodes again, in the way that lets it be made odd."""
        cluster = super()._start(directory)
        self._cluster = cluster
        self.switches.mkdir()
        self.shim = ShimControl(directory / "shim")
        cluster.node_wrappers[ODD] = [sys.executable, "-m", "lab.alerts.odd_node", str(self.switches)]
        cluster.node_variables[ODD] = self.shim.environment(self.library)
        shutil.copy(directory / SECRET_FILE, self.odd_secret)
        ((_, peer_port),) = ports.of_cluster(ports.find_base(1), 1)
        cluster.node_arguments[ODD] = [
            "--peer", f"{ports.HOST}:{peer_port}", "--secret-file", str(self.odd_secret)
        ]  # fmt: skip
        cluster.terminate(ODD)
        self._ends.enter_context(self._listen(cluster.node(ODD).peer, peer_port))
        cluster.start(ODD)
        self.wait_ready()
        return cluster

    @contextlib.contextmanager
    def _listen(self, address: str, port: int) -> Iterator[None]:
        """Carry what peers send to the odd node to the port at which it listens, in a thread."""
        loop = asyncio.new_event_loop()
        self.path = FlippingPath(Address(ports.HOST, port))
        host, _, known_port = address.rpartition(":")
        server = loop.run_until_complete(asyncio.start_server(self.path.serve, host, int(known_port)))
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(server.close)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def close(self) -> None:
        """Stop everything."""
        super().close()
        self._ends.close()

    @property
    def odd_secret(self) -> Path:
        """The secret file that the odd node alone reads."""
        return self._work / "odd-secret"

    @property
    def shared_secret(self) -> Path:
        """The secret file of the others."""
        return self.cluster.directory / SECRET_FILE

    @contextlib.contextmanager
    def odd(self, what: str) -> Iterator[None]:
        """Make the odd node odd meanwhile, in one of the ways of odd_node.py."""
        (self.switches / what).touch()
        try:
            yield
        finally:
            (self.switches / what).unlink()

    def must(self, node_id: str, method: str, path: str, body: object = None, timeout_s: float = 10.0) -> Any:
        """Send a request and return its answer. Raises LabFailure when it is none, or a refusal."""
        answer = self.ask(node_id, path, timeout_s, method=method, body=body)
        if answer is None or answer[0] >= http.client.BAD_REQUEST:
            raise LabFailure(f"{method} {path} at {node_id}: {answer}")
        return answer[1]

    def lead(self, node_id: str = LEADER) -> None:
        """Let a node lead, and wait until it does. Raises LabFailure."""
        deadline_s = time.monotonic() + STARTED_S
        while self.leader() != node_id:
            body = {"to": node_id, "reason": "the lab of alerts"}
            self.ask(node_id, "/v1/cluster/transfer-leadership", method="POST", body=body)
            if time.monotonic() > deadline_s:
                raise LabFailure(f"{node_id} does not come to lead")
            time.sleep(POLL_S)


class Prometheus:
    """Prometheus with our rules, shortened, from when it is made until `close`."""

    def __init__(self, directory: Path, cluster: WatchedCluster) -> None:
        """Start it, and wait until it answers. Raises LabFailure."""
        directory.mkdir()
        ((port, _),) = ports.of_cluster(ports.find_base(1), 1)
        self._address = f"{ports.HOST}:{port}"
        (directory / "rules.yaml").write_text(shortened(RULES.read_text()))
        targets = [urlsplit(url).netloc for url in cluster.urls().values()]
        every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        job = {"job_name": "holdfast", "static_configs": [{"targets": targets}]}
        config = {"global": every, "rule_files": ["rules.yaml"], "scrape_configs": [job]}
        (directory / "prometheus.yaml").write_text(json.dumps(config))  # JSON is YAML, too
        self._log = directory / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus", f"--config.file={directory / 'prometheus.yaml'}",
                    f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address={self._address}",
                ],
                stdout=log, stderr=log,
            )  # fmt: skip
        deadline_s = time.monotonic() + STARTED_S
        while self._get("/-/ready") is None:
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                self.close()
                raise LabFailure(f"Prometheus does not answer: {self._log.read_text()[-1000:]}")
            time.sleep(POLL_S)

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()

    def firing(self) -> dict[str, set[str]]:
        """Return the alerts that fire now, each with its instances. Raises LabFailure."""
        body = self._get("/api/v1/alerts")
        if body is None:
            raise LabFailure("Prometheus does not answer any more")
        found: dict[str, set[str]] = {}
        for alert in json.loads(body)["data"]["alerts"]:
            if alert["state"] == "firing":
                labels = alert["labels"]
                found.setdefault(labels["alertname"], set()).add(labels.get("instance", ""))
        return found

    def _get(self, path: str) -> bytes | None:
        answer = fetch(http.client.HTTPConnection(self._address, timeout=STARTED_S), path)
        return answer[1] if answer is not None and answer[0] == http.client.OK else None
