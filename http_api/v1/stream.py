"""GET /v1/stream: a WebSocket on which a session numbers its commands, and calls wait (docs/stream.md).

Answers go out when this node has applied the entry that gave them, as many in one message as were asked in
one; those that may be long in pieces, as the client reads them. Whatever happens to the connection, the
session and its numbers live on: a client that comes back, to any node, is told the last number that was
applied.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web
from aiohttp.abc import AbstractStreamWriter

from cluster.errors import ClusterError, OutcomeUnknown
from holdfast import wire
from holdfast.wire.commands import Command
from holdfast.wire.stream import (
    GAP,
    JSON,
    MSGPACK,
    VERSION,
    Bye,
    Commands,
    Declined,
    LeaderMoved,
    Stopping,
    StreamHello,
    StreamPing,
    StreamPong,
    ToNode,
    WaitEnded,
    Welcome,
)
from holdfast.wire.stream import Calls as CallsMessage
from http_api.server.access_log import line_of
from http_api.server.call import Call, Reply
from http_api.server.log_budget import LogBudget
from http_api.server.refusal_trace import RefusalTrace
from http_api.server.refusals import CallRefused
from http_api.server.request_rates import caller_of
from http_api.server.routes import Handler
from http_api.v1.open_streams import OpenStreams
from http_api.v1.stream_calls import CALLS_IN_MESSAGE_MAX, CallCounts, OpenCalls
from http_api.v1.stream_out import FORMS, Out, SlowReader
from http_api.v1.stream_results import all_told, one_told
from lockapi import needs, problems
from lockapi.gateway import Gateway
from lockapi.node import Applied, Begun
from lockapi.problems import ProblemError
from lockapi.requests.stream import (
    COMMANDS_COUNT_MAX,
    PLACE,
    WrongMessage,
    closing,
    numbered,
    opening,
    resuming,
)
from lockstate.words.ids import SessionId
from lockstate.words.refusals import Refused
from lockstate.words.results import (
    FrameRefused,
    NumberedDone,
    Result,
    SessionClosed,
    SessionOpened,
    StreamFault,
    StreamResumed,
)

logger = logging.getLogger("http_api.stream")

MESSAGE_BYTES_MAX: Final = 256 * 1024
"""Bytes of one message of a client."""
HELLO_S: Final = 10.0
"""Seconds that a client has for its first message."""
CLOSE_BYTES_MAX: Final = 123
"""Bytes of the reason in the frame that closes a WebSocket (RFC 6455, 5.5)."""
LINES_A_MINUTE: Final = 10
"""Lines of the log about streams that were closed with one code."""
CLOSING_S: Final = 2.0
"""Seconds that a client has to hear why its stream ends."""
HEARTBEAT_S: Final = 30.0
"""Seconds after which a silent client is asked for a sign of life; half of it later it is dropped."""

INVALID, EXPIRED, REPLACED, FLOW_CONTROL, SLOW_READER, RESUME, UNAVAILABLE, UNAUTHENTICATED = range(
    4000, 4008
)
"""Why a node closes a stream: codes of the WebSocket, in the words of docs/stream.md."""

_FAULTS: Final = {StreamFault.GONE: EXPIRED, StreamFault.REPLACED: REPLACED, StreamFault.MALFORMED: INVALID}

_NOT_READ: Final = "answers are not read"

NEED: Final = needs.ACQUIRE
"""What a stream needs of its caller, as does each command on it."""


class _Closed(Exception):
    """The stream ends for `reason`, with `code`."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


def _fit(reason: str) -> bytes:
    """Return as much of a reason as the frame that closes a WebSocket has room for."""
    return reason.encode(errors="replace")[:CLOSE_BYTES_MAX].decode(errors="ignore").encode()


def stream_handler(trace: RefusalTrace) -> Handler:
    """Return the handler of /v1/stream, whose streams share what they know of each other, and `trace`."""
    streams, lines, counts = OpenStreams(), LogBudget(LINES_A_MINUTE), CallCounts()

    async def stream(gateway: Gateway, call: Call) -> Reply:
        """Carry out what a session numbers, over a WebSocket: many commands at a time."""
        return _Stream(gateway, _protocol_of(call), streams, trace, lines=lines, counts=counts)

    return stream


def _protocol_of(call: Call) -> str:
    """Return the subprotocol that a call asks for. Raises CallRefused if that is none of a stream."""
    asked = [each.strip() for each in call.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    known = [each for each in asked if each in FORMS]
    is_upgrade = call.headers.get("Upgrade", "").lower() == "websocket"
    if not is_upgrade or not known:
        raise CallRefused(
            "invalid-request",
            f"Upgrade, Sec-WebSocket-Protocol: this is a WebSocket of {MSGPACK} or {JSON} (docs/stream.md)",
        )
    if not _is_handshake(call):
        raise CallRefused(
            "invalid-request",
            "Connection, Sec-WebSocket-Version, Sec-WebSocket-Key: not the handshake of a WebSocket of"
            " version 13; a proxy on the way has to pass these headers on",
        )
    return known[0]


def _is_handshake(call: Call) -> bool:
    """Whether a call asks for a WebSocket as it should; else nothing would be left to answer with."""
    try:
        return bool(web.WebSocketResponse(protocols=tuple(FORMS), compress=False).can_prepare(call))
    except ValueError:  # a key that is not ASCII
        return False


class _Stream(Reply):
    """The answer to the call: it lasts as long as the connection."""

    def __init__(
        self,
        gateway: Gateway,
        protocol: str,
        streams: OpenStreams,
        trace: RefusalTrace,
        *,
        lines: LogBudget,
        counts: CallCounts,
    ) -> None:
        super().__init__(b"")
        self.force_close()
        self._gateway, self._protocol, self._form = gateway, protocol, FORMS[protocol]
        self.session_id = SessionId("")
        self.epoch = self._unanswered = 0
        self._streams, self._leader_url, self._trace, self._log_lines = streams, "", trace, lines
        self._waits: dict[int, Any] = {}
        """By number, what the client is to be told the end of."""
        self._is_over = False
        self._counts = counts
        self._calls: OpenCalls
        self._end: asyncio.Future[None]

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Shake hands, talk until either side ends it, and say why."""
        assert isinstance(request, Call)
        socket = web.WebSocketResponse(
            protocols=(self._protocol,),
            compress=False,
            max_msg_size=MESSAGE_BYTES_MAX,
            heartbeat=HEARTBEAT_S,
            autoping=False,
        )
        await socket.prepare(request)
        self._eof_sent = True
        self._call, self._socket, self._transport = request, socket, request.transport
        self._end = asyncio.get_running_loop().create_future()
        self._out = Out(
            self._form, self._transport, request.writer.drain, partial(self._close, SLOW_READER, _NOT_READ)
        )
        self._calls = OpenCalls(self._counts, self._out.say, self._note)
        try:
            await self._talk()
        except _Closed as closed:
            if self._log_lines.take(str(closed.code)):
                # The reason is for the client: it may quote what that sent.
                line, trace = line_of("event=stream-closed request_id=%s code=%d", request)
                logger.info(line, request.id_text, closed.code, *trace)
            self._out.finish()
            self._drop_soon()
            await socket.close(code=closed.code, message=_fit(closed.reason))
        finally:
            self._is_over = True
            self._streams.leave(self)
            self._out.finish()
            self._calls.end()
            for wait in tuple(self._waits.values()):
                wait.cancel()
            self._drop_soon()
        return None

    def _drop_soon(self) -> None:
        """Drop the connection unless the client takes in time what was written.

        One that is only closed would wait for that for ever.
        """
        asyncio.get_running_loop().call_later(CLOSING_S, self.drop)

    # -- what clients say -----------------------------------------------------------------------------------

    async def _talk(self) -> None:
        try:
            async with asyncio.timeout(HELLO_S):
                hello = await self._next()
        except TimeoutError:
            raise _Closed(UNAVAILABLE, "no hello came in time") from None
        await self._greet(hello)
        tasks = [asyncio.ensure_future(each) for each in (self._read(), self._stopping())]
        try:
            done, _ = await asyncio.wait([self._end, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._is_over = True
            if self._end.done():
                self._end.exception()  # looked at, also if the client has gone and nobody is told
            for task in tasks:
                task.cancel()
        # Each is asked, so that nothing is left that nobody has looked at; the first one counts.
        reasons = [ended.exception() for ended in done]
        await asyncio.gather(*tasks, return_exceptions=True)
        for reason in reasons:
            if reason is not None:
                raise reason

    async def _greet(self, hello: ToNode | None) -> None:
        """Begin or resume the stream of a session, as the first message says, and welcome the client."""
        if not isinstance(hello, StreamHello):
            raise _Closed(INVALID, "the first message must be a hello")
        if hello.version != VERSION:
            raise _Closed(INVALID, f"version {hello.version}; this node speaks {VERSION}")
        node = self._gateway.node
        self._leader_url = self._streams.leader_url(node)
        if not hello.session_id and not hello.ttl_ms:
            self._welcome(0, 0, node.machine.revision)
            return
        timeout_s = self._call.timeout_s
        try:
            session_id = SessionId(hello.session_id)
            if not session_id:
                opened = await self._gateway.submit(opening(hello), SessionOpened, timeout_s)
                session_id = opened.result.session_id
            resumed = await self._gateway.submit(resuming(session_id), StreamResumed, timeout_s)
        except (ProblemError, ClusterError) as exc:
            problem = problems.of_exception(exc)
            self._refuse(0, problem)
            code = EXPIRED if problem.code == "session-expired" else UNAVAILABLE
            raise _Closed(code, problem.code) from None
        self.session_id, self.epoch = session_id, resumed.result.epoch
        self._leader_url = self._streams.leader_url(node)
        self._welcome(resumed.result.last, COMMANDS_COUNT_MAX, resumed.revision)

    def _welcome(self, last: int, window: int, revision: int) -> None:
        node = self._gateway.node
        self._out.say(
            Welcome(
                self.session_id,
                last,
                window,
                MESSAGE_BYTES_MAX,
                node.status().node_id,
                self._leader_url,
                revision,
                *PLACE,
            )
        )
        self._streams.enter(node, self)

    async def _read(self) -> None:
        """Take messages until the client leaves."""
        while True:
            message = await self._next()
            match message:
                case None:
                    return
                case Commands():
                    self._admit()
                    self._begin(message)
                    await self._until_read()
                case CallsMessage():
                    self._admit()
                    self._begin_calls(message)
                    await self._until_read()
                case StreamPing():
                    self._out.say(StreamPong())
                    await self._until_read()
                case Bye():
                    await self._leave()
                case StreamHello():
                    raise _Closed(INVALID, "a stream has one hello")

    async def _next(self) -> ToNode | None:
        """Return the next message, None when the client has left. Raises _Closed."""
        received = await self._socket.receive()
        while received.type in (WSMsgType.PING, WSMsgType.PONG):
            if received.type is WSMsgType.PING:
                # Not by the library: it would wait for ever for a client that reads nothing.
                self._out.pong(received.data)
                await self._until_read()
            received = await self._socket.receive()
        if received.type not in (WSMsgType.BINARY, WSMsgType.TEXT):
            if received.type is WSMsgType.ERROR:
                raise _Closed(INVALID, "not a message of a WebSocket, or too long")
            return None
        if received.type is not self._form.kind:
            raise _Closed(INVALID, f"a message of {self._protocol} is {self._form.kind.name.lower()}")
        try:
            message: ToNode = self._form.decode(received.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise _Closed(INVALID, f"not a message: {exc}") from None
        return message

    def _admit(self) -> None:
        """Act as who the client is now: tokens end, and rights change. Raises _Closed."""
        try:
            self._gateway = self._call.admit_again()
        except ProblemError as problem:
            self._refuse(0, problem)
            raise _Closed(UNAUTHENTICATED, problem.detail) from None

    def _begin(self, message: Commands[Command]) -> None:
        """Send the commands of a message on their way. Raises _Closed."""
        if not self.session_id:
            raise _Closed(INVALID, "this stream has no session, so it takes calls only")
        self._unanswered += _size(message)
        if self._unanswered > COMMANDS_COUNT_MAX:
            raise _Closed(FLOW_CONTROL, f"more than {COMMANDS_COUNT_MAX} numbers without an answer")
        timeout_s = message.timeout_ms / 1000 or self._call.timeout_s
        try:
            caller = caller_of(self._gateway, self._call.place)
            self._call.rates.take(caller, NEED, _size(message))
            frame = numbered(message, self.session_id, self.epoch)
            begun = self._gateway.begin(frame, timeout_s)
        except WrongMessage as wrong:
            raise _Closed(INVALID, wrong.detail) from None
        except (ProblemError, ClusterError) as exc:
            self._unanswered -= _size(message)
            self._refuse(message.first, problems.of_exception(exc))
            return
        begun.add_done_callback(partial(self._answer, message))

    def _begin_calls(self, message: CallsMessage) -> None:
        """Send calls on their way. Raises _Closed."""
        if not 0 <= message.timeout_ms <= wire.TIMEOUT_MS_MAX:
            raise _Closed(INVALID, f"timeout_ms: {message.timeout_ms}; must be 0 to {wire.TIMEOUT_MS_MAX}")
        if len(message.calls) > CALLS_IN_MESSAGE_MAX:
            raise _Closed(INVALID, f"calls: {len(message.calls)}; at most {CALLS_IN_MESSAGE_MAX} are allowed")
        caller = caller_of(self._gateway, self._call.place)
        try:
            self._call.rates.take(caller, NEED, max(len(message.calls), 1))
        except ProblemError as problem:
            for asked in message.calls:
                self._calls.refuse(asked, problem)
            return
        self._calls.begin(self._gateway, message, message.timeout_ms / 1000 or self._call.timeout_s, caller)

    async def _leave(self) -> None:
        """End the session if there is one, and then the stream."""
        if not self.session_id:
            raise _Closed(WSCloseCode.OK, "bye")
        self._streams.leave(self)  # that its session has ended is not to be told as news
        try:
            await self._gateway.submit(closing(self.session_id), SessionClosed, self._call.timeout_s)
        except (ProblemError, ClusterError) as exc:
            self._refuse(0, problems.of_exception(exc))
        raise _Closed(WSCloseCode.OK, "bye")

    # -- what they are told ---------------------------------------------------------------------------------

    def _answer(self, message: Commands[Command], begun: Begun) -> None:
        """Tell what became of the commands of a message."""
        self._unanswered -= _size(message)
        try:
            applied = begun.result()
        except ClusterError as error:
            self._refuse(message.first, problems.of_exception(error))
            if isinstance(error, OutcomeUnknown):
                self._close(RESUME, "the outcome is unknown: resume the stream")
            return
        match applied.result:
            case NumberedDone():
                self._tell(message.first, applied, applied.result)
            case FrameRefused(fault=StreamFault.GAP, last=last):
                gap = f"{message.first} comes behind {last}: the numbers between have not been applied"
                self._out.say(Declined(message.first, GAP, gap, 0, wire.NOT_APPLIED))
            case FrameRefused(fault=fault):
                self.end(fault)
            case Refused() as refused:
                # This cannot be: a frame that is sent can be read.
                self._refuse(message.first, problems.refusal(refused))
                self._close(RESUME, "the frame was not understood: resume the stream")

    def _tell(self, first: int, applied: Applied, done: NumberedDone) -> None:
        """Send the results, and follow those that wait."""
        if done.results or done.refused is None:
            results: Sequence[Result] = done.results
            if Refused in map(type, results):
                results = [self._gateway.shown(each) for each in results]
            self._out.say_results(first, applied.revision, all_told(results))
        if done.refused is not None:
            self._refuse(first + len(done.results), problems.refusal(done.refused))
        for place, wait in (applied.waits or {}).items():
            number = first + place
            if self._is_over or number in self._waits:
                # However often a client asks for it: it is followed once, and its end is told once.
                wait.cancel()
                continue
            self._waits[number] = wait
            wait.add_done_callback(partial(self._ended, number))

    def _ended(self, number: int, wait: Any) -> None:
        """Tell how the wait of a number has ended."""
        self._waits.pop(number, None)
        if wait.cancelled():
            return
        if wait.exception() is not None:
            # What became of it is kept under its number: another node may know.
            self._close(RESUME, "this node lost sight of a wait: resume the stream")
            return
        ended = wait.result()
        result = one_told(self._gateway.shown(ended.result))
        self._out.say(WaitEnded(number, ended.revision, result))

    def _refuse(self, number: int, problem: ProblemError) -> None:
        """Say that commands from `number` on were not taken, or that nobody knows it."""
        self._note(problem, "GET", wire.STREAM, self._call.id)
        outcome = wire.PROBLEMS[problem.code].outcome
        self._out.say(Declined(number, problem.code, problem.detail, problem.retry_after_ms, outcome))

    def _note(self, problem: ProblemError, method: str, route: str, request_id: str) -> None:
        self._trace.note(
            problem,
            self._transport,
            principal=self._gateway.principal.name,
            method=method,
            route=route,
            request_id=request_id,
        )

    def end(self, fault: StreamFault) -> None:
        """End the stream, because it is not that of its session any more."""
        self._close(_FAULTS[fault], fault.value)

    def drop(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _close(self, code: int, reason: str) -> None:
        """End the stream from a callback."""
        if not self._is_over and not self._end.done():
            self._end.set_exception(_Closed(code, reason))

    async def _until_read(self) -> None:
        """Read no more of a client that does not read what it is told. Raises _Closed."""
        try:
            await self._out.until_read()
        except SlowReader:
            raise _Closed(SLOW_READER, _NOT_READ) from None

    def hint(self, leader_url: str) -> None:
        """Tell that another node leads: a stream to the leader is the shortest way."""
        if leader_url not in {"", self._leader_url}:
            self._leader_url = leader_url
            self._out.say(LeaderMoved(leader_url))

    async def _stopping(self) -> None:
        """End the stream when the node stops: the client goes on with another one."""
        await self._gateway.node.wait_shutdown()
        self._out.say(Stopping(0))
        raise _Closed(WSCloseCode.GOING_AWAY, "this node stops: resume the stream on another one")


def _size(message: Commands[Command]) -> int:
    """Return how many numbers a message counts as: one without commands is an entry, too."""
    return max(len(message.commands), 1)
