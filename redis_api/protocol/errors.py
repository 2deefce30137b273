"""What a client of Redis is told when something goes wrong: the one way from a problem to an error of RESP.

The first word decides what clients do. `LOADING` is what redis-py, go-redis and others try again by
themselves, after a pause and on another connection: so it stands for all that was surely not applied and will
go better soon. Where nobody knows whether something was applied there is no answer: the connection ends, as
with a server that died, so that no client believes anything false.
"""

from typing import Final

from lockapi import problems
from redis_api.protocol import missing
from redis_api.protocol.resp import Failure

MANUAL: Final = "docs/faces.md"
"""Where it stands what this face can do."""

_CODES: Final = {
    "forbidden": "NOPERM",
    "no-leader": "LOADING",
    "shutting-down": "LOADING",
    "not-ready": "LOADING",
    "overloaded": "TRYAGAIN",
    "too-many-requests": "TRYAGAIN",
    "queue-full": "TRYAGAIN",
    "upgrade-pending": "TRYAGAIN",
}
IN_THE_WAY: Final = frozenset({"lock-held", "frozen"})
"""The problems that mean no more to a client that takes a lock than "not now"."""
_UNKNOWN: Final = frozenset({"outcome-unknown", "internal"})
"""The problems of which nobody knows whether the command was applied."""


_WHO: Final = (
    f"Authentication required: AUTH with a token that this node knows and that has not expired; {MANUAL}"
)
"""What a caller is told that is not known: the words of the problem are those of HTTP."""


class EndConnection(Exception):
    """The connection ends without an answer."""


class CommandRefused(Exception):
    """A command is answered with an error."""

    def __init__(self, text: str, code: str = "ERR") -> None:
        super().__init__(text)
        self.failure = Failure(code, text)


class TooMuch(CommandRefused):
    """A step would keep the node from all else for too long. All of it is refused, and not tried again."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text}; nothing was applied", "BUSY")


SYNTAX: Final = "syntax error"
NOT_AN_INTEGER: Final = "value is not an integer or out of range"
NEGATIVE: Final = "value is out of range, must be positive"


def shown(word: bytes) -> str:
    """Return a word of a client as text for its error: its beginning, if it is long."""
    return word[:100].decode(errors="replace")


def failure_of(exc: Exception) -> Failure:
    """Return the error for what a command raised. Raises EndConnection if its outcome is not known."""
    if isinstance(exc, CommandRefused):
        return exc.failure
    problem = problems.of_exception(exc)
    if problem.code in _UNKNOWN:
        raise EndConnection(problem.code) from exc
    if problem.code == "unauthenticated":
        return Failure("NOAUTH", _WHO)
    return Failure(_CODES.get(problem.code, "ERR"), f"{problem.code}: {problem.detail}")


def not_supported(what: str, why: str = "") -> CommandRefused:
    """Return the refusal of something that Redis can do and this face cannot."""
    reason = f": {why}" if why else ""
    return CommandRefused(f"{what} is not supported by Holdfast, a lock service{reason}; see {MANUAL}")


def unknown_command(name: bytes) -> CommandRefused:
    """Return the refusal of a command that is not in the table, with what to do instead if that is known."""
    text = shown(name)
    reason = missing.reason_of(text)
    return CommandRefused(
        f"unknown command '{text}': Holdfast is a lock service{f', and {reason}' if reason else ''}; see"
        f" {MANUAL}"
    )


def wrong_arity(name: str) -> CommandRefused:
    """Return the refusal of a command that has too few words, or too many."""
    return CommandRefused(f"wrong number of arguments for '{name.lower()}' command")
