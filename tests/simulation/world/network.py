"""The simulated network: hosts, paths between them, and what may happen to connections.

A connection keeps its bytes in order and loses none, as TCP does, until it breaks; how they are cut into
pieces is anybody's guess. Paths delay, are slow, or are cut, each direction by itself. An end that cannot be
told that a connection is over goes on believing in it.
"""

import asyncio
import errno
from collections.abc import Callable
from random import Random
from typing import Any, Final

from tests.simulation.faults.hostile_network import Hostile
from tests.simulation.faults.tampering import Tampering
from tests.simulation.world.endpoint import Endpoint
from tests.simulation.world.event_loop import NodeLoop
from tests.simulation.world.scheduler import Scheduler

REDIS_PORT: Final = 6379
"""The port of all nodes for clients of Redis."""
SYN_RETRY_US: Final = 1_000_000
"""How long a host waits for an answer before it asks again for a connection."""


class Path:
    """One direction between two hosts."""

    def __init__(self) -> None:
        self.is_cut = False
        self.latency_us = 200
        self.jitter_us = 100
        self.late_us = 0
        """Added while the path is slow."""
        self.bytes_per_s = 0
        """0: as fast as one likes."""
        self.tampering: Tampering | None = None
        """Who changes what passes."""

    def delay(self, random: Random) -> int:
        """Return how long the next packet takes."""
        return self.late_us + self.latency_us + (random.randrange(self.jitter_us) if self.jitter_us else 0)


class Listener:
    """A port on which a process accepts connections."""

    def __init__(
        self, network: "Network", loop: NodeLoop, factory: Callable[[], Any], address: tuple[str, int]
    ) -> None:
        self.loop = loop
        self.factory = factory
        self._network = network
        self._address = address

    @property
    def sockets(self) -> "tuple[Listener]":
        """Return itself: there is one address, and `getsockname` says which."""
        return (self,)

    def getsockname(self) -> tuple[str, int]:
        """Return its address."""
        return self._address

    async def start_serving(self) -> None:
        """Accept, as it does from the beginning: nothing can come in between."""

    def close(self) -> None:
        """Accept no more."""
        if self._network.listeners.get(self._address) is self:
            del self._network.listeners[self._address]


class Network:
    """All hosts, paths and connections. Hosts are named as their processes' loops."""

    def __init__(self, scheduler: Scheduler, random: Random) -> None:
        self.scheduler = scheduler
        self.random = random
        self.split_chance = 0.0
        """How often a piece arrives in two."""
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.down: set[str] = set()
        self._hostile: Hostile | None = None
        self.was_ever_hostile = False
        """Connections of such a world are sealed by the network from their beginning to their end."""
        self._paths: dict[tuple[str, str], Path] = {}
        self._ends: dict[int, Endpoint] = {}
        self._ends_made = 0

    @property
    def hostile(self) -> Hostile | None:
        """Who does harm to messages at the moment."""
        return self._hostile

    @hostile.setter
    def hostile(self, hostile: Hostile | None) -> None:
        self._hostile = hostile
        self.was_ever_hostile = self.was_ever_hostile or hostile is not None

    def path(self, source: str, target: str) -> Path:
        """Return one direction between two hosts."""
        found = self._paths.get((source, target))
        if found is None:
            found = self._paths[source, target] = Path()
        return found

    def delay(self, source: str, target: str) -> int:
        """Return how long the next packet takes."""
        return self.path(source, target).delay(self.random)

    # -- connections ----------------------------------------------------------------------------------------

    def listen(self, loop: NodeLoop, factory: Callable[[], Any], address: tuple[str, int]) -> Listener:
        """Accept connections on an address."""
        if address in self.listeners:
            raise OSError(errno.EADDRINUSE, "address already in use")
        listener = self.listeners[address] = Listener(self, loop, factory, address)
        return listener

    async def connect(
        self, loop: NodeLoop, factory: Callable[[], Any], address: tuple[str, int]
    ) -> tuple[Any, Any]:
        """Connect; return transport and protocol. Raises OSError."""
        future: asyncio.Future[Endpoint] = loop.create_future()
        self.scheduler.at(loop.now_us, self._ask, loop, factory, address, future)
        endpoint = await future
        return endpoint, endpoint.protocol

    def _ask(
        self,
        loop: NodeLoop,
        factory: Callable[[], Any],
        address: tuple[str, int],
        future: "asyncio.Future[Endpoint]",
    ) -> None:
        """Send a request to connect, again and again while nobody answers."""
        if future.done() or loop.is_dead:
            return
        source, target = loop.name, address[0]
        if target not in self.down and not self.path(source, target).is_cut:
            asked = (loop, factory, address, future)
            self.scheduler.after(self.delay(source, target), self._answer, *asked)
        self.scheduler.after(SYN_RETRY_US, self._ask, loop, factory, address, future)

    def _answer(
        self,
        loop: NodeLoop,
        factory: Callable[[], Any],
        address: tuple[str, int],
        future: "asyncio.Future[Endpoint]",
    ) -> None:
        """Accept or refuse at the other host."""
        source, target = loop.name, address[0]
        if target in self.down:
            return
        listener = self.listeners.get(address)
        is_answer_lost = self.path(target, source).is_cut
        delay_us = self.delay(target, source)
        if listener is None:
            if not is_answer_lost:
                self.scheduler.after(delay_us, self._refused, loop, future)
            return
        ours, theirs = self._pair(loop, listener.loop)
        ours.is_between_nodes = theirs.is_between_nodes = address[1] != REDIS_PORT
        listener.loop.call_soon(theirs.begin, listener.factory)
        if not is_answer_lost:
            self.scheduler.after(delay_us, self._accepted, loop, factory, ours, future)

    def _refused(self, loop: NodeLoop, future: "asyncio.Future[Endpoint]") -> None:
        if not loop.is_dead:
            loop.call_soon(_fail, future)

    def _accepted(
        self,
        loop: NodeLoop,
        factory: Callable[[], Any],
        endpoint: Endpoint,
        future: "asyncio.Future[Endpoint]",
    ) -> None:
        if loop.is_dead or future.done():
            endpoint.vanish(is_silent=False)
        else:
            loop.call_soon(_begin, endpoint, factory, future)

    def _pair(self, one: NodeLoop, other: NodeLoop) -> tuple[Endpoint, Endpoint]:
        ends = Endpoint(self, one, other.name), Endpoint(self, other, one.name)
        ends[0].other, ends[1].other = ends[1], ends[0]
        for end in ends:
            self._ends_made += 1
            end.number = self._ends_made
            self._ends[end.number] = end
        return ends

    def forget(self, endpoint: Endpoint) -> None:
        """Drop an endpoint that is over."""
        self._ends.pop(endpoint.number, None)

    # -- what happens to them -------------------------------------------------------------------------------

    def between(self, one: str, other: str) -> list[Endpoint]:
        """Return the living endpoints at `one` of connections to `other`."""
        return [end for end in self._ends.values() if end.source == one and end.target == other]

    def cut(self, source: str, target: str) -> None:
        """Let nothing through in one direction; what is on its way still arrives."""
        self.path(source, target).is_cut = True

    def repair(self, source: str, target: str) -> None:
        """Let everything through again: what has piled up comes now."""
        path = self.path(source, target)
        if path.is_cut:
            path.is_cut = False
            for end in self.between(source, target):
                end.pump()

    def process_ended(self, loop: NodeLoop) -> None:
        """Close what a process had open, as its kernel does: peers hear of it if they can."""
        self._drop_listeners(loop)
        for end in [end for end in self._ends.values() if end.loop is loop]:
            end.process_ended()

    def host_lost_power(self, loop: NodeLoop) -> None:
        """Forget all connections of a host without a word; it answers nothing until `host_is_up`."""
        self._drop_listeners(loop)
        self.down.add(loop.name)
        for end in [end for end in self._ends.values() if end.loop is loop]:
            end.vanish(is_silent=True)

    def host_is_up(self, name: str) -> None:
        """Answer again: what comes on connections of the past is refused."""
        self.down.discard(name)

    def _drop_listeners(self, loop: NodeLoop) -> None:
        for address, listener in list(self.listeners.items()):
            if listener.loop is loop:
                del self.listeners[address]


def _fail(future: "asyncio.Future[Endpoint]") -> None:
    if not future.done():
        future.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, "connection refused"))


def _begin(endpoint: Endpoint, factory: Callable[[], Any], future: "asyncio.Future[Endpoint]") -> None:
    if future.done():
        endpoint.vanish(is_silent=False)
        return
    endpoint.begin(factory)
    future.set_result(endpoint)
