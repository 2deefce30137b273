"""A node that cannot write stops, having acknowledged nothing that it could not keep; the others go on."""

import asyncio
import contextlib
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lib import guardian
from scripts.local_cluster import LocalCluster
from tests.process import history_checkers
from tests.process.load import Load
from tests.process.nodes import LogSince, bring_all_back, exit_code, http_to, node_ids, urls

pytestmark = pytest.mark.process

DISK_BYTES = 4 * 1024 * 1024


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[None]:
    """Mount a small file system at `path`. Skips the test where that is not allowed."""
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", path], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount: {mounted.stderr.decode().strip()}")
    unmount = ["umount", "--lazy", str(path)]
    guardian.run_if_killed(unmount)
    try:
        yield
    finally:
        subprocess.run(unmount, check=True)


def fill(path: Path) -> None:
    """Write a file until the file system is full."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


async def check_stops(cluster: LocalCluster, load: Load, node_id: str, said: LogSince) -> None:
    """Check that a node ends by itself, says why, and costs clients nothing."""
    assert await asyncio.to_thread(exit_code, cluster, node_id) == 70
    (line, *_) = said.lines("event=journal-failed")
    assert str(cluster.data_dir(node_id)) in line
    assert said.lines("event=node-failed", "the journal cannot be written")
    last = said.text.splitlines()[-1]
    assert last.startswith("holdfast-node: ")
    assert "the disk " in last
    assert "start this node again" in last
    assert "Traceback" not in said.text
    await load.grants(50)


async def check_nothing_lost(cluster: LocalCluster, load: Load, prefix: str) -> None:
    """Check the history and, once all nodes run, that every one has what was acknowledged."""
    assert not history_checkers.violations(load.history)
    assert not history_checkers.errors(load.history)
    async with http_to(cluster) as http:
        for node_id in node_ids(cluster):
            tokens = await http.tokens(node_id, prefix)
            assert not history_checkers.lost_grants(
                history_checkers.still_held(load.history).values(), tokens
            )


async def test_full_disk(tmp_path: Path) -> None:
    """A leader whose disk is full ends with exit code 70; it comes back when there is room again."""
    directory = tmp_path / "cluster"
    with contextlib.ExitStack() as stack:
        for node_id in ("n1", "n2", "n3"):
            (directory / node_id).mkdir(parents=True)
        stack.enter_context(small_disk(directory / "n1" / "data"))
        cluster = stack.enter_context(LocalCluster.up(directory))
        async with Load(urls(cluster), prefix="full", keep_every=4) as load:
            async with http_to(cluster) as http:
                await http.call(
                    "n2", "POST", "/v1/cluster/transfer-leadership", {"to": "n1", "reason": "by hand"}
                )
            said = LogSince(cluster, "n1")
            filler = cluster.data_dir("n1") / "filler"
            await asyncio.to_thread(fill, filler)
            await check_stops(cluster, load, "n1", said)
            filler.unlink()
            await asyncio.to_thread(bring_all_back, cluster)
            await load.grants(50)
        await check_nothing_lost(cluster, load, "full/")


@pytest.mark.parametrize("leads", [True, False])
async def test_file_too_large(cluster: LocalCluster, leads: bool) -> None:  # noqa: FBT001
    """A node whose journal the system does not let grow ends with exit code 70, leader or follower."""
    prefix = f"limit-{leads}"
    leader = cluster.leader()
    node_id = leader if leads else next(item for item in node_ids(cluster) if item != leader)
    async with Load(urls(cluster), prefix=prefix, keep_every=4) as load:
        said = LogSince(cluster, node_id)
        # Up to the end of the file there is prepared space, which no limit takes away.
        newest = max(cluster.data_dir(node_id).glob("journal-*.log"))
        size_bytes = len(newest.read_bytes().rstrip(b"\0"))
        # The log of the node counts, too: it is the smaller file, and goes on.
        limit_bytes = max(size_bytes, cluster.log(node_id).stat().st_size) + 64 * 1024
        resource.prlimit(cluster.node(node_id).pid, resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
        await check_stops(cluster, load, node_id, said)
        await asyncio.to_thread(bring_all_back, cluster)
        await load.grants(50)
    await check_nothing_lost(cluster, load, prefix + "/")
