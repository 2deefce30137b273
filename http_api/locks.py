"""Locks: acquire, renew, release, force release, look at one, list."""

from http_api import answers, schema
from http_api.call import Call, Reply
from http_api.host import Node
from http_api.problems import expect
from lockstate import results
from lockstate.machine import LockMachine


async def acquire(node: Node, call: Call) -> Reply:
    """Acquire a lock, waiting in its queue if asked to."""
    request = await schema.read(call, schema.AcquireRequest)
    answer = await node.acquire(request.command(), call.timeout_s)
    granted = expect(answer.result, results.Granted)
    made = answers.Granted(
        granted.hold_id, granted.token, granted.name, granted.mode, granted.expires_in_ms, answer.revision
    )
    return Reply(answers.encode(made))


async def renew(node: Node, call: Call) -> Reply:
    """Start the lease of a hold anew."""
    request = await schema.read(call, schema.RenewRequest)
    answer = await node.submit(request.command(), call.timeout_s)
    renewed = expect(answer.result, results.Renewed)
    return Reply(answers.encode(answers.Renewed(renewed.token, renewed.expires_in_ms, answer.revision)))


async def release(node: Node, call: Call) -> Reply:
    """Give a hold back."""
    request = await schema.read(call, schema.ReleaseRequest)
    answer = await node.submit(request.command(), call.timeout_s)
    expect(answer.result, results.Released)
    return Reply(answers.encode(answers.Released(released=True, revision=answer.revision)))


async def force_release(node: Node, call: Call) -> Reply:
    """End every hold of a lock."""
    request = await schema.read(call, schema.ForceReleaseRequest)
    answer = await node.submit(request.command(), call.timeout_s)
    forced = expect(answer.result, results.ForceReleased)
    made = answers.ForceReleased(answers.holders_of(forced.released), answer.revision)
    return Reply(answers.encode(made))


async def get_lock(node: Node, call: Call) -> Reply:
    """Return a lock with its holders and its queue."""
    name, is_stale = schema.lock_name(call), schema.consistency(call)

    def query(machine: LockMachine) -> results.LockView:
        return machine.lock(name)

    lock = answers.lock_of(query(node.machine) if is_stale else await node.read(query, call.timeout_s))
    if is_stale:
        lock.revision, lock.lag_ms = node.machine.revision, node.status().lag_ms
    return Reply(answers.encode(lock))


async def list_locks(node: Node, call: Call) -> Reply:
    """Return a page of the locks that are held, delayed or waited for."""
    (prefix, after, limit), is_stale = schema.page(call), schema.consistency(call)

    def query(machine: LockMachine) -> tuple[list[results.LockView], str | None]:
        return machine.locks(prefix, after, limit)

    views, more = query(node.machine) if is_stale else await node.read(query, call.timeout_s)
    page = answers.LockPage(locks=tuple([answers.lock_of(view) for view in views]), next=more)
    if is_stale:
        page.revision, page.lag_ms = node.machine.revision, node.status().lag_ms
    return Reply(answers.encode(page))
