"""Log entries as bytes: MessagePack, versioned by the first element, canonical, no pickle.

An entry is `[format, now_ms, [[origin, [seq, ...], [command, ...]], ...]]`. It is decoded as a whole; if that
fails, its commands one by one, so that one that cannot be decoded spoils only itself.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from lockstate.commands import Batch, Command, Entry, Undecodable

FORMAT: Final = 2
"""Changes only together with a rule for how a cluster moves to the new format."""

_ARRAY_OF_3: Final = 0x93
_FIXINT_MAX: Final = 0x7F
"""MessagePack: every format begins as an array of three whose first element is a small integer."""

NOW_MS_MAX: Final = 1 << 53
"""Far beyond any clock, far below what arithmetic on 64-bit integers can bear."""

RawBatch = tuple[str, list[int], list[msgspec.Raw]]
"""Origin, sequence numbers and encoded commands, as they travel to the leader and into the log."""

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the decoder may raise, whatever the bytes."""

_encoder = msgspec.msgpack.Encoder()
_entry_decoder = msgspec.msgpack.Decoder(tuple[int, int, list[tuple[str, list[int], list[Command]]]])
_raw_entry_decoder = msgspec.msgpack.Decoder(tuple[int, int, list[RawBatch]])
_command_decoder = msgspec.msgpack.Decoder(Command)
_head_decoder = msgspec.msgpack.Decoder(tuple[int, int, msgspec.Raw])


def encode_command(command: Command) -> bytes:
    """Return `command` as bytes."""
    return _encoder.encode(command)


def encode_entry(now_ms: int, batches: Iterable[tuple[str, list[int], list[bytes]]]) -> bytes:
    """Return an entry of already encoded commands as bytes."""
    raw = [
        (origin, seqs, [msgspec.Raw(command) for command in commands]) for origin, seqs, commands in batches
    ]
    return _encoder.encode((FORMAT, now_ms, raw))


def decode_entry(data: bytes) -> Entry:
    """Return the entry in `data`; never raises.

    A command that cannot be decoded becomes `Undecodable`; bytes that are no entry at all become an entry
    without commands at time 0, which changes nothing but the revision.
    """
    try:
        entry_format, now_ms, batches = _entry_decoder.decode(data)
        return _entry(
            entry_format, now_ms, [Batch(origin, tuple(seqs), tuple(them)) for origin, seqs, them in batches]
        )
    except _UNREADABLE:
        return _decode_piecewise(data)


def _decode_piecewise(data: bytes) -> Entry:
    try:
        entry_format, now_ms, raw_batches = _raw_entry_decoder.decode(data)
    except _UNREADABLE:
        return Entry(0)
    batches = [
        Batch(origin, tuple(seqs), tuple([_decode_command(command) for command in raw]))
        for origin, seqs, raw in raw_batches
    ]
    return _entry(entry_format, now_ms, batches)


def _entry(entry_format: int, now_ms: int, batches: list[Batch]) -> Entry:
    if (
        entry_format != FORMAT
        or not 0 <= now_ms <= NOW_MS_MAX
        or any(len(batch.seqs) != len(batch.commands) for batch in batches)
    ):
        return Entry(0)
    return Entry(now_ms, tuple(batches))


def entry_time(data: bytes) -> int:
    """Return the cluster time of an encoded entry without decoding its commands; 0 if it is no entry."""
    try:
        return max(0, _head_decoder.decode(data)[1])
    except _UNREADABLE:
        return 0


def entry_format(data: bytes) -> int:
    """Return the format number that an entry claims to have; 0 if no format begins like these bytes."""
    is_entry = len(data) > 1 and data[0] == _ARRAY_OF_3 and data[1] <= _FIXINT_MAX
    return data[1] if is_entry else 0


def _decode_command(raw: msgspec.Raw) -> Command | Undecodable:
    try:
        command: Command = _command_decoder.decode(raw)
    except _UNREADABLE:
        return Undecodable()
    return command
