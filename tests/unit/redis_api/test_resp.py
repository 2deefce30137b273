"""RESP without I/O: how bytes are cut changes nothing, and garbage is a protocol error and nothing else."""

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_api.protocol.resp import (
    ARGS_COUNT_MAX,
    COMMAND_BYTES_MAX,
    OK,
    CommandParser,
    Failure,
    ProtocolError,
    Reply,
    Status,
    encode,
)
from tests.support.redis_words import sent

ARGS = st.lists(st.binary(max_size=40), min_size=1, max_size=6)
NUMBERS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
REPLIES: st.SearchStrategy[Reply] = st.recursive(
    st.none() | NUMBERS | st.binary(max_size=20) | st.just(OK) | st.just(Failure("ERR", "no\r\nway")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


def parsed(pieces: list[bytes]) -> list[list[bytes]]:
    """Return the commands in bytes that come in pieces, each as early as it can be known."""
    parser = CommandParser()
    found = []
    for piece in pieces:
        parser.feed(piece)
        while (command := parser.next_command()) is not None:
            found.append(command)
    return found


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Return the bytes in pieces."""
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


@given(st.lists(ARGS, max_size=5), st.lists(st.integers(min_value=0), max_size=8))
def test_any_cut_gives_the_same_commands(commands: list[list[bytes]], places: list[int]) -> None:
    """However the bytes of commands arrive, the commands are those that were sent, in their order."""
    assert parsed(cut(b"".join(map(sent, commands)), places)) == commands


def test_what_asks_for_nothing_is_skipped() -> None:
    """Empty lines and arrays, also between commands, and wherever they are cut."""
    data = b" \r\n*0\r\n\n" + sent([b"GET", b" \n"]) + b"*0\r\n \t\n  PING \r\n\r\n*00\r\n" + sent([b"QUIT"])
    expected = [[b"GET", b" \n"], [b"PING"], [b"QUIT"]]
    assert parsed([data + b"\n" * 300_000]) == expected
    for place in range(len(data)):
        assert parsed([data[:place], data[place:]]) == expected
    assert parsed([bytes([byte]) for byte in data]) == expected


@given(st.binary(max_size=300), st.lists(st.integers(min_value=0), max_size=5))
def test_garbage_raises_nothing_but_the_protocol_error(data: bytes, places: list[int]) -> None:
    """Any bytes are commands, the beginning of one, or a protocol error, the same however they are cut."""
    outcomes = []
    for pieces in ([data], cut(data, places)):
        try:
            outcomes.append(repr(parsed(pieces)))
        except ProtocolError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


@given(st.text(alphabet="*$\r\n-0123456789 aP", max_size=60))
def test_nearly_commands_raise_nothing_else(text: str) -> None:
    """What looks like RESP and is not raises nothing but the protocol error either."""
    with contextlib.suppress(ProtocolError):
        assert all(parsed([text.encode()]))


@pytest.mark.parametrize(
    "data",
    [
        b"*%d\r\n" % (ARGS_COUNT_MAX + 1),
        b"*1\r\n$%d\r\n" % (COMMAND_BYTES_MAX + 1),
        b"*2\r\n$%d\r\n%b\r\n$1\r\n" % (COMMAND_BYTES_MAX, b"x" * COMMAND_BYTES_MAX),
        b"*99999999999999\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\n$1\r\nxy\r\n",
        b"*-2\r\n",
        b"x" * (COMMAND_BYTES_MAX + 1),
        b"POST / HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n",
        b"SET 'a b' c\r\n",
    ],
)
def test_bounds_are_strict(data: bytes) -> None:
    """What exceeds a bound is refused before more of it is read; so is what a browser would send."""
    with pytest.raises(ProtocolError):
        parsed([data])


def test_a_command_may_be_as_long_as_the_bound() -> None:
    """The bounds themselves are allowed."""
    longest = [b"x" * COMMAND_BYTES_MAX]
    many = [b""] * ARGS_COUNT_MAX
    assert parsed([sent(longest) + sent(many)]) == [longest, many]


def test_a_line_is_a_command_and_empty_ones_are_none() -> None:
    """People type commands as lines; empty lines and arrays ask for nothing."""
    assert parsed([b"\r\nPING\r\n*0\r\n*-1\r\n  echo   hi \n"]) == [[b"PING"], [b"echo", b"hi"]]


@given(REPLIES, st.sampled_from([2, 3]))
def test_replies_are_whole(reply: Reply, protocol: int) -> None:
    """A reply is one value of RESP from its first byte to its last, whatever is in it."""
    data = encode(reply, protocol)
    assert read(data, 0)[1] == len(data)


def read(data: bytes, at: int) -> tuple[object, int]:
    """Read one value as a client does; return it and where the next one begins."""
    end = data.index(b"\r\n", at)
    kind, text, at = data[at : at + 1], data[at + 1 : end], end + 2
    if kind in b"+-:_":
        return text, at
    if kind == b"$":
        if text == b"-1":
            return None, at
        assert data[at + int(text) : at + int(text) + 2] == b"\r\n"
        return data[at : at + int(text)], at + int(text) + 2
    assert kind in b"*%"
    found = []
    for _ in range(int(text) * (2 if kind == b"%" else 1)):
        value, at = read(data, at)
        found.append(value)
    return found, at


def test_versions_differ_in_nothing_and_in_maps() -> None:
    """Version 2 has no type for nothing and none for pairs."""
    assert [encode(None, version) for version in (2, 3)] == [b"$-1\r\n", b"_\r\n"]
    assert encode({"a": 1}, 2) == b"*2\r\n$1\r\na\r\n:1\r\n"
    assert encode({"a": 1}, 3) == b"%1\r\n$1\r\na\r\n:1\r\n"
    assert encode([Status("PONG"), b"x"], 3) == b"*2\r\n+PONG\r\n$1\r\nx\r\n"
