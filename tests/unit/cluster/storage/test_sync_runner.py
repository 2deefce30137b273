"""Who runs syncs: in place, or in a thread that is waited for only briefly."""

import asyncio
import errno
import os
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import NoReturn

import pytest

from cluster.storage.files import Files
from cluster.storage.journal import Journal, JournalError, Sync
from cluster.storage.sync_runner import InPlace, SyncThread


class SlowFiles(Files):
    """A real disk whose syncs wait until they are let go."""

    def __init__(self) -> None:
        self.is_free = threading.Event()
        self.is_free.set()
        self.threads: list[str] = []

    def fdatasync(self, fd: int) -> None:
        """Wait, then sync."""
        assert self.is_free.wait(20)
        self.threads.append(threading.current_thread().name)
        super().fdatasync(fd)


async def settle() -> None:
    """Let everything happen that is due."""
    for _ in range(10):
        await asyncio.sleep(0)


def begun(journal: Journal) -> Sync:
    """Return a sync of one more entry."""
    journal.add(b"entry", journal.last_index + 1, 1)
    sync = journal.begin_sync()
    assert sync is not None
    return sync


def test_in_place_it_has_ended_when_start_returns(tmp_path: Path) -> None:
    """Nothing else happens meanwhile."""
    journal, told = Journal.open(tmp_path), []
    sync = begun(journal)
    runner = InPlace()
    runner.start(sync, lambda: told.append("ended"))
    assert told == ["ended"]
    assert sync.took_s > 0
    journal.end_sync(sync)
    runner.close()
    journal.close()


async def test_a_quick_sync_is_waited_for(tmp_path: Path) -> None:
    """It runs in another thread, and has ended when `start` returns: no turn of the loop is lost."""
    files = SlowFiles()
    journal, told = Journal.open(tmp_path, files=files), []
    runner = SyncThread(asyncio.get_running_loop().call_soon_threadsafe, patience_s=10)
    for _ in range(3):
        sync = begun(journal)
        runner.start(sync, lambda: told.append("ended"))
        journal.end_sync(sync)
    assert told == ["ended"] * 3
    assert files.threads[-3:] == ["sync"] * 3
    await settle()
    assert told == ["ended"] * 3, "it is told once"
    runner.close()
    runner.close()
    journal.close()


async def test_a_slow_sync_is_told_later_and_the_loop_goes_on(tmp_path: Path) -> None:
    """`start` returns after its patience; the end comes through the loop, once."""
    files = SlowFiles()
    journal, told = Journal.open(tmp_path, files=files), []
    runner = SyncThread(asyncio.get_running_loop().call_soon_threadsafe, patience_s=0.001)
    files.is_free.clear()
    sync = begun(journal)
    began_s = time.monotonic()
    runner.start(sync, lambda: told.append(threading.current_thread().name))
    assert time.monotonic() - began_s < 5
    await settle()
    assert told == []
    threading.Timer(0.05, files.is_free.set).start()
    async with asyncio.timeout(20):
        while not told:  # noqa: ASYNC110 - the end is told to a list
            await asyncio.sleep(0.001)
    assert told == [threading.main_thread().name]
    assert sync.took_s > 0.04
    journal.end_sync(sync)
    assert journal.synced_index == 1
    runner.close()
    journal.close()


async def test_an_end_at_the_limit_of_patience_is_told_exactly_once(tmp_path: Path) -> None:
    """Whoever comes first, thread or loop: never both, never neither."""
    journal, told = Journal.open(tmp_path), []
    runner = SyncThread(asyncio.get_running_loop().call_soon_threadsafe, patience_s=0.0002)
    for number in range(300):
        sync = begun(journal)
        runner.start(sync, lambda number=number: told.append(number))  # type: ignore[misc]
        async with asyncio.timeout(20):
            while len(told) <= number:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0)
        journal.end_sync(sync)
    await settle()
    assert told == list(range(300))
    runner.close()
    journal.close()


async def test_closing_waits_for_what_is_under_way(tmp_path: Path) -> None:
    """Also when the loop is gone before the end can be told."""
    files = SlowFiles()
    journal = Journal.open(tmp_path, files=files)

    def closed(_: object) -> None:
        raise RuntimeError("Event loop is closed")

    runner = SyncThread(closed, patience_s=0.001)
    files.is_free.clear()
    sync = begun(journal)
    runner.start(sync, lambda: None)
    threading.Timer(0.05, files.is_free.set).start()
    journal.close()
    runner.close()
    again = Journal.open(tmp_path)
    assert again.last_index == 1
    again.close()


class Interrupted:
    """The end of a pipe at which somebody waits, until a signal comes."""

    def poll(self, _: float) -> NoReturn:
        """Do not get far."""
        raise KeyboardInterrupt


async def test_the_end_of_a_sync_is_never_taken_for_that_of_the_next(tmp_path: Path) -> None:
    """Who was interrupted while it waited has not heard the call, which then comes too early for the next."""
    files = SlowFiles()
    journal, told = Journal.open(tmp_path, files=files), []
    runner = SyncThread(asyncio.get_running_loop().call_soon_threadsafe, patience_s=10)
    sync = begun(journal)
    runner.start(sync, lambda: None)
    journal.end_sync(sync)
    ends, runner._ends = runner._ends, Interrupted()  # type: ignore[assignment]
    sync = begun(journal)
    with pytest.raises(KeyboardInterrupt):
        runner.start(sync, lambda: None)
    journal.wait()
    runner._ends = ends
    assert ends.poll(20_000), "the call is there"
    files.is_free.clear()
    sync = begun(journal)
    runner.start(sync, lambda: told.append("ended"))
    assert told == [], "nothing of it is on disk"
    files.is_free.set()
    async with asyncio.timeout(20):
        while not told:  # noqa: ASYNC110 - the end is told to a list
            await asyncio.sleep(0.001)
    journal.end_sync(sync)
    runner.close()
    journal.close()


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (os, "pipe", OSError(errno.EMFILE, "Too many open files")),
        (threading.Thread, "start", RuntimeError("can't start new thread")),
    ],
)
def test_nobody_waits_for_a_sync_that_no_thread_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error: Exception
) -> None:
    """A node that gets no descriptors or no thread stops: to close its journal does not take for ever."""

    def lacking(*_: object) -> NoReturn:
        raise error

    journal = Journal.open(tmp_path)
    runner = SyncThread(lambda _: None)
    sync = begun(journal)
    monkeypatch.setattr(owner, name, lacking)
    with pytest.raises(type(error)):
        runner.start(sync, lambda: None)
    monkeypatch.undo()
    runner.close()
    said: SimpleQueue[str] = SimpleQueue()

    def close() -> None:
        with pytest.raises(JournalError) as failed:
            journal.close()
        said.put(str(failed.value))

    threading.Thread(target=close, daemon=True).start()
    assert "something failed before the sync could be run" in said.get(timeout=20)
