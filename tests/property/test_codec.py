"""Entries as bytes: what goes in comes out, and what is not an entry does no harm."""

from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words import codec
from lockstate.words.cell_operations import CellField, Compare, Operation, Relation
from lockstate.words.commands.entries import AdvanceVersion, Command, Entry, OfSomebody, Tick, Undecodable
from lockstate.words.commands.streams import NumberedCommand
from lockstate.words.kinds import Algorithm, ClusterAct, HoldKind, IfHeld
from lockstate.words.modes import Mode, Scope
from lockstate.words.settings import NamespaceSettings, Quota, RateSettings
from lockstate.words.versions import RULES_FIRST, UnknownVersionError
from lockstate.words.wanted import Asking, Uncommon, Wanted, WantedPermits, WantedRate
from tests.support.vocabulary import VOCABULARY

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.integers(-(2**63), 2**63 - 1)
_BY_TYPE: dict[object, st.SearchStrategy[object]] = {
    str: texts,
    int: numbers,
    bool: st.booleans(),
    bytes: st.binary(max_size=12),
    CellField: st.sampled_from(CellField),
    Relation: st.sampled_from(Relation),
    Mode: st.sampled_from(Mode),
    Scope: st.sampled_from(Scope),
    HoldKind: st.sampled_from(HoldKind),
    Algorithm: st.sampled_from(Algorithm),
    ClusterAct: st.sampled_from(ClusterAct),
    int | None: st.none() | numbers,
    bool | None: st.none() | st.booleans(),
    HoldKind | None: st.none() | st.sampled_from(HoldKind),
    Algorithm | None: st.none() | st.sampled_from(Algorithm),
    IfHeld | None: st.none() | st.sampled_from(IfHeld),
    dict[str, str]: st.dictionaries(texts, texts, max_size=3),
    tuple[str, ...]: st.lists(texts, max_size=3).map(tuple),
}


def structs(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Return a strategy for structs of one kind, with any values of the right types in their fields."""
    hints = get_type_hints(kind)
    types = {field: getattr(hints[field], "__supertype__", hints[field]) for field in kind.__struct_fields__}
    return st.builds(kind, **{field: _BY_TYPE[types[field]] for field in types})


_BY_TYPE[Asking | None] = st.none() | structs(Asking)
_BY_TYPE[Uncommon | None] = st.none() | structs(Uncommon)
for _wanted in (Wanted, WantedPermits, WantedRate):
    _BY_TYPE[tuple[_wanted, ...]] = st.lists(structs(_wanted), max_size=3).map(tuple)  # type: ignore[valid-type]
for union, parts in (
    (Compare, get_args(Compare)),
    (Operation, get_args(Operation)),
):
    of_any = st.one_of([structs(part) for part in parts])
    _BY_TYPE[tuple[union, ...]] = st.lists(of_any, max_size=3).map(tuple)  # type: ignore[valid-type]
_BY_TYPE[tuple[tuple[int, int], ...]] = st.lists(st.tuples(numbers, numbers), max_size=3).map(tuple)
_BY_TYPE[tuple[NumberedCommand, ...]] = st.lists(
    st.one_of([structs(kind) for kind in get_args(NumberedCommand)]), max_size=3
).map(tuple)
_BY_TYPE[RateSettings | None] = st.none() | structs(RateSettings)
_BY_TYPE[Quota | None] = st.none() | structs(Quota)
_BY_TYPE[NamespaceSettings | None] = st.none() | structs(NamespaceSettings)
_BY_TYPE[OfSomebody] = st.one_of([structs(kind) for kind in get_args(OfSomebody)])
commands: st.SearchStrategy[Command] = st.one_of([structs(kind) for kind in VOCABULARY])
batches = st.tuples(texts, st.lists(st.tuples(st.integers(0, 2**53), commands), max_size=4))
times_ms = st.integers(0, 2**53)


def _encode(now_ms: int, content: list[tuple[str, list[tuple[int, Command]]]], advance_to: int = 0) -> bytes:
    encoded = [
        (origin, [seq for seq, _ in pairs], [codec.encode_command(command) for _, command in pairs])
        for origin, pairs in content
    ]
    return codec.encode_entry(now_ms, encoded, advance_to=advance_to)


@given(times_ms, st.lists(batches, max_size=3), st.sampled_from([0, RULES_FIRST]))
def test_an_entry_survives_its_encoding(
    now_ms: int, content: list[tuple[str, list[tuple[int, Command]]]], advance_to: int
) -> None:
    """Every command of every batch comes out as it went in, and so do the time and the move of the rules."""
    data = _encode(now_ms, content, advance_to)
    entry = codec.decode_entry(data)
    assert entry.advance == (AdvanceVersion(advance_to) if advance_to else None)
    assert entry.now_ms == codec.entry_time(data) == now_ms
    assert [
        (batch.origin, list(zip(batch.seqs, batch.commands, strict=True))) for batch in entry.batches
    ] == content


@given(times_ms, st.lists(batches, max_size=3))
def test_any_command_can_be_applied(
    now_ms: int, content: list[tuple[str, list[tuple[int, Command]]]]
) -> None:
    """Whatever a decodable entry says, it is applied, and the state stays sound and can be stored."""
    machine = LockMachine()
    outcome = machine.apply(codec.decode_entry(_encode(now_ms, content)))
    assert outcome.revision == 1
    invariants.check(machine.state)
    data = snapshot.encode(machine.state)
    assert snapshot.encode(snapshot.decode(data)) == data


@given(st.binary(max_size=200))
def test_junk_is_an_entry(junk: bytes) -> None:
    """Bytes of any kind are applied and count as one revision, if they cannot be of another release."""
    codec.entry_time(junk)
    codec.entry_format(junk)
    machine = LockMachine()
    try:
        entry = codec.decode_entry(junk)
    except UnknownVersionError:
        assert codec.entry_format(junk) not in (0, 1), "neither junk nor format 1 is of another release"
        return
    machine.apply(entry)
    assert machine.revision == 1
    invariants.check(machine.state)
    snapshot.encode(machine.state)


@given(times_ms, st.lists(batches, min_size=1, max_size=3), st.data())
def test_a_flipped_byte_is_survived(
    now_ms: int, content: list[tuple[str, list[tuple[int, Command]]]], data: st.DataObject
) -> None:
    """An entry with a wrong byte in it is applied as far as it makes sense, the same way every time."""
    spoilt = bytearray(_encode(now_ms, content, data.draw(st.sampled_from([0, RULES_FIRST]))))
    spoilt[data.draw(st.integers(0, len(spoilt) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        entry = codec.decode_entry(bytes(spoilt))
    except UnknownVersionError:
        with pytest.raises(UnknownVersionError):
            codec.decode_entry(bytes(spoilt))
        return
    one, other = LockMachine(), LockMachine()
    assert one.apply(entry) == other.apply(codec.decode_entry(bytes(spoilt)))
    assert snapshot.digest(one.state) == snapshot.digest(other.state)
    invariants.check(one.state)


@given(st.binary(max_size=30))
def test_a_bad_command_spoils_only_itself(junk: bytes) -> None:
    """Next to a command of unknown tag, the others of the batch are still read."""
    unknown = b"\x92\x7f" + msgspec.msgpack.encode(junk)
    tick = codec.encode_command(Tick())
    entry = codec.decode_entry(codec.encode_entry(7, [("n1", [1, 2, 3], [tick, unknown, tick])]))
    assert entry.batches[0].commands == (Tick(), Undecodable(), Tick())


@given(st.binary(max_size=200))
def test_junk_is_not_a_snapshot(junk: bytes) -> None:
    """Bytes that are not a snapshot raise SnapshotError and nothing else."""
    with pytest.raises(snapshot.SnapshotError):
        LockMachine(snapshot.decode(junk))


def test_an_empty_entry_counts() -> None:
    """An entry without commands raises the revision."""
    machine = LockMachine()
    assert machine.apply(Entry(5)).revision == 1
    assert machine.now_ms == 5
