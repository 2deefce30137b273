"""A process with many watchers of one node: what they got, and whether all got the same.

Started by watcher_process.py, which it talks to in lines: commands on standard input, answers as JSON on
standard output. It ends with its standard input.

    -> {"watching": N} once all watch
    <- count           note how much each has got by now
    -> {"counts": N}
    <- finish R S      wait until all have the events up to revision R, at most S seconds
    -> the report; the transcript is in its file then, and the process ends
"""

import argparse
import asyncio
import socket
import sys
import time
from bisect import bisect_right
from collections import Counter
from pathlib import Path
from typing import Any, Final, cast

import uvloop

from lab.loads.line_process import commands, say
from lab.loads.transcript import Reader, Transcript, check_marks, shown
from lab.measuring.open_files import raise_limit

CONNECTING_MAX: Final = 100
BEGIN_S: Final = 60.0
LOOK_S: Final = 0.02
NEWEST_BYTES: Final = 100_000
"""Among so many the last event is to be found."""
MUTE_BUFFER_BYTES: Final = 4096
"""Receive buffer in bytes of watchers that read nothing: the kernel should take little for them."""
_END_OF_HEAD: Final = b"\r\n\r\n"


class WatchError(Exception):
    """The watchers could not begin."""


class Watcher(asyncio.Protocol):
    """One connection. A mute one stops reading as soon as its watch has begun."""

    def __init__(self, transcript: Transcript, path: str, host: str, *, is_mute: bool) -> None:
        self.reader = Reader(transcript)
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_lost = False
        self._request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        self._head: bytes | None = b""
        self._is_mute = is_mute
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the events."""
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Take a piece of the stream."""
        if self._head is not None:
            self._head += data
            head, end, data = self._head.partition(_END_OF_HEAD)
            if not end:
                return
            self._head = None
            if not head.startswith(b"HTTP/1.1 200 "):
                self._fail(f"{head.splitlines()[0].decode()}: {data[:300].decode()}")
                return
        self.reader.take(data)
        if self.reader.has_begun and not self.begun.done():
            self.begun.set_result(None)
            if self._is_mute and self._transport is not None:
                self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end."""
        self.is_lost = True
        self._transport = None
        self._fail(f"the connection was lost: {exc or 'closed by the node'}")

    def _fail(self, why: str) -> None:
        if not self.begun.done():
            self.begun.set_exception(WatchError(why))

    def listen(self) -> None:
        """Read from now on, whatever was."""
        if self._transport is not None and self._is_mute:
            self._is_mute = False
            self._transport.resume_reading()

    def outcome(self, end: int) -> str:
        """Say how it stands with this watcher, where the transcript has `end` bytes."""
        if self.reader.fault:
            return "wrong"
        if self.reader.cut:
            return f"cut: {self.reader.cut}"
        if self.reader.offset == end:
            return "complete"
        return "lost" if self.is_lost else "behind"


class Watchers:
    """All of them."""

    def __init__(self, port: int, prefix: str, *, is_mute: bool) -> None:
        self._transcript = Transcript()
        self._port = port
        self._path = f"/v1/watch?prefix={prefix}"
        self._is_mute = is_mute
        self._all: list[Watcher] = []
        self._counts: list[tuple[float, list[int]]] = []

    async def begin(self, count: int) -> None:
        """Connect, and wait until all watch. Raises WatchError."""
        turns = asyncio.Semaphore(CONNECTING_MAX)

        async def begin_one() -> None:
            async with turns:
                watcher = await self._connect()
                self._all.append(watcher)
                await watcher.begun

        async with asyncio.timeout(BEGIN_S):
            await asyncio.gather(*[begin_one() for _ in range(count)])

    async def _connect(self) -> Watcher:
        loop = asyncio.get_running_loop()
        connection = socket.socket()
        connection.setblocking(False)
        if self._is_mute:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MUTE_BUFFER_BYTES)
        await loop.sock_connect(connection, ("127.0.0.1", self._port))
        host = f"127.0.0.1:{self._port}"
        _, watcher = await loop.create_connection(
            lambda: Watcher(self._transcript, self._path, host, is_mute=self._is_mute), sock=connection
        )
        return watcher

    def count(self) -> int:
        """Note how much each has got by now."""
        self._counts.append((time.monotonic(), [watcher.reader.offset for watcher in self._all]))
        return len(self._counts)

    async def finish(self, revision: int, timeout_s: float) -> dict[str, Any]:
        """Wait until all have got everything up to `revision`, or will get nothing more; report."""
        began_s = time.monotonic()
        for watcher in self._all:
            watcher.listen()
        while not self._is_over(revision):
            if time.monotonic() - began_s > timeout_s:
                break
            await asyncio.sleep(LOOK_S)
        self.count()
        return self._report(time.monotonic() - began_s, is_whole=self._reaches(revision))

    def _reaches(self, revision: int) -> bool:
        return b"\n\nid: %d\n" % revision in b"\n\n" + self._transcript.data[-NEWEST_BYTES:]

    def _is_over(self, revision: int) -> bool:
        end = len(self._transcript.data)
        outcomes = {watcher.outcome(end) for watcher in self._all}
        return "behind" not in outcomes and ("complete" not in outcomes or self._reaches(revision))

    def _report(self, drain_s: float, *, is_whole: bool) -> dict[str, Any]:
        data, ends = bytes(self._transcript.data), self._transcript.ends()
        outcomes = Counter(watcher.outcome(len(data)) for watcher in self._all)
        if not is_whole:
            outcomes["behind"] = outcomes.pop("complete", 0) + outcomes["behind"]
        faults = [watcher.reader.fault for watcher in self._all if watcher.reader.fault]
        marks = [mark for watcher in self._all for mark in watcher.reader.marks]
        return {
            "outcomes": {outcome: count for outcome, count in outcomes.items() if count},
            "is_whole": is_whole,
            "faults": shown(faults + check_marks(data, ends, marks)),
            "drain_s": drain_s,
            "events": len(ends),
            "counts": [
                {"at_s": at_s, "events": sum(bisect_right(ends, offset) for offset in offsets)}
                for at_s, offsets in self._counts
            ],
        }

    def write(self, path: Path) -> None:
        """Leave the transcript in a file."""
        path.write_bytes(self._transcript.data)


async def _run(options: argparse.Namespace) -> int:
    watchers = Watchers(options.port, options.prefix, is_mute=options.mute)
    try:
        await watchers.begin(options.count)
    except (WatchError, OSError, TimeoutError) as error:
        say({"error": str(error) or type(error).__name__})
        return 1
    say({"watching": options.count})
    lines = await commands()
    while line := (await lines.readline()).split():
        if line == [b"count"]:
            say({"counts": watchers.count()})
            continue
        report = await watchers.finish(int(line[1]), float(line[2]))
        watchers.write(options.transcript)
        say(report)
        return 0
    return 1


def main() -> int:
    """Watch until told to end; return the exit code."""
    parser = argparse.ArgumentParser(description="Many watchers of one node. Part of scripts/bench events.")
    parser.add_argument("--port", type=int, required=True, help="of the node, on 127.0.0.1")
    parser.add_argument("--count", type=int, required=True, help="how many watchers")
    parser.add_argument("--prefix", required=True, help="what they watch")
    parser.add_argument("--mute", action="store_true", help="read nothing until the end")
    parser.add_argument("--transcript", type=Path, required=True, help="where to leave what they got")
    raise_limit()
    return uvloop.run(_run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
