"""Keys that run out of memory while they are compared: what is being sorted stops there, half done."""

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar


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
