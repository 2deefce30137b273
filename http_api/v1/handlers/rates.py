"""Rate limits: take from one, look at one, list.

A client that reserves a later moment gets its answer at that moment.
"""

from api import answers, paging, problems, views
from api.gateway import Gateway
from api.requests.primitives import PeekRateRequest, TakeRateRequest
from holdfast import wire
from http_api.server.call import Call, Reply
from http_api.v1 import reads, schema
from lockstate import listings, results

_POLICY = '"default"'
"""The name of the only policy that an answer speaks of; it has to have one."""


async def take_rate(gateway: Gateway, call: Call) -> Reply:
    """Take from a rate limit, waiting for the reserved moment if asked to."""
    request = await schema.read(call, TakeRateRequest)
    result, revision, is_repeated = await gateway.submit(request.command(), results.RateTaken, call.timeout_s)
    waited_ms = await gateway.wait_until(result.at_ms)
    answer = answers.rate_taken(result, waited_ms, revision)
    headers = _header_lines(answer, request.limit, request.window_ms)
    return Reply(answers.told(answer, is_repeated=is_repeated), headers=headers)


async def peek_rate(gateway: Gateway, call: Call) -> Reply:
    """Say what a rate limit would answer, and take nothing."""
    command = (await schema.read(call, PeekRateRequest)).command()
    name = command.name
    return await reads.answer(gateway, call, lambda machine: machine.peek_rate(command), _shown, name=name)


def _shown(taken: results.RateTaken | results.Refused) -> views.RatePeek:
    if isinstance(taken, results.Refused):
        raise problems.refusal(taken)
    return views.rate_peek_of(taken)


async def list_rate_limits(gateway: Gateway, call: Call) -> Reply:
    """Return a page of the rate limits that are not whole."""
    return await reads.page(
        gateway,
        call,
        lambda machine, *page: listings.rate_limits(machine.state, *page),
        views.rate_page_of,
        paging.Shape(
            name_of=lambda limit: limit.name,
            place_of=lambda limit: f"{limit.algorithm} {limit.window_ms} {limit.name}",
        ),
    )


def _header_lines(answer: answers.RateTaken, limit: int, window_ms: int) -> str:
    """Return the fields of draft-ietf-httpapi-ratelimit-headers, which count whole seconds."""
    policy = f"{_POLICY};q={limit};w={_seconds(window_ms)}"
    state = f"{_POLICY};r={answer.remaining};t={_seconds(answer.reset_in_ms)}"
    return f"{wire.HEADER_RATE_POLICY}: {policy}\r\n{wire.HEADER_RATE}: {state}\r\n"


def _seconds(ms: int) -> int:
    """Return whole seconds, rounded up, so that clients that keep to them are never too fast."""
    return -(-ms // 1000)
