"""A client of Server-Sent Events for tests, which reads them as the HTML standard says."""

import asyncio
import json
from typing import Any, NamedTuple, Self

import aiohttp

DEADLINE_S = 30.0


class Told(NamedTuple):
    """An event, and the id that the client remembers with it."""

    id: str
    event: str
    data: dict[str, Any]

    @property
    def what(self) -> tuple[int, str, str, int]:
        """What happened: revision, event, name and token."""
        data = self.data
        return data["revision"], self.event, data["name"], data.get("token", 0)


class EventSource:
    """One connection. `last_id` is what a browser would send as Last-Event-ID to go on."""

    def __init__(self, response: aiohttp.ClientResponse, last_id: str = "") -> None:
        self.response = response
        self.last_id = last_id
        self.told: list[Told] = []
        self.comments: list[str] = []

    @classmethod
    async def open(cls, session: aiohttp.ClientSession, url: str, last_id: str = "", **query: str) -> Self:
        """Connect, and read the id with which the stream begins."""
        headers = {"Last-Event-ID": last_id} if last_id else {}
        response = await session.get(url, params=query, headers=headers)
        assert response.status == 200, await response.text()
        source = cls(response, last_id)
        async with asyncio.timeout(DEADLINE_S):
            assert await source._block() == ("", "")
        assert source.last_id, "a client that is cut now can resume"
        return source

    async def next(self) -> Told | None:
        """Return the next event, None at the end of the stream."""
        async with asyncio.timeout(DEADLINE_S):
            while (block := await self._block()) is not None:
                event, data = block
                if data:
                    self.told.append(Told(self.last_id, event, json.loads(data)))
                    return self.told[-1]
        return None

    async def take(self, count: int) -> list[Told]:
        """Return the next `count` events."""
        found = [await self.next() for _ in range(count)]
        whole = [told for told in found if told is not None]
        assert len(whole) == count, whole
        return whole

    async def id_becomes(self, event_id: str) -> None:
        """Read, events being none of it, until this is the place to resume from."""
        async with asyncio.timeout(DEADLINE_S):
            while self.last_id != event_id:
                assert await self._block() == ("", "")

    def close(self) -> None:
        """Go away."""
        self.response.close()

    async def _line(self) -> str:
        """Return the next line, nothing when the connection ended, in whatever way."""
        try:
            return (await self.response.content.readline()).decode()
        except aiohttp.ClientError:
            return ""

    async def _block(self) -> tuple[str, str] | None:
        """Return event and data of the next block, None when the stream ends before it does."""
        event = data = ""
        event_id = self.last_id
        while line := await self._line():
            field, _, value = line.removesuffix("\n").partition(":")
            value = value.removeprefix(" ")
            match field:
                case "" if line == "\n":
                    self.last_id = event_id
                    return event, data
                case "":
                    self.comments.append(value)
                case "id":
                    event_id = value
                case "event":
                    event = value
                case "data":
                    data = f"{data}\n{value}" if data else value
        return None
