"""What tests of the whole vocabulary ask over plain HTTP: once, or with patience, as clients do."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import aiohttp

from tests.process.nodes import DEADLINE_S, POLL_S, Got, Http, until

REPEATED = (429, 503, 504)
"""Not applied, or not known: the same request again, elsewhere, is right."""
TIMES = ("now_ms", "expires_in_ms", "waited_ms", "since_ms")


async def ask(http: Http, node_ids: Sequence[str], path: str, body: dict[str, Any]) -> Got:
    """Post a request to one node after the other until there is an outcome; `body` has its request id.

    Fails the test when there is none for long.
    """
    assert body["request_id"]
    deadline_s = time.monotonic() + 2 * DEADLINE_S
    for node_id in itertools.cycle(node_ids):
        try:
            got = await http.call(node_id, "POST", path, body)
        except aiohttp.ClientError:
            got = Got(0, None)
        if got.status and got.status not in REPEATED:
            return got
        assert time.monotonic() < deadline_s, f"{path} of {body} has no outcome, last: {got}"
        await asyncio.sleep(POLL_S)  # no node may be there at the moment
    raise AssertionError("there are no nodes to ask")


def from_node(node_ids: Sequence[str], number: int) -> list[str]:
    """Return the nodes in the order in which the client of this number asks them."""
    first = number % len(node_ids)
    return [*node_ids[first:], *node_ids[:first]]


async def write(http: Http, node_id: str, path: str, **body: Any) -> Any:
    """Ask for a change that is granted; return the answer."""
    got = await http.call(node_id, "POST", path, body)
    assert got.status in (200, 201), got
    return got.body


def at(path: str, name: str) -> str:
    """Return the path of what has this name or id."""
    return path.format(name=quote(name, safe=""), session_id=name)


async def read(http: Http, node_id: str, path: str) -> Any:
    """Return what a node says is there, without the times, which pass."""
    got = await http.call(node_id, "GET", path)
    assert got.status == 200, got
    return without_times(got.body)


def without_times(body: Any) -> Any:
    """Return JSON without the fields that are other ones at each look."""
    if isinstance(body, dict):
        return {key: without_times(value) for key, value in body.items() if key not in TIMES}
    return [without_times(item) for item in body] if isinstance(body, list) else body


async def queue_is(http: Http, node_id: str, path: str, *owners: str) -> None:
    """Wait until exactly these wait, in this order."""

    async def is_so() -> bool:
        return [item["owner"] for item in (await read(http, node_id, path))["queue"]] == list(owners)

    await until(is_so, f"the queue of {path} is {owners}")
