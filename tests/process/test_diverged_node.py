"""A real node whose state is not that of the others stops by itself; the others serve on."""

import asyncio
from pathlib import Path

import pytest

from scripts.local_cluster import LocalCluster
from tests.process.nodes import LogSince, bring_all_back, exit_code, followers, http_to, until

pytestmark = pytest.mark.process

STOPS_WITHIN_S = 10
PLANTED = """
from lockstate.rules.sessions import Sessions
Sessions.expire_due = lambda self: None
"""
"""The defect: this process lets no lease end. Python runs it before the node begins."""


async def test_a_node_that_forgets_an_expiry_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with code 70 within ten seconds, and says at which revision it had another state than whom."""
    (tmp_path / "sitecustomize.py").write_text(PLANTED)
    # A cluster of its own: a lease that another test left would end too early.
    with LocalCluster.up(tmp_path / "cluster") as cluster:
        await _forget_an_expiry(cluster, tmp_path, monkeypatch)


async def _forget_an_expiry(cluster: LocalCluster, planted_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, other = followers(cluster)
    said = LogSince(cluster, wrong)
    cluster.terminate(wrong)
    with monkeypatch.context() as patched:
        patched.setenv("PYTHONPATH", str(planted_in))
        cluster.restart(wrong)
    async with http_to(cluster) as http:
        await until(lambda: (cluster.ask(wrong, "/readyz") or (0,))[0] == 200, "the node follows")
        held = await http.acquire(other, "diverged/lease", ttl_ms=100)
        assert held.status == 200
        assert await asyncio.to_thread(exit_code, cluster, wrong, STOPS_WITHIN_S) == 70
        line, *_ = said.lines("event=node-failed")
        assert "the state of this node differs from that of the majority at revision" in line
        assert all(node_id in line for node_id in (cluster.leader() or "no leader", other))
        assert (await http.acquire(other, "diverged/lease", wait_ms=5_000)).status == 200
        # The same disk with the right program: the state is made anew, and is that of the others.
        bring_all_back(cluster)
        await until(lambda: (cluster.ask(wrong, "/readyz") or (0,))[0] == 200, "the node is back")
        assert not said.lines("event=in-doubt")
