"""The messages of nodes on a stream, as they are read (docs/stream.md). No I/O."""

from typing import Any, Final, TypeAlias

import msgspec

from holdfast.values.errors import OutcomeUnknown
from holdfast.wire.results import Result
from holdfast.wire.stream import CallAnswered, Declined, Results, Stopping, StreamPong, Welcome

Told: TypeAlias = Results[Result | OutcomeUnknown]
"""The results of a message; in the place of one that cannot be read stands what is raised for it."""
Heard: TypeAlias = Welcome | Told | Declined | Stopping | StreamPong | CallAnswered
"""What a client listens to."""

_TAGS: Final = frozenset(
    each.__struct_config__.tag for each in (Welcome, Results, Declined, Stopping, StreamPong, CallAnswered)
)
_decode: Final = msgspec.msgpack.Decoder(
    Welcome | Results[Result] | Declined | Stopping | StreamPong | CallAnswered
).decode
_parts: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_results: Final = msgspec.msgpack.Decoder(Results[msgspec.Raw]).decode
_result: Final = msgspec.msgpack.Decoder(Result).decode
_anything: Final = msgspec.msgpack.Decoder().decode


def heard(data: bytes) -> Heard | None:
    """Read a message; None for one that this client does not know.

    Raises DecodeError for what is no MessagePack, and ValueError for what no node says.
    """
    try:
        message: Heard = _decode(data)
    except msgspec.ValidationError as error:
        try:
            return _heard_in_part(data)
        except msgspec.DecodeError:
            raise ValueError(f"not a message of a node: {error}") from error
    return message


def _heard_in_part(data: bytes) -> Heard | None:
    """Read a message that is not as it should be: what is unknown of it may be newer than this client.

    Raises DecodeError, ValueError.
    """
    parts = _parts(data)
    tag = _anything(parts[0]) if parts else None
    if type(tag) is int and tag not in _TAGS:
        return None
    told = _results(data)
    return Results(told.first, told.revision, tuple([_read(result) for result in told.results]))


def _read(data: msgspec.Raw) -> Result | OutcomeUnknown:
    """Read a result if that is possible. Raises ValueError for what cannot be one."""
    try:
        result: Result = _result(data)
    except msgspec.ValidationError as error:
        said: Any = _anything(data)
        if not isinstance(said, list) or not said:
            raise ValueError("a result is an array that begins with its kind") from error
        return OutcomeUnknown(f"the answer is not that of a Holdfast node: {error}")
    return result
