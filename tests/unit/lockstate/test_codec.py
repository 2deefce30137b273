"""Entries in bytes: the format itself, and what is not of it."""

import msgspec
import pytest

from lockstate import codec, limits
from lockstate.codec import NOW_MS_MAX, decode_entry, encode_command, encode_entry, entry_format, entry_time
from lockstate.commands import (
    Acquire,
    AcquireAs,
    AdvanceVersion,
    Batch,
    CloseSession,
    EndWait,
    Entry,
    KeepAlive,
    KeepAliveFor,
    Numbered,
    OfSomebody,
    OnBehalf,
    Release,
    ReleaseByValue,
    Renew,
    Tick,
    Undecodable,
)
from lockstate.ids import AttemptId, HoldId, SessionId
from lockstate.modes import Mode
from lockstate.versions import (
    RULES,
    RULES_FIRST,
    RULES_FOLLOWED,
    RULES_NEWEST,
    RULES_WHOLE,
    UnknownVersionError,
)
from tests.support.vocabulary import VOCABULARY, Word

RULES_NEXT = RULES_NEWEST + 1
TICK = encode_command(Tick())
DEEP = b"\x93\x02\x05" + b"\x91" * 100_000
"""The beginning of an entry, then arrays within arrays."""


def test_the_format_does_not_change() -> None:
    """These bytes were written once and mean the same for ever."""
    command = Acquire("a", Mode.SHARED, HoldId("h"), AttemptId("t"), ttl_ms=50)
    data = encode_entry(7, [("n1", [1], [encode_command(command)])])
    assert data.hex() == "9302079193a26e319101919e04a161a6736861726564a168a174a032a00000a0a0a46e6f646590"
    assert decode_entry(data) == Entry(7, (Batch("n1", (1,), (command,)),))


@pytest.mark.parametrize("word", VOCABULARY.values(), ids=lambda word: type(word.example).__name__)
def test_every_command_keeps_its_tag(word: Word) -> None:
    """A command begins with its number, which never changes, and is read as it was written."""
    data = encode_command(word.example)
    assert msgspec.msgpack.decode(data)[0] == word.tag
    entry = decode_entry(encode_entry(0, [("n1", [1], [data])], rules=RULES_NEWEST))
    assert entry.batches[0].commands == (word.example,)


@pytest.mark.parametrize("spoiled", [b"", b"\x91\x01"], ids=["whole", "piecewise"])
def test_a_frame_with_a_newer_command_is_undecodable(spoiled: bytes) -> None:
    """A release that ends with rules 8 cannot read it, so while these are active nobody does."""
    newer = AcquireAs("a", Mode.SHARED, HoldId("h"), AttemptId("t"), ttl_ms=50, priority=9)
    frames = [Numbered(1, SessionId("s"), 1, 1, (), (each,)) for each in (EndWait(1), newer)]
    encoded = [encode_command(frame) for frame in frames] + ([spoiled] if spoiled else [])
    data = encode_entry(0, [("n1", list(range(len(encoded))), encoded)], rules=RULES_NEWEST)
    assert decode_entry(data, RULES_FOLLOWED).batches[0].commands[:2] == (frames[0], Undecodable())
    assert decode_entry(data).batches[0].commands[:2] == tuple(frames)


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
        msgspec.msgpack.encode([3, 5, []]),
        msgspec.msgpack.encode([3, [], []]),
        msgspec.msgpack.encode([3, [5, {"a": 1}], []]),
        msgspec.msgpack.encode([3, [5, {1: "2"}], []]),
        msgspec.msgpack.encode([3, [5, {1: 2}], [["n1", [1], []]]]),
        msgspec.msgpack.encode([3, [-1], []]),
        msgspec.msgpack.encode([2, [5], []]),
        msgspec.msgpack.encode([2, 5, [["n1", [1], []]]]),
        msgspec.msgpack.encode([2, "5", []]),
        msgspec.msgpack.encode([2, NOW_MS_MAX + 1, []]),
        msgspec.msgpack.encode([2, -1, []]),
        b"\x93\x02\x05\x91\x93\xa1\xff\x90\x90",
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


ADVANCE = encode_entry(9, [("n1", [1], [TICK])], advance_to=2)


def test_format_3_does_not_change() -> None:
    """These bytes were written once and mean the same for ever; release 0.1.0 stops at their second one."""
    assert encode_entry(7, [("n1", [1], [TICK])], rules=2).hex() == "93039107" + "9193a26e319101919109"
    assert ADVANCE.hex() == "93039209810102" + "9193a26e319101919109"
    assert decode_entry(encode_entry(7, [("n1", [1], [TICK])], rules=2)) == Entry(
        7, (Batch("n1", (1,), (Tick(),)),)
    )
    assert decode_entry(ADVANCE, 1) == Entry(9, (Batch("n1", (1,), (Tick(),)),), AdvanceVersion(2))


@pytest.mark.parametrize(
    "word",
    [word for word in VOCABULARY.values() if word.tag <= RULES[RULES_FIRST].command_tag_max],
    ids=lambda word: type(word.example).__name__,
)
def test_every_command_is_the_same_in_both_formats(word: Word) -> None:
    """The rules that are active change how an entry begins, not what its commands look like.

    Those that neither of the two rules knows are undecodable in both.
    """
    batches = [("n1", [word.tag], [encode_command(word.example)])]
    entry = decode_entry(encode_entry(5, batches), 1)
    assert entry == decode_entry(encode_entry(5, batches, rules=2), 2)
    assert (entry.batches[0].commands == (Undecodable(),)) == (word.tag > 18)


def test_a_remark_is_skipped() -> None:
    """A field from 128 on does not change how an entry is applied: a node that does not know it goes on."""
    data = msgspec.msgpack.encode([3, [5, {128: "remark", 1000: [1]}, "more"], []])
    assert decode_entry(data) == Entry(5)
    assert entry_time(data) == 5


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([4, 5, []], "format 4, which this release does not know: upgrade this node"),
        ([127, {}, {}], "format 127, which this release does not know: upgrade this node"),
        ([3, [5, {2: 100}], []], "field 2, which this release does not know: upgrade this node"),
        ([3, [5, {1: 2, 127: 0}], []], "field 127, which this release does not know: upgrade this node"),
        (
            [3, [5, {1: RULES_NEXT}], []],
            f"rules {RULES_NEXT}, which this release does not know: upgrade this node",
        ),
        ([1, 5, []], "earlier version of Holdfast than 0.1.0"),
    ],
)
def test_what_another_release_wrote_is_not_guessed_at(data: object, said: str) -> None:
    """A node that applied it in part, or left it out, would differ from the others: it must stop."""
    with pytest.raises(UnknownVersionError, match=said):
        decode_entry(msgspec.msgpack.encode(data))


def test_an_entry_that_moves_the_rules_is_refused_by_releases_before() -> None:
    """Whatever the rules before: its format is that of the rules to come."""
    assert entry_format(encode_entry(0, [], rules=1, advance_to=2)) == 3
    assert entry_format(encode_entry(0, [], rules=2)) == 3
    assert entry_format(encode_entry(0, [], rules=1)) == 2


def test_the_time_is_read_without_the_commands() -> None:
    """The host reads time and format of an entry without decoding what is in it."""
    data = encode_entry(12, [("n1", [1], [TICK])])
    assert (entry_time(data), entry_format(data)) == (12, 2)
    assert (entry_time(ADVANCE), entry_format(ADVANCE)) == (9, 3)


@pytest.mark.parametrize("data", [b"", b"\xc0", DEEP], ids=["nothing", "nil", "depth"])
def test_bytes_that_are_not_an_entry_have_no_time(data: bytes) -> None:
    """Bytes that are not an entry have time 0."""
    assert entry_time(data) == 0


def test_the_format_is_what_the_first_bytes_claim() -> None:
    """The format is known even of entries that this version cannot read."""
    assert [entry_format(data) for data in (b"", b"\xc0", DEEP, b"\x93\x01")] == [0, 0, 2, 1]


def test_a_time_before_the_beginning_is_the_beginning() -> None:
    """Cluster time starts at 0."""
    assert entry_time(encode_entry(-5, [])) == 0


@pytest.mark.parametrize("count", [0, 1, 127, 128, 255, 256, 1024])
def test_a_frame_says_how_many_commands_are_in_it(count: int) -> None:
    """Who fills an entry need not decode it. Whatever a frame claims, it fits an entry."""
    frame = Numbered(count, SessionId("s"), 1, 1, (), (EndWait(1),) * count)
    assert codec.commands_in(codec.encode_command(frame)) == max(count, 1)
    for principal in ("a", "p" * 31, "p" * 32, "p" * limits.PRINCIPAL_BYTES_MAX):
        assert codec.commands_in(codec.encode_command(OnBehalf(principal, frame))) == max(count, 1)


@pytest.mark.parametrize("size", [1, 31, 32, 64])
def test_what_a_command_ends_can_be_read_off(size: int) -> None:
    """Without decoding the rest, whoever asks; of what ends nothing there is nothing to read."""
    lease_id = "i" * size
    ends = Release(HoldId(lease_id), "r", ("a/b",)), CloseSession(SessionId(lease_id), "r")
    for command in (*ends, Renew(HoldId(lease_id)), KeepAlive(SessionId(lease_id)), Tick()):
        for principal in ("", "p", "p" * limits.PRINCIPAL_BYTES_MAX):
            encoded = codec.encode_command(command)
            named = codec.encode_on_behalf(principal, encoded) if principal else encoded
            assert codec.ended_by(named) == (lease_id if command in ends else "")
    for data in (b"", b"\x94", b"\x94\x07", b"\x94\x07\xd9", b"\x93\x53\xa1p\x94"):
        assert codec.ended_by(data) == ""


def test_an_encoded_command_can_be_put_in_somebodys_name() -> None:
    """Its bytes are taken as they are."""
    command = KeepAlive(SessionId("s"))
    named = codec.encode_on_behalf("ann", codec.encode_command(command))
    assert named == codec.encode_command(OnBehalf("ann", command))


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_frame_is_as_new_as_what_is_in_it(is_alone: bool) -> None:  # noqa: FBT001 - a case
    """Releases of older rules cannot read it: no node does, also beside what cannot be read at all."""
    newer = ReleaseByValue("a", "v")
    frames = [Numbered(1, SessionId("s"), 1, 1, (), (each,)) for each in (EndWait(1), newer)]
    encoded = [codec.encode_command(frame) for frame in frames] + ([] if is_alone else [b"\x92\x7f\x01"])
    data = encode_entry(7, [("n1", list(range(len(encoded))), encoded)], rules=RULES_FOLLOWED)
    unread = () if is_alone else (Undecodable(),)
    assert decode_entry(data, RULES_FOLLOWED).batches[0].commands == (frames[0], Undecodable(), *unread)
    assert decode_entry(data, RULES_WHOLE).batches[0].commands == (*frames, *unread)


@pytest.mark.parametrize("count", [1025, 70_000, -1, 2**40])
def test_a_frame_that_lies_about_its_commands_fits_an_entry_all_the_same(count: int) -> None:
    """Nothing that a node forwards may block those behind it."""
    frame = Numbered(count, SessionId("s"), 1, 1, (), ())
    assert codec.commands_in(codec.encode_command(frame)) == limits.STREAM_KEPT_MAX


def test_any_other_command_is_one() -> None:
    """Also one that is cut off."""
    for data in (codec.encode_command(Tick()), b"", b"\x97", b"\x97\x47", b"\x97\x47\xcd\x01"):
        assert codec.commands_in(data) == 1


@pytest.mark.parametrize("principal", ["", "a", "p" * 31, "p" * 32, "p" * limits.PRINCIPAL_BYTES_MAX])
def test_keepalives_are_patient(principal: str) -> None:
    """Whoever asks for them. Nothing else is, also nothing that is cut off."""
    session_id = SessionId("s")
    commands: list[tuple[OfSomebody, bool]] = [
        (KeepAlive(session_id), True),
        (KeepAliveFor(session_id, 60_000), True),
        (Renew(HoldId("h")), False),
        (CloseSession(session_id), False),
    ]
    for command, is_patient in commands:
        named = OnBehalf(principal, command) if principal else command
        assert codec.is_patient(codec.encode_command(named)) is is_patient
    assert not any(map(codec.is_patient, (b"", b"\x92", b"\x93\x53", b"\x93\x53\xd9")))
