"""What clients say on a stream (docs/stream.md): messages are arrays, commands those of the log.

A command leaves out what the node fills in: ids of new holds and attempts, and the session, which is that of
the stream wherever a lease of its own is not asked for. What a command means, and its bounds, is checked
where it is applied: a wrong one is refused under its number.
"""

from typing import Any, Final

import msgspec

from api.problems import ProblemError
from api.requests.fields import invalid
from api.requests.ids import new_hold_ids, new_session_id
from lockstate import limits
from lockstate.commands import (
    Acquire,
    AcquirePermits,
    Campaign,
    CloseSession,
    Convert,
    Numbered,
    NumberedCommand,
    OpenSession,
    ResumeStream,
    TakeRate,
    Uncommon,
)
from lockstate.ids import SessionId
from lockstate.versions import GROUP

VERSION: Final = 1
"""The version of the protocol that this node speaks."""
COMMANDS_COUNT_MAX: Final = 1_024
"""Commands in one message, and numbers without an answer."""
PLACE: Final = (GROUP, 0)
"""The group of this node, and how often names were moved between groups."""
TIMEOUT_MS_MAX: Final = 60_000
"""Milliseconds that a client may give its commands."""


class Hello(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """The first message: begin a session, or go on with one whose id is given."""

    version: int
    session_id: SessionId
    ttl_ms: int
    labels: dict[str, str] = {}


class Commands(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """Numbered commands, from `first` on; `acked` are ranges of numbers whose final answers were seen.

    With `timeout_ms` 0 the node's own time counts.
    """

    first: int
    acked: tuple[tuple[int, int], ...]
    timeout_ms: int
    commands: tuple[NumberedCommand, ...]


class Ping(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """Ask whether the node is there. It keeps no session alive; an empty `Commands` does."""


class Bye(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """End the session and all it holds, and then the connection."""


Message = Hello | Commands | Ping | Bye


def opening(hello: Hello) -> OpenSession:
    """Return the command that opens a session."""
    return OpenSession(new_session_id(), hello.ttl_ms, hello.labels)


def resuming(session_id: SessionId) -> ResumeStream:
    """Return the command that begins or resumes the stream of a session."""
    return ResumeStream(session_id)


def closing(session_id: SessionId) -> CloseSession:
    """Return the command that ends a session."""
    return CloseSession(session_id)


def numbered(message: Commands, session_id: SessionId, epoch: int) -> Numbered:
    """Return the frame for the log. Raises ProblemError."""
    count = len(message.commands)
    if count > COMMANDS_COUNT_MAX:
        raise invalid(f"commands: {count}; at most {COMMANDS_COUNT_MAX} are allowed")
    if not 1 <= message.first <= limits.TOKEN_MAX:
        raise invalid(f"first: {message.first}; must be 1 to {limits.TOKEN_MAX}")
    if not 0 <= message.timeout_ms <= TIMEOUT_MS_MAX:
        raise invalid(f"timeout_ms: {message.timeout_ms}; must be 0 to {TIMEOUT_MS_MAX}")
    if len(message.acked) > limits.STREAM_RANGES_MAX:
        raise invalid(f"acked: {len(message.acked)} ranges; at most {limits.STREAM_RANGES_MAX} are allowed")
    for first, last in message.acked:
        if not 1 <= first <= last <= limits.TOKEN_MAX:
            raise invalid(f"acked: {first} to {last}; a range is its first and its last number")
    commands = tuple([_filled(command, session_id) for command in message.commands])
    return Numbered(count, session_id, epoch, message.first, message.acked, commands)


def _filled(command: NumberedCommand, session_id: SessionId) -> NumberedCommand:
    """Return a command with what its client has left to the node. Raises ProblemError."""
    if command.request_id:
        raise _no_request_id()
    if isinstance(command, TakeRate) and command.wait_ms:
        # Its client would have to wait until a moment of a clock that it cannot read.
        raise invalid(f"wait_ms: {command.wait_ms}; must be 0 for a rate limit on a stream")
    if not isinstance(command, Acquire | AcquirePermits | Campaign | Convert):
        return command
    missing: dict[str, Any] = {}
    id_field = "ticket_id" if isinstance(command, Convert) else "hold_id"
    if not getattr(command, id_field) or not command.attempt_id:
        made, missing["attempt_id"] = new_hold_ids()
        missing[id_field] = getattr(command, id_field) or made
    if isinstance(command, Campaign):
        missing["session_id"] = command.session_id or session_id
    elif not isinstance(command, Convert) and not _has_lease(command):
        missing["session_id"] = session_id
    return msgspec.structs.replace(command, **missing) if missing else command


def _has_lease(command: Acquire | AcquirePermits) -> bool:
    """Whether an acquire says what it lives by."""
    is_endless = isinstance(command, Uncommon) and command.is_endless
    return bool(command.session_id or command.ttl_ms or is_endless)


def _no_request_id() -> ProblemError:
    return invalid("request_id: means nothing on a stream, where the number says which request it is")
