"""Run one piece of work in a forked child, so that the event loop does not wait for it.

The child sees the memory as it was at the fork: a consistent state for free. It must not touch anything else
of its parent: it closes all inherited descriptors (sockets, the lock of the data directory), resets all
signal handlers, leaves the session, and dies when the parent dies. It never returns into the caller's code.
"""

import contextlib
import ctypes
import gc
import logging
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, NoReturn

from cluster.errors import StateDamaged

logger = logging.getLogger(__name__)

ChildState = Literal["idle", "running", "done", "failed"]

EXIT_PARENT_GONE: Final = 201
"""The exit code of a child whose parent ended first."""
EXIT_FAILED: Final = 202
"""The exit code of a child that failed with anything but an OSError."""
ERRNO_MAX: Final = 200
"""The highest exit code that is an errno: that of the OSError with which the child failed."""
EXIT_DAMAGED: Final = 203
"""The exit code of a child that found the state of its parent damaged."""
NICENESS: Final = 10
"""The nice value of a child: it gets the processor time that nodes leave."""
GROUP_TRIES: Final = 20
"""How often a child tries to give its nice value to its session."""
GROUP_PAUSE_S: Final = 0.1
"""The pause between two tries, in seconds."""
PATIENCE_S: Final = 10.0
"""The time, in seconds, after which the session of a child gets as much of the processors as any other.

On a machine that is busy with something else it had a tenth of one so far, and meanwhile the log grows."""

_PR_SET_PDEATHSIG: Final = 1
_AUTOGROUP: Final = "/proc/{}/autogroup"
_libc = ctypes.CDLL(None)  # loaded here: a forked child of a process with threads must not load libraries


class Child:
    """At most one forked child at a time."""

    def __init__(self) -> None:
        """Begin idle."""
        self.pid = 0
        self.forks_count = 0
        """How many children were started. The writes of each split memory that it shares with the parent."""
        self._is_failed = False
        self._is_killed = False
        self._hurry_at_s: float | None = None

    @property
    def is_running(self) -> bool:
        """Whether a child was started whose end `poll` has not returned yet."""
        return self.pid != 0 or self._is_failed

    def start(self, work: Callable[[], None]) -> None:
        """Fork and do `work` in the child. If no process can be made, the next `poll` returns "failed"."""
        assert not self.is_running, "the last child's end was not polled"
        parent_pid = os.getpid()
        # No handler of ours may run in the child, not even between the fork and its first statement.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns of threads; the child takes no lock that another thread may hold.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if pid == 0:
                _run(work, parent_pid)
            self.pid = pid
            self.forks_count += 1
            self._hurry_at_s = time.monotonic() + PATIENCE_S
        except OSError as error:
            logger.warning("event=fork-failed error=%r", str(error))
            self._is_failed = True
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def poll(self) -> ChildState:
        """Return how the child is, without waiting; "done" and "failed" exactly once.

        Raises StateDamaged if the child found that it must not write what it was to write.
        """
        if self._is_failed:
            self._is_failed = False
            return "failed"
        if self.pid == 0:
            return "idle"
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            logger.warning("event=child-lost pid=%d", self.pid)
            self.pid = 0
            self._is_killed = False
            return "failed"
        if pid == 0:
            self._hurry()
            return "running"
        self.pid = 0
        is_killed, self._is_killed = self._is_killed, False
        code = os.waitstatus_to_exitcode(status)
        if code == 0 and not is_killed:
            logger.info("event=child-done pid=%d", pid)
            return "done"
        if code == EXIT_DAMAGED:
            raise StateDamaged
        logger.warning("event=child-failed pid=%d exit_code=%d reason=%r", pid, code, _reason(code))
        return "failed"

    def _hurry(self) -> None:
        """Let the session of a child that takes long have as much of the processors as any other."""
        if self._hurry_at_s is None or time.monotonic() < self._hurry_at_s:
            return
        self._hurry_at_s = None
        try:
            if os.getsid(self.pid) == self.pid:
                Path(_AUTOGROUP.format(self.pid)).write_bytes(b"0")
        except BlockingIOError:
            self._hurry_at_s = time.monotonic() + GROUP_PAUSE_S
        except OSError as error:
            logger.info("event=child-not-hurried pid=%d error=%r", self.pid, str(error))

    def kill(self) -> None:
        """Make a running child fail, even if it has just finished; `poll` returns that when it is gone."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)  # not reaped yet, so the pid is still this child's
            self._is_killed = True

    def stop(self) -> None:
        """End a running child now and wait for it. `poll` has nothing to return of it."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            self.pid = 0
        self._is_failed = self._is_killed = False


def _reason(code: int) -> str:
    if code < 0:
        return f"killed by signal {-code}"
    if code == EXIT_PARENT_GONE:
        return "its parent ended"
    return "unexpected error, see standard error" if code == EXIT_FAILED else os.strerror(code)


def _run(work: Callable[[], None], parent_pid: int) -> NoReturn:
    """Run as the child: detach, work, exit."""
    code = EXIT_FAILED
    try:
        _detach(parent_pid)
        work()
        code = 0
    except StateDamaged:
        code = EXIT_DAMAGED
    except OSError as error:
        code = error.errno if error.errno and 0 < error.errno <= ERRNO_MAX else EXIT_FAILED
    except BaseException:  # noqa: BLE001 - nothing may travel up into the copy of the node's code
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _detach(parent_pid: int) -> None:
    """Give up what belongs to the parent."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(EXIT_PARENT_GONE)
    gc.disable()  # a collection would copy most of the shared memory
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.nice(NICENESS)
    _leave_session()


def _leave_session() -> None:
    """Let the nice value count against all programs, where the kernel groups them by session.

    With autogroups (Linux, sched(7)) sessions share the processors evenly, and a nice value counts
    within its session only: this child would take as much from other nodes on this machine as they have.
    Where a session can have no nice value this one is not left: there it counts at least against this node.
    If it is only refused when it is given, the session has as much as any other, as after PATIENCE_S.
    """
    try:
        group = os.open(_AUTOGROUP.format("self"), os.O_WRONLY)
    except OSError:  # no such groups here, or no right to change them
        return
    try:
        os.setsid()
        _be_nice(group)
    except OSError:
        return
    finally:
        os.close(group)


def _be_nice(group: int) -> None:
    """Give the nice value to the group of this session. Raises OSError."""
    for _ in range(GROUP_TRIES):
        try:
            os.write(group, b"%d" % NICENESS)
        except BlockingIOError:  # the kernel takes one such change in 100 ms, of all users but root
            time.sleep(GROUP_PAUSE_S)
        else:
            return
