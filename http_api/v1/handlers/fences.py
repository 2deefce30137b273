"""Fences: is this token still good, and which is the highest that a resource has seen."""

from api import answers, views
from api.node import ServingNode
from api.problems import expect
from api.requests.primitives import AdvanceFenceRequest, CheckFenceRequest
from http_api.server.call import Call, Reply
from http_api.v1 import reads, schema
from lockstate import results


async def check_fence(node: ServingNode, call: Call) -> Reply:
    """Say whether a token is that of a present holder of a lock."""
    name, token = (await schema.read(call, CheckFenceRequest)).checked()
    return await reads.answer(node, call, lambda machine: machine.check_fence(name, token), views.fence_of)


async def advance_fence(node: ServingNode, call: Call) -> Reply:
    """Let a resource accept a token and higher ones only."""
    request = await schema.read(call, AdvanceFenceRequest)
    answer = await node.submit(request.command(), call.timeout_s)
    advanced = expect(answer.result, results.FenceAdvanced)
    made = answers.FenceAdvanced(
        accepted=True, highest_token=advanced.highest_token, revision=answer.revision
    )
    return Reply(answers.encode(made))
