"""The exit codes of the command line.

119 and 121 to 123 are ours. They keep clear of `timeout` (124, 125), of shells (126, 127, 128 and more), of
Python (120: standard output could not be flushed) and of the small numbers that commands under `run` use.
What others use as well means the same here: 75 is EX_TEMPFAIL of sysexits.h; 126, 127 and 128 plus a signal
are those of shells, `env` and `timeout`. Only `xargs` gives 123 another meaning.
"""

from typing import Final

DONE: Final = 0
USAGE: Final = 2
DEGRADED: Final = 3
CONFLICT: Final = 75
"""EX_TEMPFAIL of sysexits.h: try again later."""
REFUSED: Final = 119
UNAVAILABLE: Final = 121
UNKNOWN: Final = 122
LOST: Final = 123
NOT_RUNNABLE: Final = 126
NOT_FOUND: Final = 127
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
"""As of a command that SIGPIPE has ended."""
SIGNAL_BASE: Final = 128
"""The exit code of a command that died by a signal, less the signal's number, as in shells."""

MEANINGS: Final = {
    DONE: "done",
    USAGE: "wrong usage",
    DEGRADED: "status: the cluster serves, but something is wrong; debug: a node did not give everything",
    CONFLICT: "somebody else has it, or the rate limit allows it later; see --conflict-exit-code",
    REFUSED: "refused for another reason, or there was nothing to do it to; nothing was changed",
    UNAVAILABLE: "no node could do it; nothing was changed",
    UNKNOWN: "the outcome is not known",
    LOST: "the lock was lost while the command ran; the command was stopped",
    NOT_RUNNABLE: "the command could not be started",
    NOT_FOUND: "the command was not found",
    INTERRUPTED: "interrupted by SIGINT",
    BROKEN_PIPE: "the reader of the output has gone",
}


def describe() -> str:
    """Return the table for `--help`."""
    lines = [f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items()]
    lines.append(
        "Otherwise `run` and `elect` exit as the command did: with its code, or with 128 plus the number of"
        " the signal that ended it."
    )
    return "\n".join(["exit codes:", *lines])
