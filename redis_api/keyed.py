"""Commands about keys, as clients send them: their arguments and replies around `holds.py`."""

from collections.abc import Awaitable, Callable
from typing import Final

from redis_api import holds, spelled
from redis_api.arguments import TimeUnit, condition, keys_and_args, set_options, unix_ms
from redis_api.client import Client
from redis_api.errors import CommandRefused, not_supported
from redis_api.resp import OK, Reply, Status

Handler = Callable[[Client, list[bytes]], Awaitable[Reply]]

_NO_KEY: Final = -2
_NO_END: Final = -1
_TRIES_COUNT: Final = 3
"""How often SET NX GET asks again for a lock that was neither free nor held when it looked."""


async def set_(client: Client, args: list[bytes]) -> Reply:
    """SET key value NX [EX s | PX ms | EXAT s | PXAT ms] [GET]."""
    key, value, *rest = args
    options = set_options(rest)
    if not options.gets:
        return OK if await holds.take(client, key, value, options.ttl_ms) else None
    names = [holds.name_of(client, key)]
    for _ in range(_TRIES_COUNT):
        if await holds.take(client, key, value, options.ttl_ms):
            return None
        (found,) = await holds.holders(client, names)
        if found:
            return holds.shown_value(found)
    # Nothing at all would mean that it was taken.
    raise CommandRefused(
        "the lock is not held, but others are before this client, or it is frozen", "TRYAGAIN"
    )


async def setnx(client: Client, args: list[bytes]) -> Reply:
    """SETNX key value."""
    return int(await holds.take(client, args[0], args[1], None))


async def get(client: Client, args: list[bytes]) -> Reply:
    """GET key."""
    (found,) = await holds.holders(client, [holds.name_of(client, args[0])])
    return holds.shown_value(found)


async def mget(client: Client, args: list[bytes]) -> Reply:
    """MGET key [key ...]: all of one moment."""
    found = await holds.holders(client, [holds.name_of(client, key) for key in args])
    return [holds.shown_value(each) for each in found]


async def exists(client: Client, args: list[bytes]) -> Reply:
    """EXISTS key [key ...]."""
    found = await holds.holders(client, [holds.name_of(client, key) for key in args])
    return sum([bool(each) for each in found])


async def type_(client: Client, args: list[bytes]) -> Reply:
    """TYPE key."""
    (found,) = await holds.holders(client, [holds.name_of(client, args[0])])
    return Status("string" if found else "none")


async def token(client: Client, args: list[bytes]) -> Reply:
    """HF.TOKEN key [value]: the fencing token of the holder; with a value only if it has that."""
    (found,) = await holds.holders(client, [holds.name_of(client, args[0])])
    if len(args) > 1:
        found = tuple([hold for hold in found if hold.value == spelled.value_text(args[1])])
    return found[0].token if found else None


async def delete(client: Client, args: list[bytes]) -> Reply:
    """DEL key [key ...]: one after the other."""
    return sum([await holds.delete(client, key) for key in args])


def expiring(unit: TimeUnit) -> Handler:
    """Return the handler of a command that sets a time to live."""

    async def expire(client: Client, args: list[bytes]) -> Reply:
        key, text, *rest = args
        return int(await holds.expire(client, key, unit, text, condition(rest)))

    return expire


def remaining(unit_ms: int, *, is_moment: bool = False) -> Handler:
    """Return the handler of a command that tells the time to live."""

    async def ttl(client: Client, args: list[bytes]) -> Reply:
        (found,) = await holds.holders(client, [holds.name_of(client, args[0])])
        if not found:
            return _NO_KEY
        left_ms = found[0].expires_in_ms
        if left_ms is None:
            return _NO_END
        shown_ms = left_ms + (unix_ms() if is_moment else 0)
        return (shown_ms + unit_ms // 2) // unit_ms

    return ttl


async def persist(client: Client, args: list[bytes]) -> Reply:
    """PERSIST key: a lease cannot be made endless."""
    (found,) = await holds.holders(client, [holds.name_of(client, args[0])])
    if not found or found[0].expires_in_ms is None:
        return 0
    raise not_supported("PERSIST", "the lease of a lock that is held cannot be made endless")


# -- scripts -------------------------------------------------------------------------------------------------


async def eval_(client: Client, args: list[bytes]) -> Reply:
    """EVAL script numkeys [key ...] [arg ...]."""
    _, known = client.face.scripts.load(args[0])
    return await holds.run(client, known, *keys_and_args(args[1:]))


async def evalsha(client: Client, args: list[bytes]) -> Reply:
    """EVALSHA sha1 numkeys [key ...] [arg ...]."""
    known = client.face.scripts.get(args[0])
    if known is None:
        raise CommandRefused("No matching script. Please use EVAL.", "NOSCRIPT")
    return await holds.run(client, known, *keys_and_args(args[1:]))
