"""One attempt of one request over plain HTTP: what came back, and whether it may have had an effect.

Knows the JSON contract of docs/http-api.md and nothing else of Holdfast.
"""

import asyncio
import json
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


async def send(
    session: aiohttp.ClientSession, method: str, url: str, body: dict[str, Any] | None, timeout_s: float
) -> Attempt:
    """Send one request and wait for its answer, at most `timeout_s`. Never raises for what the world does."""
    try:
        async with asyncio.timeout(timeout_s):
            async with session.request(method, url, json=body) as response:
                return judge(response.status, await response.read())
    except aiohttp.ClientConnectorError as error:
        return Attempt("try-again", f"not-connected: {error.os_error.strerror}", {})
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
