"""The Redis face of a node: its connections, what they share, and their end."""

import asyncio
from collections.abc import Callable, Iterable
from itertools import count

from cluster.observing.samples import Sample, counter, gauge
from redis_api.connection import Commands, RedisConnection
from redis_api.shared.client import Face
from redis_api.shared.doors import Place, Room


class RedisServer:
    """Makes connections, and ends them."""

    def __init__(
        self, face: Face, room: Room, commands: Commands, watch: Callable[[], None] = lambda: None
    ) -> None:
        """Carry out `commands`.

        `watch` is called for each connection: quiet ones are looked after as long as there are any.
        """
        self.face, self._room, self._commands, self._watch = face, room, commands, watch
        self._connections: set[RedisConnection] = set()
        self._numbers = count(1)

    def make(self, place: Place | None = None) -> RedisConnection:
        """Make the protocol of a new connection, which has its `place` already if that began with TLS."""
        self._watch()
        return RedisConnection(
            *(self.face, self._room, self._commands, self._connections),
            place=place,
            number=next(self._numbers),
        )

    async def stop(self, seconds: float) -> None:
        """End all connections: commands that have begun are answered, if that takes no longer than this."""
        draining = [asyncio.ensure_future(one.drain()) for one in self._connections]
        if draining:
            _, late = await asyncio.wait(draining, timeout=seconds)
            for each in late:
                each.cancel()
        for one in [*self._connections]:
            one.end()

    def samples(self) -> Iterable[Sample]:
        """Yield what has been counted."""
        face = self.face
        yield gauge("redis_connections", "Connections of clients of Redis.", face.clients_count)
        yield gauge("redis_waiting", "Clients of Redis that wait for a list.", face.waits.count)
        text = "Commands of clients of Redis, by name."
        for name, number in sorted(face.commands.items()):
            yield counter("redis_commands_total", text, number, command=name)
        text = "Commands of clients of Redis that were answered with an error, by its first word."
        for code, number in sorted(face.errors.items()):
            yield counter("redis_errors_total", text, number, code=code)
        yield gauge(
            "redis_channels", "Channels that clients of Redis listen to.", len(face.listeners.of_names)
        )
        text = "Messages on channels that clients of Redis were told."
        yield counter("redis_messages_total", text, face.listeners.told_count)
        text = "Locks whose client had not heard of its grant, by what became of them."
        for what, number in (
            ("adopted", face.left.adopted_count),
            ("given-back", face.left.given_back_count),
        ):
            yield counter("redis_left_grants_total", text, number, end=what)
