"""Which version a node runs is told wherever an operator may look."""

import urllib.request

import pytest

from cluster.build import this_build
from scripts.local_cluster import LocalCluster
from tests.process.nodes import until

pytestmark = pytest.mark.process


def test_a_node_tells_its_version_everywhere(cluster: LocalCluster) -> None:
    """The first line of its log, a header of every answer, and a metric."""
    build = this_build()
    first = cluster.log("n1").read_text().splitlines()[0]
    assert f" event=starting node_id=n1 version={build.version} commit={build.commit or '-'} " in first
    assert " snapshot_bytes=0 journal_bytes=0" in first
    with urllib.request.urlopen(cluster.node("n1").http + "/metrics") as answer:
        assert answer.headers["Server"] == f"holdfast/{build.version}"
        text = answer.read().decode()
    labels = f'version="{build.version}",commit="{build.commit}",python="{build.python}"'
    assert f"holdfast_build_info{{{labels}}} 1\n" in text


async def test_nodes_tell_the_versions_of_their_peers(cluster: LocalCluster) -> None:
    """Each node knows what the others run, and goes on knowing it of one that has died."""

    def runs(node_id: str) -> dict[str, tuple[str, str, int]]:
        view = cluster.view(node_id) or {"nodes": []}
        return {node["id"]: (node["state"], node["version"], node["rules"]) for node in view["nodes"]}

    build = this_build()
    await until(
        lambda: (
            {(version, rules) for _, version, rules in runs("n1").values()} == {(build.version, build.rules)}
        ),
        "n1 knows what all run",
    )
    cluster.kill("n3")
    await until(lambda: runs("n1")["n3"] == ("unreachable", build.version, build.rules), "n3 is gone")
    cluster.start("n3")
