"""Whether clients mask the frames of their WebSockets, as they must (RFC 6455, 5.1): aiohttp takes any."""

from typing import Final, Protocol

_SHORT_MAX: Final = 125
_MASK_BYTES: Final = 4
_WRONG: Final = b"\xf0\x80\0\0\0\0"
"""A frame that no reader takes, because its reserved bits are set."""


class FrameReader(Protocol):
    """Takes the bytes of a WebSocket. aiohttp's does."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take bytes; return whether that was the end, and what is left of them."""

    def feed_eof(self) -> None:
        """Hear that nothing more comes."""


class MaskedFrames:
    """Hands bytes on to a reader. In the place of a frame without a mask it gets one that is wrong."""

    __slots__ = ("_head", "_left", "_reader")

    def __init__(self, reader: FrameReader) -> None:
        self._reader = reader
        self._head = b""
        """What has come of a frame whose length is not known yet."""
        self._left = 0
        """Bytes that are to come of the last frame whose length is known."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take bytes, which may begin and end anywhere in a frame."""
        if self._head:
            data, self._head = self._head + data, b""
        place, size = self._left, len(data)
        while size - place > 1:
            length = data[place + 1] - 0x80
            if length < 0:
                self._reader.feed_data(data[:place])
                return self._reader.feed_data(_WRONG)
            if length > _SHORT_MAX:
                begin = place + 2
                end = begin + (2 if length == _SHORT_MAX + 1 else 8)
                if end > size:
                    break
                length = int.from_bytes(data[begin:end], "big") + end - begin
            place += 2 + _MASK_BYTES + length
        if place < size:
            data, self._head = data[:place], data[place:]
        self._left = max(place - size, 0)
        return self._reader.feed_data(data)

    def feed_eof(self) -> None:
        """Hear that nothing more comes."""
        self._reader.feed_eof()
