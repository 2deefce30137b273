"""Exceptions planted where nobody expects them: at operations of the disk, or between two lines of code."""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal

from cluster.storage.files import Files

ERRORS: Final[tuple[Callable[[], BaseException], ...]] = (
    lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    MemoryError,
    KeyboardInterrupt,
    lambda: ValueError("planted"),
)
"""What may come up at any moment: from the disk, from memory that is short, from a signal, from a mistake."""

When = Literal["before", "within", "after"]
"""Whether the operation has had no effect yet, half of it, or all of it. Only a write can have half."""

_ROOT: Final = Path(__file__).parents[2]
_GIVES_DESCRIPTOR: Final = ("create", "open", "open_to_read", "lock")


class FailingFiles(Files):
    """The disk `inner`, of which operation number `fail_at` (from 1) raises an exception, once."""

    def __init__(
        self,
        inner: Files,
        fail_at: int = 0,
        error: Callable[[], BaseException] = MemoryError,
        when: When = "before",
    ) -> None:
        """Fail at no operation if `fail_at` is 0."""
        self.inner = inner
        self.fail_at = fail_at
        self.error = error
        self.when = when
        self.operations: list[str] = []
        self.descriptors: set[int] = set()
        self.lost_descriptors_count = 0

    @property
    def has_failed(self) -> bool:
        """Whether the exception has come."""
        return 0 < self.fail_at <= len(self.operations)

    @property
    def since_failure(self) -> list[str]:
        """Return the operations behind the one that failed."""
        return self.operations[self.fail_at :]

    def carry_out(self, name: str, *args: Any) -> Any:
        """Do one operation, or fail at it."""
        self.operations.append(name)
        fails = len(self.operations) == self.fail_at
        if fails and self.when == "before":
            raise self.error()
        if fails and self.when == "within" and name in ("write", "write_at"):
            fd, data, *offset = args
            getattr(self.inner, name)(fd, data[: len(data) // 2], *offset)
            raise self.error()
        result = getattr(self.inner, name)(*args)
        if name == "close":
            self.descriptors.discard(args[0])
        if fails:
            self.lost_descriptors_count += name in _GIVES_DESCRIPTOR
            raise self.error()
        if name in _GIVES_DESCRIPTOR:
            self.descriptors.add(result)
        return result


def _counted(name: str) -> Callable[..., Any]:
    def operation(self: FailingFiles, *args: Any) -> Any:
        return self.carry_out(name, *args)

    return operation


for _name in vars(Files):
    if not _name.startswith("_"):
        setattr(FailingFiles, _name, _counted(_name))


class Planted:
    """Tells whether and where the exception was raised."""

    where = ""
    lines_count = 0
    """How many lines were run."""


@contextmanager
def raised_at_line(
    number: int, files: tuple[str, ...], error: Callable[[], BaseException] = MemoryError
) -> Iterator[Planted]:
    """Raise an exception before line number `number` (from 1) that is run in one of `files`, once.

    `files` are paths from the root of the repository. Only functions that are called within count.
    """
    names = {str(_ROOT / file) for file in files}
    planted = Planted()

    def in_function(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            planted.lines_count += 1
            if planted.lines_count == number:
                planted.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                raise error()
        return in_function

    def at_call(frame: FrameType, _event: str, _arg: object) -> Any:
        return in_function if frame.f_code.co_filename in names else None

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        yield planted
    finally:
        sys.settrace(before)
