"""Backups of real nodes, saved while clients work."""

import asyncio
from pathlib import Path

import pytest

import holdfast
from cluster.storage.files import Files
from holdfast.wire import backup
from lockstate.stored import snapshot
from scripts.local_cluster import LocalCluster
from tests.process.load import Load
from tests.process.nodes import http_to, node_ids, urls

pytestmark = pytest.mark.process

DEADLINE_S = 60


async def test_each_node_saves_under_load(cluster: LocalCluster, tmp_path: Path) -> None:
    """A backup of any node has all that was answered before it was asked for, and disturbs nobody."""
    async with http_to(cluster) as http, asyncio.timeout(DEADLINE_S):
        async with Load(urls(cluster), prefix="saved", clients=4) as load:
            for node_id in node_ids(cluster):
                before = await http.acquire(cluster.leader(), f"before/{node_id}")
                async with holdfast.Client(cluster.node(node_id).http) as client:
                    info = await client.admin.backup(tmp_path / node_id)
                state: list[bytes] = []
                assert backup.check([(tmp_path / node_id).read_bytes()], state.append) == info
                assert info.revision >= before.body["revision"]
                assert set(info.members) == set(node_ids(cluster))
                saved = snapshot.decode(b"".join(state))
                assert before.body["hold_id"] in saved.holds
                assert saved.revision == info.revision
                assert (await http.release("n1", before.body["hold_id"])).status == 200
            await load.grants(50)
        assert all(not list(cluster.data_dir(node_id).glob("backup.*")) for node_id in node_ids(cluster))


async def test_a_client_that_goes_away_ends_the_backup(cluster: LocalCluster, tmp_path: Path) -> None:
    """Nothing of it is left at either end."""
    async with holdfast.Client(cluster.node("n1").http) as client:
        saving = asyncio.ensure_future(client.admin.backup(tmp_path / "saved"))
        await asyncio.sleep(0)
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving
        assert (await client.admin.backup(tmp_path / "whole")).revision
    assert Files().names(tmp_path) == ["whole"]
