"""A workload that shows when nobody is served: clients bound to each node beside some that may ask all."""

import asyncio
import time
from typing import ClassVar, Final

from lab.chaos.client import Client
from lab.chaos.lab import Lab, Workload

TTL_MS: Final = 5000
HOME_S: Final = 1.0
"""How often a client that may ask any node goes back to its first one. Otherwise all of them would meet at
one node after a few faults, and wait together when that is the next to stand still."""


class Reach(Workload):
    """Each client acquires and releases a lock of its own, again and again."""

    name: ClassVar[str] = "reach"
    roaming: ClassVar[int] = 3

    async def run(self, lab: Lab, until_s: float) -> None:
        """Run a client for each node, and some that go on to the next."""
        places = [*sorted(lab.nodes), *[""] * self.roaming]
        async with asyncio.TaskGroup() as tasks:
            for number, node in enumerate(places):
                tasks.create_task(self._client(lab, number, node, until_s))

    async def _client(self, lab: Lab, number: int, node: str, until_s: float) -> None:
        name = f"{lab.prefix}/{self.name}/{number}"
        async with Client(lab, self.name, number, node=node) as client:
            home_s = time.monotonic()
            while time.monotonic() < until_s:
                if time.monotonic() > home_s + HOME_S:
                    client.go_home()
                    home_s = time.monotonic()
                grant = await client.acquire(name, ttl_ms=TTL_MS)
                if grant.is_ok:
                    await client.release(name, grant.hold_id)
                await client.pause(0.005, 0.015)
