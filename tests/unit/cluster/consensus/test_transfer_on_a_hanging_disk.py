"""A snapshot arrives on a disk that hangs: the transfer waits for the disk, and nothing else does."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from cluster.consensus import snapshot_transfer
from cluster.consensus.engine import Engine
from cluster.consensus.library_words import EngineJournal
from cluster.consensus.messages import SnapshotPosition
from cluster.consensus.snapshot_transfer import SnapshotTransfer
from cluster.errors import NodeFailed
from cluster.storage import snapshot_incoming
from cluster.storage.disk_work import WorkThread
from cluster.storage.files import Files
from cluster.storage.snapshot_store import SnapshotStore
from tests.unit.cluster.consensus.test_snapshot_transfer import (
    CHUNK_BYTES,
    LAST,
    STATE,
    End,
    FakeEngine,
    Log,
    decode_slowly,
    leader_with,
    next_chunk,
)

DEADLINE_S = 20.0
SYNC_BYTES = 1_000


class HangingFiles(Files):
    """A real disk whose syncs wait until they are let go, or fail."""

    def __init__(self) -> None:
        self.is_free = threading.Event()
        self.is_free.set()
        self.error: OSError | None = None
        self.waiting = 0
        self.open_fds: set[int] = set()

    def create(self, path: Path) -> int:
        """Remember what is open."""
        fd = super().create(path)
        self.open_fds.add(fd)
        return fd

    def close(self, fd: int) -> None:
        """Forget it."""
        super().close(fd)
        self.open_fds.discard(fd)

    def fdatasync(self, fd: int) -> None:
        """Wait, then sync a file that must still be the same."""
        self._wait()
        assert fd in self.open_fds
        super().fdatasync(fd)

    def fsync_dir(self, directory: Path) -> None:
        """Wait, then sync."""
        self._wait()
        super().fsync_dir(directory)

    def _wait(self) -> None:
        assert threading.current_thread().name == "disk-work", "nothing waits for the disk in the event loop"
        self.waiting += 1
        assert self.is_free.wait(DEADLINE_S)
        if self.error is not None:
            raise self.error


class Follower:
    """The receiving end, whose disk work is done in a thread."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.files = HangingFiles()
        self.work = WorkThread(asyncio.get_running_loop().call_soon_threadsafe)
        self.store = SnapshotStore(directory, self.files, work=self.work)
        self.woken = 0
        self.store.woken = self._wake
        self.engine, self.log = FakeEngine(), Log()
        self.transfer = SnapshotTransfer(
            self.store,
            cast("Engine", self.engine),
            cast("EngineJournal", self.log),
            last=None,
            decode=decode_slowly,
        )

    def _wake(self) -> None:
        self.woken += 1

    def close(self) -> None:
        """Stop, as a node does."""
        self.files.is_free.set()
        self.work.close()
        self.store.close()


@asynccontextmanager
async def transfer_to(tmp_path: Path) -> AsyncIterator[tuple[End, Follower]]:
    """Give a leader with a snapshot and a follower."""
    leader, follower = leader_with(tmp_path / "leader"), Follower(tmp_path / "follower")
    try:
        yield leader, follower
    finally:
        follower.close()
        await asyncio.sleep(0)  # ends of work that were on their way
        assert not follower.files.open_fds, "a file was left open"


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a small snapshot travel in many chunks, and be synced often."""
    monkeypatch.setattr(snapshot_transfer, "CHUNK_BYTES", CHUNK_BYTES)
    monkeypatch.setattr(snapshot_incoming, "SYNC_BYTES", SYNC_BYTES)


async def until(condition: Callable[[], object]) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - told by another thread
            await asyncio.sleep(0.001)


def offer(leader: End, follower: Follower) -> bool:
    """Send a chunk and tell the leader what the follower says; whether the snapshot is to be installed."""
    chunk = next_chunk(leader)
    is_whole = chunk is not None and follower.transfer.take_chunk(chunk)
    for message in follower.engine.take_sent():
        if isinstance(message, SnapshotPosition):
            leader.transfer.take_position("follower", message)
    return is_whole


async def installed(leader: End, follower: Follower) -> None:
    """Go on until the snapshot is to be installed."""
    async with asyncio.timeout(DEADLINE_S):
        while not offer(leader, follower):
            follower.transfer.poll()
            await asyncio.sleep(0)


async def checked(leader: End, follower: Follower) -> None:
    """Go on until the snapshot has been checked, and the next chunk puts it in place."""
    async with asyncio.timeout(DEADLINE_S):
        while follower.transfer._checked is None:
            offer(leader, follower)
            follower.transfer.poll()
            await asyncio.sleep(0)


async def test_a_sync_that_hangs_stops_only_the_transfer(tmp_path: Path) -> None:
    """What comes meanwhile waits, up to a bound; no tick is wasted; then all of it is there."""
    async with transfer_to(tmp_path) as (leader, follower):
        follower.files.is_free.clear()
        await until(lambda: offer(leader, follower) or follower.files.waiting)
        for _ in range(10 * SYNC_BYTES // CHUNK_BYTES):
            assert not offer(leader, follower)
            assert follower.transfer.poll() == ("idle", 0)
            assert not follower.transfer.is_checking, "who ticked now would do so for nothing"
        have = follower.store.incoming_bytes
        assert 2 * SYNC_BYTES <= have <= 2 * SYNC_BYTES + 2 * CHUNK_BYTES
        assert follower.woken == 0
        follower.files.is_free.set()
        await until(lambda: follower.woken)
        await installed(leader, follower)
        snapshot = follower.transfer.take_received()
        assert snapshot.last == LAST
        assert snapshot.decoded == (STATE, b"members")
        assert follower.store.load() is not None


async def test_the_last_sync_and_the_rename_are_waited_for(tmp_path: Path) -> None:
    """Nothing is installed before it is durable, and no snapshot of this node gets into its way."""
    async with transfer_to(tmp_path) as (leader, follower):
        await checked(leader, follower)
        follower.files.is_free.clear()
        syncs = follower.files.waiting
        assert not offer(leader, follower)
        await until(lambda: follower.files.waiting > syncs)
        assert not offer(leader, follower)
        assert follower.transfer.poll() == ("running", 0), "no child begins"
        assert not follower.transfer.is_checking
        assert follower.transfer.next_chunk("n3") is None, "nobody is sent a file that is being replaced"
        follower.files.is_free.set()
        await until(lambda: not follower.store.is_busy)
        assert follower.transfer.poll() == ("running", 0), "the log does not begin behind it yet"
        assert offer(leader, follower)
        assert follower.transfer.take_received().last == LAST
        assert follower.transfer.poll() == ("idle", 0)


async def test_who_has_caught_up_meanwhile_drops_it_without_waiting(tmp_path: Path) -> None:
    """The file is closed when its sync has ended, and another snapshot may come at once."""
    async with transfer_to(tmp_path) as (leader, follower):
        follower.files.is_free.clear()
        await until(lambda: offer(leader, follower) or follower.files.waiting)
        follower.log.committed = LAST[1]
        assert not offer(leader, follower)
        assert follower.store.incoming is None
        assert follower.files.open_fds, "the sync under way has it"
        follower.log.committed = 0
        leader.transfer.stop_sending_to("follower")
        assert not offer(leader, follower)
        follower.files.is_free.set()
        await installed(leader, follower)
        assert follower.transfer.take_received().last == LAST


async def test_what_came_in_place_too_late_is_not_installed(tmp_path: Path) -> None:
    """The log has come further by itself: behind the snapshot it would lose what was acknowledged (H17)."""
    async with transfer_to(tmp_path) as (leader, follower):
        await checked(leader, follower)
        follower.files.is_free.clear()
        syncs = follower.files.waiting
        assert not offer(leader, follower)
        await until(lambda: follower.files.waiting > syncs)
        follower.log.committed = LAST[1]
        follower.files.is_free.set()
        await until(lambda: not follower.store.is_busy)
        follower.transfer.poll()
        assert follower.transfer.poll() == ("idle", 0), "this node may write snapshots again"
        follower.log.committed = 0
        leader.transfer.stop_sending_to("follower")
        assert not offer(leader, follower), "what comes next is received anew"


async def test_a_leader_that_lets_go_keeps_no_log_for_anybody(tmp_path: Path) -> None:
    """In the next term followers may have another log: what they need is found out anew."""
    async with transfer_to(tmp_path) as (leader, follower):
        await until(lambda: offer(leader, follower) or follower.store.incoming is not None)
        assert leader.transfer.first_needed(LAST[1] + 10) == LAST[1]
        leader.transfer.stop_sending()
        assert leader.transfer.first_needed(LAST[1] + 10) is None


async def test_a_sync_that_fails_drops_the_snapshot(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is begun anew; a rename that may have failed ends the node."""
    async with transfer_to(tmp_path) as (leader, follower):
        follower.files.error = OSError(5, "Input/output error")
        await until(lambda: offer(leader, follower) or follower.woken)
        await until(lambda: offer(leader, follower) or "event=snapshot-not-stored" in caplog.text)
        assert follower.store.incoming_bytes <= SYNC_BYTES
        follower.files.error = None
        await checked(leader, follower)
        follower.files.error = OSError(5, "Input/output error")
        assert not offer(leader, follower)
        await until(lambda: not follower.store.is_busy)
        with pytest.raises(NodeFailed, match="could not be put in place"):
            follower.transfer.poll()
