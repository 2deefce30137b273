"""The chain of the audit of a cluster: one for all nodes, through kill -9, snapshots and another leader."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import wire
from scripts.local_cluster import PROJECT, LocalCluster
from tests.process.conftest import COMPACT_ENTRIES
from tests.process.nodes import DEADLINE_S, Http, followers, http_to, node_ids, until, urls

pytestmark = pytest.mark.process

Rows = list[dict[str, Any]]


async def _cycles(http: Http, node_id: str, count: int) -> None:
    """Take and give back a lock so often: two records each time."""
    for _ in range(count):
        hold = await http.acquire(node_id, "chained", owner="ann")
        assert (await http.release(node_id, hold.body["hold_id"])).status == 200


async def _records(http: Http, node_id: str) -> Rows:
    """Return what a node tells, the oldest first; the read waits until the node has all that happened."""
    got = await http.call(node_id, "GET", f"{wire.AUDIT}?limit=1000")
    return list(reversed(got.body["events"]))


@asynccontextmanager
async def _shipping(cluster: LocalCluster, file: Path, behind: int) -> AsyncGenerator[None]:
    """Ship records into a file until the end of the block."""
    with file.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast", "audit", "--follow", "-o", "jsonl", "--behind", str(behind)),
            stdout=output,
            cwd=PROJECT,
            env=os.environ | {"HOLDFAST_NODES": ",".join(urls(cluster))},
        )
    try:
        yield
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(DEADLINE_S):
            assert await process.wait() == 130
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _verify(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast", "audit", "--verify", str(file)]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)


async def test_one_chain_for_all_nodes_that_outlives_them(compacting: LocalCluster, tmp_path: Path) -> None:
    """All nodes tell the same hashes, also after they were killed; what was shipped meanwhile is whole."""
    cluster, file = compacting, tmp_path / "audit.jsonl"
    async with http_to(cluster) as http:
        await _cycles(http, "n1", 1)
        await until(lambda: _is_chained(http), "the rules have a chain")
        begin = (await _records(http, "n1"))[-1]["number"]
        async with _shipping(cluster, file, begin):
            await _cycles(http, followers(cluster)[0], 10)
            lost, asked = cluster.leader(), followers(cluster)[0]
            cluster.kill(lost)
            await _cycles(http, asked, COMPACT_ENTRIES // 2)
            last = (await _records(http, asked))[-1]
            await until(lambda: _last_number(file) == last["number"], "all is shipped")
        for node_id in node_ids(cluster):
            cluster.kill(node_id)
        for node_id in node_ids(cluster):
            await asyncio.to_thread(cluster.start, node_id)
        await asyncio.to_thread(cluster.wait_ready)
        await _cycles(http, "n1", 2)
        told = [await _records(http, node_id) for node_id in node_ids(cluster)]
    assert told[0] == told[1] == told[2]
    assert last in told[0]
    shipped = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["number"] for row in shipped] == list(range(begin + 1, last["number"] + 1))
    done = _verify(file)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (
        0,
        f"the hash of record {last['number']} is {last['hash']}",
    )
    file.write_text("".join(json.dumps(row) + "\n" for row in shipped if row["number"] != begin + 5))
    done = _verify(file)
    assert (done.returncode, done.stdout.splitlines()[0]) == (119, f"line 5: record {begin + 5} is missing")


async def _is_chained(http: Http) -> bool:
    """Whether the cluster follows rules that have a chain."""
    return "number" in (await _records(http, "n1"))[-1]


def _last_number(file: Path) -> int:
    """Return the number of the last record in a file; 0 if its last line is not whole yet."""
    lines = file.read_text().splitlines(keepends=True)
    return int(json.loads(lines[-1])["number"]) if lines and lines[-1].endswith("\n") else 0
