"""The process with the watchers, as the benchmark in the node's process sees it."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

from lab.loads.line_process import ANSWER_S, LineFailure, LineProcess


class WatchersFailure(LineFailure):
    """The watchers could not begin, or their process ended."""


class WatcherProcess(LineProcess):
    """Watchers in a process of their own."""

    who = "the watchers"
    failure = WatchersFailure

    @classmethod
    @contextlib.asynccontextmanager
    async def of(
        cls, count: int, port: int, prefix: str, transcript: Path, *, is_mute: bool
    ) -> AsyncIterator[Self]:
        """Start `count` watchers of a node's `prefix`, and end them afterwards, whatever happens."""
        arguments = ["--port", str(port), "--count", str(count), "--prefix", prefix]
        arguments += ["--transcript", str(transcript), *(["--mute"] if is_mute else [])]
        async with cls.start("lab.loads.sse_watchers", arguments) as watchers:
            yield watchers

    async def count(self) -> None:
        """Note how much each watcher has got by now."""
        await self.ask("count")

    async def finish(self, revision: int, timeout_s: float) -> dict[str, Any]:
        """Wait until all have got everything up to `revision`, or get nothing more; return the report."""
        return await self.ask(f"finish {revision} {timeout_s}", timeout_s + ANSWER_S)
