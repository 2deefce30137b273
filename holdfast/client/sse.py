"""Server-Sent Events: bytes in, events out. No I/O."""

import msgspec


class SseBlock(msgspec.Struct, frozen=True):
    """What stood between two empty lines. Without data it only says where the stream is: `id`."""

    id: str
    event: str
    data: str


class Parser:
    """Takes the bytes of a stream in pieces and returns the blocks that are complete.

    `last_id` is where the stream can be resumed: behind the last block that is complete.
    """

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        self._rest = b""
        self._event = ""
        self._data: list[str] = []
        self._id = last_id
        self._saw_id = False

    def feed(self, piece: bytes) -> list[SseBlock]:
        """Return the blocks that end within this piece."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        blocks = []
        for line in lines:
            block = self._take(line.removesuffix(b"\r").decode("utf-8", "replace"))
            if block is not None:
                blocks.append(block)
        return blocks

    def _take(self, line: str) -> SseBlock | None:
        """Take one line; return the block that it ends."""
        if not line:
            return self._end()
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "id":
                self._id = value
                self._saw_id = True
            case "event":
                self._event = value
            case "data":
                self._data.append(value)
        return None

    def _end(self) -> SseBlock | None:
        self.last_id = self._id
        block = SseBlock(self._id, self._event, "\n".join(self._data)) if self._data or self._saw_id else None
        self._event, self._data, self._saw_id = "", [], False
        return block
