"""TLS and tokens in containers, as deploy/compose.tls.yaml has them: no node is open, nor begins without.

Nodes speak TLS with each other as well, and a cluster that does not yet goes over while it runs.
"""

import asyncio
import os
import re
import secrets
import shutil
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from holdfast import Tls
from tests.docker.compose_cluster import NODE_IDS, ROOT, Cluster, docker, run, wait_for
from tests.process import history_checkers
from tests.process.load import Load

pytestmark = pytest.mark.docker

TLS_FILE = ROOT / "deploy" / "compose.tls.yaml"
USER = 7700
"""Whom nodes run as in their containers."""


def make_files(directory: Path) -> None:
    """Make certificates, a token and the file by which nodes know it, as deploy/README.md says."""
    holdfast = (sys.executable, "-m", "holdfast")
    made = [run(*holdfast, "cert", "ca", "--dir", str(directory))]
    for node_id in NODE_IDS:
        names = (node_id, node_id, "localhost", "127.0.0.1")
        made.append(run(*holdfast, "cert", "node", *names, "--dir", str(directory)))
        os.chown(directory / f"{node_id}-key.pem", USER, -1)
    peers = directory / "peers"
    made.append(run(*holdfast, "cert", "ca", "--dir", str(peers)))
    for node_id in NODE_IDS:
        made.append(run(*holdfast, "cert", "peer", node_id, "--cluster", "compose", "--dir", str(peers)))
        os.chown(peers / f"{node_id}-peer-key.pem", USER, -1)
    rights = "read,acquire,force,admin,metrics"
    made.append(run(*holdfast, "token", "new", "ops", rights, "--out", str(directory / "ops.token")))
    assert [done.returncode for done in made] == [0] * len(made), made
    (directory / "tokens").write_text(made[-1].stdout)


@pytest.fixture(scope="module")
def tls_cluster(
    compose: list[str], image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Yield containers that speak TLS; they may be starting still."""
    if os.geteuid() != 0:
        pytest.skip("only root can give the keys to the user of the containers")
    directory = tmp_path_factory.mktemp("secrets")
    make_files(directory)
    cluster = Cluster(compose, image, directory, further=[TLS_FILE])
    cluster.remove_if_killed()
    try:
        cluster.compose("up", "--detach", *NODE_IDS)
        yield cluster
    finally:
        cluster.print_logs()
        cluster.compose("down", "--volumes", "--remove-orphans", "--timeout", "20")


def holdfast(cluster: Cluster, *arguments: str, token: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command line against the containers."""
    directory = cluster.secret_file.parent
    env = os.environ | {"HOLDFAST_CA": str(directory / "ca.pem")}
    if token:
        env["HOLDFAST_ACCESS_TOKEN_FILE"] = str(directory / "ops.token")
    urls = ",".join(f"https://127.0.0.1:{cluster.ports[node_id]}" for node_id in NODE_IDS)
    return run(sys.executable, "-m", "holdfast", "--nodes", urls, *arguments, env=env)


def test_who_has_a_token_may_lock(tls_cluster: Cluster) -> None:
    """Over TLS, and nobody else; the health checks need none."""
    for node_id in NODE_IDS:
        wait_for(f"{node_id} is healthy", partial(tls_cluster.health, node_id))
        wait_for(f"{node_id} is ready", partial(tls_cluster.ready, node_id))
    name = f"lock-{secrets.token_hex(4)}"
    assert holdfast(tls_cluster, "run", name, "--", "true").returncode == 0
    assert holdfast(tls_cluster, "run", name, "--", "true", token=False).returncode == 119
    assert tls_cluster.call("n1", "/livez") is None, "there is no HTTP without TLS"


def logs(cluster: Cluster, node_id: str) -> str:
    """Return what the present container of a node has logged."""
    done = run("docker", "logs", cluster.container(node_id))
    return done.stdout + done.stderr


def plain_links(cluster: Cluster, node_id: str) -> int:
    """Return how many links without TLS a node has to others, as its metrics tell."""
    directory = cluster.secret_file.parent
    request = urllib.request.Request(
        f"https://127.0.0.1:{cluster.ports[node_id]}/metrics",
        headers={"Authorization": f"Bearer {(directory / 'ops.token').read_text().strip()}"},
    )
    trusted = ssl.create_default_context(cafile=directory / "ca.pem")
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted)
    )
    with opener.open(request, timeout=10) as answer:
        (count,) = re.findall(r"^holdfast_peer_links_plain (\d+)", answer.read().decode(), re.MULTILINE)
    return int(count)


def test_nothing_is_open(tls_cluster: Cluster) -> None:
    """Neither to clients nor between nodes: no node warns of an address, or has a link without TLS."""
    for node_id in NODE_IDS:
        wait_for(f"{node_id} is ready", partial(tls_cluster.ready, node_id))
        assert "event=insecure-address" not in logs(tls_cluster, node_id)
        assert "event=peer-tls-not-required" not in logs(tls_cluster, node_id)
        assert plain_links(tls_cluster, node_id) == 0


def test_the_port_of_nodes_wants_their_certificates(tls_cluster: Cluster) -> None:
    """On their network too: who has none, or one for clients, does not get past TLS; a node does."""
    wait_for("n1 is ready", partial(tls_cluster.ready, "n1"))
    ours = "-cert /run/secrets/peer_cert -key /run/secrets/peer_key"
    clients = "-cert /run/secrets/tls_cert -key /run/secrets/tls_key"
    for shown, is_let_in in ((ours, True), (clients, False), ("", False)):
        # With TLS 1.3 a client hears of its certificate after its own handshake: it has to read on.
        asked = f"(sleep 2; echo) | timeout 8 openssl s_client -connect n1:7800 {shown} 2>&1"
        said = docker("exec", tls_cluster.container("n2"), "bash", "-c", f"{asked} || true")
        assert "TLSv1.3" in said
        assert ("SSL alert number" not in said) == is_let_in, said


def test_no_key_and_no_token_is_told(tls_cluster: Cluster) -> None:
    """Neither by the engine nor by the log."""
    directory = tls_cluster.secret_file.parent
    done = run("docker", "logs", tls_cluster.container("n1"))
    told = docker("inspect", tls_cluster.container("n1")) + done.stdout + done.stderr
    for file in ("ops.token", "secret", "n1-key.pem", "peers/n1-peer-key.pem"):
        assert (directory / file).read_text().strip() not in told


def test_a_node_without_its_files_is_held(tls_cluster: Cluster) -> None:
    """It does not start as one that is open."""
    directory = tls_cluster.secret_file.parent
    shutil.copy(directory / "tokens", directory / "kept")
    (directory / "tokens").write_text("")
    tls_cluster.compose("restart", "n3")

    def held() -> bool | None:
        return True if "event=held exit_code=2" in logs(tls_cluster, "n3") else None

    wait_for("n3 is held", held)
    (directory / "tokens").write_text((directory / "kept").read_text())
    tls_cluster.compose("restart", "n3")
    wait_for("n3 is ready again", partial(tls_cluster.ready, "n3"))


OPEN = {"HOLDFAST_TLS": "accept", "HOLDFAST_INSECURE_HTTP": "true", "HOLDFAST_INSECURE_PEERS": "true"}


def replace_containers(cluster: Cluster, **variables: str) -> None:
    """Start one node after the other with these variables."""
    for node_id in NODE_IDS:
        cluster.compose("up", "--detach", "--no-deps", node_id, **variables)
        wait_for(f"{node_id} is ready with {variables}", partial(cluster.ready, node_id))


async def test_a_running_cluster_goes_over(
    compose: list[str], image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In three rounds of restarts, as deploy/README.md says: no request fails, and all links have TLS."""
    if os.geteuid() != 0:
        pytest.skip("only root can give the keys to the user of the containers")
    make_files(tmp_path)
    monkeypatch.setenv("HOLDFAST_ACCESS_TOKEN_FILE", str(tmp_path / "ops.token"))
    cluster = Cluster(compose, image, tmp_path)
    cluster.remove_if_killed()
    try:
        cluster.compose("up", "--detach", *NODE_IDS)
        wait_for("a leader", cluster.leader)
        plain = [f"http://127.0.0.1:{cluster.ports[node_id]}" for node_id in NODE_IDS]
        sealed = [url.replace("http:", "https:") for url in plain]
        tls = Tls(tmp_path / "ca.pem")
        cluster.add_file(TLS_FILE)
        async with Load(plain, prefix="plain", keep_every=20) as old:
            await asyncio.to_thread(replace_containers, cluster, HOLDFAST_PEER_TLS="accept", **OPEN)
            await asyncio.to_thread(replace_containers, cluster, HOLDFAST_PEER_TLS="dial", **OPEN)
            await old.grants(30)
        async with Load(sealed, prefix="sealed", keep_every=20, tls=tls) as new:
            await asyncio.to_thread(replace_containers, cluster)
            await new.grants(30)
        for load in (old, new):
            assert history_checkers.violations(load.history) == []
            assert history_checkers.errors(load.history) == []
        for node_id in NODE_IDS:
            assert plain_links(cluster, node_id) == 0
        assert cluster.call("n1", "/livez") is None, "there is no HTTP without TLS"
    finally:
        cluster.print_logs()
        cluster.compose("down", "--volumes", "--remove-orphans", "--timeout", "20")
