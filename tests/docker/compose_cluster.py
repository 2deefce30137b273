"""A Compose cluster for tests: deploy/compose.yaml under a project name and on ports of its own."""

import contextlib
import http.client
import json
import os
import secrets
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from scripts.lib import guardian, ports

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
COMPOSE_FILE = ROOT / "deploy" / "compose.yaml"
FOURTH_FILE = ROOT / "deploy" / "compose.n4.yaml"
NODE_IDS = ("n1", "n2", "n3")
NEW_ID = "n4"
"""The node of deploy/compose.n4.yaml."""
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


def wait_for(what: str, probe: Callable[[], T | None]) -> T:
    """Return the first value of `probe` that is not None; fail when there is none before the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while (value := probe()) is None:
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.2)
    return value


class Cluster:
    """Three containers of one Compose project."""

    def __init__(
        self, command: list[str], image: str, directory: Path, *, further: Sequence[Path] = ()
    ) -> None:
        """Be the containers of an image; `directory` has the files that they are given."""
        self.secret_file = directory / "secret"
        self.secret_file.write_text(secrets.token_hex(32))
        self.secret_file.chmod(0o644)  # for the user of the container, who is nobody here
        self.project = f"holdfast-test-{secrets.token_hex(4)}"
        node_ids = (*NODE_IDS, NEW_ID)
        self.ports = dict(zip(node_ids, ports.reserve(len(node_ids)), strict=True))
        self._command = [*command, "--project-name", self.project]
        for file in (COMPOSE_FILE, FOURTH_FILE, *further):
            self._command += ["--file", str(file)]
        self._env = {
            **os.environ,
            "HOLDFAST_IMAGE": image,
            "HOLDFAST_SECRETS": str(directory),
            **{f"HOLDFAST_PORT_{node_id.upper()}": str(port) for node_id, port in self.ports.items()},
        }

    def compose(self, *arguments: str, **variables: str) -> str:
        """Run Compose on this project, with further variables; fail with what it said."""
        done = run(*self._command, *arguments, env={**self._env, **variables})
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    def add_file(self, file: Path) -> None:
        """Take one more file of Compose into account from now on."""
        self._command += ["--file", str(file)]

    @contextlib.contextmanager
    def further_file(self, file: Path) -> Iterator[None]:
        """Take one more file of Compose into account while this lasts."""
        before = [*self._command]
        self.add_file(file)
        try:
            yield
        finally:
            self._command = before

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

    def members(self, node_id: str) -> dict[str, str]:
        """Return the state of each member as a node sees it; none if it does not answer."""
        nodes = (self.call(node_id, "/v1/cluster") or {}).get("nodes", [])
        return {node["id"]: node["state"] for node in nodes}

    def ready(self, node_id: str) -> bool | None:
        """Return True once the check of a container says that its node is ready, and None before."""
        return (
            True
            if run("docker", "exec", self.container(node_id), "health-check", "/readyz").returncode == 0
            else None
        )
