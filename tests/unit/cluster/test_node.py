"""A whole node on a real disk, alone: what becomes of requests whose clients leave."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cluster.config import load
from cluster.errors import OutcomeUnknown, ShuttingDown
from cluster.node import Node
from lockstate.commands import Acquire, Release
from lockstate.modes import Mode
from lockstate.results import Granted, Queued, Reason, Refused

DEADLINE_S = 20.0


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Node]:
    """Run a node of its own that leads."""
    node = Node(load(["--data-dir", str(directory), "--http", "127.0.0.1:0", "--peer", "127.0.0.1:0"], {}))
    await node.start()
    try:
        await node.read(lambda machine: machine.revision, DEADLINE_S)
        yield node
    finally:
        await node.stop()


async def until(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - the state has no event to tell of it
            await asyncio.sleep(0.001)


def acquire(hold_id: str, *, wait_ms: int = 0, request_id: str = "") -> Acquire:
    """Return an acquire of the one lock of these tests."""
    return Acquire(
        "a", Mode.EXCLUSIVE, hold_id, f"of-{hold_id}", ttl_ms=60_000, wait_ms=wait_ms, request_id=request_id
    )


@pytest.mark.parametrize("wait_ms", [0, 60_000])
async def test_who_leaves_before_the_answer_holds_nothing(tmp_path: Path, wait_ms: int) -> None:
    """An acquire whose client left before it was answered is undone, whether it would have waited or not."""
    async with running(tmp_path) as node:
        task = asyncio.create_task(node.acquire(acquire("h1", wait_ms=wait_ms), DEADLINE_S))
        await asyncio.sleep(0)
        task.cancel()
        await until(lambda: node.machine.next_token == 2)
        await until(lambda: node.machine.lock("a").state == "free")
        assert len(node.core.waiters) == 0


async def test_who_leaves_the_queue_is_gone_from_it(tmp_path: Path) -> None:
    """A waiter whose client left is cancelled, and nothing is kept for it on the node."""
    async with running(tmp_path) as node:
        held = await node.acquire(acquire("h1"), DEADLINE_S)
        assert isinstance(held.result, Granted)
        task = asyncio.create_task(node.acquire(acquire("h2", wait_ms=60_000), DEADLINE_S))
        await until(lambda: len(node.machine.lock("a").queue) == 1)
        task.cancel()
        await until(lambda: not node.machine.lock("a").queue)
        assert len(node.core.waiters) == 0


async def test_the_later_attempt_leaves_and_the_earlier_one_is_told(tmp_path: Path) -> None:
    """Two connections wait for one request: when the later one closes, the earlier one is answered."""
    async with running(tmp_path) as node:
        await node.acquire(acquire("h1"), DEADLINE_S)
        first = asyncio.create_task(node.acquire(acquire("h2", wait_ms=60_000, request_id="r"), DEADLINE_S))
        await until(lambda: len(node.machine.lock("a").queue) == 1)
        later = asyncio.create_task(node.acquire(acquire("h3", wait_ms=60_000, request_id="r"), DEADLINE_S))
        await until(lambda: node.machine.state.tickets["h2"].attempt_id == "of-h3")
        later.cancel()
        answer = await asyncio.wait_for(first, DEADLINE_S)
        assert isinstance(answer.result, Refused)
        assert answer.result.reason is Reason.LOCK_HELD


async def test_a_stopping_node_takes_tickets_back_that_nobody_can_ask_for(tmp_path: Path) -> None:
    """At shutdown a wait without a request id leaves no ticket; one with an id keeps its place."""
    async with running(tmp_path) as node:
        await node.acquire(acquire("h1"), DEADLINE_S)
        unnamed = asyncio.create_task(node.acquire(acquire("h2", wait_ms=60_000), DEADLINE_S))
        named = asyncio.create_task(node.acquire(acquire("h3", wait_ms=60_000, request_id="r"), DEADLINE_S))
        await until(lambda: len(node.machine.lock("a").queue) == 2)
        node.begin_shutdown()
        for task in (unnamed, named):
            with pytest.raises(OutcomeUnknown):
                await asyncio.wait_for(task, DEADLINE_S)
        await until(lambda: len(node.machine.lock("a").queue) == 1)
        assert isinstance(node.machine.attempt("h3"), Queued)
        with pytest.raises(ShuttingDown):
            await node.submit(Release("h1"), DEADLINE_S)


async def test_what_was_granted_is_there_after_a_restart(tmp_path: Path) -> None:
    """A hold survives the stop and start of its only node, with its token, and the next token is larger."""
    async with running(tmp_path) as node:
        first = await node.acquire(acquire("h1"), DEADLINE_S)
    async with running(tmp_path) as node:
        assert node.machine.lock("a").holders[0].token == first.result.token  # type: ignore[union-attr]
        await node.submit(Release("h1"), DEADLINE_S)
        second = await node.acquire(acquire("h2"), DEADLINE_S)
        assert isinstance(second.result, Granted)
        assert second.result.token == 2
