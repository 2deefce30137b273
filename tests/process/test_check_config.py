"""`--check-config` beside real nodes: what it says of settings is what a start makes of them."""

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lib.ports import reserve
from scripts.local_cluster import PROJECT, LocalCluster, node_environment
from tests.process.nodes import (
    DEADLINE_S,
    PATIENT,
    LogSince,
    node_command,
    running,
    spare_data,
    wait_whole,
)
from tests.process.test_data_directory import flip_middle_bit, newest_segment
from tests.process.test_peer_tls import files_of

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes that require TLS of each other."""
    with LocalCluster.up(tmp_path_factory.mktemp("secured"), peer_tls=True, extra_args=PATIENT) as started:
        wait_whole(started)
        yield started


def command(cluster: LocalCluster, node_id: str, **changes: str) -> list[str]:
    """Return how a node is started, with the values of some flags changed."""
    cert, key, ca = map(str, files_of(cluster, node_id))
    files = {"peer_cert": cert, "peer_key": key, "peer_ca": ca}
    return node_command(cluster, node_id, **files | changes)


def check(argv: list[str], *flags: str) -> tuple[int, list[str]]:
    """Return the exit code of a check of what this command would start, and its lines."""
    ended = subprocess.run(
        [*argv, "--check-config", *flags],
        cwd=PROJECT,
        env=node_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert not ended.stderr
    return ended.returncode, ended.stdout.splitlines()


def content(directory: Path) -> dict[str, str]:
    """Return what tells whether anything in a directory was changed."""
    return {
        file.name: f"{file.stat().st_mtime_ns} {hashlib.sha256(file.read_bytes()).hexdigest()}"
        for file in directory.iterdir()
    }


def test_beside_nodes_that_run(secured: LocalCluster) -> None:
    """Its peers answer and hear of nothing more than a stranger; it could start when it is stopped."""
    logs = {node_id: LogSince(secured, node_id) for node_id in ("n1", "n2", "n3")}
    before = secured.view("n1")
    code, lines = check(command(secured, "n1"), "--dial")
    assert code == 0, lines
    assert any(line.startswith("warning: data_dir: ") and "n1 runs in it now" in line for line in lines)
    assert sum(line.endswith("most likely this node, which runs") for line in lines) == 2
    for peer in ("n2", "n3"):
        assert any(
            line.startswith(f"ok: peers: {peer}: ") and line.endswith(", with TLS") for line in lines
        ), lines
    after = secured.view("n1")
    assert before is not None
    assert after is not None
    assert (after["term"], after["leader"]) == (before["term"], before["leader"])
    # A node may answer that it is ready before it has logged it.
    said = [line for log in logs.values() for line in log.lines() if "event=ready" not in line]
    assert not said


def test_a_peer_that_does_not_speak_as_configured(secured: LocalCluster) -> None:
    """A node that dials without TLS is not let in by those that require it."""
    code, lines = check(command(secured, "n1", peer_tls="accept", insecure_peers="")[:-2], "--dial")
    assert code == 0, lines
    assert sum(line.startswith("warning: peers: n") and "hung up at the hello" in line for line in lines) == 2


def test_a_node_that_is_stopped(secured: LocalCluster) -> None:
    """All is well, nothing is changed, and a start with the same settings works."""
    secured.kill("n3")
    try:
        before = content(secured.data_dir("n3"))
        code, lines = check(command(secured, "n3"))
        assert code == 0, lines
        assert not [line for line in lines if line.startswith(("warning", "error"))]
        assert any("is that of n3, of cluster " in line for line in lines)
        assert content(secured.data_dir("n3")) == before
        code, lines = check(command(secured, "n1"), "--dial")
        assert any(line.startswith("warning: peers: n3: ") and "refused" in line for line in lines)
    finally:
        secured.start("n3")
        wait_whole(secured)


@pytest.mark.parametrize(
    ("changes", "exit_code", "said"),
    [
        ({"peers": "n3=127.0.0.1:1,n8=127.0.0.1:2,n9=127.0.0.1:3"}, 2, "n8,n9 is unknown there"),
        ({"node_id": "n2"}, 3, "belongs to node 'n3', not to 'n2'"),
        ({"http": "192.0.2.1:7700"}, 1, "cannot listen"),
        ({"http": f"0.0.0.0:{reserve(1)[0]}"}, 2, "there is no TLS and no login"),
        ({"peer_ca": "/dev/null"}, 2, "peer_ca: '/dev/null': has no certificate"),
    ],
)
def test_a_start_says_the_same(
    secured: LocalCluster, tmp_path: Path, changes: dict[str, str], exit_code: int, said: str
) -> None:
    """A mistake that ends a start is the same sentence in a check, which ends with 2 for each."""
    more = []
    if "node_id" in changes:
        cert, key, _ = files_of(secured, changes["node_id"])
        more = ["--node-id", changes["node_id"], "--peer-cert", str(cert), "--peer-key", str(key)]
        changes = {}
    secured.kill("n3")
    try:
        argv, log = [*command(secured, "n3", **changes), *more], tmp_path / "log"
        code, lines = check(argv)
        assert code == 2
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        assert any(said in error for error in errors), lines
        with running(argv, log) as child:
            assert child.wait(DEADLINE_S) == exit_code
        assert log.read_text().splitlines()[-1].removeprefix("holdfast-node: ") in errors
    finally:
        secured.start("n3")
        wait_whole(secured)


def test_addresses_that_have_changed(secured: LocalCluster) -> None:
    """The log counts, and a start would say so."""
    secured.kill("n3")
    try:
        peers = {node.id: node.peer for node in secured.nodes()} | {"n2": "127.0.0.1:1"}
        told = ",".join(f"{node_id}={peer}" for node_id, peer in peers.items())
        code, lines = check(command(secured, "n3", peers=told))
        assert code == 0
        assert any(line.startswith("warning: peers: ") and "these count" in line for line in lines)
    finally:
        secured.start("n3")
        wait_whole(secured)


def test_a_damaged_journal(secured: LocalCluster) -> None:
    """It is found without a start, and left as it is."""
    with spare_data(secured, "n3") as data_dir:
        flip_middle_bit(newest_segment(data_dir))
        before = content(data_dir)
        code, lines = check(command(secured, "n3"))
        assert code == 2
        assert any(line.startswith("error: ") and "damaged" in line for line in lines), lines
        assert content(data_dir) == before
    secured.start("n3")
    wait_whole(secured)
