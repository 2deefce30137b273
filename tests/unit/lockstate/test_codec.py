"""Entries in bytes: the format itself, and what is not of it."""

import msgspec
import pytest

from lockstate.words.codec import (
    NOW_MS_MAX,
    decode_entry,
    encode_command,
    encode_entry,
    entry_format,
    entry_time,
)
from lockstate.words.commands.entries import AdvanceVersion, Batch, Entry, Tick, Undecodable
from lockstate.words.commands.holds import Acquire
from lockstate.words.commands.sessions import KeepAlive
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.modes import Mode
from lockstate.words.versions import UnknownVersionError
from tests.support.vocabulary import VOCABULARY, Word

TICK = encode_command(Tick())
DEEP = b"\x93\x01\x91\x05" + b"\x91" * 100_000
"""The beginning of an entry, then arrays within arrays."""


def test_the_format_does_not_change() -> None:
    """These bytes were written once and mean the same for ever."""
    command = Acquire("a", Mode.SHARED, HoldId("h"), AttemptId("t"), ttl_ms=50)
    data = encode_entry(7, [("n1", [1], [encode_command(command)])])
    assert data.hex() == "930191079193a26e319101919e04a161a6736861726564a168a174a032a000a0a46e6f646590c0c0"
    assert decode_entry(data) == Entry(7, (Batch("n1", (1,), (command,)),))


@pytest.mark.parametrize("word", VOCABULARY.values(), ids=lambda word: type(word.example).__name__)
def test_every_command_keeps_its_tag(word: Word) -> None:
    """A command begins with its number, which never changes, and is read as it was written."""
    data = encode_command(word.example)
    assert msgspec.msgpack.decode(data)[0] == word.tag
    entry = decode_entry(encode_entry(0, [("n1", [1], [data])]))
    assert entry.batches[0].commands == (word.example,)


def test_a_shorter_command_gets_defaults() -> None:
    """A command of an older version, without the newer fields, is read with their defaults."""
    old = msgspec.msgpack.encode([4, "a", "exclusive", "h", "t"])
    entry = decode_entry(encode_entry(0, [("n1", [1], [old])]))
    assert entry.batches[0].commands == (Acquire("a", Mode.EXCLUSIVE, HoldId("h"), AttemptId("t")),)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc0",
        msgspec.msgpack.encode([0, 5, []]),
        msgspec.msgpack.encode([1, 5, []]),
        msgspec.msgpack.encode([1, [], []]),
        msgspec.msgpack.encode([1, ["5"], []]),
        msgspec.msgpack.encode([1, [5, {"a": 1}], []]),
        msgspec.msgpack.encode([1, [5, {1: "2"}], []]),
        msgspec.msgpack.encode([1, [5], [["n1", [1], []]]]),
        msgspec.msgpack.encode([1, [-1], []]),
        msgspec.msgpack.encode([1, [NOW_MS_MAX + 1], []]),
        b"\x93\x01\x91\x05\x91\x93\xa1\xff\x90\x90",
        DEEP,
    ],
)
def test_bytes_that_are_not_an_entry_change_nothing(data: bytes) -> None:
    """Bytes that are not an entry of this format are an empty entry at time 0."""
    assert decode_entry(data) == Entry(0)


@pytest.mark.parametrize(
    "command",
    [
        msgspec.msgpack.encode([99]),
        msgspec.msgpack.encode([2, 5]),
        msgspec.msgpack.encode([4, "a", "upgrade", "h", "t"]),
        b"\x92\x02\xa1\xff",
        b"\x92\x02\xa2\xed\xa0",
    ],
    ids=["tag", "type", "mode", "utf-8", "surrogate"],
)
def test_an_undecodable_command_spoils_only_itself(command: bytes) -> None:
    """A command that cannot be read leaves its neighbours alone."""
    entry = decode_entry(
        encode_entry(3, [("n1", [1, 2], [command, encode_command(KeepAlive(SessionId("s")))])])
    )
    assert entry == Entry(3, (Batch("n1", (1, 2), (Undecodable(), KeepAlive(SessionId("s")))),))


ADVANCE = encode_entry(9, [("n1", [1], [TICK])], advance_to=1)


def test_the_fields_do_not_change() -> None:
    """These bytes were written once and mean the same for ever."""
    assert ADVANCE.hex() == "93019209810101" + "9193a26e319101919109"
    assert decode_entry(ADVANCE) == Entry(9, (Batch("n1", (1,), (Tick(),)),), AdvanceVersion(1))


def test_a_remark_is_skipped() -> None:
    """A field from 128 on does not change how an entry is applied: a node that does not know it goes on."""
    data = msgspec.msgpack.encode([1, [5, {128: "remark", 1000: [1]}, "more"], []])
    assert decode_entry(data) == Entry(5)
    assert entry_time(data) == 5


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([2, 5, []], "format 2, which this release does not know: upgrade this node"),
        ([127, {}, {}], "format 127, which this release does not know: upgrade this node"),
        ([1, [5, {2: 100}], []], "field 2, which this release does not know: upgrade this node"),
        ([1, [5, {1: 1, 127: 0}], []], "field 127, which this release does not know: upgrade this node"),
        ([1, [5, {1: 2}], []], "rules 2, which this release does not know: upgrade this node"),
    ],
)
def test_what_another_release_wrote_is_not_guessed_at(data: object, said: str) -> None:
    """A node that applied it in part, or left it out, would differ from the others: it must stop."""
    with pytest.raises(UnknownVersionError, match=said):
        decode_entry(msgspec.msgpack.encode(data))


def test_the_time_is_read_without_the_commands() -> None:
    """The host reads time and format of an entry without decoding what is in it."""
    data = encode_entry(12, [("n1", [1], [TICK])])
    assert (entry_time(data), entry_format(data)) == (12, 1)
    assert (entry_time(ADVANCE), entry_format(ADVANCE)) == (9, 1)


@pytest.mark.parametrize("data", [b"", b"\xc0", DEEP], ids=["nothing", "nil", "depth"])
def test_bytes_that_are_not_an_entry_have_no_time(data: bytes) -> None:
    """Bytes that are not an entry have time 0."""
    assert entry_time(data) == 0


def test_the_format_is_what_the_first_bytes_claim() -> None:
    """The format is known even of entries that this version cannot read."""
    assert [entry_format(data) for data in (b"", b"\xc0", DEEP, b"\x93\x02")] == [0, 0, 1, 2]


def test_a_time_before_the_beginning_is_the_beginning() -> None:
    """Cluster time starts at 0."""
    assert entry_time(encode_entry(-5, [])) == 0
