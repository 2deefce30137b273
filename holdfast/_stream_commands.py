"""The commands of a stream, as a node can decode them (docs/stream.md), and how they are encoded. No I/O."""

from typing import Annotated, Final, Literal

import msgspec

from holdfast import wire
from holdfast._stream_refusals import NotTaken
from holdfast._words import HoldKind

COMMAND_BYTES_MAX: Final = wire.BODY_BYTES_MAX
"""Bytes of one command at most; a longer one is refused in the words of the HTTP API."""

_Text = Annotated[str, msgspec.Meta(max_length=4096)]
_HoldId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Mode = Literal["exclusive", "shared", "update", "concurrent-read", "concurrent-write"]
_Scope = Literal["node", "subtree"]


class _Command(msgspec.Struct, frozen=True, array_like=True):
    """Base of what a node can decode: one command that it cannot would end the stream with all others."""


class _Acquire(_Command, frozen=True, tag=4):
    name: _Text
    mode: _Mode
    hold_id: _Text
    attempt_id: _Text
    session_id: _Text
    ttl_ms: _Number
    owner: _Text
    wait_ms: _Number
    lock_delay_ms: _Number
    note: _Text
    request_id: _Text
    scope: _Scope
    locks: tuple[tuple[_Text, _Mode, _Scope], ...]


class _AcquireAs(_Acquire, frozen=True, tag=76):
    if_held: None
    value: _Text
    is_secret: bool


class _AcquirePermitsAs(_Command, frozen=True, tag=77):
    name: _Text
    limit: _Number
    permits: _Number
    hold_id: _Text
    attempt_id: _Text
    session_id: _Text
    ttl_ms: _Number
    owner: _Text
    wait_ms: _Number
    lock_delay_ms: _Number
    note: _Text
    request_id: _Text
    is_strict: bool
    value: _Text
    is_secret: bool


class _RenewOf(_Command, frozen=True, tag=45):
    hold_id: _HoldId
    ttl_ms: _Number
    request_id: _Text
    kind: HoldKind


class _ReleaseOf(_Command, frozen=True, tag=44):
    hold_id: _HoldId
    request_id: _Text
    names: tuple[_Text, ...]
    kind: HoldKind


class _Convert(_Command, frozen=True, tag=11):
    hold_id: _HoldId
    mode: _Mode
    ticket_id: _Text
    attempt_id: _Text
    wait_ms: _Number
    request_id: _Text


class _Proclaim(_Command, frozen=True, tag=15):
    hold_id: _HoldId
    value: _Text
    request_id: _Text


class _TakeRate(_Command, frozen=True, tag=16):
    name: _Text
    limit: _Number
    window_ms: _Number
    algorithm: Literal["fixed-window", "sliding-window", "gcra"]
    cost: _Number
    wait_ms: _Number
    request_id: _Text


class _AdvanceFence(_Command, frozen=True, tag=17):
    resource: _Text
    token: _Number
    request_id: _Text


class _PutCell(_Command, frozen=True, tag=40):
    key: bytes
    value: bytes
    session_id: _Text
    ttl_ms: _Number
    request_id: _Text


class _DeleteCells(_Command, frozen=True, tag=41):
    key: bytes
    is_prefix: bool
    request_id: _Text


_encoder: Final = msgspec.msgpack.Encoder()
_checker: Final = msgspec.msgpack.Decoder(
    _Acquire
    | _AcquireAs
    | _AcquirePermitsAs
    | _RenewOf
    | _ReleaseOf
    | _Convert
    | _Proclaim
    | _TakeRate
    | _AdvanceFence
    | _PutCell
    | _DeleteCells
)


def encoded(command: tuple[object, ...]) -> bytes:
    """Return a command as it is sent. Raises NotTaken for one that a node could not read."""
    try:
        data = _encoder.encode(command)
        _checker.decode(data)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
        raise NotTaken(str(error)) from error
    if len(data) > COMMAND_BYTES_MAX:
        raise NotTaken("the command is too long")
    return data
