"""A Compose project of the lab: deploy/compose.yaml under a name of its own, so no other cluster is touched.

As a program it removes a project: `python -m lab.chaos.targets.compose_project NAME`. The guard of a
killed lab runs that.
"""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from lab.chaos.targets.target import LabFailure
from scripts.lib import ports

ROOT: Final = Path(__file__).resolve().parents[3]
FILES: Final = (ROOT / "deploy" / "compose.yaml", ROOT / "deploy" / "compose.n4.yaml")
NODE_IDS: Final = ("n1", "n2", "n3")
NEW_ID: Final = "n4"
"""The node of deploy/compose.n4.yaml."""
PREFIX: Final = "holdfast-chaos-"
"""How the names of the lab's projects begin; the lab's pid and random digits follow."""
LABEL: Final = "com.docker.compose.project"
"""What Compose, old and new, writes on all it makes."""
COMMAND_S: Final = 120.0
"""Seconds that one command of the engine may take."""
STOP_S: Final = 30
"""Seconds that a node has to stop, as `stop_grace_period` of deploy/compose.yaml."""
REMOVE_S: Final = 40.0
"""Seconds within which a project is gone: less than a guard gives its cleanup commands."""


def run(
    *command: str, variables: Mapping[str, str] | None = None, timeout_s: float = COMMAND_S
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, whatever that is. Raises LabFailure if it does not end in time."""
    try:
        return subprocess.run(
            command,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise LabFailure(f"not done within {timeout_s:.0f} s: {' '.join(command)}") from error


def docker(*arguments: str) -> str:
    """Run docker; return what it said. Raises LabFailure with the reason if it failed."""
    return _output(run("docker", *arguments), " ".join(("docker", *arguments)))


def _output(done: subprocess.CompletedProcess[str], command: str) -> str:
    """Return what a command has printed. Raises LabFailure if it failed."""
    if done.returncode != 0:
        raise LabFailure(f"{command}: exit code {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip()


def compose_command() -> list[str]:
    """Return the Compose of this machine, the new or the old one. Raises LabFailure if there is none."""
    if shutil.which("docker") is None:
        raise LabFailure("docker is not installed; `--target processes` needs none")
    info = run("docker", "info", "--format", "{{.ServerVersion}}")
    if info.returncode != 0:
        raise LabFailure(f"no Docker engine answers, start it: {info.stderr.strip()}")
    if run("docker", "compose", "version").returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose") is None:
        raise LabFailure("neither `docker compose` nor docker-compose (1.27 or newer) is installed")
    return ["docker-compose"]


def check_image(image: str) -> None:
    """Raise LabFailure unless the engine has an image."""
    if run("docker", "image", "inspect", image).returncode != 0:
        raise LabFailure(
            f"there is no image {image}: build it with deploy/build-image, or name one in HOLDFAST_IMAGE"
        )


class ComposeProject:
    """The containers of three nodes, and of a fourth that may join."""

    def __init__(self, command: Sequence[str], image: str) -> None:
        """`command` is that of Compose. Nothing is started yet."""
        self.name = f"{PREFIX}{os.getpid()}-{secrets.token_hex(3)}"
        node_ids = (*NODE_IDS, NEW_ID)
        self.ports: Mapping[str, int] = dict(zip(node_ids, ports.reserve(len(node_ids)), strict=True))
        self._command = [*command, "--project-name", self.name]
        for file in FILES:
            self._command += ["--file", str(file)]
        self._variables = {
            # All of them, so that nothing of the user's environment or of deploy/.env counts.
            "HOLDFAST_IMAGE": image,
            "HOLDFAST_SECRETS": str(secret_file(self.name).parent),
            "HOLDFAST_LOG_LEVEL": "info",
            **{f"HOLDFAST_JOIN_{node_id.upper()}": "false" for node_id in NODE_IDS},
            **{f"HOLDFAST_PORT_{node_id.upper()}": str(port) for node_id, port in self.ports.items()},
        }

    def compose(self, *arguments: str, **variables: str) -> str:
        """Run Compose on this project, with further variables; return what it said. Raises LabFailure."""
        done = run(*self._command, *arguments, variables={**self._variables, **variables})
        return _output(done, " ".join(("compose", *arguments)))

    def up(self, *node_ids: str, **variables: str) -> None:
        """Create the containers of nodes, anew if their variables have changed, and start them."""
        make_secret(secret_file(self.name))
        self.compose("up", "--detach", "--no-deps", *node_ids, **variables)

    def remove_container(self, node_id: str) -> None:
        """Stop a node, and remove its container."""
        self.compose("rm", "--stop", "--force", node_id)

    def remove_volume(self, node_id: str) -> None:
        """Remove the data of a node that has no container."""
        docker("volume", "rm", f"{self.name}_{node_id}")

    def holdfast(self, node_id: str, *arguments: str) -> str:
        """Run the command `holdfast` in the container of a node that runs. Raises LabFailure."""
        url = f"http://{node_id}:7700"
        return self.compose("exec", "-T", node_id, "holdfast", "--nodes", url, *arguments)

    def container(self, node_id: str) -> str:
        """Return the id of a node's container, running or not. Raises LabFailure if there is none."""
        service = f"label=com.docker.compose.service={node_id}"
        found = docker(
            "ps", "--all", "--quiet", "--filter", f"label={LABEL}={self.name}", "--filter", service
        )
        if not found:
            raise LabFailure(f"{node_id} has no container")
        return found

    def state(self, node_id: str, field: str) -> str:
        """Return a field of what the engine knows of a container, such as `.State.Paused`."""
        return docker("inspect", "--format", f"{{{{{field}}}}}", self.container(node_id))

    def logs(self, node_id: str, lines: int | None = None) -> str:
        """Return what the present container of a node has logged, or the last lines of it."""
        tail = ("--tail", str(lines)) if lines is not None else ()
        done = run("docker", "logs", *tail, self.container(node_id))
        return done.stdout + done.stderr

    def disconnect(self, node_id: str) -> None:
        """Take a container off its network. The port that it has published goes with it."""
        docker("network", "disconnect", f"{self.name}_default", self.container(node_id))

    def connect(self, node_id: str) -> None:
        """Put a container on its network again, under the name by which others know it."""
        network = f"{self.name}_default"
        if network not in self.state(node_id, "json .NetworkSettings.Networks"):
            docker("network", "connect", "--alias", node_id, network, self.container(node_id))

    def removal_command(self) -> list[str]:
        """Return a command that removes this project, for when nobody else is left to do it."""
        program = [sys.executable, "-P", "-m", "lab.chaos.targets.compose_project", self.name]
        return ["env", f"PYTHONPATH={ROOT}", *program]


def secret_file(name: str) -> Path:
    """Return where the secret of a project is, in a folder of its own."""
    return Path(tempfile.gettempdir()) / name / "secret"


def make_secret(path: Path) -> None:
    """Write a secret, if there is none yet, where only we get at it, and the user of the containers."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if not path.exists():
        path.write_text(secrets.token_hex(32))
        path.chmod(0o644)


def remove(name: str) -> None:
    """Remove all that a project has, its secret too. Raises LabFailure when something stays."""
    shutil.rmtree(secret_file(name).parent, ignore_errors=True)
    deadline_s = time.monotonic() + REMOVE_S
    while sum(_remove_all(name, kind) for kind in _KINDS):  # what was being made may come a moment later
        if time.monotonic() > deadline_s:
            raise LabFailure(
                f"something of project {name} cannot be removed: docker ps --filter label={LABEL}={name}"
            )
        time.sleep(0.2)


_KINDS: Final[Mapping[str, tuple[list[str], list[str]]]] = {
    "container": (["ps", "--all", "--no-trunc"], ["rm", "--force", "--volumes"]),
    "network": (["network", "ls"], ["network", "rm"]),
    "volume": (["volume", "ls"], ["volume", "rm", "--force"]),
}
"""What a project consists of, in the order of removal: how it is listed, and how it is removed."""


def _remove_all(name: str, kind: str) -> int:
    """Try to remove all of a kind that a project has; return how many there were."""
    listing, removal = _KINDS[kind]
    found = docker(*listing, "--quiet", "--filter", f"label={LABEL}={name}").split()
    if found:
        run("docker", *removal, *found)  # what is in use still goes the next time
    return len(found)


def leftovers() -> list[str]:
    """Return the projects of labs whose process is gone. Raises LabFailure if the engine does not say."""
    names: set[str] = set()
    for listing, _ in _KINDS.values():
        label = f'{{{{.Label "{LABEL}"}}}}'
        names |= set(docker(*listing, "--filter", f"label={LABEL}", "--format", label).split())
    return orphans(names, lambda pid: Path(f"/proc/{pid}").exists())


def orphans(names: Iterable[str], is_alive: Callable[[str], bool]) -> list[str]:
    """Return those names of projects that belong to labs, of which no process is alive, in order."""
    found = []
    for name in names:
        pid, dash, _ = name.removeprefix(PREFIX).partition("-")
        if name.startswith(PREFIX) and pid.isdigit() and dash and not is_alive(pid):
            found.append(name)
    return sorted(found)


if __name__ == "__main__":
    remove(sys.argv[1])
