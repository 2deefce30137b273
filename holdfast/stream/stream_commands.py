"""How the commands of a stream are encoded. No I/O."""

from typing import Final

import msgspec

from holdfast import wire
from holdfast.operations.stream_refusals import NotTaken
from holdfast.wire.commands import Command

COMMAND_BYTES_MAX: Final = wire.BODY_BYTES_MAX
"""Bytes of one command at most; a longer one is refused in the words of the HTTP API."""

_encode: Final = msgspec.msgpack.Encoder().encode
_check: Final = msgspec.msgpack.Decoder(Command).decode
"""Reads a command as nodes do: one that they cannot read would end the stream with all others."""


def encoded(command: Command) -> bytes:
    """Return a command as it is sent. Raises NotTaken for one that a node could not read."""
    try:
        data = _encode(command)
        _check(data)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
        raise NotTaken(str(error)) from error
    if len(data) > COMMAND_BYTES_MAX:
        raise NotTaken("the command is too long")
    return data
