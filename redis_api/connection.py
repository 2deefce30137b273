"""One connection of a client of Redis: bytes in, commands in their order, replies out in the same order.

Commands that are one step of the log are begun as they come (`quick.py`); any other is carried out alone.
Nothing is read on while much waits to be carried out or to be read by the client, so a connection never costs
more than its bounds. A command that has begun is carried out, also when its connection ends meanwhile: what
it took is then left for whoever asks for it again, or given back (`left_grants.py`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple, cast

from cluster.errors import ClusterError
from redis_api.protocol.errors import EndConnection
from redis_api.protocol.resp import CommandParser, Failure, ProtocolError, Reply, encode
from redis_api.shared.client import BEHIND_A_WAIT, Client, Face, Started
from redis_api.shared.doors import Place, Room
from redis_api.shared.left_grants import Attempt

HELD_BYTES_MAX: Final = 64 * 1024
"""Bytes of commands that wait for the one before them; then reading stops."""
TURN_COUNT: Final = 8
"""Commands that one connection has carried out before others have their turn: many are over at once."""
TURN_S: Final = 0.005
"""Seconds behind which others have their turn as well: a message to thousands takes many milliseconds."""
WINDOW_COUNT: Final = 256
"""Commands of one connection that are under way at a time; more wait until the first ones are answered. All
may be begun in one turn, which takes a few milliseconds: so they share an entry, and what an entry costs."""
UNREAD_S: Final = 30.0
"""Seconds in which a client has to read its replies when many are unread."""

logger = logging.getLogger("redis_api")


class Commands(NamedTuple):
    """What carries out commands: `table.py` any, `quick.py` those that nobody has to wait for."""

    answer: Callable[[Client, list[bytes]], Awaitable[Reply]]
    """Carries out a command. Raises EndConnection."""
    begin: Callable[[Client, list[bytes]], Started | None]
    """Begins a command, None if it has to be carried out alone."""
    finish: Callable[[Client, Started], Reply]
    """Returns the answer to what was begun and is done. Raises EndConnection."""


class RedisConnection(asyncio.Protocol):
    """The owner of a connection."""

    def __init__(
        self,
        face: Face,
        room: Room,
        commands: Commands,
        connections: "set[RedisConnection]",
        *,
        place: Place | None = None,
        number: int = 0,
    ) -> None:
        """`place` is what the connection has already, if it began with a TLS handshake."""
        self._face, self._room, self._commands, self._connections = face, room, commands, connections
        self._place_taken, self._number = place, number
        self._parser = CommandParser()
        self._task: asyncio.Task[None] | None = None
        """Carries out what has to be carried out alone."""
        self._under_way: deque[Started] = deque()
        """What has begun, in order."""
        self._is_all_answered = asyncio.Event()
        """Set while nothing is under way."""
        self._is_all_answered.set()
        self._answers_later = self._is_busy = False
        self._unread: asyncio.TimerHandle | None = None
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
        self._face.clients.add(self._client)
        self._face.came_count += 1
        if self._place.refused is not None:
            self._refuse(Failure("ERR", "max number of clients reached"))

    def data_received(self, data: bytes) -> None:
        """Take bytes, and carry out the commands in them."""
        if self._is_ending:
            return
        self._parser.feed(data)
        if self._parser.held_bytes > HELD_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
            if self._client.is_waiting:
                self._refuse(Failure("ERR", BEHIND_A_WAIT))
        self._go_on()
        if not self._is_busy:
            self._place.heard()

    def _next(self) -> list[bytes] | None:
        """Return the next command that has come as a whole; none once the connection ends.

        Raises ProtocolError.
        """
        if self._is_ending:
            return None
        words = self._parser.next_command()
        if self._is_paused and (words is None or self._parser.held_bytes <= HELD_BYTES_MAX):
            self._is_paused = False
            self._transport.resume_reading()
        return words

    # -- what is begun without waiting ----------------------------------------------------------------------

    def _go_on(self) -> None:
        """Begin what has come as long as it needs only its place in the log; let a task do the rest."""
        while self._task is None and len(self._under_way) < WINDOW_COUNT and self._can_write.is_set():
            try:
                words = self._next()
            except ProtocolError as error:
                self._do_alone(self._refuse_behind(error))
                return
            if words is None:
                self._rest()
                return
            if not self._has_begun(words):
                self._do_alone(self._work(words))
            elif not self._parser.held_bytes:
                return

    def _has_begun(self, words: list[bytes]) -> bool:
        """Begin a command, unless it has to be carried out alone."""
        if not self._is_busy:
            self._is_busy = True
            self._place.begin()
        started = self._commands.begin(self._client, words)
        if started is None:
            return False
        self._under_way.append(started)
        self._is_all_answered.clear()
        started.begun.add_done_callback(partial(self._note_outcome, started))
        return True

    def _note_outcome(self, started: Started, begun: object) -> None:
        """Answer; of several, at the end of this run of the loop, all that have an outcome by then."""
        del begun
        started.is_done = True
        if len(self._under_way) == 1:
            self._answer_first()
        elif not self._answers_later:
            self._answers_later = True
            asyncio.get_running_loop().call_soon(self._answer_first)

    def _answer_first(self) -> None:
        """Answer what is done, as far as nothing before it is still under way, and begin more."""
        self._answers_later = False
        replies: list[bytes] = []
        attempts: list[Attempt] = []
        while self._under_way and self._under_way[0].is_done:
            started = self._under_way.popleft()
            try:
                reply = encode(self._commands.finish(self._client, started), self._client.protocol)
            except Exception as error:  # noqa: BLE001 - what is unforeseen ends the connection
                self._write(replies, attempts)
                self._end_without_answer(error)
                if started.attempt is not None:
                    started.attempt.leave()
            else:
                replies.append(reply)
                if started.attempt is not None:
                    attempts.append(started.attempt)
        self._write(replies, attempts)
        if not self._under_way:
            self._is_all_answered.set()
        if self._parser.held_bytes:
            self._go_on()
        elif self._task is None:
            self._rest()

    def _write(self, replies: list[bytes], attempts: list[Attempt]) -> None:
        """Write replies, and say of each attempt whether its client could hear of it; empty both."""
        is_answered = self._can_answer
        if replies and is_answered:
            self._transport.write(b"".join(replies))
        for attempt in attempts:
            if is_answered:
                attempt.answered()
            else:
                attempt.leave()
        replies.clear()
        attempts.clear()

    @property
    def _can_answer(self) -> bool:
        return not self._is_lost and not self._transport.is_closing()

    def _rest(self) -> None:
        """Say that nothing is asked any more, if that is so."""
        if self._is_busy and not (self._under_way or self._is_ending or self._client.listening.count):
            self._is_busy = False
            self._place.rest()
            if self._parser.held_bytes:
                self._place.heard()

    # -- what is carried out alone --------------------------------------------------------------------------

    def _do_alone(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)

    async def _work(self, words: list[bytes] | None) -> None:
        """Carry out a command behind all that is under way, and those that follow and need that, too."""
        loop, count = asyncio.get_running_loop(), 0
        try:
            await self._is_all_answered.wait()
            turn_s = loop.time()
            while words is not None and not self._is_ending:  # it may have ended while this waited
                count += 1
                await self._carry_out(words)
                await self._can_write.wait()
                if not count % TURN_COUNT or loop.time() - turn_s >= TURN_S:
                    await asyncio.sleep(0)
                    turn_s = loop.time()
                words = self._next()
                if words is not None and self._has_begun(words):
                    break
        except ProtocolError as error:
            self._refuse(_broken(error))
        except Exception as error:  # noqa: BLE001 - what is unforeseen ends the connection
            self._end_without_answer(error)
        finally:
            self._task = None
            self._go_on()

    async def _refuse_behind(self, error: ProtocolError) -> None:
        """Refuse bytes that are not a command, behind the answers to all before them."""
        await self._is_all_answered.wait()
        self._refuse(_broken(error))

    def _end_without_answer(self, error: Exception) -> None:
        """End the connection because nobody knows what became of a command; log what was not foreseen."""
        cause = error.__cause__ if isinstance(error, EndConnection) else error
        if not isinstance(cause, ClusterError):
            logger.error("event=redis-command-failed", exc_info=cause)
        self._close()

    async def _carry_out(self, words: list[bytes]) -> None:
        client = self._client
        try:
            reply = await self._commands.answer(client, words)
        except BaseException:
            self._forget_attempt(is_answered=False)
            raise
        is_answered = self._can_answer
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

    def pause_writing(self) -> None:
        """Let the next command wait: the client does not read. End the connection if it goes on like that."""
        self._can_write.clear()
        self._unread = asyncio.get_running_loop().call_later(UNREAD_S, self._place.unread)

    def resume_writing(self) -> None:
        """Go on."""
        self._stop_waiting()
        self._go_on()

    def _stop_waiting(self) -> None:
        """Wait no longer for the client to read."""
        self._can_write.set()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def eof_received(self) -> bool:
        """End when the client sends no more: it would hear no answer that is worth one."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        del exc
        self._is_lost = self._is_ending = True
        self._stop_waiting()
        self._client.leave()
        self._place.gone()
        self._connections.discard(self)
        self._face.clients.discard(self._client)
        self._client.listening.end_all()
        for attempt in (self._client.attempt, *[started.attempt for started in self._under_way]):
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
        """Let the commands that have begun have their answers, and end."""
        task, self._is_ending = self._task, True
        if task is not None:
            await asyncio.wait({task})
        await self._is_all_answered.wait()
        self._close()


def _broken(error: ProtocolError) -> Failure:
    return Failure("ERR", f"Protocol error: {error}")


def _address_of(transport: asyncio.BaseTransport) -> str:
    """Return the address of the other side, without its port; empty if it is not known any more."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""
