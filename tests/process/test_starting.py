"""A node that reads a large state at its start: it answers meanwhile, serves nothing, and can be stopped."""

import asyncio
import re
import signal
import sys
import time
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from holdfast import wire
from lab.loads.node_load import fill, leading_node, single_config, until
from scripts.lib.ports import reserve
from tests.process.nodes import DEADLINE_S, POLL_S, running

pytestmark = pytest.mark.process

HOLDS: Final = 120_000
HOW_FAR: Final = re.compile(r"the node is starting: it has read (\d+) % of its state")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data directory of a node with a large snapshot."""
    path = tmp_path_factory.mktemp("large") / "n1"

    async def write() -> None:
        async with leading_node(single_config(path)) as (node, child):
            await fill(node, HOLDS)
            await until(lambda: not child.is_running)
            forks = child.forks_count
            node.parts.replica.engine.force_compaction()
            await until(lambda: child.forks_count > forks)
            await until(lambda: not child.is_running)

    asyncio.run(write())
    return path


def command(directory: Path, port: int) -> list[str]:
    """Return how a node is started there."""
    flags = ("--data-dir", str(directory), "--http", f"127.0.0.1:{port}", "--peer", "127.0.0.1:0")
    return [sys.executable, "-m", "http_api", *flags]


async def asked(session: aiohttp.ClientSession, port: int, path: str) -> tuple[int, str]:
    """Return status and text of an answer; 0 while nothing listens."""
    try:
        async with session.get(f"http://127.0.0.1:{port}{path}") as response:
            return response.status, await response.text()
    except aiohttp.ClientConnectionError:
        return 0, ""


async def until_reading(session: aiohttp.ClientSession, port: int) -> int:
    """Wait until the node has read some of its state; return how many percent."""
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        status, text = await asked(session, port, wire.READYZ)
        found = HOW_FAR.search(text)
        assert status in (0, 503), "it has read everything before it was seen to read"
        if found is not None and int(found[1]):
            return int(found[1])
        await asyncio.sleep(POLL_S)
    raise AssertionError("the node reads nothing")


async def test_a_node_answers_while_it_reads_its_state(directory: Path, tmp_path: Path) -> None:
    """It is alive and not ready, grants nothing, and then serves all that it has read."""
    (port,) = reserve(1)
    url = f"http://127.0.0.1:{port}"
    with running(command(directory, port), tmp_path / "log") as process:
        async with aiohttp.ClientSession() as session:
            assert 0 < await until_reading(session, port) < 100
            body = {"name": "a", "ttl_ms": 60_000}
            seen = {await asked(session, port, wire.LIVEZ)}
            async with session.post(url + wire.LOCK_ACQUIRE, json=body) as response:
                refused = response.status, (await response.json())["code"]
            assert refused == (503, "not-ready")
            assert all(status == 200 and HOW_FAR.search(text) for status, text in seen)
            while (await asked(session, port, wire.READYZ))[0] != 200:
                assert process.poll() is None
                await asyncio.sleep(POLL_S)
            async with session.get(f"{url}{wire.HOLDS}?limit=1") as response:
                assert response.status == 200
            async with session.post(url + wire.LOCK_ACQUIRE, json=body) as response:
                assert (await response.json())["token"] == HOLDS + 1
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, DEADLINE_S) == 0


async def test_a_node_that_reads_its_state_can_be_stopped(directory: Path, tmp_path: Path) -> None:
    """It ends at once and in order, without having served anything."""
    (port,) = reserve(1)
    with running(command(directory, port), tmp_path / "log") as process:
        async with aiohttp.ClientSession() as session:
            await until_reading(session, port)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, DEADLINE_S) == 0
    log = (tmp_path / "log").read_text()
    assert "event=stopped" in log
    assert "event=listening" not in log
    assert "Traceback" not in log
