"""Nodes as processes on loopback, in a directory of the lab."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from lab.chaos.history import HistoryWriter
from lab.chaos.lab import Lab
from lab.chaos.shim.control import ShimFailure, build
from lab.chaos.targets.target import LabFailure, Target
from scripts.lib import cluster_file, guardian, ports
from scripts.local_cluster import ClusterFailure
from scripts.redis_cluster import RedisCluster

PREFIX: Final = "holdfast-chaos-"
"""How the lab's temporary directories begin."""


class LabCluster(RedisCluster):
    """A local cluster whose nodes may be started in another way each. Keep one object for a whole run."""

    def __init__(self, directory: Path | str) -> None:
        super().__init__(directory)
        self.node_variables: dict[str, dict[str, str]] = {}
        """Environment variables of each node, beside the usual ones; for the next start."""
        self.node_arguments: dict[str, list[str]] = {}
        """What follows the arguments of each node, and wins over them; for the next start."""
        self.node_wrappers: dict[str, list[str]] = {}
        """The words before the command of each node, such as `prlimit --as=...`; for the next start."""

    def _argv(self, node_id: str, document: dict[str, object]) -> list[str]:
        """Return the command that starts a node."""
        return [
            *self.node_wrappers.get(node_id, []),
            *super()._argv(node_id, document),
            *self.node_arguments.get(node_id, []),
        ]

    def command(self, node_id: str) -> list[str]:
        """Return the command that starts a node, without what makes it special."""
        return super()._argv(node_id, cluster_file.read(self.directory))

    def make_node(self, node_id: str) -> str:
        """Prepare a further node, which is to join; return its peer address."""
        return cluster_file.make_node(self.directory, node_id)

    def environment(self, node_id: str) -> dict[str, str]:
        """Return the environment of a node.

        It keeps what Python compiles, as an installed one does: without, each start takes half as long again.
        """
        variables = super().environment(node_id) | self.node_variables.get(node_id, {})
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        return variables


class ProcessTarget(Target):
    """Three to five nodes on loopback."""

    name: ClassVar = "processes"

    def __init__(
        self,
        nodes: int,
        directory: Path | None = None,
        extra_args: Sequence[str] = (),
        *,
        redis_names: str = "",
    ) -> None:
        """Put everything into `directory`, or into a temporary one that goes at the end.

        With `redis_names`, nodes serve clients of Redis, and all names of the run begin with that.
        """
        super().__init__()
        self._redis_names = redis_names
        self._count = nodes
        self._directory = directory
        self._extra_args = extra_args
        self._temporary: Path | None = None
        self._cluster: LabCluster | None = None
        self._library: Path | None = None
        self.abilities = frozenset({"processes", "limits", "directories", "members"})

    @property
    def cluster(self) -> LabCluster:
        """The cluster, once it is open."""
        assert self._cluster is not None, "not open"
        return self._cluster

    @property
    def library(self) -> Path:
        """The library that bends disks and clocks, if there are these abilities."""
        assert self._library is not None, "there is none"
        return self._library

    def open(self) -> None:
        """Start a new cluster."""
        directory = self._directory
        if directory is None:
            directory = self._temporary = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
            guardian.run_if_killed(["rm", "-rf", str(directory)])
        self._build_library(directory)
        try:
            self._cluster = self._start(directory / "cluster")
        except (ClusterFailure, ports.PortsBusyError, OSError) as error:
            self.close()
            raise LabFailure(str(error)) from error

    def _start(self, directory: Path) -> LabCluster:
        """Start a new cluster in a directory. Raises what `open` turns into LabFailure."""
        start = LabCluster.up_with_redis if self._redis_names else LabCluster.up
        return start(directory, nodes=self._count, extra_args=self._extra_args)

    def lab(self, history: HistoryWriter, *, seed: int, scale: float) -> Lab:
        """Return the cluster as clients see it, those of Redis as well."""
        lab = super().lab(history, seed=seed, scale=scale)
        lab.prefix = self._redis_names + lab.prefix
        lab.redis_ports = self.cluster.redis_ports
        return lab

    def _build_library(self, directory: Path) -> None:
        """Make disks and clocks bendable, or say why they are not."""
        try:
            self._library = build(directory)
        except ShimFailure as error:
            self.lacking |= {"disks": str(error), "clocks": str(error)}
        else:
            self.abilities |= {"disks", "clocks"}

    def close(self) -> None:
        """Stop the nodes; remove the directory if it was ours."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            with contextlib.suppress(ClusterFailure):
                cluster.down()
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)

    def urls(self) -> Mapping[str, str]:
        """Return where each node listens."""
        return {node.id: node.http for node in self.cluster.nodes()}

    def log_tail(self, node_id: str) -> str:
        """Return the last lines of its log."""
        return self.cluster.log_tail(node_id)

    def save_logs(self, directory: Path) -> None:
        """Keep all that the nodes have said."""
        for node_id in self.urls():
            with contextlib.suppress(FileNotFoundError):  # one that was never started
                shutil.copyfile(self.cluster.log(node_id), directory / f"{node_id}.log")

    def kill(self, node_id: str) -> None:
        """Send SIGKILL."""
        self.cluster.kill(node_id)

    def terminate(self, node_id: str) -> None:
        """Send SIGTERM, and SIGKILL when that was not heard."""
        self.cluster.terminate(node_id)

    def start(self, node_id: str) -> None:
        """Start it unless it runs."""
        if not self.cluster.is_alive(node_id):
            self.cluster.start(node_id)

    def pause(self, node_id: str) -> None:
        """Send SIGSTOP."""
        try:
            self.cluster.pause(node_id)
        except ClusterFailure as error:
            raise LabFailure(str(error)) from error

    def resume(self, node_id: str) -> None:
        """Send SIGCONT."""
        self.cluster.resume(node_id)


def leftovers() -> list[Path]:
    """Return the temporary directories of labs whose process is gone."""
    found = []
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        pid = path.name.removeprefix(PREFIX).partition("-")[0]
        if path.is_dir() and pid.isdigit() and not Path(f"/proc/{pid}").exists():
            found.append(path)
    return sorted(found)
