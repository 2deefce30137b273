"""Locks: acquire one or several, renew, release, convert, force release, look at one, list."""

from api import answers, views
from api.node import ServingNode
from api.problems import expect
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
from lockstate.modes import Scope


async def acquire(node: ServingNode, call: Call) -> Reply:
    """Acquire a lock, or several at once, waiting in the queue if asked to."""
    request = await schema.read(call, AcquireRequest)
    answer = await node.acquire(request.command(), call.timeout_s)
    return _granted(expect(answer.result, results.Granted), answer.revision)


async def convert(node: ServingNode, call: Call) -> Reply:
    """Change the mode of a hold, waiting ahead of the queue if asked to."""
    request = await schema.read(call, ConvertRequest)
    answer = await node.acquire(request.command(), call.timeout_s)
    return _granted(expect(answer.result, results.Granted), answer.revision)


def _granted(granted: results.Granted, revision: int) -> Reply:
    """Return the answer to who holds one lock, or several."""
    hold_id, token, expires_in_ms = granted.hold_id, granted.token, granted.expires_in_ms
    if granted.locks:
        locks = answers.held_locks(granted.locks)
        return Reply(answers.encode(answers.GrantedSeveral(hold_id, token, locks, expires_in_ms, revision)))
    made = answers.Granted(hold_id, token, granted.name, granted.mode, expires_in_ms, revision)
    if granted.scope is not Scope.NODE:
        made.scope = granted.scope
    return Reply(answers.encode(made))


async def renew(node: ServingNode, call: Call) -> Reply:
    """Start the lease of a hold anew."""
    request = await schema.read(call, RenewRequest)
    answer = await node.submit(request.command(), call.timeout_s)
    renewed = expect(answer.result, results.Renewed)
    return Reply(answers.encode(answers.Renewed(renewed.token, renewed.expires_in_ms, answer.revision)))


async def release(node: ServingNode, call: Call) -> Reply:
    """Give a hold back, or some of its locks."""
    request = await schema.read(call, ReleaseRequest)
    answer = await node.submit(request.command(), call.timeout_s)
    released = expect(answer.result, results.Released)
    made = answers.Released(released=True, revision=answer.revision)
    if released.locks:
        made.locks = answers.held_locks(released.locks)
    return Reply(answers.encode(made))


async def release_whole(node: ServingNode, call: Call) -> Reply:
    """Give back a hold that has no parts."""
    request = await schema.read(call, ReleaseHoldRequest)
    answer = await node.submit(request.command(), call.timeout_s)
    expect(answer.result, results.Released)
    return Reply(answers.encode(answers.Released(released=True, revision=answer.revision)))


async def force_release(node: ServingNode, call: Call) -> Reply:
    """End every hold of a lock."""
    request = await schema.read(call, ForceReleaseRequest)
    answer = await node.submit(request.command(), call.timeout_s)
    forced = expect(answer.result, results.ForceReleased)
    made = answers.ForceReleased(views.holders_of(forced.released), answer.revision)
    return Reply(answers.encode(made))


async def get_lock(node: ServingNode, call: Call) -> Reply:
    """Return a lock with its holders and its queue."""
    name = schema.name(call)
    return await reads.answer(node, call, lambda machine: machine.lock(name), views.lock_of)


async def list_locks(node: ServingNode, call: Call) -> Reply:
    """Return a page of the locks that are held, delayed or waited for."""
    prefix, after, limit = schema.page(call)
    return await reads.answer(node, call, lambda machine: machine.locks(prefix, after, limit), views.page_of)
