"""Linux's asynchronous fdatasync (`io_submit` with IOCB_CMD_FDSYNC, told by an eventfd), called by ctypes.

The kernel syncs in a thread of its own, so a process needs none, and does not wait. See io_setup(2),
io_submit(2), io_getevents(2) and eventfd(2). The calls have no wrappers in the C library; their numbers are
those of the architecture. io_uring could do the same, but container engines forbid it by default.
"""

import ctypes
import errno
import os
import platform
import sys
from typing import Final, NamedTuple

_FDSYNC: Final = 3
_FLAG_RESFD: Final = 1


class _Numbers(NamedTuple):
    setup: int
    destroy: int
    submit: int
    getevents: int


_NUMBERS: Final = {"x86_64": _Numbers(206, 207, 209, 208), "aarch64": _Numbers(0, 1, 2, 4)}


class _Iocb(ctypes.Structure):
    """`struct iocb` of a little-endian machine (linux/aio_abi.h)."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_int32),
        ("opcode", ctypes.c_uint16),
        ("reqprio", ctypes.c_int16),
        ("fildes", ctypes.c_uint32),
        ("buf", ctypes.c_uint64),
        ("nbytes", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("resfd", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    """`struct io_event`."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("obj", ctypes.c_uint64),
        ("res", ctypes.c_int64),
        ("res2", ctypes.c_int64),
    )


class KernelAio:
    """Runs one fdatasync at a time. `eventfd` becomes readable when it has ended. One thread."""

    def __init__(self) -> None:
        """Prepare it. Raises OSError where the system has no such calls, or no room for one more."""
        numbers = _NUMBERS.get(platform.machine()) if sys.byteorder == "little" else None
        if numbers is None or sys.platform != "linux":
            raise OSError(errno.ENOSYS, "no numbers of its asynchronous calls are known for this machine")
        self._numbers = numbers
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        self._call(numbers.setup, ctypes.c_long(1), ctypes.byref(self._context))
        try:
            self.eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except BaseException:
            self._call(numbers.destroy, self._context)
            raise
        self._iocb = _Iocb(opcode=_FDSYNC, flags=_FLAG_RESFD, resfd=self.eventfd)
        self._iocbs = (ctypes.POINTER(_Iocb) * 1)(ctypes.pointer(self._iocb))
        self._event = _Event()
        # Made once: what is begun must not fail for want of memory half-way.
        self._submit_arguments = (
            ctypes.c_long(numbers.submit),
            self._context,
            ctypes.c_long(1),
            ctypes.byref(self._iocbs),
        )

    def _call(self, number: int, *arguments: object) -> int:
        result: int = self._syscall(ctypes.c_long(number), *arguments)
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result

    def begin_fdatasync(self, fd: int) -> None:
        """Let the kernel sync the file `fd`. The last one has ended. Raises OSError: nothing is under way."""
        self._iocb.fildes = fd
        if self._syscall(*self._submit_arguments) != 1:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def result(self, *, waits: bool) -> OSError | None:
        """Return how the sync has ended: None if all is on disk.

        `waits` until it has ended; without, it has. Raises BlockingIOError if it has not.
        """
        no_time = None if waits else ctypes.byref(_Timespec(0, 0))
        while True:
            try:
                count = self._call(
                    self._numbers.getevents,
                    self._context,
                    ctypes.c_long(1),
                    ctypes.c_long(1),
                    ctypes.byref(self._event),
                    no_time,
                )
            except InterruptedError:
                continue
            if count == 0:
                raise BlockingIOError(errno.EAGAIN, "the sync has not ended")
            code = -int(self._event.res)
            return OSError(code, os.strerror(code)) if code > 0 else None

    def close(self) -> None:
        """Wait for what is under way, and give everything back."""
        self._call(self._numbers.destroy, self._context)
        os.close(self.eventfd)


class _Timespec(ctypes.Structure):
    """`struct timespec`."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))
