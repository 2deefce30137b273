"""Workloads of unmodified libraries for Redis: locks that compete with each other, and clients that look."""

import asyncio
import time
from typing import Any, ClassVar, Final

from lab.chaos.client import Client
from lab.chaos.lab import Lab
from lab.chaos.redis_client import PotteryClient, RedisClient
from lab.chaos.workloads.crowd import Crowd

TTL_MS: Final = 8_000
"""Longer than a node takes to give back what nobody knows of: so it shows whether it does."""
NAMES_COUNT: Final = 3
LOOKERS_COUNT: Final = 2


class RedisPyLocks(Crowd):
    """Locks of redis-py on all nodes, with their tokens; others look over HTTP who has them."""

    name: ClassVar[str] = "redis-py"
    clients: ClassVar[int] = 8
    client: ClassVar[type[Client]] = RedisClient
    think_s: ClassVar[tuple[float, float]] = (0.0, 0.03)

    async def run(self, lab: Lab, until_s: float) -> None:
        """Run those that lock, and those that look."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().run(lab, until_s))
            for number in range(LOOKERS_COUNT):
                tasks.create_task(self._look(lab, self.clients + number, until_s))

    async def _look(self, lab: Lab, number: int, until_s: float) -> None:
        async with Client(lab, self.name, number) as client:
            while time.monotonic() < until_s:
                name = self.lock(client, client.choices.randrange(NAMES_COUNT))
                await client.ask("look", name, f"/v1/locks/{name}", method="GET", patience_s=2.0)
                await client.pause(0.02, 0.06)

    async def turn(self, client: Any, number: int) -> None:
        """Try to take a lock, extend it at times, and give it back."""
        del number
        taken = await client.take(self.lock(client, client.choices.randrange(NAMES_COUNT)), TTL_MS)
        if taken is None:
            return
        await client.pause(0.0, 0.03)
        if client.choices.random() < 0.3:  # noqa: PLR2004 - three in ten
            await client.extend(*taken)
        await client.give_back(*taken)


class PotteryLocks(RedisPyLocks):
    """The same with the Redlock of pottery, whose one server is the cluster."""

    name: ClassVar[str] = "pottery"
    client: ClassVar[type[Client]] = PotteryClient


LIBRARIES: Final[dict[str, type[RedisPyLocks]]] = {each.name: each for each in (RedisPyLocks, PotteryLocks)}
"""The workloads by the library that `--client` names."""
