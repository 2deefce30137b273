"""The secret of a running cluster is exchanged under load: no client notices; the old one opens nothing."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.config import Address
from cluster.peers import handshake
from cluster.peers.handshake import Particulars, Proof, Refusal
from scripts.local_cluster import LocalCluster
from tests.process import history_checkers
from tests.process.load import Load
from tests.process.nodes import PATIENT, LogSince, http_to, node_ids, urls, wait_whole
from tests.unit.cluster.peers.test_links import raw

pytestmark = pytest.mark.process

DEADLINE_S = 90.0


async def rotate(cluster: LocalCluster, *argv: str) -> tuple[int | None, str]:
    """Exchange the secret; return the exit code and everything that was printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "cluster", "rotate-secret", *argv),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | {"HOLDFAST_NODES": ",".join(urls(cluster))},
    )
    async with asyncio.timeout(DEADLINE_S):
        printed, _ = await process.communicate()
    return process.returncode, printed.decode()


async def is_known(cluster: LocalCluster, node_id: str, secret: bytes) -> bool:
    """Whether a node answers somebody who proves that they know this secret."""
    host, _, port = cluster.node(node_id).peer.rpartition(":")
    async with raw(Address(host, int(port))) as peer:
        exchange = await peer.hello(to=node_id, node_id="n9")
        peer.send(
            handshake.encode(exchange.prove(secret, b"dialer", Particulars("disk", "http://x", rules=9)))
        )
        try:
            answer = handshake.decode(await peer.receive())
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return False
        assert isinstance(answer, Proof | Refusal)
        return True


async def test_the_secret_is_exchanged_under_load(tmp_path: Path) -> None:
    """Nobody is refused anything, the leader stays, links are renewed, and no secret is shown anywhere."""
    with LocalCluster.up(tmp_path, extra_args=PATIENT) as cluster:
        wait_whole(cluster)
        await exchange_under_load(cluster)


async def exchange_under_load(cluster: LocalCluster) -> None:
    """Exchange the secret while clients work."""
    path, leader = cluster.directory / "secret", cluster.leader()
    old = path.read_bytes().strip()
    logs = {node_id: LogSince(cluster, node_id) for node_id in node_ids(cluster)}
    async with http_to(cluster) as http:
        async with Load(urls(cluster), prefix="rotation", keep_every=5) as load:
            code, printed = await rotate(cluster, str(path))
            assert (code, printed.splitlines()[-1]) == (0, "done: the secret was exchanged"), printed
            await load.grants(50)
        new = path.read_bytes().strip()
        assert new != old
        assert history_checkers.violations(load.history) == []
        assert history_checkers.errors(load.history) == []
        tokens = {name: await http.token(leader, name) for name in history_checkers.still_held(load.history)}
    assert history_checkers.lost_grants(history_checkers.still_held(load.history).values(), tokens) == []
    assert path.stat().st_mode & 0o777 == 0o600
    for node_id, log in logs.items():
        steps = [line.split("step=")[1] for line in log.lines("event=secret-changed")]
        assert steps == ["next", "previous", "-"]
        assert not await is_known(cluster, node_id, old)
        assert await is_known(cluster, node_id, new)
    shown = printed + "".join(log.text for log in logs.values())
    shown += subprocess.run(["ps", "axww"], capture_output=True, text=True, check=True).stdout  # noqa: ASYNC221
    assert not any(secret.decode() in shown for secret in (old, new))
    for log in logs.values():
        assert (log.lines("event=link-lost"), log.lines("event=leader-lost")) == ([], [])
    assert cluster.leader() == leader, [log.lines("event=leader") for log in logs.values()]


async def test_a_node_that_is_down_stops_the_exchange_which_goes_on_later(tmp_path: Path) -> None:
    """The command says who is missing; both secrets stay good; repeated, it goes on where it was."""
    with LocalCluster.up(tmp_path) as cluster:
        wait_whole(cluster)
        path = cluster.directory / "secret"
        old = path.read_bytes().strip()
        lost = next(node_id for node_id in node_ids(cluster) if node_id != cluster.leader())
        code, printed = await rotate(
            cluster, str(path), "--carry", f"kill -9 {cluster.node(lost).pid}", "--wait", "2s"
        )
        assert code != 0
        assert f"{lost} does not answer: start it, or remove it from the cluster" in printed
        assert "repeat the command, and it continues where it stopped" in printed
        cluster.kill(lost)
        await asyncio.to_thread(cluster.start, lost)
        code, printed = await rotate(cluster, str(path))
        assert code == 0, printed
        wait_whole(cluster)
        for node_id in node_ids(cluster):
            assert not await is_known(cluster, node_id, old)
