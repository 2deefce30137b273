"""The exit codes of the command line. They keep clear of those that commands under `run` like to use."""

from typing import Final

DONE: Final = 0
USAGE: Final = 2
CONFLICT: Final = 75
"""EX_TEMPFAIL of sysexits.h: try again later."""
UNAVAILABLE: Final = 121
UNKNOWN: Final = 122
LOST: Final = 123
REFUSED: Final = 124
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
    CONFLICT: "somebody else has it, or the rate limit allows it later; see --conflict-exit-code",
    UNAVAILABLE: "no node could do it; nothing was changed",
    UNKNOWN: "the outcome is not known",
    LOST: "the lock was lost while the command ran, which was stopped",
    REFUSED: "refused for another reason; nothing was changed",
    NOT_RUNNABLE: "the command could not be started",
    NOT_FOUND: "the command was not found",
    INTERRUPTED: "interrupted by SIGINT",
    BROKEN_PIPE: "whoever read the output has gone",
}


def describe() -> str:
    """Return the table for `--help`."""
    lines = [f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items()]
    lines.append(
        "`run` exits as its command did otherwise, with 128 and the signal's number if a signal ended it."
    )
    return "\n".join(["exit codes:", *lines])
