"""Want of memory: keys that run out of it while they are compared, and allocations that fail.

What is being sorted stops there, half done.
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest


class _Compared:
    """Mixed into a kind of key: counts comparisons, of which the last one fails."""

    left: ClassVar[int] = -1

    def __lt__(self, other: Any) -> bool:
        _Compared.left -= 1
        if _Compared.left == 0:
            raise MemoryError
        smaller: bool = super().__lt__(other)  # type: ignore[misc]
        return smaller


class ShortOfMemory(_Compared, str):
    """A text."""

    __slots__ = ()


class ShortOfMemoryBytes(_Compared, bytes):
    """Bytes."""


class ShortOfMemoryNumber(_Compared, int):
    """A number."""


@contextlib.contextmanager
def short_of_memory(comparisons: int) -> Iterator[None]:
    """Let the comparison with this number fail, if it comes, and everything that it is done for."""
    _Compared.left = comparisons
    with contextlib.suppress(MemoryError):
        yield
    _Compared.left = -1


@contextlib.contextmanager
def failing_allocation(number: int) -> Iterator[None]:
    """Let the allocation with this number fail, if it comes, and everything that it is done for."""
    testcapi = pytest.importorskip("_testcapi", reason="this Python cannot let an allocation fail")
    hook, sys.unraisablehook = sys.unraisablehook, lambda *_: None
    try:
        with contextlib.suppress(MemoryError):
            testcapi.set_nomemory(number, number + 1)
            yield
    finally:
        testcapi.remove_mem_hooks()
        sys.unraisablehook = hook
