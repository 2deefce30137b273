"""RESP, versions 2 and 3, without I/O: bytes become commands, replies become bytes.

A command is an array of bulk strings, or one line of words. Every bound is strict: what exceeds one, or is
anything else, is a `ProtocolError`, and behind it nothing of the connection can be understood.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

SPOKEN_AS: Final = "7.4.0"
"""The version of Redis whose words this face speaks: clients decide by it what they may ask."""
ARGS_COUNT_MAX: Final = 1024
"""Arguments of one command, its name included."""
COMMAND_BYTES_MAX: Final = 64 * 1024
"""Bytes of the arguments of one command, and of a command that is one line."""
_LENGTH_CHARS_MAX: Final = 10
"""Characters of a count or a length: more than any that is allowed."""
_LENGTH: Final = re.compile(rb"-1|[0-9]{1,10}")
_END: Final = b"\r\n"
_SMALL: Final = [
    re.compile(rb"\*%d\r\n" % count + rb"(\$[0-9]{1,3}+)\r\n([^\r\n]{0,999}+)\r\n" * count)
    for count in range(10)
]
"""Commands of so many arguments of less than a KiB each: below every bound, whatever these arguments are."""
_LENGTHS: Final = [b"$%d" % length for length in range(1000)]
"""What stands before such an argument, by its length."""
_NOTHING: Final = re.compile(rb"(?:\s*\n|\*0+\r\n)*")
"""Lines and arrays with no words in them, which ask for nothing: there may be very many of them at a time."""
_COMPACT_BYTES: Final = 16 * 1024
"""Bytes that were read before what is behind them is moved to the front."""
_ZERO: Final = ord("0")
_OF_HTTP: Final = frozenset({b"post", b"host:"})
"""How a line begins that a browser sends which was told to talk to this port."""


class ProtocolError(Exception):
    """The bytes are not RESP, or exceed a bound. The connection ends; the message is for the client."""


class Status(NamedTuple):
    """A simple string, such as OK."""

    text: str


class NoList(NamedTuple):
    """What stands for nothing where a list is expected: version 2 tells it apart from no string."""


class Failure(NamedTuple):
    """An error: a code in capitals, by which clients tell errors apart, and a sentence."""

    code: str
    text: str


class Push(NamedTuple):
    """What a client is told without having asked at that moment; an array like others with version 2."""

    parts: "Sequence[Reply]"


class Several(NamedTuple):
    """What is answered by several replies."""

    replies: "Sequence[Reply]"


Reply = (
    None
    | int
    | bytes
    | str
    | Status
    | NoList
    | Failure
    | Push
    | Several
    | Sequence["Reply"]
    | Mapping[str, "Reply"]
)
"""What answers a command; a str is a bulk string of text."""

OK: Final = Status("OK")
NO_LIST: Final = NoList()


class CommandParser:
    """Takes bytes as they come and gives commands, one by one, as they are asked for."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._missing = 0
        """Arguments of the command that are still to come."""
        self._args: list[bytes] = []
        self._args_bytes = 0
        self._length = -1
        """Bytes of the next argument, -1 while that is not known."""

    @property
    def held_bytes(self) -> int:
        """Return how many bytes are kept that have not been given out."""
        return len(self._buffer) - self._at + self._args_bytes

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        self._buffer += data

    def next_command(self) -> list[bytes] | None:
        """Return the next command, None if more bytes are needed for it. Raises ProtocolError."""
        if self._at == len(self._buffer):
            return None
        if not self._missing and (whole := self._whole()) is not None:
            return whole
        while True:
            if not self._missing and not self._begin():
                return None
            if not self._missing:
                continue  # an empty array or line, which asks for nothing
            while self._missing:
                arg = self._argument()
                if arg is None:
                    self._compact()
                    return None
                self._args.append(arg)
                self._missing -= 1
            command, self._args, self._args_bytes = self._args, [], 0
            self._compact()
            return command

    def _whole(self) -> list[bytes] | None:
        """Return a small command of the usual form that is there as a whole; None if it needs more care."""
        buffer, at = self._buffer, self._at
        count = buffer[at + 1] - _ZERO if len(buffer) > at + 1 else 0
        whole = _SMALL[count].match(buffer, at) if 0 < count < len(_SMALL) else None
        if whole is None:
            return None
        parts = whole.groups()
        args = [*parts[1::2]]
        if [_LENGTHS[len(arg)] for arg in args] != [*parts[::2]]:
            return None
        self._at = whole.end()
        self._compact()
        return args

    def _begin(self) -> bool:
        """Read how many arguments a command has; return False if more bytes are needed."""
        nothing = _NOTHING.match(self._buffer, self._at)
        self._at = self._at if nothing is None else nothing.end()
        if self._at == len(self._buffer):
            self._compact()
            return False
        if self._buffer[self._at] != ord("*"):
            return self._inline()
        count = self._number(b"*")
        if count is None:
            return False
        if count > ARGS_COUNT_MAX:
            raise ProtocolError(f"a command has at most {ARGS_COUNT_MAX} arguments")
        self._missing = max(count, 0)
        return True

    def _inline(self) -> bool:
        """Read a command that is one line; return False if more bytes are needed."""
        end = self._buffer.find(b"\n", self._at)
        if (len(self._buffer) if end < 0 else end) - self._at > COMMAND_BYTES_MAX:
            raise ProtocolError("too big inline request")
        if end < 0:
            return False
        line = bytes(self._buffer[self._at : end]).removesuffix(b"\r")
        words = line.split()
        if b'"' in line or b"'" in line or b"\0" in line:
            raise ProtocolError("a command that is one line has no quotes: send an array of bulk strings")
        if words and words[0].lower() in _OF_HTTP:
            raise ProtocolError("this port does not speak HTTP")
        if len(words) > ARGS_COUNT_MAX:
            raise ProtocolError(f"a command has at most {ARGS_COUNT_MAX} arguments")
        self._at = end + 1
        # As an array, so that there is one way on.
        self._buffer[self._at : self._at] = b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])
        self._missing = len(words)
        return True

    def _argument(self) -> bytes | None:
        """Return the next argument, None if more bytes are needed for it."""
        if self._length < 0:
            length = self._number(b"$")
            if length is None:
                return None
            if length < 0:
                raise ProtocolError("an argument cannot be null")
            if self._args_bytes + length > COMMAND_BYTES_MAX:
                raise ProtocolError(f"a command has at most {COMMAND_BYTES_MAX} bytes")
            self._length = length
        end = self._at + self._length
        if len(self._buffer) < end + len(_END):
            return None
        if self._buffer[end : end + len(_END)] != _END:
            raise ProtocolError("an argument does not end where it should")
        arg = bytes(self._buffer[self._at : end])
        self._at = end + len(_END)
        self._args_bytes += self._length
        self._length = -1
        return arg

    def _number(self, kind: bytes) -> int | None:
        """Read a line of `kind` and a number; return None if more bytes are needed."""
        if self._at == len(self._buffer):
            return None
        if self._buffer[self._at] != kind[0]:
            raise ProtocolError(f"expected '{kind.decode()}'")
        end = self._buffer.find(_END, self._at + 1, self._at + 1 + _LENGTH_CHARS_MAX + len(_END))
        if end < 0:
            if len(self._buffer) - self._at > _LENGTH_CHARS_MAX + len(_END):
                raise ProtocolError("invalid length")
            return None
        text = bytes(self._buffer[self._at + 1 : end])
        if _LENGTH.fullmatch(text) is None:
            raise ProtocolError("invalid length")
        self._at = end + len(_END)
        return int(text)

    def _compact(self) -> None:
        """Let go of bytes that were read, if they are many or all."""
        if self._at > _COMPACT_BYTES or self._at == len(self._buffer):
            del self._buffer[: self._at]
            self._at = 0


def encode(reply: Reply, protocol: int) -> bytes:
    """Return the bytes of a reply to a client that speaks version 2 or 3."""
    match reply:
        case None | NoList():
            if protocol == 3:  # noqa: PLR2004 - versions of RESP
                return b"_\r\n"
            return b"$-1\r\n" if reply is None else b"*-1\r\n"
        case int():
            return b":%d\r\n" % reply
        case bytes() | str():
            data = reply.encode() if isinstance(reply, str) else reply
            return b"$%d\r\n%b\r\n" % (len(data), data)
        case Status(text):
            return b"+%b\r\n" % _line(text)
        case Failure(code, text):
            return b"-%b\r\n" % _line(f"{code} {text}".rstrip())
        case Push(parts):
            array = encode([*parts], protocol)
            return b">" + array[1:] if protocol == 3 else array  # noqa: PLR2004
        case Several(replies):
            return b"".join([encode(one, protocol) for one in replies])
        case Mapping():
            pairs = [encode(part, protocol) for pair in reply.items() for part in pair]
            head = b"%%%d\r\n" % len(reply) if protocol == 3 else b"*%d\r\n" % len(pairs)  # noqa: PLR2004
            return head + b"".join(pairs)
        case _:
            return b"*%d\r\n" % len(reply) + b"".join([encode(part, protocol) for part in reply])


def _line(text: str) -> bytes:
    """Return text as one line, whatever is in it."""
    return text.replace("\r", " ").replace("\n", " ").encode(errors="replace")
