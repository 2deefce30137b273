"""What a node says on a stream keeps its order, and is never more than its client reads."""

import asyncio
from typing import Any, cast

import msgspec
import pytest

from holdfast.wire.stream import MSGPACK, CallAnswered, Declined, StreamPong
from http_api.v1 import stream_out
from http_api.v1.stream_out import FORMS, PIECE_COUNT, UNREAD_BYTES_MAX, Out
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Released

LONG = [Refused(Reason.LOCK_HELD, "held")] * (3 * PIECE_COUNT)
_BEHIND_HEAD = 4


class _Client:
    """A transport whose client reads when it is told to."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.unread_bytes = 0
        self.reads = asyncio.Event()
        self.is_lost = self.fell_behind = False

    def out(self) -> Out:
        return Out(FORMS[MSGPACK], cast("asyncio.Transport", self), self.drain, self.fall_behind)

    def write(self, frame: bytes) -> None:
        head = 2 if frame[1] < 126 else _BEHIND_HEAD
        self.said.append(msgspec.msgpack.decode(frame[head:]))

    def is_closing(self) -> bool:
        return self.is_lost

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    async def drain(self) -> None:
        if self.is_lost:
            raise ConnectionResetError
        await self.reads.wait()

    def fall_behind(self) -> None:
        self.fell_behind = True

    def places(self) -> list[int]:
        """Return the first numbers of all messages of results."""
        return [message[1] for message in self.said if message[0] == 2]


async def test_what_is_short_is_said_at_once() -> None:
    """Results that cannot be long are one message, however many they are; a few long ones are, too."""
    client = _Client()
    out = client.out()
    out.say_results(1, 7, [Released()] * 1_000)
    out.say_results(1_001, 7, LONG[:PIECE_COUNT])
    assert [len(message[3]) for message in client.said] == [1_000, PIECE_COUNT]


async def test_pieces_wait_and_all_else_waits_behind_them() -> None:
    """Of long results one piece is said each time that the client has read."""
    client = _Client()
    out = client.out()
    out.say_results(1, 7, LONG)
    out.say(StreamPong())
    await asyncio.sleep(0)
    assert client.said == []
    client.reads.set()
    await out.until_read()
    assert client.places() == [1, 1 + PIECE_COUNT, 1 + 2 * PIECE_COUNT]
    assert client.said[-1] == [9]


async def test_the_end_is_told_behind_what_has_room() -> None:
    """A stream that ends says what it has to say, why it ends included, as far as the client has room."""
    client = _Client()
    out = client.out()
    out.say_results(1, 7, LONG)
    out.say(Declined(0, "token-expired", "", 0, "not-applied"))
    out.finish()
    assert client.places() == [1, 1 + PIECE_COUNT, 1 + 2 * PIECE_COUNT]
    assert client.said[-1] == [4, 0, "token-expired", "", 0, "not-applied"]
    full = _Client()
    full.unread_bytes = UNREAD_BYTES_MAX + 1
    out = full.out()
    out.say_results(1, 7, LONG)
    out.finish()
    assert full.said == []


async def test_what_nobody_reads_has_a_bound() -> None:
    """Waits of a client may all end at once, with long answers: a stream that has too much to say ends."""
    client = _Client()
    out = client.out()
    client.unread_bytes = stream_out.UNREAD_BYTES_LIMIT
    out.say(CallAnswered(1, 409, "held"))
    assert (len(client.said), client.fell_behind) == (1, False)
    client.unread_bytes += 1
    out.say(CallAnswered(2, 409, "held"))
    assert (len(client.said), client.fell_behind) == (1, True)


async def test_who_has_gone_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a connection that broke nor a client that never reads keeps a node busy."""
    lost = _Client()
    out = lost.out()
    lost.is_lost = True
    out.say_results(1, 7, LONG)
    await out.until_read()
    assert (lost.said, lost.fell_behind) == ([], False)
    monkeypatch.setattr(stream_out, "UNREAD_S", 0.01)
    slow = _Client()
    out = slow.out()
    out.say_results(1, 7, LONG)
    await out.until_read()
    assert (slow.said, slow.fell_behind) == ([], True)
