"""Two clusters with the same secret, one wrong address between them: neither does the other any harm."""

from pathlib import Path

import pytest

from scripts.lib import cluster_file
from scripts.local_cluster import LocalCluster
from tests.process.nodes import LogSince, http_to, node_ids, slow, until

pytestmark = pytest.mark.process

TTL_MS = 600_000
REFUSALS_COUNT = 4
"""One about every two seconds."""


def make_other(directory: Path, of: LocalCluster) -> Path:
    """Write the files of another cluster, of n4, n5 and n6, with the secret of the first."""
    cluster_file.create(directory, 3, 0, ())
    document = cluster_file.read(directory)
    for number, node in enumerate(document["nodes"], start=4):
        node["id"] = f"n{number}"
        (directory / f"n{number}").mkdir()
    document["secret"] = of.secret
    cluster_file.write(directory / cluster_file.FILE, document)
    (directory / cluster_file.SECRET_FILE).write_text(of.secret + "\n")
    return directory


@pytest.mark.parametrize("added", ["n4", slow("n6")])
async def test_a_node_of_another_cluster_never_counts(tmp_path: Path, added: str) -> None:
    """Added by a wrong address it stays out and keeps its own state; both clusters go on; people are told."""
    with (
        LocalCluster.up(tmp_path / "a") as ours,
        LocalCluster.up(make_other(tmp_path / "b", ours)) as theirs,
    ):
        async with http_to(ours) as http, http_to(theirs) as other_http:
            kept = await http.acquire("n1", "a/0", ttl_ms=TTL_MS, owner="alice")
            other = await other_http.acquire("n4", "b/0", ttl_ms=TTL_MS, owner="bob")
            # A newer list than the other cluster has.
            spare = ours.node("n1").peer.replace("127.0.0.1", "127.0.0.2")
            assert (await http.add_member("n1", "n9", spare)).status == 200
            assert (await http.remove_member("n1", "n9")).status == 200
            said = {node_id: LogSince(ours, node_id) for node_id in node_ids(ours)}
            peer = theirs.node(added).peer
            assert (await http.add_member("n1", added, peer)).status == 200

            async def is_told() -> bool:
                again = await http.add_member("n1", added, peer)
                return again.code == "member-change-refused" and "cluster" in str(again.body["detail"])

            await until(is_told, "the operator is told")
            # Long enough for nodes that would stop, or count.
            await until(
                lambda: all(
                    len(log.lines("event=not-let-in", f"peer={added}")) >= REFUSALS_COUNT
                    for log in said.values()
                ),
                "all nodes are refused again and again",
            )
            assert all(ours.is_alive(node_id) for node_id in node_ids(ours))
            assert all(theirs.is_alive(node_id) for node_id in node_ids(theirs))
            assert (await http.members("n2"))[added] in ("joining", "unreachable")
            assert set(await other_http.members(added)) == {"n4", "n5", "n6"}
            assert await http.token("n3", "a/0") == kept.body["token"]
            assert await other_http.token(added, "b/0") == other.body["token"]
            assert await other_http.token(added, "a/0") is None
            assert (await http.remove_member("n1", added)).status == 200
            assert (await http.acquire("n2", "a/1")).status == 200
            assert (await other_http.acquire("n5", "b/1")).status == 200
