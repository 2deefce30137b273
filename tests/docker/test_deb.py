"""The Debian package: what lintian says, a node that runs from it, and its life on a machine, a container.

It is built here, which downloads what requirements/node.txt pins. Only the last tests need a Docker engine.
"""

import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

import holdfast
from scripts.lib import guardian, ports
from tests.docker.compose_cluster import ROOT, docker, run, wait_for
from tests.packaging.test_installed import environment
from tests.packaging.test_three_machines import BLOCKS

pytestmark = pytest.mark.docker

BIN: Final = "usr/lib/holdfast/bin"
SYSTEMCTL: Final = """#!/bin/sh
echo "$*" >>/asked
case "$*" in *is-enabled*) echo enabled ;; esac
"""
"""There is no service manager in a container; this one writes down what it was asked for."""

Machine = Callable[..., str]
"""Runs a command on a machine as root, and returns what it prints."""


@pytest.fixture(scope="module")
def deb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the package of this checkout."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("needs dpkg-deb: the package is built on Debian or Ubuntu")
    built = run(str(ROOT / "deploy/build-deb"), str(tmp_path_factory.mktemp("deb")))
    assert built.returncode == 0, built.stdout + built.stderr
    return Path(built.stdout.strip())


@pytest.mark.skipif(shutil.which("lintian") is None, reason="needs lintian: apt-get install lintian")
def test_lintian_finds_no_error(deb: Path) -> None:
    """Debian's checker of packages; nothing is overridden."""
    judged = run("lintian", "--fail-on", "error", "--info", str(deb))
    assert judged.returncode == 0, judged.stdout + judged.stderr


def test_a_node_runs_from_the_unpacked_package(deb: Path, tmp_path: Path) -> None:
    """It is whole: nothing of the checkout or of another environment is used."""
    run("dpkg-deb", "--extract", str(deb), str(tmp_path))
    link = tmp_path / BIN / "python"
    python = link.resolve()
    python.symlink_to(Path("/usr/bin") / python.name)  # where it is once the package is installed
    data, socket = tmp_path / "data", tmp_path / "node.sock"
    flags = ["--data-dir", str(data), "--http", f"unix:{socket}", "--peer", f"{ports.HOST}:0"]
    with (tmp_path / "log").open("w") as log:
        node = subprocess.Popen(
            [link, tmp_path / BIN / "holdfast-node", *flags], cwd=tmp_path, env=environment(), stderr=log
        )
    try:
        client = (str(link), str(tmp_path / BIN / "holdfast"), "--nodes", f"unix:{socket}")
        wait_for("the node serves", lambda: run(*client, "status").returncode == 0 or None)
        taken = run(*client, "run", "a", "--", "sh", "-c", "echo token $HOLDFAST_TOKEN")
        assert taken.stdout == "token 1\n", taken.stderr
    finally:
        node.terminate()
        code = node.wait()
    assert code == 0, (tmp_path / "log").read_text()
    asked = "import lockstate as a, uvloop as b, holdfast as c; print(a.__file__, b.__file__, c.__file__)"
    found = subprocess.run(
        [link, "-c", asked], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert found.stdout.count(f"{tmp_path}/usr/lib/holdfast/lib/") == 3, found.stderr


def test_the_unit_starts_what_the_package_has(deb: Path, tmp_path: Path) -> None:
    """It is the one of deploy/systemd with the program of the package, and nothing of the build is told."""
    run("dpkg-deb", "--extract", str(deb), str(tmp_path))
    unit = (tmp_path / "lib/systemd/system/holdfast.service").read_text()
    assert "\nExecStart=/usr/bin/holdfast-node\n" in unit
    assert "/opt/" not in unit
    for name in ("holdfast", "holdfast-node"):
        assert (tmp_path / BIN / name).read_text().startswith("#!/usr/lib/holdfast/bin/python\n")
        assert (tmp_path / "usr/bin" / name).readlink() == Path("../lib/holdfast/bin", name)


@pytest.fixture
def machine(compose: list[str]) -> Iterator[Machine]:
    """Yield a Debian without network, and without a node."""
    assert compose  # else there is no engine
    base = run(str(ROOT / "deploy/base-image"))
    assert base.returncode == 0, base.stdout + base.stderr
    (image,) = re.findall("^ARG BASE_IMAGE=(.*)$", (ROOT / "deploy/Dockerfile").read_text(), re.MULTILINE)
    name = f"holdfast-deb-{secrets.token_hex(4)}"
    guardian.run_if_killed(["docker", "rm", "--force", name])
    docker("run", "--detach", "--network", "none", "--name", name, image, "sleep", "infinity")

    def on(*command: str, given: Path | None = None, is_wrong: bool = False) -> str:
        if given:
            docker("cp", str(given), f"{name}:/given.deb")
        done = run("docker", "exec", name, *command)
        assert (done.returncode != 0) == is_wrong, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    try:
        yield on
    finally:
        docker("rm", "--force", name)


def run_as(user: str) -> tuple[str, ...]:
    """Return what runs the rest of a command as another user, in its own group alone."""
    group = {"nobody": "nogroup"}.get(user, user)
    return ("setpriv", "--reuid", user, "--regid", group, "--clear-groups")


def newer(deb: Path, folder: Path) -> Path:
    """Return the same package as of a later version."""
    unpacked, made = folder / "unpacked", folder / "newer.deb"
    run("dpkg-deb", "--raw-extract", str(deb), str(unpacked))
    control = unpacked / "DEBIAN/control"
    control.write_text(re.sub("^Version: .*$", "Version: 99", control.read_text(), flags=re.MULTILINE))
    built = run("dpkg-deb", "--root-owner-group", "--build", str(unpacked), str(made))
    assert built.returncode == 0, built.stderr
    return made


def test_it_is_installed_upgraded_removed_and_purged(deb: Path, machine: Machine, tmp_path: Path) -> None:
    """Only a running node is restarted; settings survive all but a purge, and the data survives that, too."""
    machine(
        "sh", "-c", f"mkdir -p /run/systemd/system && printf '%s' '{SYSTEMCTL}' >/usr/local/bin/systemctl"
    )
    machine("chmod", "0755", "/usr/local/bin/systemctl")
    machine("dpkg", "--install", "/given.deb", given=deb)
    shown = machine(
        "stat", "--format", "%U:%G %a", "/etc/holdfast", "/etc/holdfast/node.env", "/var/lib/holdfast"
    )
    assert shown.split("\n")[:3] == ["root:holdfast 750", "root:holdfast 640", "holdfast:holdfast 700"]
    assert holdfast.__version__ in machine("holdfast-node", "--version")
    assert machine("cat", "/asked").split() == ["--system", "daemon-reload"]
    as_node = (*run_as("holdfast"), "sh", "-ac")
    settings = ". /etc/holdfast/node.env; HOLDFAST_DATA_DIR=/var/lib/holdfast"
    said = machine(*as_node, f"{settings} holdfast-node", is_wrong=True)
    assert "node_id: '' (variable HOLDFAST_NODE_ID)" in said

    machine("sed", "-i", "s/^HOLDFAST_NODE_ID=/&n9/; /^HOLDFAST_PEERS/d", "/etc/holdfast/node.env")
    asking = "timeout 60 sh -c 'until holdfast --nodes 127.0.0.1:7700 status; do sleep 0.2; done'"
    served = f"{settings} holdfast-node & {asking}; kill $!; wait"
    assert re.search(r"^n9 +leader", machine(*as_node, served), re.MULTILINE)

    machine("dpkg", "--install", "/given.deb", given=newer(deb, tmp_path))
    assert "try-restart holdfast.service" in machine("cat", "/asked")
    assert "HOLDFAST_NODE_ID=n9" in machine("cat", "/etc/holdfast/node.env")
    assert "root:holdfast 640" in machine("stat", "--format", "%U:%G %a", "/etc/holdfast/node.env")

    machine("dpkg", "--remove", "holdfast-node")
    assert "stop holdfast.service" in machine("cat", "/asked")
    machine("test", "!", "-e", "/usr/lib/holdfast")
    machine("test", "-e", "/etc/holdfast/node.env")
    machine("sh", "-c", "mv /var/lib/holdfast /disk && ln -s /disk /var/lib/holdfast")
    assert "the data is kept" in machine("dpkg", "--purge", "holdfast-node")
    machine("test", "!", "-e", "/etc/holdfast")
    assert '"n9"' in machine("cat", "/var/lib/holdfast/identity.json")
    assert not re.search(
        r"\b(?:enable|start|restart)\b(?! *--)", machine("cat", "/asked").replace("try-", "try")
    )


def test_what_root_does_on_the_page_works(machine: Machine) -> None:
    """The commands of docs/three-machines.md that make the user and give it its files, which need root."""
    commands = [
        command
        for block in BLOCKS
        for command in re.findall(r"on \$node '(.*)'$", block.text, re.MULTILINE)
        if "useradd" in command or "chgrp" in command
    ]
    making, folders, files, *_ = commands
    machine("bash", "-ec", f"{making}; {folders}")
    machine("bash", "-ec", f"touch /etc/holdfast/secret; {files}")
    shown = machine("stat", "--format", "%U:%G %a", "/etc/holdfast", "/etc/holdfast/secret")
    assert shown.split("\n")[:2] == ["root:holdfast 750", "root:holdfast 640"]
    machine(*run_as("holdfast"), "cat", "/etc/holdfast/secret")
    assert "denied" in machine(*run_as("nobody"), "cat", "/etc/holdfast/secret", is_wrong=True)
    assert re.search(r"^holdfast:.*:/usr/sbin/nologin$", machine("cat", "/etc/passwd"), re.MULTILINE)
