"""A workload of watches: each event once, in order, across reconnects to any node."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any, ClassVar, Final

import aiohttp

from lab.chaos.client import Client
from lab.chaos.history import Operation, Outcome
from lab.chaos.lab import Lab, now_ns
from lab.chaos.workloads.crowd import Crowd

TTL_MS: Final = 3000
SILENCE_S: Final = 12.0
"""A heartbeat comes every ten seconds: a watch that hears nothing for longer goes to another node."""
CONNECT_S: Final = 3.0
GONE: Final = 410
FIELDS: Final = ("revision", "event", "kind", "name", "owner", "token", "mode")


class Watching(Crowd):
    """Two clients watch what others do to a few locks; they lose their connection now and then."""

    name: ClassVar[str] = "watch"
    clients: ClassVar[int] = 3
    watchers: ClassVar[int] = 2

    async def run(self, lab: Lab, until_s: float) -> None:
        """Run writers and watchers; the watchers go on for a moment, to hear the last events."""
        watchers = [
            asyncio.create_task(Watcher(lab, self.name, number).run()) for number in range(self.watchers)
        ]
        try:
            await super().run(lab, until_s)
            await asyncio.wait(watchers, timeout=1.0)
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)

    async def turn(self, client: Client, number: int) -> None:
        """Acquire and release; sometimes forget to."""
        del number
        name = self.lock(client, client.choices.randrange(3))
        grant = await client.acquire(name, ttl_ms=TTL_MS, wait_ms=client.choices.choice([0, 1000]))
        if grant.is_ok and client.choices.randrange(10) > 0:
            await client.release(name, grant.hold_id)


class Watcher:
    """Reads the events of one prefix, and connects again with the last id, for ever."""

    def __init__(self, lab: Lab, workload: str, number: int) -> None:
        self._lab = lab
        self._workload = workload
        self._prefix = f"{lab.prefix}/{workload}/"
        self._name = f"{workload}-watcher-{number}"
        self._choices = lab.random(workload, "watcher", number)
        self._turn = number
        self._last_id = ""
        self._segment = 0
        self._index = 0

    async def run(self) -> None:
        """Watch until cancelled. Raises nothing that the world does."""
        async with self._lab.open_session() as session:
            while True:
                call_ns = now_ns()
                try:
                    await self._watch(session)
                except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                    # ValueError: half an event, of a node that was killed while it wrote.
                    self._record("watch-end", call_ns, "unknown", code=type(error).__name__)
                self._turn += 1
                await asyncio.sleep(0.1)

    async def _watch(self, session: aiohttp.ClientSession) -> None:
        """Read one connection to its end, or for some seconds."""
        call_ns = now_ns()
        nodes = sorted(self._lab.nodes)
        node = nodes[self._turn % len(nodes)]
        headers = {"Last-Event-ID": self._last_id} if self._last_id else {}
        async with asyncio.timeout(CONNECT_S):
            response = await session.get(
                f"{self._lab.nodes[node]}/v1/watch", params={"prefix": self._prefix}, headers=headers
            )
        async with response:
            if response.status == GONE:
                self._last_id = ""
                self._segment += 1
            outcome: Outcome = "ok" if response.ok else "refused"
            self._record("watch-connect", call_ns, outcome, code=str(response.status), node=node)
            if not response.ok:
                return
            until_s = time.monotonic() + self._choices.uniform(1.0, 8.0)
            async for event_id, event, data in events(response):
                self._last_id = event_id or self._last_id
                if event and event != "cut":
                    self._heard(data, node)
                if event == "cut" or time.monotonic() > until_s:
                    return

    def _heard(self, data: dict[str, Any], node: str) -> None:
        self._index += 1
        result = {key: data[key] for key in FIELDS if key in data} | {"index": self._index}
        self._record("watch-event", now_ns(), "ok", node=node, result=result)

    def _record(
        self,
        kind: str,
        call_ns: int,
        outcome: Outcome,
        *,
        code: str = "",
        node: str = "",
        result: dict[str, Any] | None = None,
    ) -> None:
        history = self._lab.history
        history.write(
            Operation(
                id=history.next_id(),
                client=self._name,
                workload=self._workload,
                kind=kind,
                name=self._prefix,
                call_ns=call_ns,
                return_ns=now_ns(),
                outcome=outcome,
                node=node,
                code=code,
                arguments={"segment": self._segment},
                result=result or {},
            )
        )


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, str, dict[str, Any]]]:
    """Yield (id, event, data) of each block of a stream of server-sent events. Raises TimeoutError."""
    event_id, event, data = "", "", "{}"
    while True:
        async with asyncio.timeout(SILENCE_S):
            line = (await response.content.readline()).decode()
        if not line:
            return
        key, _, value = line.rstrip("\n").partition(": ")
        match key:
            case "id":
                event_id = value
            case "event":
                event = value
            case "data":
                data = value
            case "":
                yield event_id, event, json.loads(data)
                event_id, event, data = "", "", "{}"
            case _:
                pass  # a comment
