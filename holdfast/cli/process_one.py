"""Process 1 of a container: it has to reap every orphan, and nobody else passes signals on to its work.

`holdfast run` is started as process 1 by an image that has it as its entry point. Then it splits: the child
does the work, and the parent, which has no other child but orphans, is what an init is: it reaps, passes
signals on, and ends as the child did.
"""

import os
import signal
from typing import Final

from holdfast.cli import exit_codes

_PASSED_ON: Final = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""What is meant for the work; the kernel gives process 1 no signal that it does not ask for."""
_SENT_BY_KERNEL: Final = 0x80
"""SI_KERNEL of siginfo_t: the terminal has sent it, to the whole group, so to the child as well."""


def split() -> None:
    """Return in a child that does the work; in process 1 itself never return, but exit as the child did."""
    heard = {*_PASSED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    while True:
        told = signal.sigwaitinfo(heard)
        if told.si_signo == signal.SIGCHLD:
            status = _reap(child)
            if status is not None:
                os._exit(status)
        elif told.si_code != _SENT_BY_KERNEL:
            os.kill(child, told.si_signo)


def _reap(child: int) -> int | None:
    """Reap all that have ended; return the exit code of `child` if it is among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == child:
            ended = os.waitstatus_to_exitcode(status)
            code = ended if ended >= 0 else exit_codes.SIGNAL_BASE - ended
