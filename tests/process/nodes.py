"""Real nodes as the tests handle them: asked over HTTP, watched by their logs, ended with an exit code."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import aiohttp
import pytest

from holdfast import wire
from scripts.lib import cluster_file
from scripts.local_cluster import PROJECT, LocalCluster, node_environment

DEADLINE_S = 60.0
"""Long enough for everything that ever happens; a test that waits so long fails."""
POLL_S = 0.01
PATIENT = ("--election-ms-min", "8000", "--election-ms-max", "12000")
"""What nodes are told where the leader has to stay: a machine that stalls for a second deposes none."""


def slow(*values: object) -> Any:
    """Return parameters of a test for `scripts/test -m slow` alone: its others tell nearly as much."""
    return pytest.param(*values, marks=pytest.mark.slow)


class Got(NamedTuple):
    """An answer, read to its end."""

    status: int
    body: Any

    @property
    def code(self) -> str:
        """The code of a problem document, empty for a good answer."""
        return str(self.body.get("code", "")) if isinstance(self.body, dict) else ""


class Http:
    """Plain requests to chosen nodes: one attempt each, no second node."""

    def __init__(self, cluster: LocalCluster, session: aiohttp.ClientSession) -> None:
        self._cluster = cluster
        self._session = session

    async def call(self, node_id: str, method: str, path: str, body: Any = None, timeout_ms: int = 0) -> Got:
        """Send one request; `timeout_ms` is what the node is told of our patience, if it is told."""
        headers = {wire.HEADER_TIMEOUT_MS: str(timeout_ms)} if timeout_ms else {}
        async with self._session.request(
            method, self._cluster.node(node_id).http + path, json=body, headers=headers
        ) as response:
            return Got(response.status, json.loads(await response.read()))

    async def acquire(self, node_id: str, name: str, *, timeout_ms: int = 0, **fields: Any) -> Got:
        """Ask for a lock, with a long lease of its own unless told otherwise."""
        owned = {} if "session_id" in fields else {"ttl_ms": 60_000}
        body = {"name": name, **owned, **fields}
        return await self.call(node_id, "POST", wire.LOCK_ACQUIRE, body, timeout_ms)

    async def release(self, node_id: str, hold_id: str) -> Got:
        """Give a hold back."""
        return await self.call(node_id, "POST", wire.LOCK_RELEASE, {"hold_id": hold_id})

    async def lock(self, node_id: str, name: str, *, timeout_ms: int = 0, is_stale: bool = False) -> Got:
        """Look at a lock."""
        path = wire.LOCK.format(name=quote(name, safe=""))
        query = f"?consistency={wire.STALE}" if is_stale else ""
        return await self.call(node_id, "GET", path + query, timeout_ms=timeout_ms)

    async def token(self, node_id: str, name: str) -> int | None:
        """Return the token of a lock's only holder, None if it is free."""
        got = await self.lock(node_id, name)
        assert got.status == 200, got
        holders = got.body["holders"]
        assert len(holders) <= 1, got
        return holders[0]["token"] if holders else None

    async def tokens(self, node_id: str, prefix: str, *, is_stale: bool = False) -> dict[str, int]:
        """Return the token of every held lock below a prefix, by name."""
        consistency = wire.STALE if is_stale else wire.LINEARIZABLE
        tokens: dict[str, int] = {}
        after: str | None = ""
        while after is not None:
            query = f"?prefix={quote(prefix)}&limit=1000&after={quote(after)}&consistency={consistency}"
            got = await self.call(node_id, "GET", wire.LOCKS + query)
            assert got.status == 200, got
            tokens |= {
                lock["name"]: lock["holders"][0]["token"] for lock in got.body["locks"] if lock["holders"]
            }
            after = got.body["next"]
        return tokens

    async def members(self, node_id: str) -> dict[str, str]:
        """Return the state of every member as a node sees it, by id."""
        view = await self.call(node_id, "GET", wire.CLUSTER)
        assert view.status == 200, view
        return {node["id"]: node["state"] for node in view.body["nodes"]}

    async def add_member(self, node_id: str, new_id: str, peer: str) -> Got:
        """Add a node."""
        return await self.call(
            node_id, "POST", wire.CLUSTER_MEMBERS, {"id": new_id, "peer": peer, "reason": "by hand"}
        )

    async def remove_member(self, node_id: str, old_id: str) -> Got:
        """Remove a node."""
        return await self.call(node_id, "DELETE", wire.CLUSTER_MEMBERS, {"id": old_id, "reason": "by hand"})

    async def queue_length(self, node_id: str, name: str) -> int:
        """Return how many wait for a lock."""
        got = await self.lock(node_id, name)
        assert got.status == 200, got
        return len(got.body["queue"])

    async def metric(self, node_id: str, name: str) -> float:
        """Return the value of one of a node's own metrics, one that has no labels."""
        async with self._session.get(self._cluster.node(node_id).http + wire.METRICS) as response:
            lines = (await response.text()).splitlines()
        (value,) = (line.split()[1] for line in lines if line.split()[0] == name)
        return float(value)


@contextlib.asynccontextmanager
async def http_to(cluster: LocalCluster) -> AsyncIterator[Http]:
    """Give plain requests to the nodes of `cluster`; each on a connection of its own."""
    # A kept connection to a node that was killed would fail the first request to its successor.
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    timeout = aiohttp.ClientTimeout(total=2 * DEADLINE_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield Http(cluster, session)


def urls(cluster: LocalCluster) -> list[str]:
    """Return where clients reach the nodes."""
    return [node.http for node in cluster.nodes()]


def node_ids(cluster: LocalCluster) -> list[str]:
    """Return all nodes."""
    return [node.id for node in cluster.nodes()]


def followers(cluster: LocalCluster) -> list[str]:
    """Return all nodes but the leader."""
    leader = cluster.leader()
    return [node_id for node_id in node_ids(cluster) if node_id != leader]


async def until(
    condition: Callable[[], Awaitable[object] | object], what: str, timeout_s: float = DEADLINE_S
) -> None:
    """Wait until `condition` holds. Fails the test, naming `what`, when it never does."""
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    while True:
        held = condition()
        if isinstance(held, Awaitable):
            held = await held
        if held:
            return
        assert asyncio.get_running_loop().time() < deadline_s, f"not within {timeout_s:.0f} s: {what}"
        await asyncio.sleep(POLL_S)


class LogSince:
    """What a node has said since this was made."""

    def __init__(self, cluster: LocalCluster, node_id: str) -> None:
        self._path = cluster.log(node_id)
        self._offset = self._path.stat().st_size if self._path.exists() else 0

    @property
    def text(self) -> str:
        """All of it."""
        return self._path.read_bytes()[self._offset :].decode(errors="replace")

    def lines(self, *words: str) -> list[str]:
        """Return the lines that hold all of the words."""
        return [line for line in self.text.splitlines() if all(word in line for word in words)]


def exit_code(cluster: LocalCluster, node_id: str, timeout_s: float = DEADLINE_S) -> int:
    """Wait until a node ends by itself and return its exit code."""
    return cluster.exit_code(node_id, timeout_s)


async def holdfast(cluster: LocalCluster, *argv: str) -> str:
    """Run the command line, which must succeed, and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", *argv),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"HOLDFAST_NODES": ",".join(urls(cluster))},
    )
    async with asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


def revisions(cluster: LocalCluster) -> set[int]:
    """Return the revisions that the nodes are at, -1 for one that does not say."""
    return {(cluster.view(node_id) or {}).get("revision", -1) for node_id in node_ids(cluster)}


def bring_all_back(cluster: LocalCluster) -> None:
    """Make everything run again, whatever a test did to the processes."""
    for node_id in node_ids(cluster):
        if not cluster.is_alive(node_id):
            cluster.start(node_id)
        elif cluster.is_paused(node_id):
            cluster.resume(node_id)
    wait_whole(cluster)


def wait_whole(cluster: LocalCluster) -> None:
    """Wait until every node is ready and connected with every other one.

    A restarted node is ready as soon as it has heard of the leader. It takes up to a second more until the
    other follower has dialed it, too; before that the two cannot do without the leader.
    """
    cluster.wait_ready()
    deadline_s = time.monotonic() + DEADLINE_S
    while not all(_sees_all(cluster, node_id) for node_id in node_ids(cluster)):
        assert time.monotonic() < deadline_s, "the nodes do not find each other"
        time.sleep(POLL_S)


def _sees_all(cluster: LocalCluster, node_id: str) -> bool:
    """Whether a node is connected with all others."""
    view = cluster.view(node_id)
    return view is not None and all(node["state"] != "unreachable" for node in view["nodes"])


@contextlib.contextmanager
def spare_data(cluster: LocalCluster, node_id: str) -> Iterator[Path]:
    """End a node, give its data directory to be spoiled, and put the data back as they were.

    To be used only where the node does not come to work in between: it must not forget what it promised.
    """
    cluster.kill(node_id)
    data_dir = cluster.data_dir(node_id)
    backup = data_dir.with_name("backup")
    shutil.copytree(data_dir, backup)
    try:
        yield data_dir
    finally:
        cluster.kill(node_id)
        shutil.rmtree(data_dir)
        backup.rename(data_dir)


def make_node(cluster: LocalCluster, node_id: str) -> str:
    """Give a further node a directory and ports; return its peer address. It is to join, and not started."""
    return cluster_file.make_node(cluster.directory, node_id)


def let_join(cluster: LocalCluster, node_id: str) -> None:
    """Make a node that began with the cluster one that is to join it, at the address that it had."""
    cluster_file.let_join(cluster.directory, node_id)


def forget_node(cluster: LocalCluster, node_id: str) -> None:
    """Take a node that was removed, and does not run, out of the cluster's file; its directory stays."""
    cluster_file.forget_node(cluster.directory, node_id)


def node_command(cluster: LocalCluster, node_id: str, **changes: str) -> list[str]:
    """Return the command that starts a node, with the values of some flags changed."""
    node = cluster.node(node_id)
    flags = {
        "node_id": node_id,
        "data_dir": str(cluster.data_dir(node_id)),
        "http": node.http.removeprefix("http://"),
        "peer": node.peer,
        "peers": ",".join(f"{peer.id}={peer.peer}" for peer in cluster.nodes()),
        "secret_file": str(cluster.directory / "secret"),
        **changes,
    }
    argv = [sys.executable, "-m", "http_api"]
    for name, value in flags.items():
        argv += [f"--{name.replace('_', '-')}", value]
    return argv


@contextlib.contextmanager
def running(argv: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process of the test's own; it is gone afterwards."""
    with (
        log.open("wb") as output,
        subprocess.Popen(argv, stdout=output, stderr=output, cwd=PROJECT, env=node_environment()) as child,
    ):
        try:
            yield child
        finally:
            child.kill()
