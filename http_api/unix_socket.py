"""The Unix socket of a node: a file that programs of the same machine connect to, if its mode lets them.

A socket outlives the process that made it, so a node replaces one that nobody listens at. It cannot tell that
of a node which has bound its socket and is about to listen; so a node locks a file beside it for as long as
it lives. The kernel frees the lock, however the process ends.
"""

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cluster import unix_path
from cluster.errors import ConfigError

MODE: Final = 0o660
"""Who may connect: the user and the group of the node."""
_LOCK_MODE: Final = 0o600


@contextlib.contextmanager
def bound(path: Path) -> Iterator[socket.socket]:
    """Make the socket, which does not listen yet, and remove it at the end. Raises ConfigError."""
    _check_folder(path)
    with _locked(path):
        if _is_stale(path):
            path.unlink(missing_ok=True)
        with contextlib.closing(_bind(path)) as listener:
            made = path.lstat()
            try:
                yield listener
            finally:
                _remove(path, made)


def _bind(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~MODE)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise _wrong(path, f"cannot be made: {error.strerror}") from None
    finally:
        os.umask(before)
    return listener


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other nodes from this path. Raises ConfigError if one has it."""
    lock = path.with_name(f"{path.name}.lock")
    descriptor = _lock(path, lock)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _lock(path: Path, lock: Path) -> int:
    """Return the descriptor that has the lock. Raises ConfigError."""
    while True:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _LOCK_MODE)
        except OSError as error:
            raise _wrong(path, f"{lock} cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), lock.lstat()):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise _in_use(path) from None
        except FileNotFoundError:
            """The node that had it has just ended, and has removed the file; below."""
        os.close(descriptor)


def check(path: Path) -> None:
    """Find out whether `bound` could make the socket, and make nothing. Raises ConfigError."""
    _check_folder(path)
    if not os.access(path.parent, os.W_OK | os.X_OK, effective_ids=True):
        raise _wrong(path, f"this user cannot write in {path.parent}: let the node write in it")
    _is_stale(path)


def _check_folder(path: Path) -> None:
    if not path.parent.is_dir():
        raise _wrong(path, f"there is no folder {path.parent}: make it, and let the node write in it")


def _is_stale(path: Path) -> bool:
    """Whether there is the socket of a process that has ended. Raises ConfigError if it is anything else."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise _wrong(path, "this is there and is not a socket: remove it, or choose another path")
        if _is_listening(path):
            raise _in_use(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _wrong(path, f"nobody knows whether a process listens at it: {error.strerror}") from None
    return True


def _is_listening(path: Path) -> bool:
    """Whether a living process has this socket. Raises OSError if that cannot be told."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # one that has no room for connections now would keep this node waiting
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except BlockingIOError:
            return True
    return True


def _remove(path: Path, made: os.stat_result) -> None:
    """Remove the socket, unless somebody has put something else in its place."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(path.lstat(), made):
            path.unlink()


class SocketInUse(ConfigError):
    """Another process listens at the socket."""


def _in_use(path: Path) -> SocketInUse:
    what = "another process listens at this socket: stop it, or choose another path"
    return SocketInUse(str(_wrong(path, what)))


def _wrong(path: Path, why: str) -> ConfigError:
    return ConfigError(f"http: {unix_path.url_of(path)}: {why}")
