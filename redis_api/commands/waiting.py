"""HF.ACQUIRE takes a lock and waits for it in the queue of its name, in one order with all other clients.

A wait ends with its connection: whoever is not there any more holds up nobody. So the wait is a task of its
own, which the loss of the connection cancels: the node then takes back whatever became of it, be it a place
in the queue or a hold.
"""

import asyncio
from functools import partial

from cluster.errors import OutcomeUnknown
from lockapi.gateway import CommandOutcome
from lockapi.problems import ProblemError
from lockapi.requests.locks import AcquireRequest
from lockstate.words.results import Granted
from redis_api.commands import holds
from redis_api.protocol import spelled
from redis_api.protocol.arguments import integer
from redis_api.protocol.resp import Reply
from redis_api.shared.client import Client
from redis_api.shared.left_grants import Key


async def acquire(client: Client, args: list[bytes]) -> Reply:
    """HF.ACQUIRE key value ms wait_ms: the fencing token, nil if the lock was not free in time."""
    key, value, lease, wait = args
    ttl_ms, wait_ms = integer(lease), integer(wait)
    name, text = holds.name_of(client, key), spelled.value_text(value)
    known = Key(client.principal, name, text, is_endless=False)
    token = await holds.adopt_left(client, known, value, ttl_ms)
    if token is not None:
        return token
    if client.transport.is_closing():
        return None  # it went meanwhile, and nobody would end its wait
    request = AcquireRequest(
        name=name,
        value=text,
        owner=client.owner,
        ttl_ms=ttl_ms,
        wait_ms=wait_ms,
    )
    with client.waiting():
        return await _wait(client, known, value, request)


async def _wait(client: Client, known: Key, value: bytes, request: AcquireRequest) -> int | None:
    """Wait for a lock; return its token, None if it was not free in time. Raises ProblemError, ClusterError.

    The client may leave at any time: then nothing stays of its wait, and what it got is given back.
    """
    command = request.command()
    give_back = partial(client.gateway.undo, command, client.timeout_s)
    attempt = client.attempt = holds.begin_attempt(client, known, value, command.hold_id, give_back)
    waiting = asyncio.ensure_future(client.gateway.acquire(command, Granted, client.timeout_s))
    attempt.when_left = waiting.cancel
    token: int | None = None
    try:
        outcome = await waiting
        assert isinstance(outcome, CommandOutcome), "it was not asked for a part of the wait"
        if not holds.gave_way(client, attempt):
            token = outcome.result.token
    except OutcomeUnknown:
        attempt.give_back()
        raise
    except ProblemError as problem:
        if problem.code != "lock-held":
            raise
    finally:
        attempt.settle(is_granted=token is not None)
    if token is not None:
        client.took(known.name, command.hold_id)
    return token
