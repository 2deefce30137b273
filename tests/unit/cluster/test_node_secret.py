"""A node and its secret file: it is read again when an operator asks for it, or when it has changed."""

from pathlib import Path

import pytest

from cluster.config import load
from cluster.config_secrets import Secrets
from cluster.node import Node
from cluster.peers import secret_watch
from tests.unit.cluster.peers.test_links import free_address, until

OLD, NEW = b"an old secret of the cluster", b"a new secret of the cluster"


def alone(directory: Path, *secret: str) -> Node:
    """Return a cluster of one that others may join."""
    where = [
        "--http",
        "127.0.0.1:0",
        "--peers",
        f"n1={free_address()}",
        "--data-dir",
        str(directory / "data"),
    ]
    return Node(load([*where, *secret], {}))


@pytest.mark.parametrize("is_asked", [True, False])
async def test_the_secret_file_is_read_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_asked: bool,  # noqa: FBT001 - pytest gives it by name
) -> None:
    """At once when the node is told to, as SIGHUP does; else when the file has changed."""
    monkeypatch.setattr(secret_watch, "LOOK_S", 1000.0 if is_asked else 0.01)
    path = tmp_path / "secret"
    path.write_bytes(OLD)
    node = alone(tmp_path, "--secret-file", str(path))
    await node.start()
    try:
        secrets = node.parts.links.secrets
        assert secrets.secrets == Secrets(OLD)
        path.write_bytes(b"current: " + NEW + b"\nprevious: " + OLD + b"\n")
        if is_asked:
            node.read_secret()
        await until(lambda: secrets.secrets == Secrets(NEW, OLD, "previous"))
    finally:
        await node.stop()


async def test_a_secret_without_a_file_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """There is nothing to read; the log says so, and shows nothing."""
    node = alone(tmp_path, "--secret", OLD.decode())
    await node.start()
    try:
        node.read_secret()
        assert node.parts.links.secrets.secrets == Secrets(OLD)
    finally:
        await node.stop()
    assert "event=secret-not-read path=- reason='this node has no --secret-file'" in caplog.text
    assert OLD.decode() not in caplog.text
