"""Ten thousand requests to FastAPI, whose dependencies are left in other threads, leave no hold behind."""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

import holdfast
from scripts.lib import ports, processes
from scripts.local_cluster import LocalCluster
from tests.process.nodes import urls
from tests.support.libraries import skip_without

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
REQUESTS_COUNT = 10_000
CLIENTS_COUNT = 40
"""As many threads as Starlette has for `def` functions."""
NAMES_COUNT = 20
START_S_MAX = 60.0
ON_PURPOSE = 418


@pytest.fixture
def server(cluster: LocalCluster, tmp_path: Path) -> Iterator[str]:
    """Serve the application; give its URL."""
    skip_without("fastapi")
    port = ports.find_base(1)
    argv = [sys.executable, "-m", "uvicorn", "tests.process.web_app:app", "--log-level", "warning"]
    environment = os.environ | {"HOLDFAST_NODES": ",".join(urls(cluster))}
    pid = processes.start([*argv, "--port", str(port)], log=tmp_path / "log", cwd=ROOT, env=environment)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        os.kill(pid, 15)
        assert processes.exit_code(pid, START_S_MAX) in (0, -15)
        print((tmp_path / "log").read_text("utf-8"))


async def post_all(url: str, path: str) -> Counter[int]:
    """Post so many requests at a time until all are answered; return how often there was each status."""
    left = iter(range(REQUESTS_COUNT))
    statuses: Counter[int] = Counter()

    async def client(session: aiohttp.ClientSession) -> None:
        for number in left:
            async with session.post(f"{url}/{path}/{number % NAMES_COUNT}") as answer:
                statuses[answer.status] += 1
                if answer.status == 200:
                    assert await answer.json() == {"is_valid": True}

    connector = aiohttp.TCPConnector(limit=CLIENTS_COUNT)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(120)) as session:
        await wait_for_start(session, url)
        await asyncio.gather(*(client(session) for _ in range(CLIENTS_COUNT)))
    return statuses


async def wait_for_start(session: aiohttp.ClientSession, url: str) -> None:
    """Wait until the server answers."""
    deadline_s = time.monotonic() + START_S_MAX
    while True:
        try:
            async with session.get(f"{url}/openapi.json") as answer:
                assert answer.status == 200
                return
        except aiohttp.ClientConnectionError:
            assert time.monotonic() < deadline_s, "the server does not start"
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("path", ["acquired", "entered"])
def test_no_request_leaves_a_hold(cluster: LocalCluster, server: str, path: str) -> None:
    """Each is answered as meant, also when it fails inside of its block, and nothing is held afterwards."""
    began_s = time.monotonic()
    statuses = asyncio.run(post_all(server, path))
    took_s = time.monotonic() - began_s
    with holdfast.SyncClient(urls(cluster)) as client:
        left = [row.name for row in client.list_holds("soak/")]
    print(f"{path}: {dict(statuses)} in {took_s:.0f} s, {len(left)} holds left")
    assert set(statuses) == {200, ON_PURPOSE}
    assert statuses.total() == REQUESTS_COUNT
    assert left == []
