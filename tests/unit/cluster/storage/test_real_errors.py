"""Syncs on a disk that really fails: whoever runs them tells it, and what was written does not count."""

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.storage.journal import Journal, JournalError, Sync
from cluster.storage.sync_runner import SyncThread

DISK_BYTES = 16 << 20
TOOLS = ("mount", "umount", "losetup", "mkfs.ext4", "fallocate")
DEADLINE_S = 20


def run(*command: object) -> str:
    """Run a tool of the system; skip the test where this user, or this machine, may not."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no disk that fails can be made here: {command[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


class Disk:
    """A file system on a loop device, whose backing file system can be made so full that writes fail."""

    def __init__(self, path: Path, back: Path, image: Path) -> None:
        self.path = path
        self._back = back
        self._image = image

    def break_down(self) -> None:
        """Let every write from now on fail: each needs a page, and all are taken."""
        run("sync", "--file-system", self.path)
        run("fallocate", "--punch-hole", "--offset", 0, "--length", DISK_BYTES, self._image)
        with (self._back / "fill").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Return a disk that can be broken."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"no disk that fails can be made here: {', '.join(missing)} missing")
    back, path = tmp_path / "back", tmp_path / "disk"
    back.mkdir()
    path.mkdir()
    with contextlib.ExitStack() as undo:
        run("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES + (4 << 20)}", "tmpfs", back)
        undo.callback(subprocess.run, ["umount", "--lazy", str(back)], check=False)
        image = back / "image"
        run("truncate", "--size", DISK_BYTES, image)
        run("mkfs.ext4", "-q", "-O", "^has_journal", image)
        device = run("losetup", "--show", "--find", image)
        undo.callback(subprocess.run, ["losetup", "--detach", device], check=False)
        run("mount", device, path)
        undo.callback(subprocess.run, ["umount", "--lazy", str(path)], check=False)
        yield Disk(path, back, image)


async def synced(runner: SyncThread, journal: Journal) -> Sync:
    """Append an entry, and run its sync to its end."""
    journal.add(b"entry" * 100, journal.last_index + 1, 1)
    sync, ended = journal.begin_sync(), asyncio.Event()
    assert sync is not None
    runner.start(sync, ended.set)
    async with asyncio.timeout(DEADLINE_S):
        await ended.wait()
    return sync


async def test_a_sync_that_fails_for_real_ends_the_journal(disk: Disk) -> None:
    """The error comes with the sync: what was written does not count, and nothing more is taken."""
    journal, runner = Journal.open(disk.path), SyncThread(asyncio.get_running_loop().call_soon_threadsafe)
    try:
        for _ in range(3):
            journal.end_sync(await synced(runner, journal))
        assert journal.synced_index == 3
        disk.break_down()
        sync = await synced(runner, journal)
        with pytest.raises(JournalError, match=r"Input/output error|No space left on device"):
            journal.end_sync(sync)
        assert journal.synced_index == 3
        with pytest.raises(JournalError):
            journal.add(b"more", journal.last_index + 1, 1)
    finally:
        runner.close()
        with contextlib.suppress(JournalError):
            journal.close()
