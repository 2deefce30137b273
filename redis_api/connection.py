"""One connection of a client of Redis: bytes in, commands one by one in their order, replies out.

Nothing is read on while much waits to be carried out or to be read by the client, so a connection never costs
more than its bounds. A command that has begun is carried out, also when its connection ends meanwhile: what
it took is then left for whoever asks for it again, or given back (`left_grants.py`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, cast

from cluster.errors import ClusterError
from redis_api.client import Client, Face
from redis_api.doors import Place, Room
from redis_api.errors import EndConnection
from redis_api.resp import CommandParser, Failure, ProtocolError, Reply, encode

HELD_BYTES_MAX: Final = 64 * 1024
"""Bytes of commands that wait for the one before them; then reading stops."""
TURN_COUNT: Final = 8
"""Commands that one connection has carried out before others have their turn: many are over at once."""
UNREAD_S: Final = 30.0
"""Seconds in which a client has to read its replies when many are unread."""

logger = logging.getLogger("redis_api")

Answer = Callable[[Client, list[bytes]], Awaitable[Reply]]
"""Carries out a command. Raises EndConnection."""


class RedisConnection(asyncio.Protocol):
    """The owner of a connection."""

    def __init__(
        self,
        face: Face,
        room: Room,
        answer: Answer,
        connections: "set[RedisConnection]",
        *,
        place: Place | None = None,
        number: int = 0,
    ) -> None:
        """`place` is what the connection has already, if it began with a TLS handshake."""
        self._face, self._room, self._answer, self._connections = face, room, answer, connections
        self._place_taken, self._number = place, number
        self._parser = CommandParser()
        self._task: asyncio.Task[None] | None = None
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._is_paused = self._is_ending = self._is_lost = False
        self._place: Place
        self._client: Client
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, if there is room."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        if self._place_taken is None:
            self._place = self._room.come(self, _address_of(transport))
        else:
            self._place = self._place_taken
            self._place.connection = self
        self._client = Client(self._face, self._place, self._transport, self._number)
        self._connections.add(self)
        self._face.clients_count += 1
        if self._place.refused is not None:
            self._refuse(Failure("ERR", "max number of clients reached"))

    def data_received(self, data: bytes) -> None:
        """Take bytes, and carry out the commands in them."""
        if self._is_ending:
            return
        self._place.heard()
        self._parser.feed(data)
        if self._parser.held_bytes > HELD_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        """Carry out what has come, in order, and write the replies."""
        count = 0
        try:
            while not self._is_ending and (words := self._next()) is not None:
                count += 1
                self._place.begin()
                await self._carry_out(words)
                await self._until_read()
                if not count % TURN_COUNT:
                    await asyncio.sleep(0)
        except ProtocolError as error:
            self._refuse(Failure("ERR", f"Protocol error: {error}"))
        except EndConnection as end:
            if not isinstance(end.__cause__, ClusterError):
                logger.exception("event=redis-command-failed", exc_info=end.__cause__)
            self._close()
        except Exception:
            logger.exception("event=redis-command-failed")
            self._close()
        finally:
            self._task = None
            if count and not self._is_ending and not self._client.listening.count:
                self._place.rest()
                if self._parser.held_bytes:
                    self._place.heard()

    def _next(self) -> list[bytes] | None:
        """Return the next command that has come as a whole. Raises ProtocolError."""
        words = self._parser.next_command()
        if self._is_paused and (words is None or self._parser.held_bytes <= HELD_BYTES_MAX):
            self._is_paused = False
            self._transport.resume_reading()
        return words

    async def _carry_out(self, words: list[bytes]) -> None:
        client = self._client
        try:
            reply = await self._answer(client, words)
        except BaseException:
            self._forget_attempt(is_answered=False)
            raise
        is_answered = not self._is_lost and not self._transport.is_closing()
        if is_answered:
            self._transport.write(encode(reply, client.protocol))
        self._forget_attempt(is_answered=is_answered)
        if client.is_leaving:
            self._close()

    def _forget_attempt(self, *, is_answered: bool) -> None:
        """Say whether the client could hear what it took."""
        attempt, self._client.attempt = self._client.attempt, None
        if attempt is None:
            return
        if is_answered:
            attempt.answered()
        else:
            attempt.leave()

    async def _until_read(self) -> None:
        """Wait until the client has read most of its replies, or end the connection."""
        if self._can_write.is_set():
            return
        try:
            async with asyncio.timeout(UNREAD_S):
                await self._can_write.wait()
        except TimeoutError:
            self._place.unread()

    def pause_writing(self) -> None:
        """Let the next command wait: the client does not read."""
        self._can_write.clear()

    def resume_writing(self) -> None:
        """Go on."""
        self._can_write.set()

    def eof_received(self) -> bool:
        """End when the client sends no more: it would hear no answer that is worth one."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        del exc
        self._is_lost = self._is_ending = True
        self._can_write.set()
        self._client.leave()
        self._place.gone()
        self._connections.discard(self)
        self._face.clients_count -= 1
        self._client.listening.end_all()
        attempt = self._client.attempt
        if attempt is not None:
            attempt.leave_early()

    def end(self) -> None:
        """Close this connection at once: its time is over, or its place is needed."""
        self._is_ending = True
        self._transport.abort()

    def _refuse(self, failure: Failure) -> None:
        """Say why the connection ends, and end it."""
        if not self._is_lost:
            self._transport.write(encode(failure, self._client.protocol))
        self._close()

    def _close(self) -> None:
        """End the connection behind what was written."""
        self._is_ending = True
        self._transport.close()

    async def drain(self) -> None:
        """Let the command that is carried out have its answer, and end."""
        task, self._is_ending = self._task, True
        if task is not None:
            await asyncio.wait({task})
        self._close()


def _address_of(transport: asyncio.BaseTransport) -> str:
    """Return the address of the other side, without its port; empty if it is not known any more."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""
