"""A workload of several clients that all do the same, over and over."""

import asyncio
import time
from abc import abstractmethod
from typing import ClassVar

from lab.chaos.client import Client
from lab.chaos.lab import Lab, Workload


class Crowd(Workload):
    """Runs `clients` clients, each in a loop of `turn`. Every second one is bound to a node."""

    client: ClassVar[type[Client]] = Client
    clients: ClassVar[int] = 4
    think_s: ClassVar[tuple[float, float]] = (0.01, 0.05)
    """The pause after each turn: from, to."""

    async def run(self, lab: Lab, until_s: float) -> None:
        """Run all clients to the end of the last turn of each."""
        nodes = sorted(lab.nodes)
        async with asyncio.TaskGroup() as tasks:
            for number in range(lab.clients(self.clients)):
                node = nodes[number // 2 % len(nodes)] if number % 2 == 0 else ""
                tasks.create_task(self._client(lab, number, node, until_s))

    async def _client(self, lab: Lab, number: int, node: str, until_s: float) -> None:
        async with self.client(lab, self.name, number, node=node) as client:
            while time.monotonic() < until_s:
                await self.turn(client, number)
                await client.pause(*self.think_s)

    @abstractmethod
    async def turn(self, client: Client, number: int) -> None:
        """Do once what this workload is about."""

    def lock(self, client: Client, *parts: str | int) -> str:
        """Return a name of this workload."""
        return "/".join([client.lab.prefix, self.name, *map(str, parts)])
