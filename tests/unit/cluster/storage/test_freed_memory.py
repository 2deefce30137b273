"""A quiet node gives the memory that it has freed back to the system; a busy one keeps it for later."""

import itertools
import os
import time
from collections.abc import Callable

import pytest

from cluster.storage import freed_memory
from cluster.storage.freed_memory import FreedMemory
from scripts.lib.processes import resident_bytes

BLOCK_BYTES = 1500
"""Too large for Python's own allocator: such memory is of the C library."""
BLOCKS = 40_000
DEADLINE_S = 30

needs_glibc = pytest.mark.skipif(not freed_memory.is_supported(), reason="a C library without malloc_trim")


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; fail after the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        os.sched_yield()


def holes() -> list[bytes]:
    """Free most of 60 MB such that what stays lies all over it, as behind a log that was compacted."""
    return [bytes(BLOCK_BYTES) for _ in range(BLOCKS)][::40]


@needs_glibc
def test_what_a_quiet_process_has_freed_is_given_back() -> None:
    """The memory between objects that live goes back, without a word from anybody."""
    kept = holes()
    before_bytes = resident_bytes(os.getpid())
    freed = FreedMemory(0.01, itertools.repeat(0.0).__next__)
    assert freed.begin()
    try:
        wait_until(lambda: resident_bytes(os.getpid()) < before_bytes - BLOCKS * BLOCK_BYTES // 2)
    finally:
        freed.stop()
    assert len(kept) * 40 == BLOCKS


@needs_glibc
def test_a_busy_process_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes a processor's time is not stopped for it; it comes when that is over."""
    given_back: list[float] = []
    now_s = itertools.chain(map(float, range(10)), itertools.repeat(9.0)).__next__
    looks: list[float] = []

    def processor_s() -> float:
        looks.append(now_s())
        return looks[-1]

    def note() -> bool:
        given_back.append(looks[-1])
        return True

    monkeypatch.setattr(freed_memory, "give_back", note)
    freed = FreedMemory(0.001, processor_s)
    assert freed.begin()
    try:
        wait_until(lambda: len(given_back) >= 2)
    finally:
        freed.stop()
    assert set(given_back) == {9.0}
    assert looks[:10] == [float(number) for number in range(10)]


def test_where_there_is_no_such_call_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another C library: the node says so, and runs on as it is."""
    monkeypatch.setattr(freed_memory, "is_supported", lambda: False)
    freed = FreedMemory()
    assert not freed.begin()
    freed.stop()
