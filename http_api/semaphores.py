"""Semaphores: acquire permits, renew and release them, resize, look at one."""

from http_api import answers, bodies_primitives, locks, reads, schema, views
from http_api.call import Call, Reply
from http_api.host import Node
from http_api.problems import expect
from lockstate import results


async def acquire_permits(node: Node, call: Call) -> Reply:
    """Acquire permits of a semaphore, waiting in its queue if asked to."""
    request = await schema.read(call, bodies_primitives.AcquirePermitsRequest)
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


async def renew_permits(node: Node, call: Call) -> Reply:
    """Start the lease of permits anew."""
    return await locks.renew(node, call)


async def release_permits(node: Node, call: Call) -> Reply:
    """Give permits back."""
    return await locks.release_whole(node, call)


async def resize_semaphore(node: Node, call: Call) -> Reply:
    """Give a semaphore another limit."""
    request = await schema.read(call, bodies_primitives.ResizeRequest)
    answer = await node.submit(request.command(), call.timeout_s)
    resized = expect(answer.result, results.Resized)
    made = answers.Resized(request.name, resized.limit, resized.available, answer.revision)
    return Reply(answers.encode(made))


async def get_semaphore(node: Node, call: Call) -> Reply:
    """Return a semaphore with its holders and its queue."""
    name = schema.name(call)
    return await reads.answer(node, call, lambda machine: machine.semaphore(name), views.semaphore_of)
