"""What a process is told of the memory it uses: it rises with objects and buffers, and falls without them."""

import gc

import pytest

from cluster.observing import live_memory

MIB = 1024 * 1024


def test_small_objects_count_as_long_as_they_live() -> None:
    """Each tuple takes a block, and each number another one; so does little else that goes on meanwhile."""
    gc.collect()
    before = live_memory.small_blocks()
    kept = [(number, -number) for number in range(100_000, 300_000)]
    count = len(kept)
    assert live_memory.small_blocks() - before > 2 * count
    kept.clear()
    assert live_memory.small_blocks() - before < count // 4


@pytest.mark.skipif(not live_memory.IS_MALLOC_KNOWN, reason="this C library does not tell what it gave out")
@pytest.mark.parametrize("size_bytes", [2_000, 16 * MIB])
def test_what_malloc_has_given_out_counts_as_long_as_it_is_used(size_bytes: int) -> None:
    """Also what it maps for itself, as it does for large ones."""
    before = live_memory.malloc_bytes()
    kept = [bytes(size_bytes) for _ in range(32 * MIB // size_bytes)]
    assert live_memory.malloc_bytes() - before >= 31 * MIB
    kept.clear()
    assert live_memory.malloc_bytes() - before < MIB
