"""Channels: messages of clients to those that listen at that moment. Nothing of it is in the log.

A channel belongs to a database, and has the name that a key would have: rights are those of that name.
"""

import asyncio
import math
import socket
from typing import Final

from holdfast.token_lines import Right
from lockapi import needs, rights_needed
from lockstate.words.limits import LIST_LIMIT_MAX
from redis_api.commands.holds import name_of
from redis_api.commands.scanning import KEYS_COUNT_MAX
from redis_api.protocol import globs, spelled
from redis_api.protocol.errors import CommandRefused, not_supported, shown, wrong_arity
from redis_api.protocol.resp import Push, Reply, Several
from redis_api.shared.client import Client

COUNT_MAX: Final = 1_024
"""Channels and patterns together to which one connection may listen."""
_PROBES: Final = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
"""How the kernel finds out that a client is gone which says nothing: within two minutes."""


async def publish(client: Client, args: list[bytes]) -> Reply:
    """PUBLISH channel message: how many clients of this node were told."""
    channel, message = args
    return client.gateway.publish(name_of(client, channel), message)


async def subscribe(client: Client, args: list[bytes]) -> Reply:
    """SUBSCRIBE channel [channel ...]."""
    listening, names = client.listening, [name_of(client, channel) for channel in args]
    for name in names:
        rights_needed.check_name(client.gateway.rights, Right.READ, name)
    _check_room(client, len({*names} - listening.channels.keys()))
    _hear(client)
    replies: list[Reply] = []
    for name, channel in zip(names, args, strict=True):
        listening.begin(name, channel)
        replies.append(Push([b"subscribe", channel, listening.count]))
    return Several(replies)


async def psubscribe(client: Client, args: list[bytes]) -> Reply:
    """PSUBSCRIBE pattern [pattern ...]: told is only what the client may read."""
    needs.READ.check(client.gateway.rights)
    for pattern in args:
        globs.check_length(pattern)
    listening, database = client.listening, client.database
    new = [pattern for pattern in {*args} if (database, pattern) not in listening.patterns]
    _check_room(client, len(new))
    client.count_more(max(len(new) - 1, 0))
    compiled = {}
    for pattern in new:
        compiled[pattern] = globs.matcher(pattern)
        await asyncio.sleep(0)  # all of them may take long
    if client.is_gone:
        return Several([])
    if not client.face.listeners.has_room_for(database, new):
        raise CommandRefused("clients of this node listen to too many different patterns", "TRYAGAIN")
    _hear(client)
    replies: list[Reply] = []
    for pattern in args:
        listening.begin_pattern(database, pattern, compiled.get(pattern))
        replies.append(Push([b"psubscribe", pattern, listening.count]))
    return Several(replies)


async def unsubscribe(client: Client, args: list[bytes]) -> Reply:
    """UNSUBSCRIBE [channel ...]: all of them if none is named."""
    listening = client.listening
    named = [(name_of(client, channel), channel) for channel in args]
    replies: list[Reply] = []
    for name, channel in named or [*listening.channels.items()]:
        listening.end(name)
        replies.append(Push([b"unsubscribe", channel, listening.count]))
    return Several(replies or [Push([b"unsubscribe", None, listening.count])])


async def punsubscribe(client: Client, args: list[bytes]) -> Reply:
    """PUNSUBSCRIBE [pattern ...]: all of them if none is named."""
    listening = client.listening
    named = [(client.database, pattern) for pattern in args]
    replies: list[Reply] = []
    for database, pattern in named or [*listening.patterns]:
        listening.end_pattern(database, pattern)
        replies.append(Push([b"punsubscribe", pattern, listening.count]))
    return Several(replies or [Push([b"punsubscribe", None, listening.count])])


def _check_room(client: Client, more_count: int) -> None:
    if client.listening.count + more_count > COUNT_MAX:
        raise CommandRefused(f"a connection listens to at most {COUNT_MAX} channels and patterns")


def _hear(client: Client) -> None:
    """Hear what is published, and find out when a client is gone that says nothing any more."""
    client.face.gateway.node.channels.listen(client.face.listeners.told)
    connected = client.transport.get_extra_info("socket")
    if connected is not None and not client.listening.count:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _PROBES:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


# -- PUBSUB --------------------------------------------------------------------------------------------------


async def pubsub(client: Client, args: list[bytes]) -> Reply:
    """PUBSUB CHANNELS | NUMSUB | NUMPAT: of this node, and of the channels of the database."""
    word, rest = args[0].upper(), args[1:]
    listeners, rights = client.face.listeners, client.gateway.rights
    if word == b"CHANNELS" and len(rest) <= 1:
        return [*await _listened_to(client, rest[0] if rest else b"*")]
    if word == b"NUMSUB":
        counts: list[Reply] = []
        for channel in rest:
            name = name_of(client, channel)
            rights_needed.check_name(rights, Right.READ, name)
            counts += [channel, len(listeners.of_names.get(name, ()))]
        return counts
    if word == b"NUMPAT" and not rest:
        return len(listeners.of_patterns)
    if word in (b"CHANNELS", b"NUMPAT"):
        raise wrong_arity(f"pubsub|{word.decode()}")
    raise not_supported(f"PUBSUB {shown(word)}")


async def _listened_to(client: Client, pattern: bytes) -> list[bytes]:
    """Return the channels that match; each page of those of the node after the first counts as a request.

    There may be a thousand of each connection, so others have their turn between two pages. Raises
    CommandRefused.
    """
    globs.check_length(pattern)
    matcher, rights, database = globs.matcher(pattern), client.gateway.rights, client.database
    names = [*client.face.listeners.of_names]
    client.count_more(max(math.ceil(len(names) / LIST_LIMIT_MAX) - 1, 0))
    found: list[bytes] = []
    for place, name in enumerate(names, 1):
        channel = spelled.key_of(database, name) if rights.covers(Right.READ, name) else None
        if channel is not None and matcher.fullmatch(channel):
            found.append(channel)
        if not place % LIST_LIMIT_MAX:
            await asyncio.sleep(0)
            if len(found) > KEYS_COUNT_MAX:
                raise CommandRefused(f"more than {KEYS_COUNT_MAX} channels match: give a pattern for fewer")
    return found
