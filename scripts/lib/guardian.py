"""What a program starts dies with it, also when the program is killed with -9. Linux only (/proc, pidfd).

    with guardian.guarded():
        ...  # every process that is started here, and every process that those start

A guard is a small process at the other end of a pipe. The pipe closes when the program ends, however it ends,
and the guard then kills every process that carries the guard's mark in its environment. Environments are
inherited, so the mark reaches grandchildren and processes in sessions of their own. (PR_SET_PDEATHSIG does
neither: it is not inherited, and it fires when the *thread* that started the process ends.)

Programs whose processes are meant to stay, such as `scripts/cluster up`, have no guard. This file is also the
guard's own program; it imports the standard library only, so that it starts fast.
"""

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

VARIABLE: Final = "GUARDED_BY"
"""The environment variable with the marks of all guards that watch a process, separated by colons.

Not HOLDFAST_...: nodes are started without the caller's Holdfast settings.
"""
MARK_BYTES: Final = 16
QUIET_S: Final = 0.5
"""Seconds without a marked process after which a guard believes that none is left: one that was being
started when the program was killed gets its environment a moment later."""
POLL_S: Final = 0.05
COMMAND_S: Final = 60.0
"""Seconds that a cleanup command may take."""
GOODBYE: Final = "goodbye"

_pipes: list[int] = []
"""The write end of this process's own guard, if it has one."""


# -- the program's side -------------------------------------------------------------------------------------


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Guard this process meanwhile. Within a guarded region this does nothing more.

    At the end of the region all processes that were started in it and still run are killed.
    """
    if _pipes:
        yield
        return
    mark = secrets.token_hex(MARK_BYTES)
    before = os.environ.get(VARIABLE)
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,  # what ends the program's process group does not end its guard
    )
    assert guard.stdin is not None
    _pipes.append(guard.stdin.fileno())
    os.environ[VARIABLE] = f"{before}:{mark}" if before else mark
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
        _say(GOODBYE)
        _pipes.clear()
        guard.stdin.close()
        guard.wait()


def run_if_killed(command: Sequence[str]) -> None:
    """Let the guard run `command` if this program is killed: for mounts, containers and the like."""
    assert _pipes, "there is no guard: call this inside guarded()"
    _say(json.dumps(list(command)))


def _say(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # somebody has killed the guard: nothing is guarded any more
        os.write(_pipes[0], f"{line}\n".encode())


# -- the guard's side ---------------------------------------------------------------------------------------


def _main(mark: str) -> None:
    """Wait until the program ends, kill what it has left, and run its cleanup commands if it was killed."""
    lines = sys.stdin.read().splitlines()
    is_killed = GOODBYE not in lines
    quiet_since_s = time.monotonic()
    while True:
        if _kill_marked(mark.encode()):
            quiet_since_s = time.monotonic()
        elif not is_killed or time.monotonic() - quiet_since_s > QUIET_S:
            break
        time.sleep(POLL_S)
    if is_killed:
        for line in reversed(lines):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(json.loads(line), check=False, timeout=COMMAND_S)


def _kill_marked(mark: bytes) -> int:
    """Kill all processes that carry the mark; return how many there were."""
    count = 0
    for directory in Path("/proc").glob("[0-9]*"):
        if not _is_marked(directory, mark):
            continue
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(int(directory.name))
            try:
                # Looked at again: until the descriptor was open, the pid could go to another process.
                if _is_marked(directory, mark):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                    select.select([descriptor], [], [], POLL_S)
                    count += 1
            finally:
                os.close(descriptor)
    return count


def _is_marked(directory: Path, mark: bytes) -> bool:
    """Whether the process of a /proc directory was started with the mark. A zombie has no environment."""
    try:
        environment = (directory / "environ").read_bytes()
    except OSError:  # it has ended, or belongs to another user
        return False
    prefix = VARIABLE.encode() + b"="
    values = [each.removeprefix(prefix) for each in environment.split(b"\0") if each.startswith(prefix)]
    return any(mark in value.split(b":") for value in values)


if __name__ == "__main__":
    _main(sys.argv[1])
