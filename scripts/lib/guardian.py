"""What a program starts dies with it, also when the program is killed with -9. Linux only (/proc, pidfd).

    with guardian.guarded():
        ...  # every process that is started here, and every process that those start

A guard is a small process that is told when the program ends, however it ends, and then kills every process
that carries the guard's mark in its environment. Environments are inherited, so the mark reaches
grandchildren and processes in sessions of their own. (PR_SET_PDEATHSIG does neither: it is not inherited, and
it fires when the *thread* that started the process ends.)

Guard and program are joined by a pipe. A child that the program forks, and that starts no other program, does
not carry the mark and has a copy of the pipe. So the pipe may be open when the program has ended: the guard
looks at the program itself. And whoever holds the pipe besides the program is such a child.

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
PIPE_BYTES: Final = 1 << 16
_PIPE: Final = 0
"""The guard's end of the pipe: its standard input."""

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
        [sys.executable, "-I", "-S", __file__, mark, str(os.getpid())],
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


def is_guarded() -> bool:
    """Whether this process has a guard now."""
    return bool(_pipes)


def run_if_killed(command: Sequence[str]) -> None:
    """Let the guard run `command` if this program is killed: for mounts, containers and the like."""
    assert _pipes, "there is no guard: call this inside guarded()"
    _say(json.dumps(list(command)))


def _say(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # somebody has killed the guard: nothing is guarded any more
        os.write(_pipes[0], f"{line}\n".encode())


# -- the guard's side ---------------------------------------------------------------------------------------


def _main(mark: str, program: int) -> None:
    """Wait until the program ends, kill what it has left, and run its cleanup commands if it was killed."""
    lines = _heard(program)
    is_killed = GOODBYE not in lines
    quiet_since_s = time.monotonic()
    while True:
        if _kill_left(mark.encode(), program):
            quiet_since_s = time.monotonic()
        elif not is_killed or time.monotonic() - quiet_since_s > QUIET_S:
            break
        time.sleep(POLL_S)
    if is_killed:
        for line in reversed(lines):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(json.loads(line), check=False, timeout=COMMAND_S)


def _heard(program: int) -> list[str]:
    """Return all lines of the program when it says goodbye, or has ended."""
    data = b""
    os.set_blocking(_PIPE, False)
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(program)
        # Looked at now: until the descriptor was open, the pid could go to another process.
        while os.getppid() == program and GOODBYE not in data.decode().splitlines():
            ready, _, _ = select.select([_PIPE, descriptor], [], [])
            data += _said()
            if descriptor in ready:
                break
        os.close(descriptor)
    return (data + _said()).decode().splitlines()


def _said() -> bytes:
    """Return what is in the pipe now."""
    data = b""
    with contextlib.suppress(BlockingIOError):
        while part := os.read(_PIPE, PIPE_BYTES):
            data += part
    return data


def _kill_left(mark: bytes, program: int) -> int:
    """Kill all processes that carry the mark, or were forked by the program; return how many there were."""
    count = 0
    for directory in Path("/proc").glob("[0-9]*"):
        if int(directory.name) in (program, os.getpid()) or not _is_left(directory, mark):
            continue
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(int(directory.name))
            try:
                # Looked at again: until the descriptor was open, the pid could go to another process.
                if _is_left(directory, mark):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                    select.select([descriptor], [], [], POLL_S)
                    count += 1
            finally:
                os.close(descriptor)
    return count


def _is_left(directory: Path, mark: bytes) -> bool:
    """Whether the process of a /proc directory was started by the program, or forked from it."""
    return _is_marked(directory, mark) or _holds_pipe(directory)


def _holds_pipe(directory: Path) -> bool:
    """Whether the process of a /proc directory has an end of this guard's pipe."""
    pipe = f"pipe:[{os.fstat(_PIPE).st_ino}]"
    with contextlib.suppress(OSError):  # it has ended, or belongs to another user
        for each in (directory / "fd").iterdir():
            with contextlib.suppress(OSError):  # it was closed meanwhile
                if str(each.readlink()) == pipe:
                    return True
    return False


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
    _main(sys.argv[1], int(sys.argv[2]))
