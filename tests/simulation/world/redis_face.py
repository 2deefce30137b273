"""The Redis face of a simulated node: the real one, on connections of the simulated network.

Callers, places and rates are those of somebody who lets everybody in. What the face asks its node for is told
to the history, as the calls of any client are; what its connections carry, to the checker of repeats.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

from cluster.errors import ClusterError, OutcomeUnknown
from cluster.node import Answer, Node
from lockapi.gateway import Gateway
from lockstate.words.commands.entries import Cancel, Command
from lockstate.words.commands.holds import Acquire, MayWait
from redis_api.commands import quick, table
from redis_api.connection import Commands, RedisConnection
from redis_api.protocol.errors import EndConnection
from redis_api.protocol.resp import Reply
from redis_api.server import RedisServer
from redis_api.shared.client import Client, Face, Started
from tests.simulation.checks.redis_repeats import RedisRepeats
from tests.simulation.workload.history import History
from tests.simulation.world.event_loop import NodeLoop
from tests.simulation.world.network import REDIS_PORT
from tests.support.redis_words import Reader


class _Place:
    """A place that is always there."""

    refused = None
    origin = "sim"

    def __init__(self, connection: Any, address: str) -> None:
        self.connection, self.address = connection, address

    def unread(self) -> None:
        """End the connection."""
        self.connection.end()

    def heard(self) -> None:
        """Nothing ends for want of room."""

    begin = rest = gone = heard


class _Doors:
    """What a program that runs a node gives the face (`redis_api.shared.doors`): everybody is let in."""

    asks_for_tokens = False

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def come(self, connection: Any, address: str) -> _Place:
        """Take a connection."""
        return _Place(connection, address)

    def caller(self, credentials: bytes, place: Any, transport: object) -> Gateway:
        """Return the one gateway."""
        del credentials, place, transport
        return self._gateway

    def add(self, caller: str, count: int) -> None:
        """Count nothing more."""

    def take(self, caller: str, need: object, count: int = 1) -> None:
        """Take any number of requests."""

    def note_refused(self, exc: Exception, transport: object, *, principal: str, command: str) -> NoReturn:
        """Nobody is refused because of who asked."""
        del transport
        raise AssertionError(f"{command} of {principal!r} is refused: {exc}")


class _ToldNode:
    """A node whose commands are told to the history when a face asks for them: a `ServingNode`."""

    def __init__(
        self, node: Node, loop: NodeLoop, process: str, history: History, repeats: RedisRepeats
    ) -> None:
        self._node, self._loop, self._process = node, loop, process
        self._history, self._repeats = history, repeats
        self._open: dict[int, None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    async def submit(self, command: Command, timeout_s: float, principal: str = "") -> Answer:
        """Replicate a command. One that undoes another is nobody's: nodes make it by themselves as well."""
        if isinstance(command, Cancel):
            return await self._node.submit(command, timeout_s, principal)
        return await self._told(command, self._node.submit(command, timeout_s, principal), principal)

    async def acquire(
        self, command: MayWait, timeout_s: float, principal: str = "", poll_s: float | None = None
    ) -> Answer:
        """Replicate a request, and wait."""
        return await self._told(command, self._node.acquire(command, timeout_s, principal, poll_s), principal)

    def begin(
        self, command: Command, timeout_s: float, principal: str = "", lane: str = ""
    ) -> "asyncio.Future[Answer]":
        """Begin a command. Raises ClusterError."""
        number = self._called(command, principal)
        try:
            begun = self._node.begin(command, timeout_s, principal, lane)
        except ClusterError as error:
            self._ended(number, command, error)
            raise
        begun.add_done_callback(partial(self._begun_ended, number, command))
        return begun

    def _begun_ended(self, number: int, command: Command, begun: "asyncio.Future[Answer]") -> None:
        self._ended(number, command, begun.exception() or begun.result())

    async def _told(self, command: Command, asking: Any, principal: str) -> Answer:
        number = self._called(command, principal)
        try:
            answer: Answer = await asking
        except ClusterError as error:
            self._ended(number, command, error)
            raise
        except BaseException:
            self._gone(number)
            raise
        self._ended(number, command, answer)
        return answer

    def _called(self, command: Command, principal: str) -> int:
        node_id, now_us = self._loop.name, self._loop.now_us
        number = self._history.call(f"redis@{node_id}", node_id, command, now_us, principal)
        self._open[number] = None
        return number

    def _ended(self, number: int, command: Command, ended: Answer | BaseException) -> None:
        self._open.pop(number, None)
        now_us = self._loop.now_us
        if isinstance(command, Acquire):
            is_unknown = isinstance(ended, OutcomeUnknown)
            self._repeats.known(self._process, command.hold_id, self._loop.local_us(), is_unknown=is_unknown)
        if isinstance(ended, ClusterError):
            outcome: Any = ended.outcome
            self._history.failed(number, now_us, ended.code, outcome)
        else:
            assert isinstance(ended, Answer), ended
            self._history.reply(number, now_us, ended.result, ended.revision)

    def _gone(self, number: int) -> None:
        if number in self._open:
            del self._open[number]
            self._history.gone(number, self._loop.now_us)

    def process_ended(self) -> None:
        """Record that nobody will hear of what is under way."""
        for number in list(self._open):
            self._gone(number)


class _Tap(asyncio.Protocol):
    """One connection: passes everything on to the face, and tells the checker."""

    def __init__(self, face: "SimulatedFace", connection: RedisConnection, number: int) -> None:
        self._face, self._connection, self._number = face, connection, number
        self._commands, self._replies = Reader(), Reader()
        self._transport: asyncio.Transport

    def __getattr__(self, name: str) -> Any:
        """Be the transport for the face: all but `write` is passed on."""
        return getattr(self._transport, name)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connection.connection_made(self)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        """Tell which commands have come."""
        face = self._face
        self._commands.feed(data)
        while self._commands.values:
            words = self._commands.values.popleft()
            assert isinstance(words, list)
            asked = [word for word in words if isinstance(word, bytes)]
            face.repeats.asked(face.process, self._number, asked, face.loop.local_us())
        self._connection.data_received(data)

    def write(self, data: bytes) -> None:
        """Tell which answers are written."""
        face = self._face
        self._replies.feed(data)
        while self._replies.values:
            reply = self._replies.values.popleft()
            face.repeats.answered(face.process, self._number, reply, face.node.machine, face.loop.local_us())
        self._transport.write(data)

    def eof_received(self) -> bool | None:
        """Pass it on."""
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that the node knows it."""
        loop = self._face.loop
        self._face.repeats.lost(self._face.process, self._number, loop.local_us(), loop.now_us)
        self._connection.connection_lost(exc)


class SimulatedFace:
    """The face of one run of a node's process."""

    def __init__(
        self,
        node: Node,
        loop: NodeLoop,
        process: str,
        history: History,
        repeats: RedisRepeats,
        *,
        timeout_s: float,
    ) -> None:
        self.node, self.loop, self.process, self.repeats = node, loop, process, repeats
        self._told = _ToldNode(node, loop, process, history, repeats)
        gateway = Gateway(self._told)
        doors = _Doors(gateway)
        face = Face(doors, doors, timeout_s, gateway, began_s=0.0)
        self._server = RedisServer(face, doors, Commands(self._answer, quick.begin, self._finish))
        self._count = 0
        self._listener: Any = None

    async def serve(self) -> None:
        """Accept connections."""
        self._listener = await self.loop.create_server(self._make, self.loop.name, REDIS_PORT)

    async def _answer(self, client: Client, words: list[bytes]) -> Reply:
        with self._foreseen():
            return await table.answer(client, words)

    def _finish(self, client: Client, started: Started) -> Reply:
        with self._foreseen():
            return quick.finish(client, started)

    @contextlib.contextmanager
    def _foreseen(self) -> Iterator[None]:
        """Tell the world of what ends a connection and should not: the face would only log it."""
        try:
            yield
        except Exception as error:
            cause = error.__cause__ if isinstance(error, EndConnection) else error
            if not isinstance(cause, ClusterError):
                self.loop.call_exception_handler({"message": "a command of Redis failed", "exception": cause})
            raise

    def _make(self) -> _Tap:
        self._count += 1
        return _Tap(self, self._server.make(), self._count)

    def close(self) -> None:
        """Accept no more."""
        self._listener.close()

    async def stop(self, seconds: float) -> None:
        """Answer what has begun, and end all connections."""
        await self._server.stop(seconds)

    def process_ended(self) -> None:
        """Record that the process is gone."""
        self._told.process_ended()
        self.repeats.process_ended(self.process)


MakeFace = Callable[[Node, NodeLoop, str], SimulatedFace]
"""Makes the face of a process, given its node, its loop and its name."""
