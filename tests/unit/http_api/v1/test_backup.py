"""Backups over HTTP."""

import aiohttp

from cluster.errors import NoLeader
from holdfast import wire
from holdfast.wire import backup
from lockstate.stored import snapshot
from tests.unit.http_api.serving import check_problem, serving

CELLS, CELL_BYTES = 600, 4_000
PIECE_BYTES = 10_000


async def test_a_backup_is_a_file_of_known_length() -> None:
    """Its media type is its own, and its content is the state behind a header."""
    async with serving() as served, aiohttp.ClientSession() as http:
        await served.call("POST", wire.LOCK_ACQUIRE, {"name": "kept", "ttl_ms": 60_000})
        url = f"http://127.0.0.1:{served.port}{wire.CLUSTER_BACKUP}"
        async with http.get(url) as got:
            content = await got.read()
            assert (got.status, got.content_type) == (200, backup.MEDIA_TYPE)
            assert int(got.headers["Content-Length"]) == len(content)
        state: list[bytes] = []
        info = backup.check([content], state.append)
        assert info.members == {"n1": "127.0.0.1:2"}
        assert (info.revision, info.highest_token) == (served.node.machine.revision, 1)
        assert [hold.name for hold in snapshot.decode(b"".join(state)).holds.values()] == ["kept"]
        async with http.head(url) as head:
            assert (head.status, await head.read()) == (200, b"")
            assert head.content_type == backup.MEDIA_TYPE


async def test_a_node_that_knows_no_leader_makes_none() -> None:
    """What it has may be old."""
    async with serving() as served:
        served.node.failure = NoLeader("no leader")
        check_problem(await served.call("GET", wire.CLUSTER_BACKUP), 503, "no-leader")


async def test_a_large_backup_is_sent_as_fast_as_it_is_read() -> None:
    """Little of it waits in the node, and all of it arrives."""
    async with serving() as served, aiohttp.ClientSession() as http:
        for number in range(CELLS):
            cell = {"value": "x" * CELL_BYTES}
            await served.call("PUT", wire.CELL.format(key=f"c{number}"), cell)
        reader, read_bytes = backup.BackupReader(), 0
        async with http.get(f"http://127.0.0.1:{served.port}{wire.CLUSTER_BACKUP}") as got:
            async for piece in got.content.iter_chunked(PIECE_BYTES):
                reader.feed(piece)
                read_bytes += len(piece)
        assert reader.finish().state_bytes > CELLS * CELL_BYTES
        assert read_bytes == int(got.headers["Content-Length"])
