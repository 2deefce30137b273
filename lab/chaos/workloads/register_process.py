"""A client of a guarded register as a process of its own, so that it can be stopped like one.

It is started by the workload of stopped clients with its orders as JSON in the only argument, and writes into
the history of the lab. It goes on after a stop as if no time had passed: that is the danger.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from lab.chaos.client import Client
from lab.chaos.history import HistoryWriter, Operation
from lab.chaos.lab import Lab, now_ns

WORK_S: Final = (0.02, 0.06)
"""How long a client thinks between reading and writing."""


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What such a client is to do."""

    nodes: dict[str, str]
    history: str
    id_base: int
    seed: int
    prefix: str
    workload: str
    number: int
    register_port: int
    is_fenced: bool
    ttl_ms: int
    wait_ms: int
    until_s: float
    """Of time.monotonic(), which all processes of a machine share."""


class RegisterClient:
    """Increments the register under the lock, over and over."""

    def __init__(self, orders: Orders, history: HistoryWriter) -> None:
        self._orders = orders
        self._history = history

    async def run(self) -> None:
        """Work to the end. Raises OSError when the register has gone."""
        orders = self._orders
        lab = Lab(orders.nodes, self._history, seed=orders.seed, prefix=orders.prefix)
        reader, writer = await asyncio.open_connection("127.0.0.1", orders.register_port)
        try:
            async with Client(lab, orders.workload, orders.number) as client:
                while time.monotonic() < orders.until_s:
                    await self._turn(client, reader, writer)
        finally:
            writer.close()

    async def _turn(self, client: Client, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take the lock, read, think, write one more, and give the lock back."""
        orders = self._orders
        name = f"{orders.prefix}/{orders.workload}"
        grant = await client.acquire(name, ttl_ms=orders.ttl_ms, wait_ms=orders.wait_ms)
        if not grant.is_ok:
            return
        fields = {"token": int(grant.body["token"]), "is_fenced": orders.is_fenced}

        async def ask(kind: str, more: dict[str, Any]) -> dict[str, Any] | None:
            call_ns = now_ns()
            writer.write(json.dumps({"kind": kind, "client": orders.number} | fields | more).encode() + b"\n")
            answer: dict[str, Any] = json.loads(await reader.readline())
            is_ok = bool(answer.pop("is_ok"))
            self._history.write(
                Operation(
                    id=self._history.next_id(),
                    client=client.name,
                    workload=client.workload,
                    kind=kind,
                    name=name,
                    call_ns=call_ns,
                    return_ns=now_ns(),
                    outcome="ok" if is_ok else "refused",
                    code="" if is_ok else "stale-token",
                    arguments=fields | more,
                    result=answer,
                )
            )
            return answer if is_ok else None

        answer = await ask("register-read", {})
        if answer is not None:
            base = int(answer["value"])
            await client.pause(*WORK_S)
            await ask("register-write", {"base": base, "value": base + 1})
        await client.release(name, grant.hold_id)


def main(text: str) -> None:
    """Run the client that the orders describe."""
    orders = msgspec.json.decode(text, type=Orders)
    with HistoryWriter(Path(orders.history), id_base=orders.id_base) as history:
        asyncio.run(RegisterClient(orders, history).run())


if __name__ == "__main__":
    main(sys.argv[1])
