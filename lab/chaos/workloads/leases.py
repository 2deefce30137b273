"""Workloads of leases: some are left to end while others wait, some are kept for the whole run."""

import asyncio
import time
from typing import ClassVar, Final

from lab.chaos.client import Client
from lab.chaos.lab import Lab, Workload
from lab.chaos.workloads.crowd import Crowd

SHORT_MS: Final = 800
WAIT_MS: Final = 4000
KEEP_MS: Final = 3_600_000


class LeftToExpire(Crowd):
    """Clients do not release what they hold: the next one waits for the end of the lease.

    Some renew once, some when it is too late. The next holder is late by what the cluster needs.
    """

    name: ClassVar[str] = "leases"
    clients: ClassVar[int] = 4

    async def turn(self, client: Client, number: int) -> None:
        """Wait for a lock and forget it."""
        name = self.lock(client, number % 2)
        grant = await client.acquire(name, ttl_ms=SHORT_MS, wait_ms=WAIT_MS)
        if grant.is_ok and client.choices.randrange(3) == 0:
            await client.pause(0.0, 1.5 * SHORT_MS / 1000)
            await client.renew(name, grant.hold_id)


class Ledger(Crowd):
    """Clients take holds that outlast the run, and give some of them back: the end shows what was kept."""

    name: ClassVar[str] = "ledger"
    clients: ClassVar[int] = 2
    think_s: ClassVar[tuple[float, float]] = (0.1, 0.3)
    kept_max: ClassVar[int] = 500

    def __init__(self) -> None:
        self._count = 0
        self._kept: list[tuple[str, str]] = []

    async def turn(self, client: Client, number: int) -> None:
        """Take one more, or give one back."""
        is_full = len(self._kept) >= self.kept_max
        if self._kept and (is_full or client.choices.randrange(4) == 0):
            await client.release(*self._kept.pop(client.choices.randrange(len(self._kept))))
            return
        self._count += 1
        name = self.lock(client, number, self._count)
        grant = await client.acquire(name, ttl_ms=KEEP_MS)
        if grant.is_ok:
            self._kept.append((name, grant.hold_id))


class QueueOrder(Workload):
    """One client holds a lock, others join its queue one by one, and all are served in that order."""

    name: ClassVar[str] = "queue"
    waiters: ClassVar[int] = 4

    async def run(self, lab: Lab, until_s: float) -> None:
        """Repeat rounds of one queue."""
        nodes = sorted(lab.nodes)
        async with Client(lab, self.name, 0) as holder:
            others = [Client(lab, self.name, 1 + n, node=nodes[n % len(nodes)]) for n in range(self.waiters)]
            try:
                while time.monotonic() < until_s:
                    await self._round(lab, holder, others)
                    await holder.pause(0.05, 0.1)
            finally:
                for other in others:
                    await other.__aexit__(None, None, None)

    async def _round(self, lab: Lab, holder: Client, others: list[Client]) -> None:
        """Let each waiter join when the one before is seen in the queue; then let all through."""
        name = f"{lab.prefix}/{self.name}/{holder.new_owner()}"
        grant = await holder.acquire(name, ttl_ms=10_000)
        if not grant.is_ok:
            return
        async with asyncio.TaskGroup() as tasks:
            for other in others:
                owner = other.new_owner()
                wait = tasks.create_task(self._wait(other, name, owner))
                await self._until_queued(holder, name, owner, wait)
            await holder.release(name, grant.hold_id)

    async def _wait(self, client: Client, name: str, owner: str) -> None:
        grant = await client.acquire(name, owner=owner, ttl_ms=3000, wait_ms=6000, patience_s=0.0)
        if grant.is_ok:
            await client.release(name, grant.hold_id)

    async def _until_queued(self, holder: Client, name: str, owner: str, wait: asyncio.Task[None]) -> None:
        """Read the queue until `owner` is in it, for a while: with a node that is gone it never comes."""
        deadline_s = time.monotonic() + 1.5
        while not wait.done() and time.monotonic() < deadline_s:
            view = await holder.ask("queue", name, f"/v1/locks/{name}", method="GET", patience_s=1.0)
            if view.is_ok and owner in [item["owner"] for item in view.body["queue"]]:
                return
            await holder.pause(0.005, 0.02)
