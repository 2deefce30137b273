"""A crowd: many requests to one or two nodes at once, so that queues of commands are long and deep.

Nobody of the crowd relies on what it is told: it asks, and the checkers listen.
"""

import asyncio
from random import Random
from typing import Final

import msgspec

from lockstate.words.commands.holds import Release
from lockstate.words.commands.primitives import AdvanceFence
from lockstate.words.ids import NO_SESSION
from lockstate.words.results import Granted
from tests.simulation.workload.any_client import AnyClient
from tests.simulation.workload.call_transport import CallTransport
from tests.simulation.workload.caller import Caller
from tests.simulation.workload.client_commands import RESOURCES, ClientCommands
from tests.simulation.workload.client_settings import ClientSettings
from tests.simulation.workload.history import CheckToken, History, ReadLock
from tests.simulation.world.event_loop import NodeLoop

PAUSES_S: Final = (0.0, 0.002, 0.01, 0.05)
"""Within a burst, at most, after every few requests: one of these for each burst."""
TOGETHER_MAX: Final = (3, 10, 30)
"""Requests that leave at one moment, likewise."""


class CrowdSettings(msgspec.Struct, frozen=True):
    """How large a crowd is, and how often it comes."""

    size: int
    """Requests of one burst."""
    every_s: float
    timeout_s: float
    """What all of it gives a node: reads share a barrier only if their deadlines are close."""
    reads: float
    """The share of reads."""


class Crowd(AnyClient):
    """Bursts of requests from one machine. `is_active` is false while the world wants it to be quiet."""

    def __init__(
        self,
        loop: NodeLoop,
        transport: CallTransport,
        node_ids: list[str],
        history: History,
        *,
        settings: CrowdSettings,
        client_settings: ClientSettings,
        random: Random,
    ) -> None:
        timeout_s = (settings.timeout_s, settings.timeout_s)
        caller = Caller(loop, transport, node_ids, history, timeout_s=timeout_s, random=random)
        super().__init__(loop, caller)
        self._random = random
        self._settings = settings
        self._names = client_settings.names
        self._commands = ClientCommands(loop.name, self.caller, client_settings, random)
        self._token = 0
        self.spawn(self._live())

    async def _live(self) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(1 / self._settings.every_s))
            if self.is_active:
                await self._burst()

    async def _burst(self) -> None:
        """Ask one node or several, within milliseconds or seconds."""
        random, left = self._random, self._settings.size
        pause_s, together_max = random.choice(PAUSES_S), random.choice(TOGETHER_MAX)
        nodes = random.sample(self.caller.node_ids, min(len(self.caller.node_ids), random.choice((1, 2, 3))))
        while left > 0:
            together = min(left, random.randint(1, together_max))
            left -= together
            for _ in range(together):
                self.spawn(self._ask(random.choice(nodes)))
            await asyncio.sleep(random.random() * pause_s)

    async def _ask(self, node_id: str) -> None:
        random = self._random
        dice = random.random()
        if dice < self._settings.reads:
            name = random.choice(self._names)
            query = ReadLock(name) if random.random() < 0.8 else CheckToken(name, max(1, self._token))
            await self.caller.read(query, node_id)
        elif dice < self._settings.reads + (1 - self._settings.reads) / 2:
            token = max(0, self._token - random.choice((0, 0, 3)))
            command = AdvanceFence(random.choice(RESOURCES), token, self.caller.request_id())
            await self.caller.attempt(node_id, command)
        else:
            await self._take_and_give_back(node_id)

    async def _take_and_give_back(self, node_id: str) -> None:
        wish = self._commands.lock([], wait_ms=0)
        wish = msgspec.structs.replace(wish, session_id=NO_SESSION, uncommon=None)
        _, result = await self.caller.attempt(node_id, wish)
        if isinstance(result, Granted):
            self._token = max(self._token, result.token)
            await self.caller.attempt(node_id, Release(result.hold_id, self.caller.request_id()))
