"""TLS and tokens in containers, as deploy/compose.tls.yaml has them: no node is open, nor begins without."""

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.docker.compose_cluster import NODE_IDS, ROOT, Cluster, docker, run, wait_for

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
    assert holdfast(tls_cluster, "run", name, "--", "true", token=False).returncode == 124
    assert tls_cluster.call("n1", "/livez") is None, "there is no HTTP without TLS"


def test_clients_are_not_warned_of(tls_cluster: Cluster) -> None:
    """Only the way between nodes is open to those on it."""
    done = run("docker", "logs", tls_cluster.container("n1"))
    said = [line for line in (done.stdout + done.stderr).splitlines() if "event=insecure-address" in line]
    assert said
    assert all("detail='peer: " in line for line in said)


def test_no_key_and_no_token_is_told(tls_cluster: Cluster) -> None:
    """Neither by the engine nor by the log."""
    directory = tls_cluster.secret_file.parent
    done = run("docker", "logs", tls_cluster.container("n1"))
    told = docker("inspect", tls_cluster.container("n1")) + done.stdout + done.stderr
    for file in ("ops.token", "secret", "n1-key.pem"):
        assert (directory / file).read_text().strip() not in told


def test_a_node_without_its_files_is_held(tls_cluster: Cluster) -> None:
    """It does not start as one that is open."""
    directory = tls_cluster.secret_file.parent
    shutil.copy(directory / "tokens", directory / "kept")
    (directory / "tokens").write_text("")
    tls_cluster.compose("restart", "n3")

    def held() -> bool | None:
        done = run("docker", "logs", tls_cluster.container("n3"))
        return True if "event=held exit_code=2" in done.stdout + done.stderr else None

    wait_for("n3 is held", held)
    (directory / "tokens").write_text((directory / "kept").read_text())
    tls_cluster.compose("restart", "n3")
    wait_for("n3 is ready again", partial(tls_cluster.ready, "n3"))
