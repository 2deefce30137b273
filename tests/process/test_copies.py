"""Copies of data directories, newer and older: nothing is granted twice, and people are told what to do."""

import shutil
from pathlib import Path

import pytest

from scripts.lib import cluster_file
from scripts.local_cluster import LocalCluster
from tests.process.nodes import Http, LogSince, http_to, node_ids, until, wait_whole

pytestmark = pytest.mark.process

TTL_MS = 600_000


def copied(of: LocalCluster, directory: Path) -> LocalCluster:
    """Return a cluster at other addresses with copies of the directories of another, which is stopped."""
    cluster_file.create(directory, len(node_ids(of)), 0, ())
    document = cluster_file.read(directory)
    document["secret"] = of.secret
    cluster_file.write(directory / cluster_file.FILE, document)
    (directory / cluster_file.SECRET_FILE).write_text(of.secret + "\n")
    copy = LocalCluster(directory)
    for node_id in node_ids(of):
        shutil.copytree(of.data_dir(node_id), copy.data_dir(node_id), dirs_exist_ok=True)
    return copy


async def answering(cluster: LocalCluster) -> None:
    """Wait until all nodes answer, whether they serve or not."""
    ids = node_ids(cluster)
    await until(lambda: all((cluster.ask(node_id, "/livez") or (0,))[0] == 200 for node_id in ids), "answers")


def tells(cluster: LocalCluster, node_id: str, peer_id: str) -> bool:
    """Whether a node has heard from a peer that it is as far as this node: peers say so once a second."""
    view = cluster.view(node_id)
    return view is not None and view["revision"] in {
        node["revision"] for node in view["nodes"] if node["id"] == peer_id
    }


async def obstacles(http: Http, node_id: str) -> set[str]:
    """Return the kinds of the obstacles that a node meets."""
    view = await http.call(node_id, "GET", "/v1/cluster")
    return {obstacle["kind"] for obstacle in view.body["obstacles"]}


async def test_the_copy_of_a_cluster_serves_only_instead_of_its_original(tmp_path: Path) -> None:
    """Beside it the copy takes no part, and both say so; without the original, a restart is enough."""
    with LocalCluster.up(tmp_path / "a") as ours:
        async with http_to(ours) as http:
            held = await http.acquire("n1", "held", ttl_ms=TTL_MS)
            ours.down()
            copy = copied(ours, tmp_path / "b")
            for node_id in node_ids(ours):
                ours.start(node_id)
            wait_whole(ours)
            try:
                async with http_to(copy) as copy_http:
                    for node_id in node_ids(copy):
                        copy.start(node_id)

                    async def is_shut_out() -> bool:
                        met = [await obstacles(copy_http, node_id) for node_id in ("n1", "n2")]
                        return all("shut-out" in kinds for kinds in met)

                    await answering(copy)
                    await until(is_shut_out, "the copies say that they are shut out")
                    assert (await copy_http.acquire("n1", "new")).status == 503
                    assert "refuses-peer" in await obstacles(http, "n3")
                    assert (await http.acquire("n3", "new")).status == 200
                    ours.down()
                    assert (await copy_http.acquire("n1", "new")).status == 503, "nobody has decided yet"
                    copy.down()
                    for node_id in node_ids(copy):
                        copy.start(node_id)
                    copy.wait_ready()
                    assert await copy_http.token("n3", "held") == held.body["token"]
            finally:
                copy.down()


async def test_an_older_directory_is_refused_after_all_were_stopped(tmp_path: Path) -> None:
    """The others have kept how far it had come; with its present directory it is let in again."""
    with LocalCluster.up(tmp_path / "a") as cluster:
        async with http_to(cluster) as http:
            cluster.terminate("n3")
            data_dir, older, newer = cluster.data_dir("n3"), tmp_path / "older", tmp_path / "newer"
            shutil.copytree(data_dir, older)
            cluster.start("n3")
            wait_whole(cluster)
            granted = await http.acquire("n1", "after", ttl_ms=TTL_MS)
            assert await http.token("n3", "after") == granted.body["token"]
            await until(
                lambda: all(tells(cluster, node_id, "n3") for node_id in ("n1", "n2")), "a ping of n3"
            )
            cluster.down()
            data_dir.rename(newer)
            shutil.copytree(older, data_dir)
            said = LogSince(cluster, "n1")
            for node_id in node_ids(cluster):
                cluster.start(node_id)
            await answering(cluster)

            async def is_shut_out() -> bool:
                return "shut-out" in await obstacles(http, "n3")

            await until(is_shut_out, "n3 says that it is shut out")
            words = ("level=critical", "event=older-copy peer=n3", "Do not delete anything yet")
            await until(lambda: said.lines(*words), "n1 says so, too")
            assert await http.metric("n1", "holdfast_older_copies_total") > 0
            assert (await http.acquire("n3", "more")).status == 503
            await until(lambda: cluster.leader() in ("n1", "n2"), "the others lead")
            assert await http.token("n1", "after") == granted.body["token"]
            cluster.terminate("n3")
            shutil.rmtree(data_dir)
            newer.rename(data_dir)
            cluster.start("n3")
            wait_whole(cluster)
            assert await http.token("n3", "after") == granted.body["token"]
