"""A large process gathers its memory in huge pages, and leaves alone what it shares with a forked child."""

import mmap
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.storage import huge_pages
from cluster.storage.forked_child import Child
from cluster.storage.huge_pages import HUGE_BYTES, HugePages, private_mappings

DEADLINE_S = 30
BLOCKS = 8

needs_huge_pages = pytest.mark.skipif(
    not huge_pages.is_supported() or not huge_pages.is_wanted(),
    reason="no MADV_COLLAPSE (Linux 6.1), or switched off",
)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; fail after the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        os.sched_yield()


def huge_bytes() -> int:
    """Return how much of this process's memory is in huge pages."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("AnonHugePages"))


def fill(block: mmap.mmap, every: int = 1) -> None:
    """Write to every so many pages."""
    for offset in range(0, len(block), mmap.PAGESIZE * every):
        block[offset] = 1


@pytest.fixture
def block() -> Iterator[mmap.mmap]:
    """Return memory for some huge pages, whatever it begins at."""
    with mmap.mmap(-1, (BLOCKS + 1) * HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as mapped:
        yield mapped


@pytest.fixture
def child() -> Iterator[Child]:
    """Return a child that is ended after the test."""
    made = Child()
    yield made
    made.stop()


def test_only_own_data_is_gathered() -> None:
    """Of all mappings the heap and those without a file count, and of these the whole huge pages."""
    maps = (
        "00000000-00400000 rw-p 00000000 00:00 0                                  [heap]\n"
        "00500000-00a00000 rw-p 00000000 00:00 0 \n"
        "00b00000-00d00000 rw-p 00000000 00:00 0 \n"
        "01000000-01200000 r--p 00000000 00:00 0 \n"
        "02000000-02200000 rw-s 00000000 00:00 0 \n"
        "03000000-03200000 rw-p 00000000 fe:00 77                                 /usr/lib/a name.so\n"
        "04000000-04200000 rw-p 00000000 00:00 0                                  [anon: of Python]\n"
        "05000000-05200000 rw-p 00000000 00:00 0                                  [stack]\n"
    )
    assert list(private_mappings(maps)) == [(0, 0x400000), (0x600000, 0xA00000), (0x4000000, 0x4200000)]


@needs_huge_pages
def test_memory_in_small_pages_is_gathered(block: mmap.mmap, child: Child) -> None:
    """What was in small pages is in huge ones, with the same content, and there is no more to do then."""
    fill(block)
    before_bytes, content = huge_bytes(), block[:]
    HugePages(child).gather()
    assert huge_bytes() >= before_bytes + (BLOCKS - 1) * HUGE_BYTES
    assert block[:] == content


@needs_huge_pages
def test_memory_that_is_hardly_used_stays_as_it_is(block: mmap.mmap, child: Child) -> None:
    """What is mostly not there yet is not made: the process would grow."""
    HugePages(child).gather()
    fill(block, every=4)
    before_bytes = huge_pages.resident_bytes()
    HugePages(child).gather()
    assert huge_pages.resident_bytes() < before_bytes + HUGE_BYTES


@needs_huge_pages
def test_nothing_is_gathered_while_a_child_shares_it(block: mmap.mmap, child: Child) -> None:
    """While a forked child runs no page is touched; when it has ended they are."""
    fill(block)
    child.start(signal.pause)
    pages = HugePages(child, process_bytes_min=0, period_s=0.001)
    before_bytes = huge_bytes()
    assert pages.gather() == 0
    assert huge_bytes() <= before_bytes
    assert pages.begin()
    try:
        child.kill()
        wait_until(lambda: child.poll() == "failed")
        wait_until(lambda: huge_bytes() >= before_bytes + (BLOCKS - 1) * HUGE_BYTES)
    finally:
        pages.stop()


@needs_huge_pages
def test_it_gathers_again_after_a_fork(block: mmap.mmap, child: Child) -> None:
    """What a child and its parent have split is gathered again though the process did not grow."""
    fill(block)
    pages = HugePages(child, process_bytes_min=0, period_s=0.001)
    before_bytes = huge_bytes()
    gathered_bytes = before_bytes + (BLOCKS - 1) * HUGE_BYTES
    assert pages.begin()
    try:
        wait_until(lambda: huge_bytes() >= gathered_bytes)
        child.start(signal.pause)
        fill(block)
        assert huge_bytes() < gathered_bytes, "or the test would not show anything"
        child.kill()
        wait_until(lambda: child.poll() == "failed")
        wait_until(lambda: huge_bytes() >= gathered_bytes)
    finally:
        pages.stop()


def test_a_small_process_is_left_alone(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below its minimum the thread looks and gathers nothing; above it does."""
    gathered: list[HugePages] = []
    looked: list[int] = []

    def gather(pages: HugePages) -> int:
        gathered.append(pages)
        return 0

    def resident_bytes() -> int:
        looked.append(1000)
        return 1000

    monkeypatch.setattr(HugePages, "gather", gather)
    monkeypatch.setattr(huge_pages, "is_supported", lambda: True)
    monkeypatch.setattr(huge_pages, "is_wanted", lambda: True)
    monkeypatch.setattr(huge_pages, "resident_bytes", resident_bytes)
    for minimum, is_gathered in ((1001, False), (1000, True)):
        looked.clear()
        pages = HugePages(child, process_bytes_min=minimum, period_s=0.001)
        assert pages.begin()
        wait_until(lambda: len(looked) >= 3)
        pages.stop()
        assert bool(gathered) == is_gathered
    assert len(gathered) == 1, "what has not changed is gathered once"


def test_a_kernel_without_it_is_left_alone(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel does not know the advice no thread is started, and stopping is harmless."""
    monkeypatch.setattr(huge_pages, "_MADV_COLLAPSE", 9999)
    pages = HugePages(child)
    assert not pages.begin()
    pages.stop()


def test_an_administrator_can_switch_it_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The system's setting `never` is respected, although the kernel would do it nevertheless."""
    setting = tmp_path / "enabled"
    monkeypatch.setattr(huge_pages, "_SETTING", setting)
    for text, is_wanted in (("always madvise [never]\n", False), ("always [madvise] never\n", True)):
        setting.write_text(text)
        assert huge_pages.is_wanted() == is_wanted
