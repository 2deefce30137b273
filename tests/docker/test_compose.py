"""The Compose cluster as a user starts it: real containers, the leader's one killed while a lock is held.

The module builds the image (and the base image, where it cannot be pulled), runs deploy/compose.yaml under a
project name and on ports of its own, and removes containers, network and volumes whatever happens.
"""

import contextlib
import http.client
import json
import os
import secrets
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from scripts.lib import guardian

pytestmark = pytest.mark.docker

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
COMPOSE_FILE = ROOT / "deploy" / "compose.yaml"
NODE_IDS = ("n1", "n2", "n3")
DEADLINE_S = 90
"""For anything to become true in containers on a slow machine; usually it takes a second or two."""

_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""No proxy of the environment stands between a test and loopback."""


def run(*command: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return what it said, whether it succeeded or not."""
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def docker(*arguments: str) -> str:
    """Run docker and return its output; fail with what it said."""
    done = run("docker", *arguments)
    assert done.returncode == 0, f"docker {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def compose_command() -> list[str]:
    """Return the Compose of this machine, the new or the old one; skip the test when there is none."""
    if shutil.which("docker") is None or run("docker", "info").returncode != 0:
        pytest.skip("no Docker engine answers `docker info`")
    if run("docker", "compose", "version").returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose") is None:
        pytest.skip("neither `docker compose` nor docker-compose is installed")
    return ["docker-compose"]


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in listeners]


def wait_for(what: str, probe: Callable[[], T | None]) -> T:
    """Return the first value of `probe` that is not None; fail when there is none before the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while (value := probe()) is None:
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.2)
    return value


class Cluster:
    """Three containers of one Compose project."""

    def __init__(self, command: list[str], image: str) -> None:
        self.project = f"holdfast-test-{secrets.token_hex(4)}"
        self.ports = dict(zip(NODE_IDS, free_ports(len(NODE_IDS)), strict=True))
        self._command = [*command, "--project-name", self.project, "--file", str(COMPOSE_FILE)]
        self._env = {
            **os.environ,
            "HOLDFAST_IMAGE": image,
            "HOLDFAST_SECRET": secrets.token_hex(32),
            **{f"HOLDFAST_PORT_{node_id.upper()}": str(port) for node_id, port in self.ports.items()},
        }

    def compose(self, *arguments: str) -> str:
        """Run Compose on this project; fail with what it said."""
        done = run(*self._command, *arguments, env=self._env)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    def remove_if_killed(self) -> None:
        """Let containers, network and volumes end with this test run, also when it is killed."""
        ours = [f"{name}={value}" for name, value in self._env.items() if name.startswith("HOLDFAST_")]
        guardian.run_if_killed(["env", *ours, *self._command, "down", "--volumes", "--remove-orphans"])

    def print_logs(self) -> None:
        """Print the end of the logs of all nodes; pytest shows it when a test failed."""
        print(self.compose("logs", "--no-color", "--tail", "200"))

    def container(self, node_id: str) -> str:
        """Return the id of the container of a node, running or not."""
        label = "label=com.docker.compose"
        filters = ("--filter", f"{label}.project={self.project}", "--filter", f"{label}.service={node_id}")
        return docker("ps", "--all", "--quiet", *filters)

    def health(self, node_id: str) -> bool | None:
        """Return True once the health check of a node succeeds, and None before."""
        status = docker("inspect", "--format", "{{.State.Health.Status}}", self.container(node_id))
        return True if status == "healthy" else None

    def call(self, node_id: str, path: str, body: object = None) -> dict[str, Any] | None:
        """Return what a node answers to a GET, or to a POST of `body`; None for no answer or a refusal."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports[node_id]}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with _direct.open(request, timeout=10) as response:
                answer: dict[str, Any] = json.load(response)
                return answer
        except urllib.error.HTTPError as refusal:
            refusal.close()
            return None
        except (OSError, http.client.HTTPException):  # nobody there, or a connection lost on the way
            return None

    def follows(self, node_id: str) -> bool | None:
        """Return True once a node is ready and names the same leader as all others, and None before."""
        try:
            with _direct.open(f"http://127.0.0.1:{self.ports[node_id]}/readyz", timeout=10):
                return True if self.leader() else None
        except urllib.error.HTTPError as not_ready:
            not_ready.close()
            return None
        except (OSError, http.client.HTTPException):
            return None

    def leader(self, among: tuple[str, ...] = NODE_IDS) -> str | None:
        """Return the leader when all nodes of `among` name the same one, and it is one of them."""
        named = {(self.call(node_id, "/v1/cluster") or {}).get("leader") for node_id in among}
        return named.pop() if len(named) == 1 and named <= set(among) else None


@pytest.fixture(scope="module")
def compose() -> list[str]:
    """Return the Compose command, or skip."""
    return compose_command()


@pytest.fixture(scope="module")
def cluster(compose: list[str]) -> Iterator[Cluster]:
    """Yield a running cluster that has a leader."""
    image = f"holdfast:test-{secrets.token_hex(4)}"
    built = run(str(ROOT / "deploy" / "build-image"), image)
    assert built.returncode == 0, built.stdout + built.stderr
    guardian.run_if_killed(["docker", "rmi", "--force", image])
    cluster = Cluster(compose, image)
    cluster.remove_if_killed()
    with contextlib.ExitStack() as stack:
        stack.callback(docker, "rmi", "--force", image)
        stack.callback(cluster.compose, "down", "--volumes", "--remove-orphans", "--timeout", "20")
        stack.callback(cluster.print_logs)
        cluster.compose("up", "--detach")
        wait_for("three nodes agree on a leader", cluster.leader)
        yield cluster


def test_lock_outlives_the_leaders_container(cluster: Cluster) -> None:
    """A lock is held with the same token after the leader's container is killed, and the node comes back."""
    leader = wait_for("a leader", cluster.leader)
    others = tuple(node_id for node_id in NODE_IDS if node_id != leader)
    acquire = {"name": "migration", "owner": "test", "ttl_ms": 600_000, "request_id": secrets.token_hex(8)}
    granted = wait_for("a grant", partial(cluster.call, others[0], "/v1/locks/acquire", acquire))

    docker("kill", cluster.container(leader))
    successor = wait_for("another leader", lambda: cluster.leader(others))
    assert successor != leader
    for node_id in others:
        lock = wait_for("a read", partial(cluster.call, node_id, "/v1/locks/migration"))
        assert lock["state"] == "held"
        assert [(holder["owner"], holder["token"]) for holder in lock["holders"]] == [
            ("test", granted["token"])
        ]

    # Whether the restart policy applies after `docker kill` differs between engines.
    docker("start", cluster.container(leader))
    wait_for("the killed node follows", partial(cluster.follows, leader))
    release = {"hold_id": granted["hold_id"], "request_id": secrets.token_hex(8)}
    released = wait_for("a release", partial(cluster.call, leader, "/v1/locks/release", release))
    assert released["released"] is True
    acquire["request_id"] = secrets.token_hex(8)
    again = wait_for("a new grant", partial(cluster.call, leader, "/v1/locks/acquire", acquire))
    assert again["token"] > granted["token"]


def test_containers_become_healthy(cluster: Cluster) -> None:
    """The health check of the image succeeds in every container."""
    for node_id in NODE_IDS:
        wait_for(f"{node_id} is healthy", partial(cluster.health, node_id))


def test_nodes_do_not_run_as_root(cluster: Cluster) -> None:
    """The process of every node has the user id 7700 and no capabilities."""
    for node_id in NODE_IDS:
        status = docker("exec", cluster.container(node_id), "cat", "/proc/1/status")
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert fields["Uid"].split() == ["7700"] * 4
        assert int(fields["CapEff"], 16) == 0


def test_compose_refuses_to_start_without_a_secret(compose: list[str], tmp_path: Path) -> None:
    """Without a secret Compose stops with a message that says where to put one."""
    env = {name: value for name, value in os.environ.items() if name != "HOLDFAST_SECRET"}
    (tmp_path / "empty.env").touch()
    told = run(
        *compose, "--env-file", str(tmp_path / "empty.env"), "--file", str(COMPOSE_FILE), "config", env=env
    )
    assert told.returncode != 0
    assert "deploy/.env" in told.stdout + told.stderr
