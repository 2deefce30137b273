"""A program of ours in a process of its own: lines of text in, lines of JSON out."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Self

ROOT: Final = Path(__file__).resolve().parents[2]
ANSWER_S: Final = 90.0
"""A process that says nothing for longer hangs. It may need that long to begin a thousand watches."""


def environment() -> dict[str, str]:
    """Return the environment of a process that runs a module of this checkout.

    What the caller's interpreter finds by its PYTHONPATH, this one finds as well: the packages of another one
    (lab/measuring/interpreters.py).
    """
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


class LineFailure(OSError):
    """The process could not begin, or it ended."""


class LineProcess:
    """A process that says one line when it is ready, and answers each line that it is told."""

    who: ClassVar[str]
    """What its failures are called by."""
    failure: ClassVar[type[LineFailure]] = LineFailure

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout

    @classmethod
    @contextlib.asynccontextmanager
    async def start(cls, module: str, arguments: Sequence[str]) -> AsyncIterator[Self]:
        """Run a module of this checkout, ready when this yields; it is killed afterwards, whatever happens.

        Raises `failure`.
        """
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", module, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            start_new_session=True,  # what a terminal or supervisor sends to the group is for us alone
        )
        try:
            started = cls(process)
            await started.answer()
            yield started
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    async def ask(self, line: str, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """Tell the process a line and return its answer. Raises `failure`."""
        self._stdin.write(f"{line}\n".encode())
        return await self.answer(timeout_s)

    async def answer(self, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """Return the next line. Raises `failure`."""
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._stdout.readline()
        except TimeoutError:
            raise self.failure(f"{self.who}' process said nothing for {timeout_s:.0f} s") from None
        answer: dict[str, Any] = json.loads(line) if line else {"error": "their process ended"}
        if "error" in answer:
            raise self.failure(f"{self.who}: {answer['error']}")
        return answer


def say(value: dict[str, Any]) -> None:
    """In the process: answer."""
    print(json.dumps(value), flush=True)


async def commands() -> asyncio.StreamReader:
    """In the process: return what comes on standard input."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    return reader
