"""The leader's batches: bounded, each origin's commands in their order, nothing lost or twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.commands import batcher as batcher_module
from cluster.commands.batcher import ENTRY_LOAD_MAX, Batcher
from cluster.commands.encoded_command import FREE, EncodedCommand
from lockstate.words import codec
from lockstate.words.commands.entries import Barrier, Tick
from lockstate.words.commands.sessions import KeepAlive
from lockstate.words.ids import SessionId

BARRIER = EncodedCommand(codec.encode_command(Barrier()))


def drain(batcher: Batcher) -> list[list[tuple[str, list[int]]]]:
    """Return origins and numbers of all entries until the batcher is empty."""
    entries = []
    while not batcher.is_empty:
        data = batcher.next_entry(0)
        assert data is not None
        entries.append([(batch.origin, list(batch.seqs)) for batch in codec.decode_entry(data).batches])
    return entries


def test_nothing_makes_no_entry() -> None:
    """An empty batcher has no entry to propose."""
    batcher = Batcher()
    assert batcher.is_empty
    assert batcher.next_entry(5) is None


def test_all_that_waits_is_one_entry_with_its_time() -> None:
    """Commands of several origins share one stamp, in order of arrival."""
    batcher = Batcher()
    batcher.add("a", [1, 2], [BARRIER, EncodedCommand(codec.encode_command(Tick()))])
    batcher.add("b", [7], [BARRIER])
    data = batcher.next_entry(1234)
    assert data is not None
    entry = codec.decode_entry(data)
    assert entry.now_ms == 1234
    assert [(batch.origin, batch.seqs, batch.commands) for batch in entry.batches] == [
        ("a", (1, 2), (Barrier(), Tick())),
        ("b", (7,), (Barrier(),)),
    ]
    assert batcher.is_empty


def test_a_tick_is_an_entry_without_commands() -> None:
    """Time can be made to pass; once is enough, and any entry does it."""
    batcher = Batcher()
    batcher.add_tick()
    batcher.add_tick()
    data = batcher.next_entry(9)
    assert data is not None
    assert codec.decode_entry(data).batches == ()
    assert batcher.next_entry(9) is None


def test_clearing_drops_everything() -> None:
    """After leadership is lost nothing of it is proposed."""
    batcher = Batcher()
    batcher.add("a", [1], [BARRIER])
    batcher.add_tick()
    batcher.clear()
    assert batcher.is_empty


def test_clearing_drops_an_advance_of_the_rules() -> None:
    """A later leadership must look again whether every member knows them."""
    batcher = Batcher()
    batcher.add_advance(2)
    batcher.clear()
    assert batcher.next_entry(0) is None


def test_an_entry_holds_so_many_commands_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that does not fit is split; the rest leads the next entry."""
    monkeypatch.setattr(batcher_module, "ENTRY_COMMANDS_MAX", 4)
    batcher = Batcher()
    batcher.add("a", [1, 2, 3], [BARRIER] * 3)
    batcher.add("b", [1, 2, 3], [BARRIER] * 3)
    assert drain(batcher) == [[("a", [1, 2, 3]), ("b", [1])], [("b", [2, 3])]]


def test_an_entry_holds_so_many_bytes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Likewise by size; a command that does not fit behind others is the first of the next entry."""
    monkeypatch.setattr(batcher_module, "ENTRY_BYTES_MAX", 3 * len(BARRIER.data))
    batcher = Batcher()
    batcher.add("a", [1, 2], [BARRIER] * 2)
    batcher.add("b", [1, 2, 3], [BARRIER] * 3)
    assert drain(batcher) == [[("a", [1, 2]), ("b", [1])], [("b", [2, 3])]]


LOADS = 0, ENTRY_LOAD_MAX // 2, ENTRY_LOAD_MAX, 2 * ENTRY_LOAD_MAX
WITH_LOADS = tuple(EncodedCommand(b"\xa1x", load) for load in LOADS)
LIGHT, MIDDLE, HEAVY, EXCESSIVE = WITH_LOADS


def test_an_entry_holds_so_much_load_at_most() -> None:
    """What has none fits always; what exceeds the bound has an entry without any other load."""
    batcher = Batcher()
    batcher.add("a", [1, 2, 3, 4, 5], [MIDDLE, MIDDLE, LIGHT, HEAVY, LIGHT])
    batcher.add("a", [6, 7, 8], [EXCESSIVE, LIGHT, MIDDLE])
    assert drain(batcher) == [[("a", [1, 2, 3])], [("a", [4, 5])], [("a", [6, 7])], [("a", [8])]]


def test_what_does_not_fit_keeps_only_its_own_origin_waiting() -> None:
    """What others have sent behind it shares the entry; it comes first in the next one."""
    batcher = Batcher()
    batcher.add("a", [1, 2, 3], [HEAVY, HEAVY, LIGHT])
    batcher.add("b", [1, 2, 3], [LIGHT, HEAVY, LIGHT])
    batcher.add("a", [4], [LIGHT])
    batcher.add("c", [1], [LIGHT])
    assert drain(batcher) == [
        [("a", [1]), ("b", [1]), ("c", [1])],
        [("a", [2, 3]), ("a", [4])],
        [("b", [2, 3])],
    ]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.lists(st.sampled_from(WITH_LOADS), max_size=6)), max_size=12
    ),
    st.integers(1, 8),
)
def test_loads_change_no_order(batches: list[tuple[str, list[EncodedCommand]]], count_max: int) -> None:
    """Of each origin all commands come once and in their order, and no entry has more than it may have."""
    batcher = Batcher()
    sent: dict[str, list[EncodedCommand]] = {origin: [] for origin in "abc"}
    for origin, commands in batches:
        first = len(sent[origin]) + 1
        sent[origin] += commands
        batcher.add(origin, list(range(first, first + len(commands))), commands)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batcher_module, "ENTRY_COMMANDS_MAX", count_max)
        entries = drain(batcher)
    for entry in entries:
        loads = [sent[origin][seq - 1].load for origin, seqs in entry for seq in seqs]
        assert sum(loads) <= ENTRY_LOAD_MAX or sum(load > 0 for load in loads) == 1
        assert len(loads) <= count_max
    for origin, commands in sent.items():
        seqs = [seq for entry in entries for name, seqs in entry for seq in seqs if name == origin]
        assert seqs == list(range(1, len(commands) + 1))


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.integers(1, 60), max_size=12)), max_size=12),
    st.integers(1, 10),
    st.integers(60, 150),
)
def test_every_command_comes_once_in_the_order_of_its_origin(
    sizes: list[tuple[str, list[int]]], count_max: int, bytes_max: int
) -> None:
    """Whatever is added, entries keep the bounds, and each origin's numbers come out as they went in."""
    batcher = Batcher()
    numbers = dict.fromkeys("abc", 0)
    for origin, commands in sizes:
        seqs = [numbers[origin] + position for position in range(1, len(commands) + 1)]
        numbers[origin] += len(commands)
        # A MessagePack string of `size` bytes in all: no command, but bytes of a known length.
        batcher.add(origin, seqs, [EncodedCommand(encoded(size)) for size in commands])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batcher_module, "ENTRY_COMMANDS_MAX", count_max)
        patch.setattr(batcher_module, "ENTRY_BYTES_MAX", bytes_max)
        entries = drain(batcher)
    assert all(sum(len(seqs) for _, seqs in entry) <= count_max for entry in entries)
    for origin, number in numbers.items():
        assert [seq for entry in entries for name, seqs in entry for seq in seqs if name == origin] == list(
            range(1, number + 1)
        )


def encoded(size: int) -> bytes:
    """Return one MessagePack value of `size` bytes, up to 60."""
    if size <= 32:
        return bytes([0xA0 | (size - 1)]) + b"x" * (size - 1)
    return bytes([0xD9, size - 2]) + b"x" * (size - 2)


KEEPALIVE = EncodedCommand(codec.encode_command(KeepAlive(SessionId("s"))), is_patient=True)


def test_keepalives_alone_are_not_urgent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anything else is, and what one entry had no room for; they go with it, in their place."""
    batcher = Batcher()
    batcher.add("a", [1, 2], [KEEPALIVE, KEEPALIVE])
    seen = [batcher.is_empty, batcher.is_urgent]
    batcher.add("b", [1, 2], [KEEPALIVE, BARRIER])
    assert [*seen, batcher.is_urgent] == [False, False, True]
    assert drain(batcher) == [[("a", [1, 2]), ("b", [1, 2])]]
    seen = [batcher.is_urgent]
    monkeypatch.setattr(batcher_module, "ENTRY_COMMANDS_MAX", 2)
    batcher.add("a", [3, 4, 5], [KEEPALIVE] * 3)
    seen.append(batcher.is_urgent)
    batcher.next_entry(0)
    seen.append(batcher.is_urgent)
    batcher.clear()
    assert [*seen, batcher.is_urgent] == [False, False, True, False]
    for ask in (batcher.add_tick, lambda: batcher.add_advance(2), lambda: batcher.add_bytes_max(1)):
        ask()
        seen = [batcher.is_urgent]
        batcher.next_entry(0)
        assert [*seen, batcher.is_urgent] == [True, False]


def test_an_entry_has_no_more_load_than_its_leader_can_apply_in_time() -> None:
    """What each command has free is counted, too; a single command goes whatever it has; the rest waits."""
    heavy = EncodedCommand(BARRIER.data, load=500)
    batcher = Batcher()
    batcher.add("a", [1, 2, 3], [BARRIER] * 3)
    batcher.add("b", [1, 2], [heavy, BARRIER])
    batcher.add("c", [1], [BARRIER])
    taken = []
    while not batcher.is_empty:
        data = batcher.next_entry(0, 2 * FREE)
        assert data is not None
        origins = [(batch.origin, list(batch.seqs)) for batch in codec.decode_entry(data).batches]
        taken.append((origins, batcher.entry_load))
    assert taken == [
        ([("a", [1, 2])], 2 * FREE),
        ([("a", [3]), ("c", [1])], 2 * FREE),
        ([("b", [1])], 500 + FREE),
        ([("b", [2])], FREE),
    ]
