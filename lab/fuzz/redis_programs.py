"""Random programs on the Redis face of a node in memory and on a Redis: the same answers, or listed ones.

A program has two connections, which may change to RESP 3, and sends some of its commands together. One that
is answered differently is made as short as it can be, and printed with its seed. Time passes in pauses only,
so that both servers see the same of it.
"""

import asyncio
import contextlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final, NamedTuple

from holdfast.testing._node import MemoryNode
from http_api.server.authentication import Authentication
from http_api.server.connection_limits import ConnectionPlaces, PlaceLimits
from http_api.server.request_rates import RequestRates
from lab.fuzz.redis_answers import (
    ANSWER_S,
    Listed,
    Session,
    check,
    in_any_order,
    label_of,
)
from lab.fuzz.redis_steps import CHANNELS, KEYS, STRINGS, Step, Words, program_of
from lockapi.allowed_names import EVERYWHERE, AllowedForFew, AllowedNames
from lockapi.gateway import Gateway
from redis_api.commands import quick, table
from redis_api.connection import Commands
from redis_api.server import RedisServer
from redis_api.shared.client import Face
from scripts.lib import ports

STEPS_COUNT: Final = 40
PAUSE_S: Final = 0.13
"""How long a pause is: longer than the short times of programs."""


@contextlib.asynccontextmanager
async def a_node() -> AsyncIterator[int]:
    """Serve a node in memory to clients of Redis, at a port."""
    allowed = AllowedForFew(no_deadline=AllowedNames([EVERYWHERE]))
    gateway = Gateway(MemoryNode(), allowed=allowed)
    authentication = Authentication(gateway)
    face = Face(authentication, RequestRates(), ANSWER_S, gateway, "fuzzed")
    redis = RedisServer(
        face, ConnectionPlaces(PlaceLimits()), Commands(table.answer, quick.begin, quick.finish)
    )
    listener = await asyncio.get_running_loop().create_server(redis.make, ports.HOST, 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await redis.stop(1.0)


@contextlib.contextmanager
def a_redis() -> Iterator[int]:
    """Run a Redis that keeps nothing, at a port. Raises FileNotFoundError if there is none."""
    program = shutil.which("redis-server")
    if program is None:
        raise FileNotFoundError("there is no redis-server: apt-get install redis-server")
    (port,) = ports.reserve(1)
    with tempfile.TemporaryDirectory(prefix="holdfast-fuzz-redis-") as folder:
        argv = [program, "--bind", ports.HOST, "--port", str(port), "--save", "", "--appendonly", "no"]
        process = subprocess.Popen(argv, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield port
        finally:
            process.terminate()
            process.wait()


class Pair:
    """The two servers, of which one program after the other is asked."""

    def __init__(self, *server_ports: int) -> None:
        self._ports = server_ports

    async def run(self, program: Sequence[Step], told: Counter[str]) -> str:
        """Run a program on keys that are free; return what differs, "" if nothing does. Raises Listed."""
        sessions = [
            [Session(*await asyncio.open_connection(ports.HOST, port)) for port in self._ports]
            for _ in range(2)
        ]
        try:
            await self._begin_anew(sessions[0])
            if any(step.words[0] in ("PUBLISH", "SUBSCRIBE", "PSUBSCRIBE") for step in program):
                return await self._tell(sessions, program, told)
            return await self._answer(sessions, program, told) or await self._left(sessions[0])
        finally:
            for session in (one for pair in sessions for one in pair):
                await session.close()

    async def _begin_anew(self, pair: Sequence[Session]) -> None:
        words: list[Words] = []
        for database in (1, 0):
            words += [("SELECT", database), ("DEL", *KEYS, *STRINGS)]
        for session in pair:
            await session.ask(words)

    async def _answer(
        self, sessions: list[list[Session]], program: Sequence[Step], told: Counter[str]
    ) -> str:
        """Send each run of steps of one connection together, and compare."""
        for batch in _batches(program):
            pair, words = sessions[batch[0].connection], [step.words for step in batch]
            answers: list[Any] = await asyncio.gather(
                *[session.ask(words) for session in pair], return_exceptions=True
            )
            for found in answers:
                if isinstance(found, BaseException):
                    return f"{words}: {answers!r}"
            for one, ours, theirs in zip(words, answers[0], answers[1], strict=True):
                told[label_of(one)] += 1
                if not check(one, ours, theirs):
                    return f"{one}\nours:  {ours!r}\nRedis: {theirs!r}"
            if batch[-1].pauses:
                await asyncio.sleep(PAUSE_S)
        return ""

    async def _tell(self, sessions: list[list[Session]], program: Sequence[Step], told: Counter[str]) -> str:
        """Send one step after the other, and compare all that both connections hear after each."""
        for step in program:
            for session in sessions[step.connection]:
                session.send([step.words])
            heard = [
                [await session.told() for session in pair]
                for pair in (sessions[step.connection], sessions[1 - step.connection])
            ]
            told[label_of(step.words)] += 1
            for ours, theirs in heard:
                if len(ours) != len(theirs) or not all(
                    check(step.words, *one) for one in zip(*map(_ordered, (ours, theirs)), strict=True)
                ):
                    return f"{step}\nours:  {ours!r}\nRedis: {theirs!r}"
        return ""

    async def _left(self, pair: Sequence[Session]) -> str:
        """Compare what is left of a program: every key of both databases."""
        words: list[Words] = [("RESET",)]
        for database in (0, 1):
            words.append(("SELECT", database))
            for key in (*KEYS, *STRINGS):
                words += [("TYPE", key), ("GET", key), ("LRANGE", key, 0, -1), ("PTTL", key)]
        for one, ours, theirs in zip(words, *[await session.ask(words) for session in pair], strict=True):
            if not check(one, ours, theirs):
                return f"left: {one}\nours:  {ours!r}\nRedis: {theirs!r}"
        return ""


def _ordered(heard: list[Any]) -> list[Any]:
    """Return lists of channels in an order: to whom a server says something first is chance."""
    return (
        sorted(heard, key=repr)
        if len(heard) > 1
        else [in_any_order(one) if _is_names(one) else one for one in heard]
    )


def _is_names(found: Any) -> bool:
    return type(found) is list and all(one in [channel.encode() for channel in CHANNELS] for one in found)


def _batches(program: Sequence[Step]) -> Iterator[list[Step]]:
    """Yield steps that are sent together: up to a pause, or to a step of the other connection.

    How long they are comes of the program itself, so that a shorter one is sent in the same way.
    """
    batch: list[Step] = []
    for step in program:
        if batch and (step.connection != batch[0].connection or batch[-1].pauses or not step.is_behind):
            yield batch
            batch = []
        batch.append(step)
    if batch:
        yield batch


async def shortest(pair: Pair, program: list[Step]) -> list[Step]:
    """Leave out of a differing program whatever is not needed for it to differ."""
    size = len(program) // 2
    while size:
        at = 0
        while at < len(program):
            shorter = program[:at] + program[at + size :]
            if await _differs(pair, shorter):
                program = shorter
            else:
                at += size
        size //= 2
    return program


async def _differs(pair: Pair, program: list[Step]) -> bool:
    with contextlib.suppress(Listed):
        return bool(await pair.run(program, Counter()))
    return False


# -- the run -------------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """A difference."""

    seed: int
    program: list[Step]
    what: str

    def __str__(self) -> str:
        steps = "\n".join(
            [f"    {step.connection}{'+' if step.is_behind else ' '} {step.words}" for step in self.program]
        )
        return f"seed {self.seed} differs:\n{steps}\n{self.what}"


class Figures(NamedTuple):
    """What a run came to."""

    programs: int
    told: Counter[str]
    """Commands that were answered alike, by name."""
    listed: Counter[str]
    """Programs that were ended by a documented difference, by its reason."""
    found: list[Found]


async def compare(
    seed: int, seconds: float, *, programs_max: int = sys.maxsize, found_max: int = 200
) -> Figures:
    """Run programs from `seed` on, for so many seconds."""
    told: Counter[str] = Counter()
    listed: Counter[str] = Counter()
    found: list[Found] = []
    end_s, first = time.monotonic() + seconds, seed
    with a_redis() as theirs:
        async with a_node() as ours:
            pair = Pair(ours, theirs)
            while not await _answers(theirs):  # noqa: ASYNC110 - another process starts
                await asyncio.sleep(0.05)
            while time.monotonic() < end_s and seed - first < programs_max and len(found) < found_max:
                program = program_of(random.Random(seed), STEPS_COUNT)
                try:
                    if await pair.run(program, told):
                        program = await shortest(pair, program)
                        found.append(Found(seed, program, await pair.run(program, Counter())))
                        print(found[-1], flush=True)
                except Listed as known:
                    listed[str(known)] += 1
                seed += 1
    return Figures(seed - first, told, listed, found)


async def _answers(port: int) -> bool:
    try:
        session = Session(*await asyncio.open_connection(ports.HOST, port))
    except OSError:
        return False
    await session.close()
    return True


def main(seed: int, minutes: float) -> int:
    """Compare for so long, and print what it came to; return the exit code."""
    print(f"programs from seed {seed} on", flush=True)
    figures = asyncio.run(compare(seed, minutes * 60))
    print(f"{figures.programs} programs, {figures.told.total()} commands alike, {len(figures.found)} differ")
    print("commands:", dict(sorted(figures.told.items())))
    print("ended by a documented difference:", dict(figures.listed))
    print(
        "never asked:",
        sorted({row.name for row in table.COMMANDS.values()} - {name.split()[0] for name in figures.told}),
    )
    return int(bool(figures.found))
