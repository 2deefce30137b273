"""Workloads of plain locks: one holder at a time, the same holder again, shared and exclusive."""

from typing import Any, ClassVar, Final

from lab.chaos.client import Client
from lab.chaos.stream_client import StreamClient
from lab.chaos.workloads.crowd import Crowd

TTL_MS: Final = 4000
WAIT_MS: Final = 1500
MODES: Final = ("shared", "shared", "concurrent-read", "concurrent-write", "update", "exclusive")


class Mutex(Crowd):
    """Clients compete for three names, wait or try, renew at times, and release."""

    name: ClassVar[str] = "mutex"
    clients: ClassVar[int] = 6

    async def turn(self, client: Client, number: int) -> None:
        """Acquire, hold for a moment, release."""
        del number
        name = self.lock(client, client.choices.randrange(3))
        wait_ms = client.choices.choice([0, WAIT_MS])
        grant = await client.acquire(name, ttl_ms=TTL_MS, wait_ms=wait_ms)
        if not grant.is_ok:
            return
        await client.pause(0.0, 0.03)
        if client.choices.random() < 0.2:  # noqa: PLR2004 - one in five
            await client.renew(name, grant.hold_id)
        await client.release(name, grant.hold_id)


class StreamMutex(Mutex):
    """The same over streams."""

    name: ClassVar[str] = "stream"
    client: ClassVar[type[Client]] = StreamClient
    clients: ClassVar[int] = 4


class SharedExclusive(Crowd):
    """Readers and writers of two names, in all modes."""

    name: ClassVar[str] = "shared"
    clients: ClassVar[int] = 6

    async def turn(self, client: Client, number: int) -> None:
        """Acquire in some mode, hold for a moment, release."""
        del number
        name = self.lock(client, client.choices.randrange(2))
        mode = client.choices.choice(MODES)
        wait_ms = client.choices.choice([0, WAIT_MS])
        grant = await client.acquire(name, ttl_ms=TTL_MS, wait_ms=wait_ms, mode=mode)
        if grant.is_ok:
            await client.pause(0.0, 0.03)
            await client.release(name, grant.hold_id)


class Reentrant(Crowd):
    """Clients with sessions that acquire what they hold already: the same hold, the same token."""

    name: ClassVar[str] = "reentrant"
    clients: ClassVar[int] = 4

    async def turn(self, client: Client, number: int) -> None:
        """Open a session, acquire a name several times, release it once; then close the session."""
        opened = await client.ask("session-open", client.name, "/v1/sessions", {"ttl_ms": TTL_MS})
        if not opened.is_ok:
            return
        session_id = str(opened.body["session_id"])
        name = self.lock(client, number % 2)
        fields: dict[str, Any] = {"session_id": session_id, "owner": client.new_owner()}
        grant = await client.acquire(name, wait_ms=WAIT_MS, **fields)
        if grant.is_ok:
            for _ in range(client.choices.randrange(3)):
                await client.acquire(name, wait_ms=0, **fields)
            if client.choices.random() < 0.7:  # noqa: PLR2004 - else the end of the session releases it
                await client.release(name, grant.hold_id)
        path = f"/v1/sessions/{session_id}"
        session = str(grant.operation.arguments["session"])
        await client.ask("session-close", client.name, path, method="DELETE", keep={"session": session})
