"""The Debian package: what lintian says, a node that runs from it, and its life on a machine with systemd.

It is built here, which downloads what requirements/node.txt pins. Only the last tests need a Docker engine.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import holdfast
from scripts.lib import ports
from tests.docker import systemd_machines
from tests.docker.compose_cluster import run, wait_for
from tests.docker.systemd_machines import Machine
from tests.packaging.test_installed import environment
from tests.packaging.test_three_machines import BLOCKS

pytestmark = pytest.mark.docker

BIN: Final = "usr/lib/holdfast/bin"


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
    with systemd_machines.machine() as made:
        yield made


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
    later = newer(deb, tmp_path)
    machine.install(deb)
    owned = "stat --format '%U:%G %a' /etc/holdfast /etc/holdfast/node.env /var/lib/holdfast"
    given = ["root:holdfast 750", "root:holdfast 640", "holdfast:holdfast 700"]
    assert machine.on(owned).splitlines() == given
    assert holdfast.__version__ in machine.on("holdfast-node --version")
    assert machine.show("ActiveState", "UnitFileState") == ["inactive", "disabled"]
    machine.on("systemctl start holdfast", code=1)
    assert "node_id: '' (variable HOLDFAST_NODE_ID)" in machine.journal()
    machine.install(later)
    assert machine.show("ActiveState") == ["failed"]

    machine.on("sed -i 's/^HOLDFAST_NODE_ID=/&n9/; /^HOLDFAST_PEERS/d' /etc/holdfast/node.env")
    machine.on("systemctl enable --now holdfast")
    before = machine.show("MainPID")
    machine.install(deb)  # back to the release before
    assert machine.show("ActiveState") == ["active"]
    assert machine.show("MainPID") != before
    assert "HOLDFAST_NODE_ID=n9" in machine.on("cat /etc/holdfast/node.env")
    assert machine.on(owned).splitlines() == given

    machine.on("dpkg --remove holdfast-node")
    assert "event=stopped node_id=n9" in machine.journal()
    assert machine.processes() == ""
    machine.on("test ! -e /usr/lib/holdfast && test -e /etc/holdfast/node.env")
    machine.on("mv /var/lib/holdfast /disk && ln -s /disk /var/lib/holdfast")
    assert "the data is kept" in machine.on("dpkg --purge holdfast-node")
    machine.on("test ! -e /etc/holdfast && ! systemctl is-enabled holdfast")
    assert '"n9"' in machine.on("cat /var/lib/holdfast/identity.json")


def test_what_root_does_on_the_page_works(machine: Machine) -> None:
    """The commands of docs/three-machines.md that make the user and give it its files, which need root."""
    commands = [
        command
        for block in BLOCKS
        for command in re.findall(r"on \$node '(.*)'$", block.text, re.MULTILINE)
        if "useradd" in command or "chgrp" in command
    ]
    making, folders, files, *_ = commands
    machine.on(f"{making}; {folders}")
    machine.on(f"touch /etc/holdfast/secret; {files}")
    shown = machine.on("stat --format '%U:%G %a' /etc/holdfast /etc/holdfast/secret")
    assert shown.splitlines() == ["root:holdfast 750", "root:holdfast 640"]
    machine.on("setpriv --reuid holdfast --regid holdfast --clear-groups cat /etc/holdfast/secret")
    refused = machine.on(
        "setpriv --reuid nobody --regid nogroup --clear-groups cat /etc/holdfast/secret", code=1
    )
    assert "denied" in refused
    assert re.search(r"^holdfast:.*:/usr/sbin/nologin$", machine.on("cat /etc/passwd"), re.MULTILINE)
