"""A real HTTP server that answers as a script says, and remembers what it was asked."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web

from holdfast import wire

Step = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Seen(msgspec.Struct, frozen=True):
    """One request as it came in, body included."""

    method: str
    path: str
    body: bytes
    timeout_ms: int
    agent: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """The decoded body."""
        return msgspec.json.decode(self.body, type=dict[str, Any])


class ScriptedNode:
    """Takes the steps of its script one after the other, and then repeats the last one."""

    def __init__(self, *script: Step) -> None:
        self._script = list(script)
        self.seen: list[Seen] = []
        self.is_hung = False
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        self.url = ""

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def reset_and_go(self, request: web.Request) -> web.StreamResponse:
        """Break the connection without an answer, and listen no more."""
        for site in list(self._runner.sites):
            await site.stop()
        return await reset(request)

    async def answer_and_go(self, step: Step, request: web.Request) -> web.StreamResponse:
        """Answer, and listen no more."""
        for site in list(self._runner.sites):
            await site.stop()
        response = await step(request)
        response.force_close()
        return response

    def then(self, step: Step) -> None:
        """Take this step next, and last."""
        self._script = [step]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == wire.LIVEZ:
            return await silence(request) if self.is_hung else web.Response()
        timeout_ms = int(request.headers.get(wire.HEADER_TIMEOUT_MS, "0"))
        agent = request.headers.get("User-Agent", "")
        self.seen.append(Seen(request.method, request.raw_path, await request.read(), timeout_ms, agent))
        step = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        return await step(request)


def answer(**fields: object) -> Step:
    """Answer 200 with these fields."""

    async def step(_: web.Request) -> web.StreamResponse:
        return web.Response(body=msgspec.json.encode(fields), content_type=wire.JSON)

    return step


def problem(code: str, **fields: object) -> Step:
    """Answer with the problem document of a code."""

    async def step(_: web.Request) -> web.StreamResponse:
        kind = wire.PROBLEMS[code]
        document = {"code": code, "detail": kind.title, "outcome": kind.outcome} | fields
        body = msgspec.json.encode(document)
        return web.Response(status=kind.status, body=body, content_type=wire.PROBLEM_JSON)

    return step


def status(number: int) -> Step:
    """Answer with a status and a body that no node would send."""

    async def step(_: web.Request) -> web.StreamResponse:
        return web.Response(status=number, text="<html>a proxy speaks</html>", content_type="text/html")

    return step


async def reset(request: web.Request) -> web.StreamResponse:
    """Break the connection without an answer, after the request was read to its end."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def silence(_: web.Request) -> web.StreamResponse:
    """Do not answer until the client goes away."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


def granted(token: int = 7, expires_in_ms: int = 30_000) -> Step:
    """Grant a lock."""
    return answer(
        hold_id="h" * 32, token=token, name="a/b", mode="exclusive", expires_in_ms=expires_in_ms, revision=9
    )


def renewed(expires_in_ms: int = 30_000, token: int = 7) -> Step:
    """Renew a lease."""
    return answer(token=token, expires_in_ms=expires_in_ms, revision=10)


released = answer(released=True, revision=11)
