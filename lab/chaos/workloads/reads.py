"""A workload of reads: what was answered before must be seen on every node."""

from typing import ClassVar, Final

from lab.chaos.client import Client
from lab.chaos.workloads.crowd import Crowd

TTL_MS: Final = 4000


class Reads(Crowd):
    """Some clients take and release two locks, others look who has them, each at a node of its own."""

    name: ClassVar[str] = "reads"
    clients: ClassVar[int] = 6
    think_s: ClassVar[tuple[float, float]] = (0.0, 0.02)

    async def turn(self, client: Client, number: int) -> None:
        """Look, or hold for a moment: those that are bound to a node look."""
        name = self.lock(client, client.choices.randrange(2))
        if client.node:
            await client.ask("look", name, f"/v1/locks/{name}", method="GET", patience_s=2.0)
            return
        del number
        grant = await client.acquire(name, ttl_ms=TTL_MS)
        if grant.is_ok:
            await client.pause(0.0, 0.02)
            await client.release(name, grant.hold_id)
