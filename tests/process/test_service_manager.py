"""A node under a service manager: systemd's protocol on a real socket, and the unit that we ship."""

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.errors import ConfigError, DataDirError, IdentityRefused
from scripts.lib import ports
from scripts.local_cluster import node_environment

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "deploy/systemd/holdfast.service"
DEADLINE_S = 60
EXPOSURE_MAX = 2.0
"""Of `systemd-analyze security`: a unit without any of this has 9.6."""


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """Return the socket at which a service manager listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(DEADLINE_S)
        listening.bind(str(tmp_path / "notify"))
        yield listening


def started(data_dir: Path, notify_socket: str) -> "subprocess.Popen[str]":
    """Start a node of its own as a service manager would, with what it says on standard error."""
    port = ports.find_base(1)
    flags = ["--data-dir", str(data_dir), "--http", f"127.0.0.1:{port}", "--peer", "127.0.0.1:0"]
    return subprocess.Popen(
        [sys.executable, "-m", "http_api", *flags],
        cwd=ROOT,
        env=node_environment() | {"NOTIFY_SOCKET": notify_socket},
        stderr=subprocess.PIPE,
        text=True,
    )


def stop(node: "subprocess.Popen[str]") -> str:
    """Stop a node in order; return what it has said."""
    node.send_signal(signal.SIGTERM)
    _, said = node.communicate(timeout=DEADLINE_S)
    assert node.returncode == 0, said
    return said


def test_the_manager_hears_of_a_start_of_readiness_and_of_a_stop(
    manager: socket.socket, tmp_path: Path
) -> None:
    """READY=1 comes when clients can connect, the status says whether they are served."""
    node = started(tmp_path / "n1", manager.getsockname())
    try:
        first = manager.recv(4096).decode().splitlines()
        assert first[0] == "READY=1"
        assert first[1].startswith("STATUS=this node knows no leader")
        assert manager.recv(4096) == b"STATUS=ready"
        stop(node)
        assert manager.recv(4096) == b"STOPPING=1"
    finally:
        node.kill()
        node.wait()


def test_an_abstract_socket_is_written_with_an_at(tmp_path: Path) -> None:
    """As systemd writes one that has no file."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(DEADLINE_S)
        listening.bind(f"\0{tmp_path.name}-notify")
        node = started(tmp_path / "n1", f"@{tmp_path.name}-notify")
        try:
            assert listening.recv(4096).startswith(b"READY=1\n")
        finally:
            node.kill()
            node.communicate()


def test_a_manager_that_has_gone_stops_no_node(tmp_path: Path, manager: socket.socket) -> None:
    """The log says that it cannot be told, and why."""
    node = started(tmp_path / "n1", manager.getsockname())
    try:
        assert manager.recv(4096).startswith(b"READY=1\n")
        assert manager.recv(4096) == b"STATUS=ready"
        Path(manager.getsockname()).unlink()
        said = stop(node)
    finally:
        node.kill()
        node.wait()
    assert "event=notify-failed" in said
    assert "No such file or directory" in said


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_unit_is_valid_and_takes_from_a_node_what_it_does_not_need(tmp_path: Path) -> None:
    """It is checked by systemd itself, with a program that is there in the place of the installed one."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/holdfast/bin/holdfast-node", sys.executable))
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=True)
    assert UNIT.name not in verified.stderr
    looked_at = ["systemd-analyze", "security", "--offline=yes", str(unit)]
    exposure = subprocess.run(looked_at, capture_output=True, text=True, check=True).stdout
    level = float(exposure.strip().splitlines()[-1].split(": ")[1].split()[0])
    assert 0 < level <= EXPOSURE_MAX


def test_the_unit_does_not_start_again_what_only_a_person_can_mend() -> None:
    """Its exit codes are those of wrong configuration, of the data directory, and of a refused node."""
    lasting = {ConfigError.exit_code, DataDirError.exit_code, IdentityRefused.exit_code}
    (line,) = [one for one in UNIT.read_text().splitlines() if one.startswith("RestartPreventExitStatus=")]
    assert {int(code) for code in line.partition("=")[2].split()} == lasting
