"""A workload of requests that are sent to two nodes under one `request_id`."""

import asyncio
import secrets
import time
from typing import ClassVar, Final

from lab.chaos.client import Client, Reply
from lab.chaos.history import public_id
from lab.chaos.lab import Lab, Workload

TTL_MS: Final = 3000


class Repeats(Workload):
    """Two clients send the same request to two nodes, at once or one after the other: one outcome."""

    name: ClassVar[str] = "repeats"
    pairs: ClassVar[int] = 3

    async def run(self, lab: Lab, until_s: float) -> None:
        """Run all pairs."""
        async with asyncio.TaskGroup() as tasks:
            for pair in range(lab.clients(self.pairs)):
                tasks.create_task(self._pair(lab, pair, until_s))

    async def _pair(self, lab: Lab, pair: int, until_s: float) -> None:
        nodes = sorted(lab.nodes)
        one_node, other_node = nodes[pair % len(nodes)], nodes[(pair + 1) % len(nodes)]
        async with (
            Client(lab, self.name, 2 * pair, node=one_node) as one,
            Client(lab, self.name, 2 * pair + 1, node=other_node) as other,
        ):
            while time.monotonic() < until_s:
                await self._round(lab, one, other)
                await one.pause(0.02, 0.08)

    async def _round(self, lab: Lab, one: Client, other: Client) -> None:
        """Ask twice, and release what was granted."""
        name = f"{lab.prefix}/{self.name}/{one.choices.randrange(2)}"
        request_id = secrets.token_hex(12)
        body = {"name": name, "owner": one.new_owner(), "ttl_ms": TTL_MS, "request_id": request_id}

        async def ask(client: Client) -> Reply:
            keep = {"request": public_id(request_id)}
            return await client.ask("acquire", name, "/v1/locks/acquire", body, keep=keep)

        if one.choices.randrange(2):
            replies = list(await asyncio.gather(ask(one), ask(other)))
        else:
            replies = [await ask(one), await ask(other)]
        for reply in replies:
            if reply.is_ok:
                await other.release(name, reply.hold_id)
                return
