"""Rate limits: take from one. Who gets a place ahead is answered when its time has come."""

import asyncio

from api import answers
from api.node import ServingNode
from api.problems import expect
from api.requests.primitives import TakeRateRequest
from cluster.errors import OutcomeUnknown
from holdfast import wire
from http_api.server.call import Call, Reply
from http_api.v1 import schema
from lockstate import results

_POLICY = '"default"'
"""One limit says something in each answer, so what it is called does not matter."""


async def take_rate(node: ServingNode, call: Call) -> Reply:
    """Take from a rate limit, waiting for the reserved moment if asked to."""
    request = await schema.read(call, TakeRateRequest)
    answer = await node.submit(request.command(), call.timeout_s)
    taken = expect(answer.result, results.RateTaken)
    waited_ms = await _held_until(node, taken.at_ms)
    made = answers.RateTaken(
        taken.allowed,
        taken.remaining,
        taken.retry_after_ms,
        max(taken.reset_in_ms - waited_ms, 0),
        answer.revision,
    )
    return Reply(answers.encode(made), headers=_header_lines(made, request.limit, request.window_ms))


async def _held_until(node: ServingNode, at_ms: int) -> int:
    """Wait until cluster time is `at_ms`, and return how long that was. Raises OutcomeUnknown.

    `now_ms` of the machine is that of the entry that gave the place or of a later one, and cluster time never
    runs faster than ours: whoever waits for the difference does not come too early.
    """
    delay_ms = at_ms - node.machine.now_ms
    if delay_ms <= 0:
        return 0
    stopping = asyncio.ensure_future(node.wait_shutdown())
    try:
        await asyncio.wait({stopping}, timeout=delay_ms / 1000)
        if stopping.done():
            raise OutcomeUnknown(
                "this node stops before the reserved moment; repeat the request with the same request_id on"
                " another node"
            )
    finally:
        stopping.cancel()
    return delay_ms


def _header_lines(made: answers.RateTaken, limit: int, window_ms: int) -> str:
    """Return the fields of draft-ietf-httpapi-ratelimit-headers, which count whole seconds."""
    policy = f"{_POLICY};q={limit};w={_seconds(window_ms)}"
    state = f"{_POLICY};r={made.remaining};t={_seconds(made.reset_in_ms)}"
    return f"{wire.HEADER_RATE_POLICY}: {policy}\r\n{wire.HEADER_RATE}: {state}\r\n"


def _seconds(ms: int) -> int:
    """Return whole seconds, rounded up: who keeps to them is never too fast."""
    return -(-ms // 1000)
