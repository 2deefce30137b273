"""Machines with a systemd of their own, for tests: containers of Debian in which it is the first process."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from scripts.lib import guardian
from tests.docker.compose_cluster import ROOT, docker, run, wait_for

IMAGE: Final = "holdfast-systemd:bookworm"
"""What deploy/base-image builds with these packages. It stays for the next run, as the base image does."""
PACKAGES: Final = "adduser,dbus,systemd,systemd-sysv"
CONTAINER: Final = [
    "--cap-add=ALL", "--cap-drop=SYS_RESOURCE", "--security-opt=seccomp=unconfined",
    "--security-opt=apparmor=unconfined", "--cgroupns=private", "--tmpfs=/run", "--tmpfs=/run/lock",
    "--tmpfs=/tmp", "--env=container=docker",
]  # fmt: skip
"""What systemd needs of a container. Some engines cannot give SYS_RESOURCE."""
INIT: Final = (
    "for group in /sys/fs/cgroup /sys/fs/cgroup/*; do mount -o remount,bind,rw $group; done; exec /sbin/init"
)
"""It bounds services by control groups, which a container sees as read only."""


class Machine:
    """A running machine."""

    def __init__(self, name: str) -> None:
        """Be the container of that name."""
        self.name = name

    def on(self, command: str, *, code: int = 0) -> str:
        """Run a shell's command as root, which ends with this code; return what it says."""
        done = run("docker", "exec", self.name, "sh", "-c", command)
        said = done.stdout + done.stderr
        assert done.returncode == code, f"{command}\n{said}\n{self.journal()}"
        return said.strip()

    def show(self, *names: str, unit: str = "holdfast") -> list[str]:
        """Return properties of a unit."""
        said = self.on(f"systemctl show --property {','.join(names)} {unit}")
        found = dict(line.split("=", 1) for line in said.splitlines())
        return [found[name] for name in names]

    def journal(self) -> str:
        """Return the last lines of the node's journal."""
        return run(
            "docker", "exec", self.name, "journalctl", "--no-pager", "-n", "50", "-u", "holdfast"
        ).stdout

    def processes(self) -> str:
        """Return the processes of the node's user, a line each."""
        return self.on("find /proc -maxdepth 1 -user holdfast")

    @property
    def address(self) -> str:
        """Where other machines of its network find it."""
        found = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return docker("inspect", "--format", found, self.name)

    def install(self, deb: Path) -> None:
        """Install a package, or another version of it."""
        docker("cp", str(deb), f"{self.name}:/given.deb")
        self.on("dpkg --install /given.deb")

    def wait_up(self) -> None:
        """Wait until systemd has started what it starts; skip where it does not run in a container."""
        probe = ("docker", "exec", self.name, "systemctl", "is-system-running")
        states = {"running", "degraded"}
        try:
            wait_for("systemd is up", lambda: run(*probe).stdout.strip() in states or None)
        except AssertionError:
            pytest.skip(
                f"systemd does not run in a container here: {run('docker', 'logs', self.name).stdout}"
            )


def make_image() -> None:
    """Build the image unless it is there."""
    environment = os.environ | {"BASE_IMAGE": IMAGE, "MORE_PACKAGES": PACKAGES}
    built = run(str(ROOT / "deploy/base-image"), "--local", env=environment)
    assert built.returncode == 0, built.stdout + built.stderr


@contextlib.contextmanager
def machine(network: str = "none") -> Iterator[Machine]:
    """Yield a machine in a network of Docker."""
    make_image()
    name = f"holdfast-machine-{secrets.token_hex(4)}"
    guardian.run_if_killed(["docker", "rm", "--force", "--volumes", name])
    try:
        docker("run", "--detach", *CONTAINER, "--network", network, "--name", name, IMAGE, "sh", "-c", INIT)
        made = Machine(name)
        made.wait_up()
        yield made
    finally:
        docker("rm", "--force", "--volumes", name)
