"""The data directory: one process at a time; a torn last write is cut, damage is refused."""

import asyncio
from pathlib import Path

import pytest

from cluster.storage.journal_format import SEGMENT_HEADER_BYTES, decode_block, segment_seed
from scripts.local_cluster import LocalCluster
from tests.process.load import Load
from tests.process.nodes import (
    DEADLINE_S,
    LogSince,
    bring_all_back,
    exit_code,
    followers,
    http_to,
    node_command,
    running,
    spare_data,
    until,
    urls,
)
from tests.unit.cluster.storage.test_data_directory import BEFORE_1_0_0

pytestmark = pytest.mark.process

ADVICE = ("Restore", "replace this node with a new one")


def newest_segment(data_dir: Path) -> Path:
    """Return the journal's last file."""
    return max(data_dir.glob("journal-*.log"))


def written_bytes(path: Path) -> int:
    """Return where the zeros at the end of a file begin: the space prepared in a segment."""
    return len(path.read_bytes().rstrip(b"\0"))


def blocks_end(segment: Path) -> int:
    """Return where the last whole block ends."""
    data, offset = segment.read_bytes(), SEGMENT_HEADER_BYTES
    while (head := decode_block(data, offset, segment_seed(data))) is not None:
        offset = head.end
    return offset


def flip_middle_bit(path: Path) -> None:
    """Change one bit in the middle of what was written to a file."""
    content = bytearray(path.read_bytes())
    content[written_bytes(path) // 2] ^= 0x10
    path.write_bytes(content)


async def test_second_process(cluster: LocalCluster, tmp_path: Path) -> None:
    """A second process on a data directory ends with exit code 3 whatever was deleted in it."""
    log, data_dir = tmp_path / "log", cluster.data_dir("n1")
    assert sorted(data_dir.glob("*lock*")) == []
    with running(node_command(cluster, "n1", http="127.0.0.1:0"), log) as child:
        assert await asyncio.to_thread(child.wait, DEADLINE_S) == 3
    assert "the data directory is in use by another process" in log.read_text()
    async with http_to(cluster) as http:
        assert (await http.acquire("n1", "second-process")).status == 200


async def test_a_directory_from_before_the_first_release(cluster: LocalCluster, tmp_path: Path) -> None:
    """A node on it ends with exit code 2, its last line says why in one sentence, and it changes nothing."""
    data_dir, log = tmp_path / "old", tmp_path / "log"
    data_dir.mkdir()
    (data_dir / "identity.json").write_bytes(BEFORE_1_0_0)
    command = [*node_command(cluster, "n1", http="127.0.0.1:0"), "--data-dir", str(data_dir)]
    with running(command, log) as child:
        assert await asyncio.to_thread(child.wait, DEADLINE_S) == 2
    starting, line = log.read_text().splitlines()
    assert "event=starting" in starting
    assert f"{data_dir}: the data directory was written before release 1.0.0" in line
    assert [file.name for file in data_dir.iterdir()] == ["identity.json"]
    assert (data_dir / "identity.json").read_bytes() == BEFORE_1_0_0


@pytest.mark.parametrize("damage", ["garbage", "zeros"])
async def test_torn_tail(compacting: LocalCluster, damage: str) -> None:
    """A node whose last write was torn cuts it, says so, and takes part again."""
    cluster = compacting
    node_id = followers(cluster)[0]
    async with Load(urls(cluster), prefix=f"torn-{damage}", clients=2) as load:
        await load.grants(20)
        await asyncio.to_thread(cluster.kill, node_id)
    segment = newest_segment(cluster.data_dir(node_id))
    with segment.open("r+b") as file:
        # Behind all that was synced: what the node has told its peers of, it must not lose.
        file.seek(blocks_end(segment))
        file.write(b"\xb1Hf\n" + (bytes(range(200)) if damage == "garbage" else bytes(200)))
    said = LogSince(cluster, node_id)
    await asyncio.to_thread(bring_all_back, cluster)
    (line,) = said.lines("event=torn-write-cut")
    assert str(segment) in line
    async with http_to(cluster) as http:
        granted = await http.acquire(node_id, f"torn-tail/{damage}")
        assert granted.status == 200
        assert await http.token(node_id, f"torn-tail/{damage}") == granted.body["token"]


@pytest.mark.parametrize("what", ["journal", "snapshot"])
async def test_damage(compacting: LocalCluster, what: str) -> None:
    """A node with one bit changed on its disk refuses to start, names the file and says what to do."""
    cluster = compacting
    node_id = followers(cluster)[0]
    async with Load(urls(cluster), prefix=f"damage-{what}", clients=2):
        snapshot = cluster.data_dir(node_id) / "snapshot"
        await until(snapshot.exists, "a snapshot")
    said = LogSince(cluster, node_id)
    with spare_data(cluster, node_id) as data_dir:
        file = newest_segment(data_dir) if what == "journal" else data_dir / "snapshot"
        flip_middle_bit(file)
        cluster.start(node_id)
        assert await asyncio.to_thread(exit_code, cluster, node_id) == 3
        (line,) = said.lines("holdfast-node:")
        assert line.startswith(f"holdfast-node: {file}: ")
        assert all(words in line for words in ADVICE)
    await asyncio.to_thread(bring_all_back, cluster)
