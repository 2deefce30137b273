"""What clients say on a stream (docs/stream.md): messages are arrays, commands those of the log.

A command leaves out what the node fills in: ids of new holds and attempts, and the session, which is that of
the stream wherever a lease of its own is not asked for. What a command means, and its bounds, is checked
where it is applied: a wrong one is refused under its number.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from lockapi.requests.fields import invalid
from lockapi.requests.ids import new_ids, new_session_id
from lockstate import limits
from lockstate.commands import (
    Acquire,
    AcquireAs,
    AcquireIf,
    AcquirePermits,
    AcquirePermitsAs,
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
from lockstate.ids import AttemptId, HoldId, SessionId
from lockstate.versions import GROUP

VERSION: Final = 1
"""The version of the protocol that this node speaks."""
COMMANDS_COUNT_MAX: Final = 1_024
"""Commands in one message, and numbers without an answer."""
PLACE: Final = (GROUP, 0)
"""The group of this node, and how often names were moved between groups."""
TIMEOUT_MS_MAX: Final = 60_000
"""Milliseconds that a client may give its commands."""


class StreamHello(msgspec.Struct, array_like=True, frozen=True, tag=1):
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


class StreamPing(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """Ask whether the node is there. It keeps no session alive; an empty `Commands` does."""


class Bye(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """End the session and all it holds, and then the connection."""


class StreamCall(msgspec.Struct, array_like=True, frozen=True):
    """A call of the HTTP API, by its path and its body. `number` tells it from the others that are open."""

    number: int
    path: str
    body: str

    @property
    def name(self) -> str:
        """Return by what logs and answers call it: its number."""
        return f"call-{self.number}"


class Calls(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """Calls that may wait. With `timeout_ms` 0 the node's own time counts."""

    timeout_ms: int
    calls: tuple[StreamCall, ...]


Message = StreamHello | Commands | StreamPing | Bye | Calls

_text: Final = msgspec.json.Decoder(Message)
_encoder: Final = msgspec.msgpack.Encoder()

decode_binary: Final = msgspec.msgpack.Decoder(Message).decode
"""Returns a message that came as MessagePack. Raises DecodeError, RecursionError, UnicodeDecodeError."""


def decode_text(data: str | bytes) -> Message:
    """Return a message that came as JSON. Raises what `decode_binary` does.

    JSON has numbers that MessagePack has not, and the log is MessagePack.
    """
    message: Message = _text.decode(data)
    try:
        _encoder.encode(message)
    except OverflowError:
        raise msgspec.DecodeError("a number has more than 64 bits") from None
    return message


def opening(hello: StreamHello) -> OpenSession:
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
    commands = _filled(message.commands, session_id)
    return Numbered(count, session_id, epoch, message.first, message.acked, commands)


def _filled(commands: tuple[NumberedCommand, ...], session_id: SessionId) -> tuple[NumberedCommand, ...]:
    """Return commands with what their client has left to the node. Raises ProblemError."""
    # One for each that may want it: so random bytes are asked for once, and not for each command.
    ids = iter(new_ids(sum(map(_WITH_IDS.__contains__, map(type, commands)))))
    filled: list[NumberedCommand] = []
    for command in commands:
        if command.request_id:
            raise invalid("request_id: means nothing on a stream, where the number says which request it is")
        fill = _FILLS.get(command.__class__)
        filled.append(command if fill is None else fill(command, session_id, ids))
    return tuple(filled)


def _fill_acquire(
    command: Acquire | AcquirePermits, session_id: SessionId, ids: Iterator[str]
) -> Acquire | AcquirePermits:
    """Fill in ids, and the session unless the acquire says what it lives by."""
    hold_id, attempt_id = _ids_of(command.hold_id, command.attempt_id, ids)
    if command.session_id or command.ttl_ms or (isinstance(command, Uncommon) and command.is_endless):
        session_id = command.session_id
    return replace(command, hold_id=hold_id, attempt_id=attempt_id, session_id=session_id)


def _fill_campaign(command: Campaign, session_id: SessionId, ids: Iterator[str]) -> Campaign:
    hold_id, attempt_id = _ids_of(command.hold_id, command.attempt_id, ids)
    session_id = command.session_id or session_id
    return replace(command, hold_id=hold_id, attempt_id=attempt_id, session_id=session_id)


def _fill_convert(command: Convert, _session_id: SessionId, ids: Iterator[str]) -> Convert:
    ticket_id, attempt_id = _ids_of(command.ticket_id, command.attempt_id, ids)
    return replace(command, ticket_id=ticket_id, attempt_id=attempt_id)


def _ids_of(given: HoldId, attempt_id: AttemptId, ids: Iterator[str]) -> tuple[HoldId, AttemptId]:
    """Return the id of a hold or ticket and that of the attempt: both given, or what lacks made.

    Who gives the id of its hold may give it again in a later attempt: then that of the attempt is another.
    """
    if given and attempt_id:
        return given, attempt_id
    made = next(ids)
    return given or HoldId(made), AttemptId(made)


def _check_rate(command: TakeRate, _session_id: SessionId, _ids: Iterator[str]) -> TakeRate:
    """Refuse a wait: its client would have to wait until a moment of a clock that it cannot read."""
    if command.wait_ms:
        raise invalid(f"wait_ms: {command.wait_ms}; must be 0 for a rate limit on a stream")
    return command


_FILLS: Final[dict[type[Any], Callable[[Any, SessionId, Iterator[str]], Any]]] = {
    **dict.fromkeys((Acquire, AcquireIf, AcquireAs, AcquirePermits, AcquirePermitsAs), _fill_acquire),
    Campaign: _fill_campaign,
    Convert: _fill_convert,
    TakeRate: _check_rate,
}
"""What is filled in or checked, by the class of the command. All others are taken as they are."""
_WITH_IDS: Final = frozenset(_FILLS) - {TakeRate}
"""The classes of commands that have ids of a hold or a ticket, and of an attempt."""
