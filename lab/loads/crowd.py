"""A process with many clients in the background of a benchmark, so that they cost its own process nothing.

Started by crowd_process.py, which it talks to in lines: commands on standard input, answers as JSON on
standard output. It ends with its standard input.

    -> {"ready": true} once all clients are at work
    <- count       say what was done so far: answers, cycles, keepalives or events
    -> {"done": N, "errors_count": N, "errors": [...], "present": N}
    <- finish      end the work, and say the same once more
"""

import argparse
import asyncio
import functools
import itertools
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import uvloop

from lab.loads.crowd_members import Asker, Count, DeepWorker, Keeper, Watcher
from lab.loads.line_process import commands, say
from lab.loads.load import Tally, Worker
from lab.measuring.open_files import check_room

CONNECTING_MAX: Final = 100
BEGIN_S: Final = 60.0
END_S: Final = 30.0


class Crowd:
    """All clients of the process."""

    def __init__(self, nodes: Sequence[str]) -> None:
        """`nodes` are HOST:PORT; the clients take turns in having them."""
        self._nodes = itertools.cycle(nodes)
        self._tally, self._count = Tally(), Count()
        self._members: list[Any] = []

    async def ask(self, clients: int, path: str) -> None:
        """Begin clients that ask for a path."""
        await self._connect(clients, lambda node, _: Asker(self._tally, self._count, node, path))

    async def cycle(self, clients: int, prefix: str, *, is_deep: bool) -> None:
        """Begin clients that acquire and release."""
        kind = DeepWorker if is_deep else Worker
        await self._connect(clients, lambda node, number: kind(self._tally, node, f"{prefix}/{number}"))

    async def keep(self, clients: int, sessions: int, ttl_ms: int) -> None:
        """Open so many sessions over so many connections, and keep them alive."""
        clients = min(clients, sessions)

        def keeper(node: str, number: int) -> Keeper:
            share = sessions // clients + (number < sessions % clients)
            return Keeper(self._tally, self._count, node, share, ttl_ms=ttl_ms, phase=(number + 1) / clients)

        await self._connect(clients, keeper)
        async with asyncio.timeout(BEGIN_S):
            await asyncio.gather(*[member.opened for member in self._members])

    async def watch(self, clients: int, prefixes: Sequence[str]) -> None:
        """Begin watchers, which take turns in having the prefixes."""
        await self._connect(
            clients,
            lambda node, number: Watcher(self._tally, self._count, node, prefixes[number % len(prefixes)]),
        )
        async with asyncio.timeout(BEGIN_S):
            await asyncio.gather(*[member.begun for member in self._members])

    async def _connect(self, count: int, make: Callable[[str, int], asyncio.Protocol]) -> None:
        """Connect clients, not too many at a time."""
        turns = asyncio.Semaphore(CONNECTING_MAX)

        async def connect(number: int) -> None:
            node = next(self._nodes)
            host, _, port = node.rpartition(":")
            async with turns:
                _, member = await asyncio.get_running_loop().create_connection(
                    functools.partial(make, node, number), host, int(port)
                )
            self._members.append(member)

        async with asyncio.timeout(BEGIN_S):
            await asyncio.gather(*[connect(number) for number in range(count)])

    def report(self) -> dict[str, Any]:
        """Say what was done, and how many clients are there."""
        present = sum(
            member.is_watching if isinstance(member, Watcher) else not member.ended.done()
            for member in self._members
        )
        # A worker counts in its tally, as it does elsewhere.
        done = self._count.done + len(self._tally.cycles_s)
        errors = {"errors_count": self._tally.errors_count, "errors": self._tally.errors}
        return {"done": done, **errors, "present": present}

    async def finish(self) -> None:
        """End the work: nothing is on its way, and no session of ours is left."""
        self._tally.is_stopping = True
        ended = []
        for member in self._members:
            if isinstance(member, Watcher):
                member.close()
                continue
            if isinstance(member, Keeper):
                member.close_all()
            ended.append(member.ended)
        if ended and (await asyncio.wait(ended, timeout=END_S))[1]:
            self._tally.error(f"requests are still unanswered after {END_S:.0f} s")


def _begin(crowd: Crowd, options: dict[str, Any]) -> Awaitable[None]:
    """Begin what the options say. Raises OSError, and TimeoutError."""
    match options:
        case {"kind": "ask", "clients": clients, "path": path}:
            return crowd.ask(clients, path)
        case {"kind": "cycle" | "deep" as kind, "clients": clients, "prefix": prefix}:
            return crowd.cycle(clients, prefix, is_deep=kind == "deep")
        case {"kind": "keep", "clients": clients, "sessions": sessions, "ttl_ms": ttl_ms}:
            return crowd.keep(clients, sessions, ttl_ms)
        case {"kind": "watch", "clients": clients, "prefixes": prefixes}:
            return crowd.watch(clients, prefixes)
        case _:
            raise ValueError(f"no crowd does this: {options}")


async def _run(nodes: Sequence[str], options: dict[str, Any]) -> int:
    crowd = Crowd(nodes)
    try:
        check_room(options["clients"])
        await _begin(crowd, options)
    except OSError as error:  # a TimeoutError is one
        why = str(error) or f"not all have begun within {BEGIN_S:.0f} s"
        say({"error": f"{why}; errors: {crowd.report()['errors']}"})
        return 1
    say({"ready": True})
    lines = await commands()
    while line := (await lines.readline()).strip():
        if line == b"finish":
            await crowd.finish()
            say(crowd.report())
            return 0
        say(crowd.report())
    return 1


def main() -> int:
    """Work until told to end; return the exit code."""
    parser = argparse.ArgumentParser(description="Many clients in the background. Part of scripts/bench.")
    parser.add_argument("--nodes", required=True, help="HOST:PORT,...")
    parser.add_argument("--options", required=True, type=json.loads, help="what they do, as JSON")
    arguments = parser.parse_args()
    return uvloop.run(_run(arguments.nodes.split(","), arguments.options))


if __name__ == "__main__":
    sys.exit(main())
