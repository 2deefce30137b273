"""A client of the lab that asks over the stream: what it numbered once is done once, whatever breaks."""

import asyncio
import json
import time
from types import TracebackType
from typing import Any, Final, NoReturn

import aiohttp

from lab.chaos.client import ATTEMPT_S, BACKOFF_MAX_S, BOUND_ATTEMPT_S, Client, settle
from lab.chaos.history import Operation
from lab.chaos.http_client import Attempt
from lab.chaos.lab import now_ns

SESSION_MS: Final = 30_000
"""Longer than a client is patient, so that its session outlives what it asks."""
CLOSE_S: Final = 0.1
"""How long a node may take to answer the end of a connection: one that stands still never does."""
HELLO, COMMANDS, BYE = 1, 2, 5
RESULTS, WAIT_ENDED, NOT_TAKEN, STOPS = 2, 3, 4, 6
ACQUIRE, RENEW, RELEASE = 4, 6, 7
GRANTED, QUEUED, RENEWED, REFUSED = 4, 5, 6, 11
SESSION_OVER: Final = 4001


class StreamBroken(Exception):
    """This connection does not serve; another one may."""


class SessionOver(Exception):
    """Nobody will say any more what became of the numbers of this session."""


class StreamClient(Client):
    """Acquires, renews and releases locks, one command at a time, over a stream of its own.

    A command that is sent again has the number that it had, so no attempt is lost until the client gives up.
    """

    _socket: aiohttp.ClientWebSocketResponse | None = None
    _connected_to = ""
    _session_id = ""
    _last = 0

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the session, if it can be said, and the connection."""
        if self._socket is not None and not self._socket.closed:
            await self._socket.send_str(json.dumps([BYE]))
        await self._drop()
        await super().__aexit__(exc_type, exc, traceback)

    async def _attempts(
        self, operation: Operation, method: str, path: str, body: dict[str, Any] | None, patience_s: float
    ) -> dict[str, Any]:
        """Fill in the outcome of an operation; return what HTTP would have answered."""
        del method, path
        assert body is not None
        command = _command(operation.kind, body)
        deadline_s = time.monotonic() + patience_s
        timeout_s = body.get("wait_ms", 0) / 1000 + (BOUND_ATTEMPT_S if self.node else ATTEMPT_S)
        is_sent = False
        while True:
            operation.node = self._next_node(operation.attempts)
            operation.attempts += 1
            sent_ns = now_ns()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._connect(operation.node)
                    is_sent = True
                    attempt = _attempt(*await self._result(command))
                break
            except SessionOver:
                attempt = Attempt("lost", "session-expired", {})
                break
            except (StreamBroken, aiohttp.ClientError, OSError, TimeoutError) as error:
                attempt = Attempt("lost" if is_sent else "try-again", str(error) or "timeout", {})
                await self._drop()
            if time.monotonic() > deadline_s:
                break
            await self.pause(0.0, BACKOFF_MAX_S)
        operation.lost = int(attempt.fate == "lost" and is_sent)
        if operation.lost:
            self._session_id = ""  # its next number is taken, or will be
            await self._drop()
        settle(operation, attempt, sent_ns, is_remembered=True)
        return attempt.body

    async def _connect(self, node: str) -> None:
        """Have a stream to a node, of the session that there is. Raises SessionOver, StreamBroken."""
        if self._socket is not None and not self._socket.closed and self._connected_to == node:
            return
        await self._drop()
        self._socket = await self._session.ws_connect(
            self.lab.nodes[node] + "/v1/stream",
            protocols=("holdfast.v1.json",),
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
        )
        self._connected_to = node
        await self._socket.send_str(json.dumps([HELLO, 1, self._session_id, SESSION_MS, {}]))
        welcome = await self._receive()
        if welcome[0] == NOT_TAKEN:
            self._raise(welcome[2])
        if not self._session_id:
            self._session_id, self._last = welcome[1], 0

    async def _result(self, command: list[Any]) -> tuple[list[Any], int]:
        """Return the final result of the next number, and its revision. Raises SessionOver, StreamBroken."""
        assert self._socket is not None
        number = self._last + 1
        acked = [[1, self._last]] if self._last else []
        await self._socket.send_str(json.dumps([COMMANDS, number, acked, 0, [command]]))
        while True:
            match await self._receive():
                case [kind, first, revision, [result, *_], *_] if kind == RESULTS and first == number:
                    is_final = result[0] != QUEUED
                case [kind, ended, revision, result, *_] if kind == WAIT_ENDED and ended == number:
                    is_final = True
                case [kind, _, code, *_] if kind == NOT_TAKEN:
                    self._raise(code)
                case [kind, *_] if kind == STOPS:
                    raise StreamBroken("the node stops")
                case _:
                    is_final = False
            if is_final:
                self._last = number
                return result, revision

    async def _receive(self) -> list[Any]:
        """Return the next message. Raises SessionOver, StreamBroken."""
        assert self._socket is not None
        message = await self._socket.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            if SESSION_OVER in (self._socket.close_code, message.data):
                raise SessionOver
            raise StreamBroken(f"closed: {message.data}")
        decoded: list[Any] = json.loads(message.data)
        return decoded

    def _raise(self, code: str) -> NoReturn:
        """Raise what a refusal of the node means."""
        if code == "session-expired":
            raise SessionOver
        raise StreamBroken(code)

    async def _drop(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()


def _command(kind: str, body: dict[str, Any]) -> list[Any]:
    """Return the command that asks for what the body of HTTP would."""
    match kind:
        case "acquire":
            mode, wait_ms = body.get("mode", "exclusive"), body.get("wait_ms", 0)
            return [ACQUIRE, body["name"], mode, "", "", body["ttl_ms"], body["owner"], wait_ms]
        case "renew":
            return [RENEW, body["hold_id"]]
        case _:
            return [RELEASE, body["hold_id"]]


def _attempt(result: list[Any], revision: int) -> Attempt:
    """Return what a result is over HTTP."""
    body: dict[str, Any] = {"revision": revision}
    match result:
        case [kind, code, *rest] if kind == REFUSED:
            holders = rest[1] if len(rest) > 1 else []
            shown = [{"owner": holder[0], "mode": holder[1], "token": holder[2]} for holder in holders]
            return Attempt("refused", code, {"code": code, "holders": shown})
        case [kind, hold_id, token, _, mode, expires_in_ms, *_] if kind == GRANTED:
            body |= {"hold_id": hold_id, "token": token, "mode": mode, "expires_in_ms": expires_in_ms}
        case [kind, token, expires_in_ms, *_] if kind == RENEWED:
            body |= {"token": token, "expires_in_ms": expires_in_ms}
    return Attempt("ok", "", body)
