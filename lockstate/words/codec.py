"""Log entries as bytes: MessagePack, versioned by the first element, canonical, no pickle.

    entry      [1, [now_ms, fields?], batches]
    batches    [[origin, [seq, ...], [command, ...]], ...]
    fields     {number: value}, left out when there are none

Every format, also a future one, is an array of three whose first element is a small integer: that much a node
of any release recognises, and stops at a format that is newer than itself.

Fields are numbered. One below FIELD_IGNORABLE_MIN says how the entry is to be applied, so a node that does
not know it stops. One from there on is a remark that changes nothing; a node that does not know it skips it.

An entry is decoded as a whole; if that fails, its commands are decoded one by one, so that a command that
cannot be decoded spoils only itself.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final, Union, get_args

import msgspec

from lockstate.words.commands.entries import AdvanceVersion, Batch, Command, Entry, Undecodable
from lockstate.words.versions import ENTRY_FORMATS, RULES, RULES_FIRST, too_new

FORMAT_NEWEST: Final = max(ENTRY_FORMATS)
"""The newest format that this release reads and writes."""

FIELD_ADVANCE_TO: Final = 1
"""The number of the field that moves the rules: the version to move to."""
FIELD_TOKEN_FLOOR: Final = 2
"""Reserved: a fencing token that the next grant must exceed. Unknown to this release, which stops at it."""
FIELD_BYTES_MAX: Final = 3
"""The number of the field that bounds the memory that the state takes, in bytes."""
FIELD_IGNORABLE_MIN: Final = 128
"""The lowest number of a field that does not change what an entry does."""

NOW_MS_MAX: Final = 1 << 53
"""Milliseconds of cluster time: far beyond any clock, far below the limits of 64-bit arithmetic."""

_FIELDS_KNOWN: Final = frozenset({FIELD_ADVANCE_TO, FIELD_BYTES_MAX})

_ARRAY_OF_3: Final = 0x93
_FIXINT_MAX: Final = 0x7F
_FORMAT: Final = 1
_BEGIN: Final = bytes((_ARRAY_OF_3, _FORMAT))

RawBatch = tuple[str, list[int], list[msgspec.Raw]]
"""Origin, sequence numbers and encoded commands, as they travel to the leader and into the log."""

_Batches = list[tuple[str, list[int], list[Any]]]
_Fields = dict[int, msgspec.Raw] | None
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the decoder may raise, whatever the bytes."""


class _EntryHead(msgspec.Struct, array_like=True, frozen=True):
    """The header of an entry. Further elements are ignored: what must not be ignored is a field."""

    now_ms: int
    fields: _Fields = None


def _commands(tag_max: int) -> Any:
    """Return the type of the commands that some rules know: those up to a tag, and no others."""
    return Union[  # noqa: UP007 - computed
        tuple(command for command in get_args(Command) if command.__struct_config__.tag <= tag_max)
    ]


class _Decoders:
    """The decoders of one version of the rules."""

    def __init__(self, rules: int) -> None:
        known = _commands(RULES[rules].command_tag_max)
        batches = list[tuple[str, list[int], list[known]]]  # type: ignore[valid-type]
        self.entry = msgspec.msgpack.Decoder(tuple[int, _EntryHead, batches]).decode
        self.command = msgspec.msgpack.Decoder(known).decode


_encoder = msgspec.msgpack.Encoder()
_decoders = functools.cache(_Decoders)
_raw_decoder = msgspec.msgpack.Decoder(tuple[int, _EntryHead, list[RawBatch]])
_head_decoder = msgspec.msgpack.Decoder(tuple[int, _EntryHead, msgspec.Raw])
_number_decoder = msgspec.msgpack.Decoder(int)


def encode_command(command: Command) -> bytes:
    """Return `command` as bytes."""
    return _encoder.encode(command)


def encode_entry(
    now_ms: int,
    batches: Iterable[tuple[str, list[int], list[bytes]]],
    *,
    advance_to: int = 0,
    bytes_max: int = 0,
) -> bytes:
    """Return an entry of already encoded commands as bytes.

    With `advance_to` the entry moves the rules there: a node that does not know them stops at it. With
    `bytes_max` it bounds the memory that the state takes.
    """
    raw = [
        (origin, seqs, [msgspec.Raw(command) for command in commands]) for origin, seqs, commands in batches
    ]
    fields = {}
    if advance_to:
        fields[FIELD_ADVANCE_TO] = advance_to
    if bytes_max:
        fields[FIELD_BYTES_MAX] = bytes_max
    return _encoder.encode((_FORMAT, (now_ms, fields) if fields else (now_ms,), raw))


def decode_entry(data: bytes, rules: int = RULES_FIRST) -> Entry:
    """Return the entry in `data`, as a node reads it while `rules` are active.

    A command that cannot be decoded, or is newer than the rules, becomes `Undecodable`; bytes that are not an
    entry at all become an entry without commands at time 0, which changes nothing but the revision.

    Raises UnknownVersionError when another release wrote the entry and this node must not apply it.
    """
    if data[:2] != _BEGIN:
        return _not_of_this_release(data)
    try:
        _, head, batches = _decoders(rules).entry(data)
    except _UNREADABLE:
        return _decode_piecewise(data, rules)
    return _entry(head.now_ms, head.fields, batches)


def _not_of_this_release(data: bytes) -> Entry:
    """Return what bytes that are not an entry amount to. Raises UnknownVersionError if they are one."""
    found = entry_format(data)
    if found > FORMAT_NEWEST:
        raise too_new(f"the log has an entry of format {found}")
    return Entry(0)


def _decode_piecewise(data: bytes, rules: int) -> Entry:
    """Return the entry in bytes that cannot be decoded as a whole: each command by itself."""
    try:
        _, head, raw_batches = _raw_decoder.decode(data)
    except _UNREADABLE:
        return Entry(0)
    decode = _decoders(rules).command
    batches = [
        (origin, seqs, [_decode_command(command, decode) for command in raw])
        for origin, seqs, raw in raw_batches
    ]
    return _entry(head.now_ms, head.fields, batches)


def _entry(now_ms: int, fields: _Fields, batches: _Batches) -> Entry:
    """Return the entry that was decoded, an empty one if its parts do not go together."""
    known = []
    for origin, seqs, commands in batches:
        if len(seqs) != len(commands):
            return Entry(0)
        known.append(Batch(origin, tuple(seqs), tuple(commands)))
    if not 0 <= now_ms <= NOW_MS_MAX:
        return Entry(0)
    if not fields:
        return Entry(now_ms, tuple(known))
    try:
        return Entry(now_ms, tuple(known), _advance(fields), _number(fields, FIELD_BYTES_MAX))
    except _UNREADABLE:
        return Entry(0)


def _advance(fields: dict[int, msgspec.Raw]) -> AdvanceVersion | None:
    """Return how an entry moves the rules. Raises UnknownVersionError for what must not be ignored."""
    for number in fields:
        if number not in _FIELDS_KNOWN and number < FIELD_IGNORABLE_MIN:
            raise too_new(f"the log has an entry with field {number}")
    if FIELD_ADVANCE_TO not in fields:
        return None
    advance = AdvanceVersion(_number(fields, FIELD_ADVANCE_TO))
    if advance.to not in RULES:
        raise too_new(f"the log moves the cluster to rules {advance.to}")
    return advance


def _number(fields: dict[int, msgspec.Raw], field: int) -> int:
    """Return the number in a field, 0 if it is not there. Raises msgspec.DecodeError."""
    return _number_decoder.decode(fields[field]) if field in fields else 0


def entry_time(data: bytes) -> int:
    """Return the cluster time of an encoded entry without decoding its commands; 0 if it is not an entry."""
    try:
        head = _head_decoder.decode(data)[1]
    except _UNREADABLE:
        return 0
    return max(0, head.now_ms)


def entry_format(data: bytes) -> int:
    """Return the format number that an entry claims to have; 0 if no format begins like these bytes."""
    is_entry = len(data) > 1 and data[0] == _ARRAY_OF_3 and data[1] <= _FIXINT_MAX
    return data[1] if is_entry else 0


def _decode_command(raw: msgspec.Raw, decode: Callable[[msgspec.Raw], Any]) -> Command | Undecodable:
    try:
        command: Command = decode(raw)
    except _UNREADABLE:
        return Undecodable()
    return command
