"""One node in this process, and its clients in the same loop: they fill it, or acquire and release."""

import asyncio
import contextlib
import itertools
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from cluster.config import Address, NodeConfig
from cluster.node import Node
from cluster.storage.forked_child import Child
from http_api.__main__ import calm_collector
from lab.loads.transcript import Told
from lab.measuring.pauses import LOOK_S
from lockstate.words.commands.holds import Acquire, Release
from lockstate.words.events import EventKind
from lockstate.words.ids import AttemptId, HoldId, OwnerName
from lockstate.words.limits import TTL_MS_MAX, TTL_MS_MIN
from lockstate.words.modes import Mode
from lockstate.words.results import Granted, Released

PREFIX: Final = "orders/"
"""Of all names."""
FILL_WORKERS: Final = 1000
LOAD_WORKERS: Final = 64
TIMEOUT_S: Final = 180.0
PROGRESS_S: Final = 10.0


def single_config(data_dir: Path) -> NodeConfig:
    """Return the configuration of a node that is a cluster of its own."""
    nowhere = Address("127.0.0.1", 0)
    return NodeConfig(
        node_id="n1",
        data_dir=data_dir,
        http=nowhere,
        peer=nowhere,
        peers={"n1": nowhere},
        secret=b"",
        advertise_http="http://127.0.0.1:1",
    )


@contextlib.asynccontextmanager
async def leading_node(config: NodeConfig) -> AsyncIterator[tuple[Node, Child]]:
    """Run a node, set up as a node process is, that leads; and give the child that writes its snapshots."""
    child = Child()
    node = Node(config, child=child)
    try:
        await node.start()
        await until(lambda: node.parts.replica.role.is_leader)
        calm_collector()
        yield node, child
    finally:
        await node.stop()


async def until(condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    """Wait for something. Raises TimeoutError."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError("what the benchmark waits for did not happen in time")
        await asyncio.sleep(LOOK_S)


def acquire(number: int, ttl_ms: int = TTL_MS_MAX) -> Acquire:
    """Return what a client sends for a lock of its own."""
    return Acquire(
        name=f"{PREFIX}{number % 1000}/item-{number}",
        mode=Mode.EXCLUSIVE,
        hold_id=HoldId(secrets.token_hex(16)),
        attempt_id=AttemptId(secrets.token_hex(16)),
        ttl_ms=ttl_ms,
        owner=OwnerName(f"worker-{number}"),
    )


async def fill(
    node: Node, holds: int, ends_s: float | None = None, *, first: int = 0, workers: int = FILL_WORKERS
) -> None:
    """Acquire `holds` locks, each with its own lease: a day, or until `ends_s` of the monotonic clock.

    Their names are numbered from `first`; as many as `workers` are asked for at the same time.
    """
    numbers = iter(range(first, first + holds))
    last_said_s = time.monotonic()

    async def work() -> None:
        nonlocal last_said_s
        for number in numbers:
            left_s = TTL_MS_MAX / 1000 if ends_s is None else ends_s - time.monotonic()
            ttl_ms = max(int(left_s * 1000), TTL_MS_MIN)
            answer = await node.submit(acquire(number, ttl_ms), TIMEOUT_S)
            assert isinstance(answer.result, Granted), answer.result
            if time.monotonic() - last_said_s > PROGRESS_S:
                last_said_s = time.monotonic()
                print(f"bench: {number - first} of {holds} locks are held", file=sys.stderr, flush=True)

    await asyncio.gather(*[work() for _ in range(min(workers, holds))])


class CycleLoad:
    """Clients that acquire and release, each as fast as it gets its answers; `cycles` is how often they did.

    Where there is a list `told`, what they were told is added to it. With a `rate` above 0 they begin no more
    than so many cycles a second.
    """

    def __init__(self, node: Node, first: int, told: list[Told] | None = None, rate: float = 0) -> None:
        self._node = node
        self._numbers = itertools.count(first)
        self._is_over = False
        self.cycles = 0
        self._told = told
        self._period_s = LOAD_WORKERS / rate if rate else 0.0

    async def _work(self, number: int) -> None:
        """Be one client. Where there is a rate, it begins its first cycle in its turn among the others."""
        submit = self._node.submit
        next_s = time.monotonic() + self._period_s * number / LOAD_WORKERS
        while not self._is_over:
            if self._period_s:
                await asyncio.sleep(next_s - time.monotonic())
                next_s = max(next_s + self._period_s, time.monotonic())
            command = acquire(next(self._numbers))
            granted = await submit(command, TIMEOUT_S)
            assert isinstance(granted.result, Granted), granted.result
            released = await submit(Release(command.hold_id), TIMEOUT_S)
            assert isinstance(released.result, Released), released.result
            self.cycles += 1
            if self._told is not None:
                name, token = command.name, granted.result.token
                self._told.append(Told(granted.revision, EventKind.GRANTED, name, token))
                self._told.append(Told(released.revision, EventKind.RELEASED, name, token))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work meanwhile; afterwards every cycle that began has ended."""
        work = asyncio.gather(*[self._work(number) for number in range(LOAD_WORKERS)])
        try:
            yield
        finally:
            self._is_over = True
            await work
