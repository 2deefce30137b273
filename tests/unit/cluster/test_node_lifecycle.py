"""What is left of a node whose start failed, or was overtaken by its stop."""

import asyncio
import errno
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from cluster.config import NodeConfig, load
from cluster.errors import DataDirError, StartupError
from cluster.node import Node
from cluster.peers.peering import Peering
from cluster.storage.data_directory import DataDir
from cluster.storage.snapshot_store import SnapshotStore
from cluster.storage.sync_runner import InPlace


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    """Return a socket that listens on a port of its own."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener


def founder(directory: Path, peer_port: int) -> NodeConfig:
    """Return the configuration of one of three founders, whose peers are not there."""
    peers = f"n1=127.0.0.1:{peer_port},n2=127.0.0.1:1,n3=127.0.0.1:2"
    argv = ["--node-id", "n1", "--data-dir", str(directory), "--http", "127.0.0.1:0", "--secret", 18 * "s"]
    return load([*argv, "--peer", f"127.0.0.1:{peer_port}", "--peers", peers], {})


async def test_a_node_can_be_started_again_after_its_start_failed(
    tmp_path: Path, taken: socket.socket
) -> None:
    """A start that failed leaves the node as it was: a later start and stop do all that they do."""
    node = Node(founder(tmp_path, taken.getsockname()[1]))
    with pytest.raises(StartupError):
        await node.start()
    taken.close()
    await node.start()
    await node.stop()
    assert node.parts.loop._timer is not None
    assert node.parts.loop._timer.cancelled()
    DataDir.open(tmp_path, "n1").close()


async def test_a_node_that_is_stopped_while_it_starts_listens_and_dials_no_more(
    tmp_path: Path, taken: socket.socket
) -> None:
    """A stop that overtakes the start ends everything that the start has begun, or begins later."""
    port = taken.getsockname()[1]
    taken.close()
    node = Node(founder(tmp_path, port))
    starting = asyncio.create_task(node.start())
    await asyncio.sleep(0)
    await node.stop()
    await asyncio.gather(starting, return_exceptions=True)
    await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() if task.get_name().startswith(("watch-", "dial-"))]
    names = [task.get_name() for task in left]
    for task in left:
        task.cancel()
    assert names == []
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.parametrize("where", [SnapshotStore.load, Peering.set_members])
async def test_a_disk_that_fails_at_the_start_leaves_the_directory_free(
    where: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told as what it is, with its exit code, and a later start finds the directory unlocked.

    The runner of syncs, which may be the kernel, is given back.
    """

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    syncs = create_autospec(InPlace, instance=True)
    node = Node(founder(tmp_path, 3), syncs=syncs)
    owner = SnapshotStore if where is SnapshotStore.load else Peering
    monkeypatch.setattr(owner, where.__name__, fail)
    with pytest.raises(DataDirError, match="Input/output error"):
        await node.start()
    DataDir.open(tmp_path, "n1").close()
    syncs.close.assert_called_once_with()
