"""What three nodes cost that have nothing to do."""

import asyncio
from pathlib import Path

import pytest

from scripts.lib import processes
from scripts.local_cluster import LocalCluster

pytestmark = pytest.mark.process

MEASURED_S = 10.0
SETTLED_S = 2.0
WINDOWS_MAX = 4
CORE_SHARE_MAX = 0.02
MEMORY_BYTES_MAX = 80 * 1024 * 1024


async def time_passes(seconds: float) -> None:
    """Wait: time that passes is what is measured here, and there is nothing else to wait for."""
    await asyncio.sleep(seconds)


def test_idle_memory(tmp_path: Path) -> None:
    """A node that has had nothing to do takes less than 80 MiB."""
    with LocalCluster.up(tmp_path) as cluster:
        memory_bytes = [processes.resident_bytes(node.pid) for node in cluster.nodes()]
    print("nodes, MiB:", [round(size / 2**20, 1) for size in memory_bytes])
    assert max(memory_bytes) < MEMORY_BYTES_MAX


@pytest.mark.timed
async def test_idle_processor_time(tmp_path_factory: pytest.TempPathFactory) -> None:
    """An idle node takes less than 2 % of a core.

    What else runs on the machine can only add to what is measured, so one window of a few has to be below.
    """
    with LocalCluster.up(tmp_path_factory.mktemp("idle")) as cluster:
        pids = [node.pid for node in cluster.nodes()]
        await time_passes(SETTLED_S)
        for _ in range(WINDOWS_MAX):
            shares = await cpu_shares(pids)
            print("idle nodes, % of a core:", [round(100 * share, 2) for share in shares])
            if max(shares) < CORE_SHARE_MAX:
                break
    assert max(shares) < CORE_SHARE_MAX


async def cpu_shares(pids: list[int]) -> list[float]:
    """Return what part of a core each process takes for a while."""
    before_s = [processes.cpu_s(pid) for pid in pids]
    await time_passes(MEASURED_S)
    return [(processes.cpu_s(pid) - before) / MEASURED_S for pid, before in zip(pids, before_s, strict=True)]
