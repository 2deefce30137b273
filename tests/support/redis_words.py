"""RESP as clients need it: commands as bytes, and bytes as values."""

from collections import deque
from typing import TypeAlias

Value: TypeAlias = "int | bytes | str | list[Value] | None"
"""A number, a string, a line (`+OK`, `-ERR no`), nil, or several of them."""
_END = b"\r\n"


def sent(args: list[bytes]) -> bytes:
    """Return a command as clients send it."""
    return b"*%d\r\n" % len(args) + b"".join([b"$%d\r\n%b\r\n" % (len(arg), arg) for arg in args])


class _TooFewBytes(Exception):
    """The value goes on behind what has come."""


class Reader:
    """Takes bytes as they come; `values` are the whole ones among them, for the caller to take away."""

    def __init__(self) -> None:
        self.values: deque[Value] = deque()
        self._bytes = b""
        self._place = 0

    def feed(self, data: bytes) -> None:
        """Take more bytes."""
        self._bytes += data
        try:
            while self._bytes:
                self._place = 0
                self.values.append(self._value())
                self._bytes = self._bytes[self._place :]
        except _TooFewBytes:
            return

    def _value(self) -> Value:
        kind, text = self._line()
        if kind in b"+-":
            return (kind + text).decode()
        number = int(text)
        if kind == b":":
            return number
        if number < 0:
            return None
        if kind == b"*":
            return [self._value() for _ in range(number)]
        assert kind == b"$", kind
        return self._take(number + len(_END))[: -len(_END)]

    def _line(self) -> tuple[bytes, bytes]:
        end = self._bytes.find(_END, self._place)
        if end < 0:
            raise _TooFewBytes
        line = self._take(end + len(_END) - self._place)
        return line[:1], line[1 : -len(_END)]

    def _take(self, count: int) -> bytes:
        begin, end = self._place, self._place + count
        if end > len(self._bytes):
            raise _TooFewBytes
        self._place = end
        return self._bytes[begin:end]
