"""Running Compose clusters for tests; skipped with the reason where there is no engine."""

import contextlib
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lib import guardian
from tests.docker.compose_cluster import NODE_IDS, ROOT, Cluster, compose_command, docker, run, wait_for


@pytest.fixture(scope="session")
def compose() -> list[str]:
    """Return the Compose command, or skip."""
    return compose_command()


@pytest.fixture(scope="session")
def image(compose: list[str]) -> Iterator[str]:
    """Build the image of this checkout, under a name of this test run's own."""
    assert compose  # else there is no engine
    name = f"holdfast:test-{secrets.token_hex(4)}"
    built = run(str(ROOT / "deploy" / "build-image"), name)
    assert built.returncode == 0, built.stdout + built.stderr
    guardian.run_if_killed(["docker", "rmi", "--force", name])
    yield name
    docker("rmi", "--force", name)


@pytest.fixture(scope="session")
def deb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Debian package of this checkout."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("needs dpkg-deb: the package is built on Debian or Ubuntu")
    built = run(str(ROOT / "deploy/build-deb"), str(tmp_path_factory.mktemp("deb")))
    assert built.returncode == 0, built.stdout + built.stderr
    return Path(built.stdout.strip())


@pytest.fixture(scope="module")
def cluster(compose: list[str], image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a running cluster that has a leader."""
    cluster = Cluster(compose, image, tmp_path_factory.mktemp("compose"))
    cluster.remove_if_killed()
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.compose, "down", "--volumes", "--remove-orphans", "--timeout", "20")
        stack.callback(cluster.print_logs)
        cluster.compose("up", "--detach", *NODE_IDS)
        wait_for("three nodes agree on a leader", cluster.leader)
        yield cluster
