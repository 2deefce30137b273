"""Compaction: late nodes catch up from a snapshot; snapshot and journal are the whole state."""

import asyncio
from pathlib import Path
from urllib.parse import quote

import pytest

from cluster.peers.link import ROOM_BYTES
from holdfast import wire
from scripts.local_cluster import LocalCluster
from tests.process import history_checkers
from tests.process.conftest import COMPACT_ENTRIES
from tests.process.load import Load
from tests.process.nodes import PATIENT, Http, LogSince, followers, http_to, node_ids, revisions, until, urls

pytestmark = pytest.mark.process

# With few clients nearly every command is an entry of its own.
CLIENTS = 4
CELLS = 1_250
MANY_CELLS = 5_000
"""Enough that a transfer takes several heartbeats, and can be broken in the middle."""
CELL_BYTES = 4_000
AT_ONCE = 14
"""So many cells fit into one request."""


async def equal_states(cluster: LocalCluster, http: Http, prefix: str) -> dict[str, int]:
    """Wait until all nodes are at one revision; return the locks below `prefix`, the same on each."""
    await until(lambda: len(revisions(cluster)) == 1, "all nodes at one revision")
    states = [await http.tokens(node_id, prefix, is_stale=True) for node_id in node_ids(cluster)]
    assert states[0] == states[1] == states[2]
    return states[0]


async def check_filled(cluster: LocalCluster, http: Http, cells: int) -> None:
    """Wait until all nodes are at one revision; check that each has all that `fill` wrote, and delete it."""
    await until(lambda: len(revisions(cluster)) == 1, "all nodes at one revision")
    states = [await cells_of(http, node_id) for node_id in node_ids(cluster)]
    assert states[0] == states[1] == states[2]
    assert len(states[0]) == cells
    is_more = True
    while is_more:
        deleted = await http.call(cluster.leader(), "DELETE", f"{wire.CELLS}?prefix=large-")
        cells -= deleted.body["deleted"]
        is_more = deleted.body["more"]
    assert cells == 0


async def cells_of(http: Http, node_id: str) -> dict[str, tuple[int, str]]:
    """Return revision and value of what `fill` wrote, as this node has it."""
    found: dict[str, tuple[int, str]] = {}
    after: str | None = ""
    while after is not None:
        query = f"?prefix=large-&limit=1000&consistency=stale&after={quote(after)}"
        page = (await http.call(node_id, "GET", wire.CELLS + query)).body
        found |= {cell["key"]: (cell["mod_revision"], cell["value"]) for cell in page["cells"]}
        after = page["next"]
    return found


async def test_snapshot_installed(compacting: LocalCluster) -> None:
    """A node that was away while the others compacted takes a snapshot and has the same state as they."""
    cluster = compacting
    leader, (absent, _) = cluster.leader(), followers(cluster)
    leader_said, absent_said = LogSince(cluster, leader), LogSince(cluster, absent)
    cluster.kill(absent)
    async with Load(urls(cluster), prefix="away", clients=CLIENTS, keep_every=5) as load:
        # Twice: the entries that stay behind the first snapshot would be enough for the absent node.
        await until(lambda: len(leader_said.lines("event=snapshot-written")) >= 2, "two compactions")
        await asyncio.to_thread(cluster.start, absent)
        await until(lambda: absent_said.lines("event=snapshot-installed"), "a snapshot on the absent node")
        await load.grants(COMPACT_ENTRIES)
    assert not history_checkers.violations(load.history)
    assert not history_checkers.errors(load.history)
    async with http_to(cluster) as http:
        state = await equal_states(cluster, http, "away/")
        assert not history_checkers.lost_grants(history_checkers.still_held(load.history).values(), state)
        assert await http.tokens(absent, "away/") == state


async def fill(http: Http, node_id: str, cells: int = CELLS) -> None:
    """Make the state larger than what a link takes at once."""
    for first in range(0, cells, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, cells))
        puts = [{"put": f"large-{number}", "value": str(number).zfill(CELL_BYTES)} for number in numbers]
        got = await http.call(node_id, "POST", wire.CELLS_TRANSACT, {"then": puts})
        assert got.status == 200, got.body


async def test_large_snapshot(tmp_path: Path) -> None:
    """A snapshot larger than a link takes at once goes out as the follower reads, and disturbs nobody."""
    arguments = [*PATIENT, "--compact-entries", str(COMPACT_ENTRIES)]
    with LocalCluster.up(tmp_path, extra_args=arguments) as cluster:
        await send_large_snapshot(cluster)


async def send_large_snapshot(cluster: LocalCluster) -> None:
    """Let a follower be away until it needs a snapshot that is larger than what a link takes at once."""
    leader, (absent, _) = cluster.leader(), followers(cluster)
    async with http_to(cluster) as http:
        await fill(http, leader)
        leader_said, absent_said = LogSince(cluster, leader), LogSince(cluster, absent)
        cluster.kill(absent)
        async with Load(urls(cluster), prefix="large-load", clients=CLIENTS) as load:
            await until(lambda: len(leader_said.lines("event=snapshot-written")) >= 2, "two compactions")
            cluster.start(absent)
            await until(
                lambda: absent_said.lines("event=snapshot-installed"), "a snapshot on the absent node"
            )
            await load.grants(COMPACT_ENTRIES)
        (sent, *_) = leader_said.lines("event=snapshot-sending")
        assert number_in(sent, "bytes") > ROOM_BYTES
        # Neither was the follower given more than it could read, nor the leader kept from its heartbeats.
        # On a machine that is starved any link may stall, and be replaced.
        closed_links = leader_said.lines("event=link-closed")
        assert [line for line in closed_links if "replaced by a new connection" not in line] == []
        assert not leader_said.lines("event=leadership ")
        assert not history_checkers.violations(load.history)
        assert not history_checkers.errors(load.history)
        await check_filled(cluster, http, CELLS)


def number_in(line: str, field: str) -> int:
    """Return a number that a log line tells."""
    return int(line.partition(f" {field}=")[2].split()[0])


async def test_transfer_resumed(compacting: LocalCluster) -> None:
    """After its connection broke in the middle, a large snapshot goes on where it was, and is whole."""
    cluster = compacting
    leader, (absent, _) = cluster.leader(), followers(cluster)
    incoming = cluster.data_dir(absent) / "incoming.tmp"
    async with http_to(cluster) as http:
        await fill(http, leader, MANY_CELLS)
        cluster.kill(absent)
        leader_said = LogSince(cluster, leader)
        async with Load(urls(cluster), prefix="resumed-load", clients=CLIENTS):
            await until(lambda: len(leader_said.lines("event=snapshot-written")) >= 2, "two compactions")
        leader_said, absent_said = LogSince(cluster, leader), LogSince(cluster, absent)
        cluster.start(absent)
        await until(lambda: incoming.exists() and incoming.stat().st_size > ROOM_BYTES, "a first part")
        cluster.pause(absent)
        since_paused = LogSince(cluster, leader)
        have_bytes = incoming.stat().st_size
        assert not absent_said.lines("event=snapshot-installed")
        await until(lambda: since_paused.lines("event=link-lost", f"peer={absent}"), "a broken connection")
        cluster.resume(absent)
        await until(lambda: absent_said.lines("event=snapshot-installed"), "a snapshot on the absent node")
        # On a busy machine the leader may begin at 0 before the node has said how far it is, and then go on.
        first, *_, last = leader_said.lines("event=snapshot-sending")
        assert number_in(first, "from") == 0
        assert number_in(last, "from") >= have_bytes
        assert number_in(first, "index") == number_in(last, "index")
        assert not absent_said.lines("event=snapshot-refused")
        await check_filled(cluster, http, MANY_CELLS)


async def test_restarted_from_snapshots(compacting: LocalCluster) -> None:
    """After a restart of all nodes, snapshots and journals together hold every acknowledged grant."""
    cluster = compacting
    said = [LogSince(cluster, node_id) for node_id in node_ids(cluster)]
    async with Load(urls(cluster), prefix="kept", clients=CLIENTS, keep_every=5) as load:
        await until(
            lambda: all(item.lines("event=snapshot-written") for item in said), "a snapshot on each node"
        )
        await load.grants(COMPACT_ENTRIES // 4)
    before = (await asyncio.to_thread(cluster.view, "n1") or {})["revision"]
    await asyncio.to_thread(cluster.down)
    for node_id in node_ids(cluster):
        cluster.start(node_id)
    await asyncio.to_thread(cluster.wait_ready)
    async with http_to(cluster) as http:
        held = history_checkers.still_held(load.history)
        assert not history_checkers.lost_grants(held.values(), await http.tokens("n1", "kept/"))
        state = await equal_states(cluster, http, "kept/")
        assert state == {name: grant.token for name, grant in held.items()}
        assert min(revisions(cluster)) >= before
        granted = await http.acquire("n2", "after-restart")
        assert granted.body["token"] > max(state.values())
