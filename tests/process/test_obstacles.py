"""An operator who asks a real node that does not serve is told why, for how long, and what to do."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from scripts.local_cluster import PROJECT, LocalCluster, node_environment
from tests.process.nodes import bring_all_back, node_command, running, until
from tests.support.http_contract import OBSTACLE_FIELDS

pytestmark = pytest.mark.process


def told(cluster: LocalCluster, node_id: str) -> dict[tuple[str, str | None], dict[str, Any]]:
    """Return the obstacles that a node tells, by kind and peer; none if it does not answer."""
    found = (cluster.view(node_id) or {}).get("obstacles", [])
    assert all(tuple(obstacle) == OBSTACLE_FIELDS for obstacle in found)
    return {(obstacle["kind"], obstacle["peer"]): obstacle for obstacle in found}


async def status(cluster: LocalCluster, node_id: str) -> str:
    """Return what `holdfast status` prints of a node."""
    child = await asyncio.create_subprocess_exec(
        PROJECT / ".venv/bin/holdfast",
        "--nodes",
        cluster.node(node_id).http,
        "status",
        stdout=asyncio.subprocess.PIPE,
        env=node_environment(),
    )
    out, _ = await child.communicate()
    return out.decode()


async def test_a_lost_quorum_is_told_with_whom_it_lacks(cluster: LocalCluster) -> None:
    """A healthy cluster has no obstacles; each dead node is one; two of three are the quorum, too."""
    await until(lambda: cluster.view("n1") and not told(cluster, "n1"), "a healthy node has no obstacles")
    cluster.kill("n3")
    await until(lambda: told(cluster, "n1").keys() == {("unreachable", "n3")}, "n3 is unreachable")
    cluster.kill("n2")
    await until(lambda: ("no-quorum", None) in told(cluster, "n1"), "n1 has no quorum")
    await until(lambda: ("unreachable", "n2") in told(cluster, "n1"), "n2 is unreachable, too")
    obstacles = told(cluster, "n1")
    assert "n1 reaches n1" in obstacles["no-quorum", None]["detail"]
    assert obstacles["unreachable", "n2"]["for_ms"] < obstacles["unreachable", "n3"]["for_ms"]
    assert obstacles["unreachable", "n2"]["for_ms"] == obstacles["no-quorum", None]["for_ms"]
    await until(
        lambda: "refused" in told(cluster, "n1")["unreachable", "n2"]["detail"].lower(), "the error is told"
    )
    printed = await status(cluster, "n1")
    assert "no-quorum for" in printed
    assert "    bring back n3 or n2" in printed
    await asyncio.to_thread(bring_all_back, cluster)
    await until(lambda: cluster.view("n1") and not told(cluster, "n1"), "all is well again")


async def test_another_secret_is_told_on_both_sides(cluster: LocalCluster, tmp_path: Path) -> None:
    """Who cannot prove itself is unreachable, because of its secret."""
    cluster.kill("n3")
    wrong = tmp_path / "secret"
    wrong.write_text("not the secret of this cluster")
    with running(node_command(cluster, "n3", secret_file=str(wrong)), tmp_path / "log"):
        for asked, peer in (("n1", "n3"), ("n3", "n2")):
            await until(
                lambda asked=asked, peer=peer: (  # type: ignore[misc]
                    "cluster secret" in told(cluster, asked).get(("unreachable", peer), {}).get("detail", "")
                ),
                f"{asked} says what is wrong with the secret",
            )
    await asyncio.to_thread(bring_all_back, cluster)


async def test_who_was_removed_and_who_waits_are_told(cluster: LocalCluster, tmp_path: Path) -> None:
    """A node on an empty disk is refused with the reason; on both sides it is known whose disk counts."""
    cluster.kill("n3")
    argv = node_command(cluster, "n3", data_dir=str(tmp_path / "empty"))
    with running(argv, tmp_path / "log"):
        await until(lambda: ("refuses-peer", "n3") in told(cluster, "n1"), "n1 says whom it refuses")
        obstacle = told(cluster, "n1")["refuses-peer", "n3"]
        assert "for other-disk: node n3" in obstacle["detail"]
        assert ("unreachable", "n3") not in told(cluster, "n1"), "it is told once"
    await asyncio.to_thread(bring_all_back, cluster)


async def test_a_founding_names_whom_it_waits_for(tmp_path: Path) -> None:
    """A cluster that never began says so, and which of its nodes are missing."""
    with LocalCluster.up(tmp_path / "cluster") as cluster:
        cluster.down()
        argv = node_command(cluster, "n1", data_dir=str(tmp_path / "new"))
        with running(argv, tmp_path / "log"):
            await until(lambda: ("founding", None) in told(cluster, "n1"), "the founding is an obstacle")
            obstacles = told(cluster, "n1")
            assert "waits for n2, n3" in obstacles["founding", None]["detail"]
            assert obstacles.keys() >= {("unreachable", "n2"), ("unreachable", "n3")}
