"""The process with the watchers, as the benchmark in the node's process sees it."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
ANSWER_S: Final = 90.0
"""A process that says nothing for longer hangs. It may need that long to begin a thousand watches."""


class WatchersFailure(OSError):
    """The watchers could not begin, or their process ended."""


class WatcherProcess:
    """Watchers in a process of their own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout

    @classmethod
    @contextlib.asynccontextmanager
    async def of(
        cls, count: int, port: int, prefix: str, transcript: Path, *, is_mute: bool
    ) -> AsyncIterator["WatcherProcess"]:
        """Start `count` watchers of a node's `prefix`, and end them afterwards, whatever happens."""
        command = [sys.executable, "-P", "-m", "scripts.lib.sse_watchers"]
        command += ["--port", str(port), "--count", str(count), "--prefix", prefix]
        command += ["--transcript", str(transcript), *(["--mute"] if is_mute else [])]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,  # what a terminal or supervisor sends to the group is for us alone
        )
        try:
            watchers = cls(process)
            await watchers._answer(ANSWER_S)
            yield watchers
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def count(self) -> None:
        """Note how much each watcher has got by now."""
        self._stdin.write(b"count\n")
        await self._answer(ANSWER_S)

    async def finish(self, revision: int, timeout_s: float) -> dict[str, Any]:
        """Wait until all have got everything up to `revision`, or get nothing more; return the report."""
        self._stdin.write(f"finish {revision} {timeout_s}\n".encode())
        return await self._answer(timeout_s + ANSWER_S)

    async def _answer(self, timeout_s: float) -> dict[str, Any]:
        """Return the next line. Raises WatchersFailure."""
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._stdout.readline()
        except TimeoutError:
            raise WatchersFailure(f"the watchers' process said nothing for {timeout_s:.0f} s") from None
        answer: dict[str, Any] = json.loads(line) if line else {"error": "their process ended"}
        if "error" in answer:
            raise WatchersFailure(f"the watchers: {answer['error']}")
        return answer
