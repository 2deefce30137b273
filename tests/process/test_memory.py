"""A client that opens sessions full of labels does not end a node; and memory that runs out loses nothing."""

import asyncio
import json
import re
import resource
import signal
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from holdfast import wire
from scripts.local_cluster import LocalCluster
from tests.process.nodes import DEADLINE_S, Http, LogSince, exit_code, http_to, node_command, running, until

pytestmark = pytest.mark.process

MIB = 1 << 20
LABELS = {f"{number:02}" + "é" * 127: "ü" * 128 for number in range(16)}
CLIENTS_COUNT = 16
ATTACK_S = 120.0
"""Seconds that an attack may take on the slowest machine."""
UNCOUNTED_BYTES_MAX = 32 * MIB
"""What a node takes at most above what it counts while its state fills: buffers, events, heap."""
DIED_IN_C = (-signal.SIGSEGV, -signal.SIGABRT)
"""How a process may end whose C libraries do not expect that memory is refused: as if it had been killed."""


class Attack:
    """Clients that open sessions as large as they may be, each until it is refused or the node is gone."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.codes: Counter[str] = Counter()

    async def run(self, url: str) -> None:
        """Go on until every client is refused, or hears nothing."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
            await asyncio.wait_for(
                asyncio.gather(*(self._client(session, url) for _ in range(CLIENTS_COUNT))), ATTACK_S
            )

    async def _client(self, session: aiohttp.ClientSession, url: str) -> None:
        body = {"ttl_ms": 86_400_000, "labels": LABELS}
        while not self.codes:
            try:
                async with session.post(url + wire.SESSIONS, json=body) as response:
                    answer = json.loads(await response.read())
            except (aiohttp.ClientError, TimeoutError) as error:
                self.codes[type(error).__name__] += 1
                return
            if response.status == 201:
                self.opened.append(answer["session_id"])
            else:
                self.codes[answer["code"]] += 1


async def check_kept(http: Http, opened: list[str]) -> None:
    """Check that the sessions that were answered are all there."""
    assert await http.metric("n1", "holdfast_sessions") >= len(opened)
    for session_id in opened[:: len(opened) // 20]:
        got = await http.call("n1", "POST", wire.SESSION_KEEPALIVE.format(session_id=session_id))
        assert got.status == 200, got


async def is_ready(http: Http) -> bool:
    """Whether the node is up and serves."""
    try:
        return (await http.call("n1", "GET", wire.READYZ)).status == 200
    except aiohttp.ClientError:
        return False


async def is_bounded(http: Http) -> bool:
    """Whether the bound of the state is a quarter of the memory that the node has.

    `ulimit -v` counts what is mapped: a thread, as for syncs, maps 64 MiB that it never uses.
    """
    return 16 * MIB <= await http.metric("n1", "holdfast_state_bytes_max") < 64 * MIB


async def test_a_node_with_little_memory_refuses_before_it_is_full(tmp_path: Path) -> None:
    """A quarter of what `ulimit -v` leaves it is for the state; what frees is taken, and a restart works."""
    with LocalCluster.up(tmp_path / "cluster", nodes=1) as cluster:
        mapped = status_bytes(cluster.node("n1").pid, "VmSize")
        cluster.kill("n1")
        limited = ["prlimit", f"--as={mapped + 200 * MIB}", *node_command(cluster, "n1")]
        attack = Attack()
        async with http_to(cluster) as http:
            for run in range(2):
                with running(limited, tmp_path / f"log-{run}") as node:
                    await until(lambda: is_ready(http), "the node is ready")
                    await until(lambda: is_bounded(http), "the bound that this node can bear is in the log")
                    bound = await http.metric("n1", "holdfast_state_bytes_max")
                    if not run:
                        counted = await http.metric("n1", "holdfast_state_bytes")
                        taken = status_bytes(node.pid, "VmRSS")
                        await attack.run(cluster.node("n1").http)
                        assert set(attack.codes) == {"overloaded"}
                        assert len(attack.opened) > 500
                        counted = await http.metric("n1", "holdfast_state_bytes") - counted
                        taken = status_bytes(node.pid, "VmRSS") - taken
                        assert taken <= counted + UNCOUNTED_BYTES_MAX
                    assert 0.9 * bound < await http.metric("n1", "holdfast_state_bytes") < 1.1 * bound
                    await check_kept(http, attack.opened)
                    path = wire.SESSION.format(session_id=attack.opened.pop())
                    got = await http.call("n1", "DELETE", path)
                    assert got.status == 200, got
                    assert node.poll() is None


async def test_a_node_that_runs_out_of_memory_loses_nothing(tmp_path: Path) -> None:
    """Without a bound it ends, whatever it did just then, and starts again with all that it told."""
    arguments = ("--state-bytes-max", str(1 << 40))
    with LocalCluster.up(tmp_path / "cluster", nodes=1, extra_args=arguments) as cluster:
        pid, said = cluster.node("n1").pid, LogSince(cluster, "n1")
        limit = status_bytes(pid, "VmSize") + 32 * MIB
        resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))
        attack = Attack()
        await attack.run(cluster.node("n1").http)
        assert len(attack.opened) > 100
        code = await asyncio.to_thread(exit_code, cluster, "n1", DEADLINE_S)
        assert code in (70, *DIED_IN_C)
        assert code in DIED_IN_C or said.lines("event=node-failed")
        cluster.start("n1")
        cluster.wait_ready()
        async with http_to(cluster) as http:
            await check_kept(http, attack.opened)


def status_bytes(pid: int, name: str) -> int:
    """Return a figure of a process's memory."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
