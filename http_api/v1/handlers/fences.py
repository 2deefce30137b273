"""Fences: is this token still good, which is the highest that a resource has seen."""

from holdfast.wire.answers import FenceAdvancedJson, FenceForgottenJson
from http_api.server.call import Call, Reply
from http_api.v1 import reads, schema
from lockapi import answers, paging, views
from lockapi.gateway import Gateway
from lockapi.requests.overrides import ForgetFenceRequest
from lockapi.requests.primitives import AdvanceFenceRequest, CheckFenceRequest
from lockstate.reads import listings
from lockstate.words import results


async def check_fence(gateway: Gateway, call: Call) -> Reply:
    """Say whether a token is that of a current holder of a lock or permits, or of a leader."""
    name, token, kind = (await schema.read(call, CheckFenceRequest)).checked()
    return await reads.answer(
        gateway, call, lambda machine: machine.check_fence(name, token, kind), views.fence_of, name=name
    )


async def get_fence(gateway: Gateway, call: Call) -> Reply:
    """Return the highest token that a resource has seen."""
    resource = schema.name(call)
    return await reads.answer(
        gateway, call, lambda machine: machine.fence(resource), views.fence_state_of, name=resource
    )


async def advance_fence(gateway: Gateway, call: Call) -> Reply:
    """Make a resource accept this token and higher ones only."""
    request = await schema.read(call, AdvanceFenceRequest)
    result, revision, is_repeated = await gateway.submit(
        request.command(), results.FenceAdvanced, call.timeout_s
    )
    answer = FenceAdvancedJson(accepted=True, highest_token=result.highest_token, revision=revision)
    return Reply(answers.told(answer, is_repeated=is_repeated))


async def forget_fence(gateway: Gateway, call: Call) -> Reply:
    """Make a resource accept any token again."""
    request = await schema.read(call, ForgetFenceRequest)
    result, revision, is_repeated = await gateway.submit(
        request.command(), results.FenceForgotten, call.timeout_s
    )
    highest = result.highest_token
    answer = FenceForgottenJson(forgotten=highest is not None, highest_token=highest, revision=revision)
    return Reply(answers.told(answer, is_repeated=is_repeated))


async def list_fences(gateway: Gateway, call: Call) -> Reply:
    """Return a page of resources with their highest tokens."""
    return await reads.page(
        gateway,
        call,
        lambda machine, *page: listings.fences(machine.state, *page),
        views.fence_page_of,
        paging.named(lambda fence: fence.name),
    )
