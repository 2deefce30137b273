"""One attempt of one request over plain HTTP: what came back, and whether it may have had an effect.

Knows the JSON contract of docs/http-api.md and nothing else of Holdfast.
"""

import asyncio
import json
from types import SimpleNamespace
from typing import Any, Final, Literal, NamedTuple

import aiohttp

Fate = Literal["ok", "refused", "try-again", "lost"]
"""`refused` is an outcome; `try-again` had no effect and is none; `lost` may have had an effect."""

TRY_AGAIN: Final = frozenset(
    {"no-leader", "shutting-down", "not-ready", "not-leader", "overloaded", "queue-full", "transfer-failed"}
)
"""Surely not applied, and not remembered: another node or another moment may do."""


class Attempt(NamedTuple):
    """What one attempt came to. `body` is the decoded JSON object, empty if there was none."""

    fate: Fate
    code: str
    body: dict[str, Any]


def open_session(connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    """Return a session for `send`: it counts how often the library sends a request."""
    tracing = aiohttp.TraceConfig()
    tracing.on_request_headers_sent.append(_count_sending)
    # No timeout but that of each request: a wait may last long.
    return aiohttp.ClientSession(
        connector=connector, timeout=aiohttp.ClientTimeout(total=None), trace_configs=[tracing]
    )


async def _count_sending(
    session: aiohttp.ClientSession,
    context: SimpleNamespace,
    parameters: aiohttp.TraceRequestHeadersSentParams,
) -> None:
    del session, parameters
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.count += 1


async def send(
    session: aiohttp.ClientSession, method: str, url: str, body: dict[str, Any] | None, timeout_s: float
) -> Attempt:
    """Send one request and wait for its answer, at most `timeout_s`. Never raises for what the world does.

    `session` is one of `open_session`. Where a connection breaks, the library sends a DELETE a second time by
    itself: then the first may have had an effect, whatever became of the second.
    """
    sent = SimpleNamespace(count=0)
    try:
        async with asyncio.timeout(timeout_s):
            async with session.request(method, url, json=body, trace_request_ctx=sent) as response:
                attempt = judge(response.status, await response.read())
                is_sure = attempt.fate == "ok" or sent.count <= 1
                return attempt if is_sure else attempt._replace(fate="lost")
    except aiohttp.ClientConnectorError as error:
        fate: Fate = "lost" if sent.count else "try-again"
        return Attempt(fate, f"not-connected: {error.os_error.strerror}", {})
    except TimeoutError:
        return Attempt("lost", "timeout", {})
    except (aiohttp.ClientError, OSError) as error:
        return Attempt("lost", type(error).__name__, {})


def judge(status: int, data: bytes) -> Attempt:
    """Return what an answer means."""
    try:
        body = json.loads(data)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        return Attempt("lost", f"not-json-{status}", {})
    if status < 300:  # noqa: PLR2004 - the success codes of HTTP
        return Attempt("ok", "", body)
    code = str(body.get("code", status))
    if body.get("outcome") != "not-applied":
        return Attempt("lost", code, body)
    return Attempt("try-again" if code in TRY_AGAIN else "refused", code, body)
