"""Ends a command when `holdfast run` ends without a word, by kill -9 for example: the lock is free soon.

This is a program of its own that `_run.py` starts. It leads the process group of the command, so the id of
that group cannot go to other processes while it lives. It imports the least, so that it starts fast.
"""

import os
import signal
import sys
import time

STOP_S = 2.0
"""Seconds that a command whose lock is lost has to clean up between SIGTERM and SIGKILL."""
READY = b"ready\n"
"""What the guardian says once signals to its group do not end it any more."""
STARTING = b"starting\n"
"""What it is told before the command is started: until then, nothing has to be ended."""
GOODBYE = b"goodbye\n"
"""What it is told when the command has ended, or was ended, and nothing is left to do."""

_IGNORED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGPIPE,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
)
"""What its group gets from the terminal or from users is meant for the command."""


def main() -> None:
    """Wait for a goodbye on standard input; end the group when the pipe breaks before and a command runs."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    os.write(sys.stdout.fileno(), READY)
    told = b""
    while part := os.read(sys.stdin.fileno(), 64):
        told += part
    if GOODBYE in told or STARTING not in told:
        return
    group = os.getpgrp()
    os.killpg(group, signal.SIGTERM)
    os.killpg(group, signal.SIGCONT)  # also a stopped process hears of it
    time.sleep(STOP_S)
    os.killpg(group, signal.SIGKILL)  # ourselves, too


if __name__ == "__main__":
    main()
