"""How much memory this process uses, apart from what its allocators keep free for later.

What the kernel tells (the resident size) says little of a leak: Python's allocator gives back only whole
blocks of a mebibyte, so after a load most of what it took stays, free but mapped. What is in use goes down.
"""

import ctypes
import sys
from typing import Final

_libc = ctypes.CDLL(None)


class _Mallinfo2(ctypes.Structure):
    """The answer of glibc's `mallinfo2` (2.33): bytes of all its heaps together."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


IS_MALLOC_KNOWN: Final = hasattr(_libc, "mallinfo2")
"""Whether this C library tells what it has given out."""
if IS_MALLOC_KNOWN:
    _libc.mallinfo2.restype = _Mallinfo2


def small_blocks() -> int:
    """Return how many blocks of up to 512 bytes Python uses: nearly all objects are made of such.

    It looks at every page of them: 0.1 ms for each 100 MiB.
    """
    return sys.getallocatedblocks()


def malloc_bytes() -> int:
    """Return how many bytes the C library has given out: larger objects, buffers. 0 if it does not tell."""
    if not IS_MALLOC_KNOWN:
        return 0
    info = _libc.mallinfo2()
    return int(info.uordblks) + int(info.hblkhd)
