"""Records: what is sealed comes out as it was, in any pieces; whatever else comes ends everything."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.peers.sealing import MAC_BYTES, RECORD_BYTES_MAX, Opener, SealBroken, Sealer

KEY = bytes(range(32))
OTHER_KEY = bytes(32)
OVERHEAD = 4 + MAC_BYTES
CONTENTS = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=6)


def records(contents: list[bytes], key: bytes = KEY) -> list[bytes]:
    """Return a record for each of the contents."""
    sealer = Sealer(key)
    return [sealer.seal(content) for content in contents]


def opened(data: bytes, key: bytes = KEY) -> list[bytes]:
    """Return what is believed of `data`; nothing behind the first record that is wrong is."""
    out = []
    opener = Opener(key)
    try:
        for content in opener.open(data):
            out.append(content)  # noqa: PERF402 - what came before the error counts
    except SealBroken:
        pass
    return out


@given(CONTENTS, st.lists(st.integers(1, 30), min_size=1))
def test_what_is_sealed_comes_out_in_any_pieces(contents: list[bytes], sizes: list[int]) -> None:
    """However the network cuts the bytes."""
    data = b"".join(records(contents))
    opener, out, at, number = Opener(KEY), [], 0, 0
    while at < len(data):
        size = sizes[number % len(sizes)]
        out += list(opener.open(data[at : at + size]))
        at, number = at + size, number + 1
    assert out == contents


@pytest.mark.parametrize("size", [RECORD_BYTES_MAX, RECORD_BYTES_MAX + 1, 3 * RECORD_BYTES_MAX + 17])
def test_what_is_long_takes_several_records(size: int) -> None:
    """A receiver never keeps more than one that is not proven."""
    data = bytes(number % 251 for number in range(size))
    sealed = Sealer(KEY).seal(data)
    assert b"".join(opened(sealed)) == data
    assert len(sealed) == size + OVERHEAD * -(-size // RECORD_BYTES_MAX)


@given(CONTENTS, st.data())
def test_a_changed_bit_is_noticed(contents: list[bytes], data: st.DataObject) -> None:
    """In the length, in the MAC or in the content: the records before it count, it and all others do not."""
    sealed = records(contents)
    which = data.draw(st.integers(0, len(sealed) - 1))
    bit = data.draw(st.integers(0, 8 * len(sealed[which]) - 1))
    changed = bytearray(sealed[which])
    changed[bit // 8] ^= 1 << bit % 8
    sealed[which] = bytes(changed)
    assert opened(b"".join(sealed)) == contents[:which]


@given(st.lists(st.binary(min_size=1, max_size=9), min_size=2, max_size=6, unique=True), st.data())
def test_records_in_another_order_are_noticed(contents: list[bytes], data: st.DataObject) -> None:
    """Repeated, left out, moved: what counts is the beginning that is as it was sent."""
    order = data.draw(st.lists(st.integers(0, len(contents) - 1), max_size=8))
    sealed = records(contents)
    same = 0
    while same < len(order) and order[same] == same:
        same += 1
    assert opened(b"".join(sealed[which] for which in order)) == contents[:same]


def test_equal_contents_have_different_records() -> None:
    """So a heartbeat that was recorded is not the next one."""
    first, second = records([b"heartbeat", b"heartbeat"])
    assert first != second
    assert opened(first + first) == [b"heartbeat"]


def test_another_key_proves_nothing() -> None:
    """Neither that of another link, nor that of the other direction of the same."""
    assert opened(records([b"content"], OTHER_KEY)[0]) == []


def test_records_cannot_be_joined_or_cut() -> None:
    """The same bytes with other borders are other records."""
    sealed = records([b"one", b"two"])
    joined = struct.pack(">I", 6) + sealed[1][4:OVERHEAD] + b"onetwo"
    assert opened(joined) == []
    cut = struct.pack(">I", 2) + sealed[0][4:OVERHEAD] + b"on"
    assert opened(cut) == []


@pytest.mark.parametrize("length", [0, RECORD_BYTES_MAX + 1, 2**32 - 1])
def test_no_length_makes_a_receiver_wait_for_more_than_a_record(length: int) -> None:
    """It is refused as soon as it is read."""
    with pytest.raises(SealBroken, match=f"a record of {length} bytes"):
        list(Opener(KEY).open(struct.pack(">I", length) + bytes(MAC_BYTES)))


def test_nothing_is_handed_on_before_it_is_proven() -> None:
    """Of a record that lacks its last byte nothing is seen."""
    sealed = Sealer(KEY).seal(b"content")
    opener = Opener(KEY)
    assert list(opener.open(sealed[:-1])) == []
    assert list(opener.open(sealed[-1:])) == [b"content"]
