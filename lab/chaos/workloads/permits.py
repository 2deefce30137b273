"""A workload of semaphores."""

from typing import ClassVar, Final

from lab.chaos.client import Client
from lab.chaos.workloads.crowd import Crowd

LIMIT: Final = 4
TTL_MS: Final = 4000
WAIT_MS: Final = 1500


class Permits(Crowd):
    """Clients take one to three of four permits of two semaphores."""

    name: ClassVar[str] = "permits"
    clients: ClassVar[int] = 6

    async def turn(self, client: Client, number: int) -> None:
        """Take permits, hold them for a moment, give them back."""
        del number
        name = self.lock(client, client.choices.randrange(2))
        body = {
            "name": name,
            "owner": client.new_owner(),
            "limit": LIMIT,
            "permits": client.choices.randint(1, 3),
            "ttl_ms": TTL_MS,
            "wait_ms": client.choices.choice([0, WAIT_MS]),
        }
        grant = await client.ask("sem-acquire", name, "/v1/semaphores/acquire", body)
        if not grant.is_ok:
            return
        await client.pause(0.0, 0.03)
        hold = {"hold_id": grant.hold_id}
        if client.choices.randrange(4) == 0:
            await client.ask("sem-renew", name, "/v1/semaphores/renew", hold)
        await client.ask("sem-release", name, "/v1/semaphores/release", hold)
