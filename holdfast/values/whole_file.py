"""A file that is written whole, or not at all."""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

UNFINISHED: Final = ".part"
"""The end of the name of a file that is not whole yet."""
OWN: Final = 0o600
"""The rights of a file for its owner alone."""


@contextlib.contextmanager
def written(path: Path, mode: int = OWN, *, replaces: bool = True) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when the block ends well, and goes when it does not.

    Nobody else can read it meanwhile. Its name is its own, so two that write to one path do not mix. A link
    stays, and what it leads to is replaced. Raises OSError; FileExistsError if there is something already
    that it must not replace, such as a device.
    """
    path = _target(path) if replaces else path
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWN)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            yield file
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        if replaces:
            unfinished.replace(path)
        else:
            path.hardlink_to(unfinished)
    finally:
        unfinished.unlink(missing_ok=True)
    _sync_directory(path.parent)


def _target(path: Path) -> Path:
    """Return the file that a path stands for. Raises FileExistsError if it is there and is not a file.

    Only links of this user and of root are followed: in a folder such as /tmp anybody else could make one
    that leads to a file which this user alone may write.
    """
    if path.is_symlink() and path.lstat().st_uid in {0, os.geteuid()}:
        path = path.resolve()
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "is there, and is not a file", str(path))
    return path


def _sync_directory(directory: Path) -> None:
    """Make a new name durable, where directories can be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
