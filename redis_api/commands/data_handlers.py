"""Commands about keys that do more than run on an overlay: what takes a lock alone, many keys, scripts."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from holdfast.token_lines import Right
from lockapi import rights_needed
from redis_api.commands import holds, scanning
from redis_api.keys import lists, scripting
from redis_api.keys.overlay import DataCommand, Overlay
from redis_api.keys.transact import call, transact
from redis_api.lua.scripts import Script
from redis_api.protocol import spelled
from redis_api.protocol.arguments import DATABASES_COUNT, set_options
from redis_api.protocol.errors import SYNTAX, CommandRefused
from redis_api.protocol.resp import NO_LIST, OK, Failure, Reply
from redis_api.shared.client import Client
from redis_api.shared.key_waits import Waiter

Handler = Callable[[Client, list[bytes]], Awaitable[Reply]]

WAIT_S_MAX: Final = 3600.0
"""Seconds that BLPOP and BRPOP wait if they are to wait longer, or for ever."""
_TRIES_COUNT: Final = 3
"""How often SET NX GET asks again for a lock that was neither free nor held when it looked."""
_DELETED_COUNT: Final = 30
"""Keys that are deleted in one step: a transaction has 64 compares, and one that is not there needs two."""


def running(row: DataCommand) -> Handler:
    """Return the handler of a command that runs on an overlay alone."""
    word = row.name.encode()

    async def run(client: Client, args: list[bytes]) -> Reply:
        return await call(client, [word, *args], writes=row.writes)

    return run


async def set_(client: Client, args: list[bytes]) -> Reply:
    """SET key value [...]: with NX it takes a lock, else it writes a string."""
    key, value, *rest = args
    options = set_options(rest)
    if not options.only_new:
        return await call(client, [b"SET", *args])
    if not options.gets:
        return OK if await holds.take(client, key, value, options.ttl_ms) else None
    for _ in range(_TRIES_COUNT):
        if await holds.take(client, key, value, options.ttl_ms):
            return None
        found = await call(client, [b"GET", key], writes=False)
        if found is not None:
            return found
    # Nothing at all would mean that it was taken.
    raise CommandRefused(
        "the lock is not held, but others wait for it, or a delay or a freeze keeps it", "TRYAGAIN"
    )


async def setnx(client: Client, args: list[bytes]) -> Reply:
    """SETNX key value."""
    return int(await holds.take(client, args[0], args[1], None))


async def delete(client: Client, args: list[bytes]) -> Reply:
    """DEL key [key ...]: many keys in steps."""
    return await _delete(client, client.database, args)


async def _delete(client: Client, database: int, keys: list[bytes]) -> int | Failure:
    """End keys of a database in steps; return how many there were, or why a step was refused."""
    count = 0
    for begin in range(0, len(keys), _DELETED_COUNT):
        words = [b"DEL", *keys[begin : begin + _DELETED_COUNT]]

        def program(overlay: Overlay, words: list[bytes] = words) -> Reply:
            overlay.database = database
            return overlay.call(words)

        client.admit()  # there may be thousands of steps, and rights change
        done = await transact(client, program)
        if isinstance(done, Failure):
            return done
        assert isinstance(done, int)
        count += done
    return count


async def flushdb(client: Client, args: list[bytes]) -> Reply:
    """FLUSHDB [ASYNC | SYNC]."""
    return await _flush(client, "FLUSHDB", args, [client.database])


async def flushall(client: Client, args: list[bytes]) -> Reply:
    """FLUSHALL [ASYNC | SYNC]."""
    return await _flush(client, "FLUSHALL", args, range(DATABASES_COUNT))


async def _flush(client: Client, command: str, args: list[bytes], databases: Collection[int]) -> Reply:
    """End all keys that databases have now, in steps, if the caller may read and end each by force.

    So whoever may not end everything ends nothing. Raises CommandRefused, ProblemError, ClusterError.
    """
    if [word.upper() for word in args] not in ([], [b"ASYNC"], [b"SYNC"]):
        raise CommandRefused(SYNTAX)
    for database in databases:
        for right in (Right.READ, Right.ACQUIRE, Right.FORCE):
            rights_needed.check_start(client.gateway.rights, right, spelled.prefix_of(database))
    client.count_more(len(databases) - 1)
    found = [(database, await scanning.every_key(client, command, database)) for database in databases]
    for database, keys in found:
        done = await _delete(client, database, keys)
        if isinstance(done, Failure):
            return done
    return OK


def waiting(row: DataCommand) -> Handler:
    """Return the handler of a command that waits for a list to have elements: key [key ...] timeout."""
    word = row.name.encode()

    async def pop(client: Client, args: list[bytes]) -> Reply:
        wait_s = min(lists.seconds(args[-1]) or WAIT_S_MAX, WAIT_S_MAX)
        deadline_s = asyncio.get_running_loop().time() + wait_s
        names = [holds.name_of(client, key) for key in args[:-1]]
        waits = client.face.waits
        try:
            with waits.waiting(client.gateway.node.events, names) as client.waiter:
                return await _until_popped(client, [word, *args], client.waiter, deadline_s)
        finally:
            client.waiter = None
            waits.pass_on(names)

    return pop


async def _until_popped(client: Client, words: list[bytes], waiter: Waiter, deadline_s: float) -> Reply:
    """Try to take an element whenever there may be one. Raises ProblemError, ClusterError."""
    while (found := await call(client, words)) == NO_LIST:
        with client.waiting():
            is_woken = await waiter.wait(deadline_s)
        if not is_woken or client.is_gone:
            return NO_LIST
        client.admit()
    return found


# -- scripts -------------------------------------------------------------------------------------------------


def evaluating(form: scripting.Form) -> Handler:
    """Return the handler of EVAL and its like: script numkeys [key ...] [arg ...]."""

    async def evaluate(client: Client, args: list[bytes]) -> Reply:
        if not form.by_hash:
            await scripting.load(client, args[0])
        one = scripting.asked(client, args, form)
        if isinstance(one.script, Script):
            return await holds.run(client, one.script, one.keys, one.args)
        await scripting.turn(client)
        # As one that writes, so that its time is known before the next one begins.
        return await transact(client, scripting.program_of(one))

    return evaluate
