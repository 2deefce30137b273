"""Locks: acquire one or several, renew, release, convert, force release, look at one, list."""

from api import answers, views
from api.gateway import Gateway
from api.requests.locks import (
    AcquireRequest,
    ConvertRequest,
    ForceReleaseRequest,
    ReleaseHoldRequest,
    ReleaseRequest,
    RenewRequest,
)
from http_api.server.call import Call, Reply
from http_api.v1 import reads, schema
from lockstate import results


async def acquire(gateway: Gateway, call: Call) -> Reply:
    """Acquire a lock, or several at once, waiting in the queue if asked to."""
    request = await schema.read(call, AcquireRequest)
    result, revision = await gateway.acquire(request.command(), results.Granted, call.timeout_s)
    return Reply(answers.encode(answers.granted(result, revision)))


async def convert(gateway: Gateway, call: Call) -> Reply:
    """Change the mode of a hold, waiting ahead of the queue if asked to."""
    request = await schema.read(call, ConvertRequest)
    result, revision = await gateway.acquire(request.command(), results.Granted, call.timeout_s)
    return Reply(answers.encode(answers.granted(result, revision)))


async def renew(gateway: Gateway, call: Call) -> Reply:
    """Renew the lease of a hold."""
    request = await schema.read(call, RenewRequest)
    result, revision = await gateway.submit(request.command(), results.Renewed, call.timeout_s)
    return Reply(answers.encode(answers.Renewed(result.token, result.expires_in_ms, revision)))


async def release(gateway: Gateway, call: Call) -> Reply:
    """Release a hold, or some of its locks."""
    request = await schema.read(call, ReleaseRequest)
    result, revision = await gateway.submit(request.command(), results.Released, call.timeout_s)
    return Reply(answers.encode(answers.released(result, revision)))


async def release_whole(gateway: Gateway, call: Call) -> Reply:
    """Release a hold that has no parts."""
    request = await schema.read(call, ReleaseHoldRequest)
    _, revision = await gateway.submit(request.command(), results.Released, call.timeout_s)
    return Reply(answers.encode(answers.Released(released=True, revision=revision)))


async def force_release(gateway: Gateway, call: Call) -> Reply:
    """End every hold of a lock."""
    request = await schema.read(call, ForceReleaseRequest)
    result, revision = await gateway.submit(request.command(), results.ForceReleased, call.timeout_s)
    return Reply(answers.encode(answers.ForceReleased(views.holders_of(result.released), revision)))


async def get_lock(gateway: Gateway, call: Call) -> Reply:
    """Return a lock with its holders and its queue."""
    name = schema.name(call)
    return await reads.answer(gateway, call, lambda machine: machine.lock(name), views.lock_of)


async def list_locks(gateway: Gateway, call: Call) -> Reply:
    """Return a page of the locks that are held, delayed or waited for."""
    prefix, after, limit = schema.page(call)
    longer_than_ms = schema.held_longer_than_ms(call)
    return await reads.answer(
        gateway, call, lambda machine: machine.locks(prefix, after, limit, longer_than_ms), views.page_of
    )
