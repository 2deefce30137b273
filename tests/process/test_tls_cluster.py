"""A cluster with TLS for its clients: all that works without it works with it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import holdfast
from scripts.lib import cluster_file
from scripts.local_cluster import PROJECT, LocalCluster
from tests.process import history_checkers
from tests.process.load import Load
from tests.process.nodes import PATIENT, LogSince, followers, node_ids, urls, wait_whole

pytestmark = pytest.mark.process

DEADLINE_S = 120


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Start three nodes."""
    with LocalCluster.up(tmp_path_factory.mktemp("tls"), tls=True) as started:
        yield started


def tls_of(cluster: LocalCluster) -> holdfast.Tls:
    """Return what clients need."""
    found = cluster.client_environment
    return holdfast.Tls(found["HOLDFAST_CA"], found["HOLDFAST_CERT"], found["HOLDFAST_KEY"])


def run(cluster: LocalCluster, *words: str, **without: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with the variables that the cluster says, `without` some of them."""
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *words],
        env=os.environ | cluster.client_environment | without,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )


def test_commands_work(cluster: LocalCluster) -> None:
    """Those of locks, and those of the cluster."""
    status = run(cluster, "status")
    assert status.returncode == 0, status.stderr
    lines = status.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == [node.id for node in cluster.nodes()]
    assert lines[-1] == "survives 1 more failure"
    assert "https://" in run(cluster, "cluster", "members").stdout
    done = run(cluster, "run", "nightly", "--", "sh", "-c", "echo token $HOLDFAST_TOKEN")
    assert (done.returncode, "token " in done.stdout) == (0, True)


def test_commands_say_what_is_wrong(cluster: LocalCluster) -> None:
    """At once, and by what they exit with."""
    refused = run(cluster, "--timeout", "10m", "status", HOLDFAST_CERT="", HOLDFAST_KEY="")
    assert refused.returncode == 121
    assert "HOLDFAST_CERT" in refused.stderr
    missing = run(cluster, "status", HOLDFAST_CA="/nowhere/ca.pem")
    assert missing.returncode == 2
    assert "/nowhere/ca.pem" in missing.stderr


def test_the_secret_is_exchanged(cluster: LocalCluster) -> None:
    """The command asks all nodes for their metrics, which it gets through TLS only."""
    done = run(cluster, "cluster", "rotate-secret", str(cluster.directory / "secret"))
    assert (done.returncode, "the secret was exchanged" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/nowhere"])
def test_the_health_check_of_containers_works(cluster: LocalCluster, path: str) -> None:
    """With the certificate of the node, which is one that nodes let in."""
    node = cluster.nodes()[0]
    cert, key = cluster_file.certificate(cluster.directory, node.id)
    settings = {
        "HOLDFAST_HTTP": urlsplit(node.http).netloc,
        "HOLDFAST_TLS_CERT": str(cert),
        "HOLDFAST_TLS_KEY": str(key),
    }
    command = [str(PROJECT / "deploy" / "health-check"), path]
    done = subprocess.run(command, env=os.environ | settings, check=False, timeout=DEADLINE_S)
    assert (done.returncode == 0) == (path != "/nowhere")


async def test_clients_outlive_the_leader(cluster: LocalCluster) -> None:
    """Locks are taken and released while the leader is killed and comes back; a watch goes on."""
    nodes = [node.http for node in cluster.nodes()]
    async with holdfast.Client(nodes, tls=tls_of(cluster), timeout=60) as client:
        watch = client.watch("a")
        await watch.begin()
        tokens = []
        leader = await asyncio.to_thread(cluster.leader)
        for count in range(30):
            async with client.lock("a") as hold:
                tokens.append(hold.token)
            if count == 10:
                await asyncio.to_thread(cluster.kill, leader)
        assert tokens == sorted(set(tokens))
        async with asyncio.timeout(DEADLINE_S):
            seen = [event.token async for event in _first(watch, 30)]
        assert seen == tokens
        await watch.close()
    await asyncio.to_thread(cluster.restart, leader)
    await asyncio.to_thread(cluster.wait_ready)


async def _first(watch: holdfast.Watch, count: int) -> AsyncIterator[holdfast.Event]:
    """Yield the first grants."""
    async for event in watch:
        if event.event == "granted":
            yield event
            count -= 1
        if not count:
            return


def test_threads_and_a_forked_child(cluster: LocalCluster) -> None:
    """The client for threads, also in a child, which gets connections of its own."""
    nodes = [node.http for node in cluster.nodes()]
    with holdfast.SyncClient(nodes, tls=tls_of(cluster)) as client, client.lock("parent"):
        pid = os.fork()
        if pid == 0:
            try:
                with client.lock("child"):
                    os._exit(7)
            finally:
                os._exit(1)
        _, code = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(code) == 7
        assert client.get_lock("parent").state == "held"


def test_a_node_that_joins_gets_its_certificate(cluster: LocalCluster) -> None:
    """So does every node that the cluster is given later."""
    cluster_file.make_node(cluster.directory, "n4")
    joined = cluster.node("n4")
    assert joined.http.startswith("https://")
    assert all(path.exists() for path in cluster_file.certificate(cluster.directory, "n4"))
    cluster_file.forget_node(cluster.directory, "n4")


def take_step(cluster: LocalCluster, scheme: str, *arguments: str) -> None:
    """Restart one node after the other with these arguments; clients use this scheme from now on."""
    document = cluster_file.read(cluster.directory)
    document["extra_args"] = [*PATIENT, *arguments]
    for node in document["nodes"]:
        node["http"] = f"{scheme}://{urlsplit(node['http']).netloc}"
    cluster_file.write(cluster.directory / cluster_file.FILE, document)
    for node_id in [*followers(cluster), cluster.leader()]:
        cluster.restart(node_id)
        wait_whole(cluster)


async def test_a_running_cluster_goes_over_to_tls(tmp_path: Path) -> None:
    """Nodes first, then clients, one by one, then nothing else is served: no request fails on the way."""
    cluster_file.create(tmp_path / "cluster", 3, 0, PATIENT, tls=True)
    cluster = LocalCluster(tmp_path / "cluster")
    document = cluster_file.read(cluster.directory)
    for node in document["nodes"]:
        node["http"] = node["http"].replace("https:", "http:")
    cluster_file.write(cluster.directory / cluster_file.FILE, document)
    cert, key = cluster_file.certificate(cluster.directory, "n1")
    files = ("--tls-cert", str(cert), "--tls-key", str(key))
    with LocalCluster.up(cluster.directory) as cluster:
        wait_whole(cluster)
        plain = urls(cluster)
        sealed = [url.replace("http:", "https:") for url in plain]
        async with Load(plain, prefix="plain") as old:
            await asyncio.to_thread(take_step, cluster, "http", *files, "--tls", "accept")
            tls = holdfast.Tls(cluster_file.certificate(cluster.directory, "ca")[0])
            async with Load(sealed, prefix="sealed", tls=tls) as new:
                await old.grants(30)
                await new.grants(30)
        logs = [LogSince(cluster, node_id) for node_id in node_ids(cluster)]
        tls = holdfast.Tls(tls.ca, *cluster_file.certificate(cluster.directory, cluster_file.CLIENT))
        async with Load(sealed, prefix="only", tls=tls) as last:
            await asyncio.to_thread(take_step, cluster, "https")
            await last.grants(30)
        for load in (old, new, last):
            assert history_checkers.violations(load.history) == []
            assert history_checkers.errors(load.history) == []
        assert not [log for log in logs if log.lines("event=tls-not-used")]
        with pytest.raises(holdfast.Unavailable, match="https"):
            async with holdfast.Client(plain, timeout=2) as client:
                await client.get_lock("only/shared/0")
