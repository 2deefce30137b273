"""A workload of rate limits."""

from typing import ClassVar, Final

from lab.chaos.client import Client
from lab.chaos.workloads.crowd import Crowd

ALGORITHMS: Final = ("fixed-window", "sliding-window", "gcra")
LIMIT: Final = 20
WINDOW_MS: Final = 1000


class RateWindows(Crowd):
    """Clients take from three limits, one of each algorithm, more often than they allow."""

    name: ClassVar[str] = "rates"
    clients: ClassVar[int] = 6

    async def turn(self, client: Client, number: int) -> None:
        """Take one or two, at once or with a place in the queue."""
        algorithm = ALGORITHMS[number // 2 % len(ALGORITHMS)]
        name = self.lock(client, algorithm)
        body = {
            "name": name,
            "limit": LIMIT,
            "window_ms": WINDOW_MS,
            "algorithm": algorithm,
            "cost": client.choices.randint(1, 2),
            "wait_ms": client.choices.choice([0, 0, 0, 500]),
        }
        await client.ask("take", name, "/v1/rate-limits/take", body)
