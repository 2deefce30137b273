"""A workload of sessions: kept alive, closed, or left to end with all that they hold."""

from typing import Any, ClassVar, Final

from lab.chaos.client import Client
from lab.chaos.workloads.crowd import Crowd

TTL_MS: Final = 1500


class Sessions(Crowd):
    """Each client opens a session, holds two locks, keeps it alive for a while, and ends it in some way."""

    name: ClassVar[str] = "sessions"
    clients: ClassVar[int] = 8

    async def turn(self, client: Client, number: int) -> None:
        """Live through one session."""
        opened = await client.ask("session-open", client.name, "/v1/sessions", {"ttl_ms": TTL_MS})
        if not opened.is_ok:
            return
        session_id = str(opened.body["session_id"])
        keep = {"session": opened.operation.result["session"]}
        for part in range(2):
            fields: dict[str, Any] = {"session_id": session_id, "wait_ms": 1000}
            await client.acquire(self.lock(client, (number + part) % 5), **fields)
        path = f"/v1/sessions/{session_id}"
        for _ in range(client.choices.randrange(4)):
            await client.pause(0.05, 0.3)
            alive = await client.ask("session-keepalive", client.name, f"{path}/keepalive", keep=keep)
            if not alive.is_ok:
                return
        if client.choices.randrange(4) > 0:  # else it ends by itself
            await client.ask("session-close", client.name, path, method="DELETE", keep=keep)
