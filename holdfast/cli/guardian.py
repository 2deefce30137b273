"""Ends a command when `holdfast run` ends without a word, by kill -9 for example: the lock is free soon.

This is a program of its own that `run.py` starts. It leads the process group of the command, so the id of
that group cannot go to other processes while it lives. It imports the least, so that it starts fast.
"""

import os
import signal
import sys
import time

GRACE_S = 2.0
"""Seconds from the loss of a lock to SIGKILL for its command, unless the user says otherwise."""
READY = b"ready\n"
"""What the guardian says once signals to its group do not end it any more."""
STARTING = b"starting\n"
"""What it is told before the command is started: until then, nothing has to be ended."""
LOST = b"lost\n"
"""What it is told when the lock is lost: the grace is counted from here, if it has to end the command."""
GOODBYE = b"goodbye\n"
"""What it is told when the command has ended, or was ended, and nothing is left to do."""

_IGNORED = (
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGTERM",
    "SIGUSR1",
    "SIGUSR2",
    "SIGALRM",
    "SIGPIPE",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
)
"""What its group gets from the terminal or from users is meant for the command. Windows has few of them."""


def main() -> None:
    """Wait for a goodbye on standard input; end the group when the pipe breaks before and a command runs.

    The only argument is the grace in seconds.
    """
    grace_s = float(sys.argv[1])
    for name in _IGNORED:
        signal.signal(signal.Signals[name], signal.SIG_IGN)
    os.write(sys.stdout.fileno(), READY)
    told, counted_from_s = _listen()
    if GOODBYE in told or STARTING not in told:
        return
    group = os.getpgrp()
    os.killpg(group, signal.SIGTERM)
    os.killpg(group, signal.SIGCONT)  # also a stopped process hears of it
    time.sleep(max(0.0, counted_from_s + grace_s - time.monotonic()))
    os.killpg(group, signal.SIGKILL)  # ourselves, too


def _listen() -> tuple[bytes, float]:
    """Read to the end of the pipe; return all of it, and when the grace began: at the loss, else now."""
    told = b""
    lost_at_s = None
    while part := os.read(sys.stdin.fileno(), 64):
        told += part
        if lost_at_s is None and LOST in told:
            lost_at_s = time.monotonic()
    return told, time.monotonic() if lost_at_s is None else lost_at_s


if __name__ == "__main__":
    main()
