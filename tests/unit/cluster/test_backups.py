"""Backups of a node: written by a child, read by whoever asked, and gone."""

import asyncio
import errno
import hashlib
import os
from pathlib import Path

import pytest

from cluster.backups import Backups
from cluster.errors import Overloaded, ShuttingDown, StateDamaged
from cluster.storage.files import Files
from cluster.storage.forked_child import Child
from cluster.storage.snapshot_store import SnapshotStore
from tests.unit.cluster.test_node import running

DEADLINE_S = 30


def head_of(state_bytes: int) -> bytes:
    """Return what stands before the state."""
    return b"head %d " % state_bytes


async def test_a_backup_is_written_and_leaves_nothing(tmp_path: Path) -> None:
    """It can be read to its end while it has no name any more."""
    backups = Backups(tmp_path, Files(), Child())
    async with asyncio.timeout(DEADLINE_S):
        content = await backups.write(head_of, lambda: b"state")
    assert not Files().names(tmp_path)
    whole = b"head 5 state"
    assert content.size == len(whole) + 32
    assert content.read(1000) == whole + hashlib.sha256(whole).digest()
    assert content.read(1000) == b""
    content.close()


async def test_one_at_a_time(tmp_path: Path) -> None:
    """Another one is refused meanwhile, and made afterwards; who goes away ends the child."""
    backups = Backups(tmp_path, Files(), child := Child())

    def blocked() -> bytes:
        while True:
            os.sched_yield()

    first = asyncio.ensure_future(backups.write(head_of, blocked))
    await asyncio.sleep(0)
    assert child.is_running
    with pytest.raises(Overloaded, match="another backup"):
        await backups.write(head_of, lambda: b"")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert child.poll() == "idle"
    async with asyncio.timeout(DEADLINE_S):
        (await backups.write(head_of, lambda: b"")).close()


async def test_a_full_disk_is_told(tmp_path: Path) -> None:
    """The child that fails leaves no file, and the next backup may be asked for."""

    def full() -> bytes:
        raise OSError(errno.ENOSPC, "full")

    backups = Backups(tmp_path, Files(), Child())
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(Overloaded, match="could not write the backup"):
            await backups.write(head_of, full)
        (await backups.write(head_of, lambda: b"")).close()
    assert not Files().names(tmp_path)


async def test_a_damaged_state_is_never_written(tmp_path: Path) -> None:
    """What the child finds wrong with the state is raised."""

    def damaged() -> bytes:
        raise StateDamaged

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(StateDamaged):
            await Backups(tmp_path, Files(), Child()).write(head_of, damaged)
    assert not Files().names(tmp_path)


def test_what_a_dead_process_left_goes(tmp_path: Path) -> None:
    """The next start removes a half-written backup."""
    (tmp_path / "backup.1.tmp").write_bytes(b"half")
    SnapshotStore(tmp_path).close()
    assert not Files().names(tmp_path)


async def test_a_node_whose_state_is_damaged_stops(tmp_path: Path) -> None:
    """It gives no backup of a state that is not what its changes made of it."""
    async with running(tmp_path) as node:
        node.machine.state.ledger.settled_sum ^= 1
        with pytest.raises(ShuttingDown, match="this node failed"):
            await node.backup(lambda *_: b"")
        assert node.has_failed
        with pytest.raises(ShuttingDown, match="is stopping"):
            await node.backup(lambda *_: b"")
