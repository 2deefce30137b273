"""Several kinds at once: acquire locks, permits and places of rate limits together.

What is acquired so is a hold of locks for everything else: `handlers.locks` renews and releases it.
"""

from api import answers
from api.gateway import Gateway
from api.requests.several import AcquireSeveralRequest
from http_api.server.call import Call, Reply
from http_api.v1 import schema


async def acquire_several(gateway: Gateway, call: Call) -> Reply:
    """Acquire all or nothing, waiting in all queues, and for the reserved moment, if asked to."""
    request = await schema.read(call, AcquireSeveralRequest)
    (result, revision, is_repeated), waited_ms = await gateway.acquire_several(
        request.command(), call.timeout_s
    )
    answer = answers.granted_of_kinds(result, waited_ms, revision)
    return Reply(answers.told(answer, is_repeated=is_repeated))
