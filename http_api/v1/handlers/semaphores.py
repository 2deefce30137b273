"""Semaphores: acquire permits, renew and release them, resize, look at one."""

from api import answers, views
from api.node import ServingNode
from api.problems import expect
from api.requests.primitives import AcquirePermitsRequest, ResizeRequest
from http_api.server.call import Call, Reply
from http_api.v1 import reads, schema
from http_api.v1.handlers import locks
from lockstate import results


async def acquire_permits(node: ServingNode, call: Call) -> Reply:
    """Acquire permits of a semaphore, waiting in its queue if asked to."""
    request = await schema.read(call, AcquirePermitsRequest)
    answer = await node.acquire(request.command(), call.timeout_s)
    granted = expect(answer.result, results.Granted)
    made = answers.PermitsGranted(
        granted.hold_id,
        granted.token,
        granted.name,
        granted.permits,
        granted.available,
        granted.expires_in_ms,
        answer.revision,
    )
    return Reply(answers.encode(made))


async def renew_permits(node: ServingNode, call: Call) -> Reply:
    """Start the lease of permits anew."""
    return await locks.renew(node, call)


async def release_permits(node: ServingNode, call: Call) -> Reply:
    """Give permits back."""
    return await locks.release_whole(node, call)


async def resize_semaphore(node: ServingNode, call: Call) -> Reply:
    """Give a semaphore another limit."""
    request = await schema.read(call, ResizeRequest)
    answer = await node.submit(request.command(), call.timeout_s)
    resized = expect(answer.result, results.Resized)
    made = answers.Resized(request.name, resized.limit, resized.available, answer.revision)
    return Reply(answers.encode(made))


async def get_semaphore(node: ServingNode, call: Call) -> Reply:
    """Return a semaphore with its holders and its queue."""
    name = schema.name(call)
    return await reads.answer(node, call, lambda machine: machine.semaphore(name), views.semaphore_of)
