"""Rate limits: take from one, look at one, list.

A client that reserves a later moment gets its answer at that moment.
"""

from holdfast.wire.answers import RatePeekJson
from http_api.server.call import Call, Reply
from http_api.v1 import reads, schema, waiting
from lockapi import paging, problems, views
from lockapi.gateway import Gateway
from lockapi.requests.primitives import PeekRateRequest
from lockstate.reads import listings
from lockstate.words import results


async def take_rate(gateway: Gateway, call: Call) -> Reply:
    """Take from a rate limit, waiting for the reserved moment if asked to."""
    return await waiting.TAKE_RATE.reply(gateway, call)


async def peek_rate(gateway: Gateway, call: Call) -> Reply:
    """Say what a rate limit would answer, and take nothing."""
    command = (await schema.read(call, PeekRateRequest)).command()
    name = command.name
    return await reads.answer(gateway, call, lambda machine: machine.peek_rate(command), _shown, name=name)


def _shown(taken: results.RateTaken | results.Refused) -> RatePeekJson:
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
