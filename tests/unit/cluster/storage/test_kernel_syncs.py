"""Syncs run by the kernel: what is quick is written and left to it, all else goes to the thread."""

import asyncio
import errno
import os
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from cluster.storage import kernel_syncs
from cluster.storage.files import Files
from cluster.storage.journal import Journal, JournalError, Sync
from cluster.storage.kernel_aio import KernelAio
from cluster.storage.kernel_syncs import KernelSyncs, runner_for
from cluster.storage.sync_runner import SyncThread


def aio_or_skip() -> KernelAio:
    """Return the kernel's syncs; skip the test where a system has none."""
    try:
        return KernelAio()
    except OSError as error:
        pytest.skip(f"this kernel syncs nothing by itself: {error}")


class WatchedThread(SyncThread):
    """A thread that counts what it gets."""

    count = 0

    def start(self, sync: Sync, ended: Callable[[], None]) -> None:
        """Count, and run it."""
        self.count += 1
        super().start(sync, ended)


class SlowAio(KernelAio):
    """A kernel whose syncs end when they are let go: the event comes from a pipe of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.real_eventfd = self.eventfd
        self.eventfd = os.eventfd(0, os.EFD_NONBLOCK)

    def let_go(self) -> None:
        """Tell what has ended meanwhile, when it has."""
        assert select.select([self.real_eventfd], [], [], 20)[0], "no sync has ended"
        os.eventfd_write(self.eventfd, 1)

    def close(self) -> None:
        """Give both back."""
        super().close()
        os.close(self.real_eventfd)


@pytest.fixture
def aio() -> Iterator[KernelAio]:
    """Return the kernel's syncs."""
    aio = aio_or_skip()
    yield aio
    aio.close()


@pytest.fixture
def thread() -> Iterator[WatchedThread]:
    """Return the thread for the rest; patience enough to hear of every end at once."""
    thread = WatchedThread(lambda ended: pytest.fail(f"too late: {ended}"), patience_s=20)
    yield thread
    thread.close()


def begun(journal: Journal, size: int = 5) -> Sync:
    """Return a sync of one more entry."""
    journal.add(b"e" * size, journal.last_index + 1, 1)
    sync = journal.begin_sync()
    assert sync is not None
    return sync


async def until_told(told: Sequence[object], count: int) -> None:
    """Wait until so many ends have been told."""
    async with asyncio.timeout(20):
        while len(told) < count:  # noqa: ASYNC110 - ends are told to a list
            await asyncio.sleep(0.001)


def test_a_file_is_synced_and_the_end_is_told(aio: KernelAio, tmp_path: Path) -> None:
    """The event comes, and says that all went well; then the next may begin."""
    with (tmp_path / "file").open("wb") as file:
        for _ in range(3):
            file.write(b"x")
            file.flush()
            aio.begin_fdatasync(file.fileno())
            assert aio.result(waits=True) is None
            assert os.eventfd_read(aio.eventfd) == 1


def test_nothing_is_under_way_after_a_refusal(aio: KernelAio) -> None:
    """A file that is none is refused at once, and there is no result."""
    with pytest.raises(OSError, match="Bad file descriptor"):
        aio.begin_fdatasync(1_000_000)
    with pytest.raises(BlockingIOError):
        aio.result(waits=False)


def test_what_cannot_be_synced_is_an_error(aio: KernelAio) -> None:
    """A pipe has no disk: whether told at once or with the event, it is an error."""
    reading, writing = os.pipe()
    try:
        with pytest.raises(OSError, match="Invalid argument"):
            aio.begin_fdatasync(writing)
    finally:
        os.close(reading)
        os.close(writing)


async def test_overwrites_go_to_the_kernel_and_the_rest_to_the_thread(
    thread: WatchedThread, tmp_path: Path
) -> None:
    """Every end is told once, in order, and everything is there afterwards."""
    journal, told = Journal.open(tmp_path), []
    runner = KernelSyncs(asyncio.get_running_loop(), aio_or_skip(), thread)
    for number in range(1, 101):
        sync = begun(journal, size=20_000)
        runner.start(sync, lambda number=number: told.append(number))  # type: ignore[misc]
        await until_told(told, number)
        assert sync.took_s >= 0
        journal.end_sync(sync)
        assert journal.synced_index == number
    assert told == list(range(1, 101))
    assert 3 <= thread.count < 30, "only what lengthens the file"
    runner.close()
    runner.close()
    journal.close()
    again = Journal.open(tmp_path)
    assert [index for _, index, _ in again[:]] == list(range(1, 101))
    again.close()


async def test_who_waits_takes_the_end_over_and_the_event_tells_it(
    thread: WatchedThread, tmp_path: Path
) -> None:
    """`Journal.wait` and `close` need no loop; what is told later does no harm."""
    journal, told = Journal.open(tmp_path), []
    runner = KernelSyncs(asyncio.get_running_loop(), aio_or_skip(), thread)
    runner.start(begun(journal), lambda: told.append("first"))
    journal.wait()
    assert journal.synced_index == 1
    await until_told(told, 1)
    runner.start(begun(journal), lambda: told.append("second"))
    journal.close()
    runner.close()
    again = Journal.open(tmp_path)
    assert again.last_index == 2
    again.close()


async def test_the_loop_goes_on_and_nothing_counts_meanwhile(thread: WatchedThread, tmp_path: Path) -> None:
    """Before the event there is no end, and the next sync begins behind it only."""
    aio_or_skip().close()
    aio = SlowAio()
    journal, told = Journal.open(tmp_path), []
    journal.add(b"first", 1, 1)
    journal.sync()
    runner = KernelSyncs(asyncio.get_running_loop(), aio, thread)
    sync = begun(journal)
    runner.start(sync, lambda: told.append("ended"))
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not told
    assert journal.synced_index == 1
    journal.add(b"meanwhile", 3, 1)
    assert journal.wants_sync
    aio.let_go()
    await until_told(told, 1)
    journal.end_sync(sync)
    assert journal.synced_index == 2
    runner.close()
    journal.close()


async def test_behind_a_slow_sync_the_thread_writes(
    thread: WatchedThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk in trouble may hold up the write, too; when it is quick again, so is the way."""
    journal, told = Journal.open(tmp_path), []
    journal.add(b"first", 1, 1)
    journal.sync()
    runner = KernelSyncs(asyncio.get_running_loop(), aio_or_skip(), thread)

    async def one_more() -> None:
        sync = begun(journal)
        runner.start(sync, lambda: told.append("ended"))
        await until_told(told, journal.last_index - 1)
        journal.end_sync(sync)

    monkeypatch.setattr(kernel_syncs, "SLOW_S", -1.0)
    await one_more()
    assert thread.count == 0
    await one_more()
    assert thread.count == 1
    monkeypatch.setattr(kernel_syncs, "SLOW_S", 1000.0)
    await one_more()
    assert thread.count == 2, "the one before was slow"
    await one_more()
    assert thread.count == 2
    runner.close()
    journal.close()


@pytest.mark.parametrize(("busy_s", "took_s"), [(0.0, 0.2), (0.19, 0.01), (0.3, 0.0)])
async def test_what_the_loop_does_meanwhile_is_not_the_time_of_the_disk(
    thread: WatchedThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, busy_s: float, took_s: float
) -> None:
    """A leader with much to do would hand over for a slow disk, and so would the next one."""
    aio_or_skip().close()
    aio = SlowAio()
    journal, told = Journal.open(tmp_path), []
    journal.add(b"first", 1, 1)
    journal.sync()
    runner = KernelSyncs(asyncio.get_running_loop(), aio, thread)
    now_s = busy_until_s = 100.0
    monkeypatch.setattr("time.perf_counter", lambda: now_s)
    monkeypatch.setattr("time.thread_time", lambda: busy_until_s)
    sync = begun(journal)
    runner.start(sync, lambda: told.append("ended"))
    now_s, busy_until_s = 100.2, 100.0 + busy_s
    aio.let_go()
    await until_told(told, 1)
    assert sync.took_s == pytest.approx(took_s)
    journal.end_sync(sync)
    runner.close()
    journal.close()


class RefusingAio(KernelAio):
    """A kernel that takes no more syncs."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error
        self.asked = 0

    def begin_fdatasync(self, fd: int) -> None:
        """Refuse."""
        assert fd > 0
        self.asked += 1
        raise self.error


async def test_a_sync_that_the_kernel_refuses_is_run_by_the_thread(
    thread: WatchedThread, tmp_path: Path
) -> None:
    """Kernels before 4.18, some file systems, and limits set later take no such sync: the node goes on.

    The block, written already, is not written again; the kernel is not asked again.
    """
    aio_or_skip().close()
    journal, told = Journal.open(tmp_path), []
    journal.add(b"first", 1, 1)
    journal.sync()
    aio = RefusingAio(OSError(errno.EINVAL, "no such sync"))
    runner = KernelSyncs(asyncio.get_running_loop(), aio, thread)
    for number in (1, 2, 3):
        sync = begun(journal)
        runner.start(sync, lambda: told.append("ended"))
        assert len(told) == number
        journal.end_sync(sync)
        assert journal.synced_index == number + 1
        assert thread.count == number
    assert aio.asked == 1
    journal.close()
    runner.close()
    again = Journal.open(tmp_path)
    assert [index for _, index, _ in again[:]] == [1, 2, 3, 4]
    again.close()


class DiskInTrouble(Files):
    """Files whose next sync fails when it is asked to."""

    fails = False

    def fdatasync(self, fd: int) -> None:
        """Fail, or not."""
        if self.fails:
            raise OSError(errno.EIO, "the disk is gone")
        super().fdatasync(fd)


async def test_a_refused_sync_that_fails_in_the_thread_is_a_failed_journal(
    thread: WatchedThread, tmp_path: Path
) -> None:
    """The thread's sync is the first one of the block: what it says counts, and nothing is tried again."""
    aio_or_skip().close()
    files = DiskInTrouble()
    journal, told = Journal.open(tmp_path, files=files), []
    journal.add(b"first", 1, 1)
    journal.sync()
    files.fails = True
    runner = KernelSyncs(
        asyncio.get_running_loop(), RefusingAio(OSError(errno.EAGAIN, "no room for it")), thread
    )
    sync = begun(journal)
    runner.start(sync, lambda: told.append("ended"))
    assert told == ["ended"]
    with pytest.raises(JournalError, match="the disk is gone"):
        journal.end_sync(sync)
    assert journal.synced_index == 1
    journal.close()
    runner.close()


async def test_memory_that_runs_out_on_the_way_is_a_failed_journal(
    thread: WatchedThread, tmp_path: Path
) -> None:
    """Nobody waits for ever for a sync that was never begun, and nothing is written twice."""
    aio_or_skip().close()
    journal = Journal.open(tmp_path)
    journal.add(b"first", 1, 1)
    journal.sync()
    runner = KernelSyncs(asyncio.get_running_loop(), RefusingAio(MemoryError()), thread)
    sync = begun(journal)
    with pytest.raises(MemoryError):
        runner.start(sync, lambda: None)
    with pytest.raises(JournalError, match="before the sync could be run"):
        journal.close()
    runner.close()
    again = Journal.open(tmp_path)
    assert again.last_index in (1, 2)
    again.close()


class SilentAio(SlowAio):
    """A kernel that does not say how a sync has ended."""

    error: OSError = BlockingIOError(errno.EAGAIN, "the sync has not ended")
    is_broken = True
    asked = 0

    def result(self, *, waits: bool) -> OSError | None:
        """Fail, or tell."""
        self.asked += 1
        if self.is_broken:
            raise self.error
        return super().result(waits=waits)


async def test_an_event_that_comes_too_early_ends_nothing(thread: WatchedThread, tmp_path: Path) -> None:
    """It may be that of an earlier sync, which somebody waited for: only the kernel's word is an end."""
    aio_or_skip().close()
    aio = SilentAio()
    journal, told = Journal.open(tmp_path), []
    journal.add(b"first", 1, 1)
    journal.sync()
    runner = KernelSyncs(asyncio.get_running_loop(), aio, thread)
    sync = begun(journal)
    runner.start(sync, lambda: told.append("ended"))
    aio.let_go()
    async with asyncio.timeout(20):
        while not aio.asked:  # noqa: ASYNC110 - the kernel is asked by a callback
            await asyncio.sleep(0.001)
    assert not told
    assert journal.synced_index == 1
    aio.is_broken = False
    aio.let_go()
    await until_told(told, 1)
    journal.end_sync(sync)
    assert journal.synced_index == 2
    runner.close()
    journal.close()


@pytest.mark.parametrize("is_waited_for", [True, False])
async def test_an_end_that_cannot_be_asked_for_is_a_failed_sync(
    thread: WatchedThread, tmp_path: Path, *, is_waited_for: bool
) -> None:
    """Nobody waits for ever for the end of a sync that nobody will tell."""
    aio_or_skip().close()
    aio = SilentAio()
    aio.error = OSError(errno.EINVAL, "no such context")
    journal, told = Journal.open(tmp_path), []
    journal.add(b"first", 1, 1)
    journal.sync()
    runner = KernelSyncs(asyncio.get_running_loop(), aio, thread)
    sync = begun(journal)
    runner.start(sync, lambda: told.append("ended"))
    if is_waited_for:
        with pytest.raises(JournalError, match="no such context"):
            journal.wait()
    aio.let_go()
    await until_told(told, 1)
    if not is_waited_for:
        with pytest.raises(JournalError, match="no such context"):
            journal.end_sync(sync)
    assert journal.synced_index == 1
    runner.close()
    journal.close()


class OwnFiles(Files):
    """Files that want to hear of every operation."""


async def test_only_real_files_are_left_to_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """All others are synced by the thread, through their own `fdatasync`; and where the kernel has no way."""
    loop = asyncio.get_running_loop()
    aio_or_skip().close()
    for files, kind in ((Files(), KernelSyncs), (OwnFiles(), SyncThread)):
        runner = runner_for(loop, files)
        assert type(runner) is kind
        runner.close()

    def none() -> KernelAio:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(kernel_syncs, "KernelAio", none)
    runner = runner_for(loop, Files())
    assert type(runner) is SyncThread
    runner.close()


async def test_a_forked_child_takes_nothing_along(thread: WatchedThread, tmp_path: Path) -> None:
    """A child that lives on while the parent syncs, and ends, changes nothing for the parent."""
    journal, told = Journal.open(tmp_path), []
    runner = KernelSyncs(asyncio.get_running_loop(), aio_or_skip(), thread)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    for number in range(1, 6):
        sync = begun(journal)
        runner.start(sync, lambda: told.append("ended"))
        await until_told(told, number)
        journal.end_sync(sync)
        if number == 3:
            os.close(writing)
            assert await asyncio.to_thread(os.waitpid, pid, 0) == (pid, 0)
    assert journal.synced_index == 5
    runner.close()
    journal.close()
    assert threading.active_count() < 10


class ForgetfulAio(KernelAio):
    """A kernel that has ended a sync, and memory that is short when we ask how."""

    def result(self, *, waits: bool) -> OSError | None:
        """Take the end, and have no memory to tell it."""
        super().result(waits=True)
        assert waits in (True, False)
        raise MemoryError


async def test_no_memory_to_hear_of_an_end_is_a_failed_journal(thread: WatchedThread, tmp_path: Path) -> None:
    """The event comes once: whoever waits is told, and does not wait for ever."""
    aio_or_skip().close()
    journal, told = Journal.open(tmp_path), []
    journal.add(b"first", 1, 1)
    journal.sync()
    runner = KernelSyncs(asyncio.get_running_loop(), ForgetfulAio(), thread)
    sync = begun(journal)
    runner.start(sync, lambda: told.append("ended"))
    await until_told(told, 1)
    with pytest.raises(JournalError, match="MemoryError"):
        journal.end_sync(sync)
    assert journal.synced_index == 1
    runner.close()
    journal.close()
