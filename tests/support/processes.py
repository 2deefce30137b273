"""Looking at the processes of this machine: which ones have a word of ours in their command line."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

DEADLINE_S = 60.0
"""Seconds after which `wait_until` fails: long enough for anything that ever happens."""
POLL_S = 0.02


def processes_with(word: str) -> dict[int, str]:
    """Return the command lines that contain `word`, by pid. A zombie has none."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended since
            found[int(file.parent.name)] = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return {pid: command_line for pid, command_line in found.items() if word in command_line}


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = DEADLINE_S) -> None:
    """Wait until `condition` holds. Fails the test, naming `what`, when it does not in time."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(POLL_S)
