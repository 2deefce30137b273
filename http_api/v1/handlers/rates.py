"""Rate limits: take from one, look at one, list, forget.

A client that reserves a later moment gets its answer at that moment.
"""

from holdfast.wire.answers import RatePeekJson, RatesForgottenJson
from http_api.server.call import Call, Reply
from http_api.v1 import reads, schema, waiting
from lockapi import answers, paging, problems, views
from lockapi.gateway import CommandOutcome, Gateway
from lockapi.requests.overrides import ForgetRatesRequest
from lockapi.requests.primitives import PeekRateRequest
from lockstate.reads import listings
from lockstate.words import results
from lockstate.words.refusals import Refused


async def take_rate(gateway: Gateway, call: Call) -> Reply:
    """Take from a rate limit, waiting for the reserved moment if asked to."""
    return await waiting.TAKE_RATE.reply(gateway, call)


async def peek_rate(gateway: Gateway, call: Call) -> Reply:
    """Say what a rate limit would answer, and take nothing."""
    command = (await schema.read(call, PeekRateRequest)).command()
    name = command.name
    return await reads.answer(gateway, call, lambda machine: machine.peek_rate(command), _shown, name=name)


def _shown(taken: results.RateTaken | Refused) -> RatePeekJson:
    if isinstance(taken, Refused):
        raise problems.refusal(taken)
    return views.rate_peek_of(taken)


async def forget_rate_limit(gateway: Gateway, call: Call) -> Reply:
    """Make the rate limits of a name as new, whatever was taken from them."""
    request = await schema.read(call, ForgetRatesRequest)
    reason = schema.body_or_query(call, "reason", request.reason)
    command = request.command(schema.name(call), reason)
    return _forgotten(await gateway.submit(command, results.RatesForgotten, call.timeout_s))


async def forget_rate_limits(gateway: Gateway, call: Call) -> Reply:
    """Do the same to those whose names begin with a prefix, or to all, a limited number at a time."""
    request = await schema.read(call, ForgetRatesRequest)
    prefix, is_all = schema.prefix_or_all(call)
    reason = schema.body_or_query(call, "reason", request.reason)
    command = request.command_below(prefix, reason, is_all=is_all)
    return _forgotten(await gateway.submit(command, results.RatesForgotten, call.timeout_s))


def _forgotten(outcome: CommandOutcome[results.RatesForgotten]) -> Reply:
    result, revision, is_repeated = outcome
    answer = RatesForgottenJson(forgotten=result.count, more=result.is_more, revision=revision)
    return Reply(answers.told(answer, is_repeated=is_repeated))


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
