"""The process with many clients in the background, as a benchmark sees it."""

import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from lab.loads.line_process import LineFailure, LineProcess


class CrowdFailure(LineFailure):
    """The clients could not begin, or their process ended."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the clients did so far."""

    done: int
    """Answers, cycles, keepalives or events: whatever they are there for."""
    errors_count: int
    errors: list[str]
    present: int
    """How many clients are still at work."""


class CrowdProcess(LineProcess):
    """Clients in a process of their own."""

    who = "the clients in the background"
    failure = CrowdFailure

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, urls: Sequence[str], kind: str, clients: int, **options: Any) -> AsyncIterator[Self]:
        """Start clients of the nodes at `urls`, all at work when this yields; they are gone afterwards.

        `kind` and `options` are those of lab/loads/crowd.py. Raises CrowdFailure.
        """
        nodes = ",".join(urlsplit(url).netloc for url in urls)
        told = json.dumps({"kind": kind, "clients": clients, **options})
        async with cls.start("lab.loads.crowd", ["--nodes", nodes, "--options", told]) as crowd:
            yield crowd

    async def count(self) -> Report:
        """Return what was done so far."""
        return msgspec.convert(await self.ask("count"), Report)

    async def finish(self) -> Report:
        """End the work in good order, and return what was done."""
        return msgspec.convert(await self.ask("finish"), Report)
