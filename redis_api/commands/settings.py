"""What clients ask of a server before they trust it: some settings of Redis, and how safe a write is."""

from typing import Final

from redis_api.commands.sentinel import quorum
from redis_api.protocol import globs
from redis_api.protocol.arguments import DATABASES_COUNT, integer
from redis_api.protocol.errors import NEGATIVE, CommandRefused, not_supported, shown, wrong_arity
from redis_api.protocol.resp import COMMAND_BYTES_MAX, Reply
from redis_api.shared.client import Client

_SETTINGS: Final = {
    "appendfsync": "always",
    "appendonly": "yes",
    "cluster-enabled": "no",
    "databases": str(DATABASES_COUNT),
    "maxmemory-policy": "noeviction",
    "notify-keyspace-events": "",
    "proto-max-bulk-len": str(COMMAND_BYTES_MAX),
    "replica-read-only": "no",
    "save": "",
}
"""What is true of a node, in the words of Redis."""


async def config(client: Client, args: list[bytes]) -> Reply:
    """CONFIG GET pattern [pattern ...]."""
    del client
    word, patterns = args[0].upper(), args[1:]
    if word == b"SET" and b"notify-keyspace-events" in [name.lower() for name in patterns]:
        raise not_supported(
            "notify-keyspace-events",
            "no key tells of its end: BLPOP and HF.ACQUIRE wait, SUBSCRIBE hears what clients PUBLISH",
        )
    if word != b"GET":
        raise not_supported(f"CONFIG {shown(word)}", "settings are given when a node is started")
    if not patterns:
        raise wrong_arity("config|get")
    if sum(map(len, patterns)) > globs.BYTES_MAX:
        raise CommandRefused(f"patterns have at most {globs.BYTES_MAX} bytes together")
    asked = [globs.matcher(pattern.lower()) for pattern in patterns]
    return {
        name: value
        for name, value in _SETTINGS.items()
        if any(pattern.fullmatch(name.encode()) for pattern in asked)
    }


async def wait(client: Client, args: list[bytes]) -> Reply:
    """WAIT numreplicas timeout: how many other nodes have every write that was answered, on their disks.

    A write is answered when a majority has it, so there is nothing to wait for, and nothing more to promise.
    """
    if any(integer(arg) < 0 for arg in args):
        raise CommandRefused(NEGATIVE)
    return quorum(client.face.gateway.node.status()) - 1
