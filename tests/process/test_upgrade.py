"""Two releases in one cluster: a change of what commands do, with and without a number of its own."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from lockstate.versions import RULES_NEWEST
from scripts.local_cluster import PROJECT
from tests.process.nodes import (
    Http,
    LogSince,
    exit_code,
    followers,
    http_to,
    node_ids,
    until,
    wait_whole,
)
from tests.process.releases import MixedCluster, patched_release

pytestmark = pytest.mark.process

FAILED: Final = 70
RULES: Final = "holdfast_rules_active"


def leader_first(cluster: MixedCluster) -> list[str]:
    """Return all nodes, the leader first."""
    others = followers(cluster)
    return [*(set(node_ids(cluster)) - set(others)), *reversed(others)]


async def rules_of(http: Http, cluster: MixedCluster) -> set[float]:
    """Return the rules that the nodes follow, as they say themselves."""
    return {await http.metric(node_id, RULES) for node_id in node_ids(cluster)}


STEAL: Final = """

_acquire = Locks.acquire


def _acquire_or_steal(self, command, key=None):
    if command.note == "steal" and self._state.rules >= {since}:
        self.force_release(ForceRelease(command.name, "stolen"))
    return _acquire(self, command, key)


Locks.acquire = _acquire_or_steal
"""
"""A change of what an acquire does, as careless as can be: a client takes a lock from its holder."""

COMPARED_WITHIN_S: Final = 10
RULES_NEXT: Final = RULES_NEWEST + 1
NEXT_RULES: Final = f"""

RULES[{RULES_NEXT}] = Rules({RULES_NEXT}, *RULES[{RULES_NEWEST}][1:4], "An acquire may steal.")
RULES_NEWEST = {RULES_NEXT}
"""


async def holders_after_a_steal(http: Http, cluster: MixedCluster, asked: str) -> list[list[str]]:
    """Let A hold a lock and B steal it through `asked`; return the holders that each node knows then."""
    assert (await http.acquire("n1", "y", owner="A")).status == 200
    await http.acquire(asked, "y", owner="B", note="steal")
    seen = []
    for node_id in node_ids(cluster):
        view = await http.lock(node_id, "y")
        seen.append([holder["owner"] for holder in view.body["holders"]])
    return seen


async def test_a_change_without_a_number_gives_one_lock_two_holders(tmp_path: Path) -> None:
    """What the numbers are for: two builds differ in what a command does, and nothing keeps them apart.

    Until their states are compared, within ten seconds: then the one that differs from the others stops.
    """
    changed = patched_release(tmp_path / "changed", [("lockstate/locks.py", STEAL.format(since=0))])
    with MixedCluster.of(tmp_path / "mixed", PROJECT) as cluster:
        async with http_to(cluster) as http:
            upgraded = followers(cluster)[0]
            cluster.replace(upgraded, changed)
            await asyncio.to_thread(wait_whole, cluster)
            log = LogSince(cluster, upgraded)
            seen = await holders_after_a_steal(http, cluster, upgraded)
            assert sorted(seen) == [["A"], ["A"], ["B"]]
            assert await asyncio.to_thread(exit_code, cluster, upgraded, COMPARED_WITHIN_S) == FAILED
            assert log.lines("event=node-failed", "the state of this node differs from that of the majority")
            others = [node_id for node_id in node_ids(cluster) if node_id != upgraded]
            for node_id in others:
                assert (await http.acquire(node_id, f"of-{node_id}")).status == 200


async def test_a_change_behind_a_number_never_gives_one_lock_two_holders(tmp_path: Path) -> None:
    """The same change as the next rules: nobody follows it until all can, then all do, from one entry on."""
    changed = patched_release(
        tmp_path / "changed",
        [
            ("lockstate/locks.py", STEAL.format(since=RULES_NEXT)),
            ("lockstate/versions.py", NEXT_RULES),
        ],
    )
    with MixedCluster.of(tmp_path / "mixed", PROJECT) as cluster:
        async with http_to(cluster) as http:
            nodes = leader_first(cluster)
            for node_id in nodes[:-1]:
                await asyncio.to_thread(cluster.replace, node_id, changed)
                await asyncio.to_thread(wait_whole, cluster)
                assert await holders_after_a_steal(http, cluster, node_id) == [["A"]] * 3
                assert await rules_of(http, cluster) == {RULES_NEWEST}
                held = await http.lock(node_id, "y")
                assert (await http.call("n1", "POST", "/v1/locks/force-release", FORCE)).status == 200
                assert len(held.body["holders"]) == 1
            await asyncio.to_thread(cluster.replace, nodes[-1], changed)
            await asyncio.to_thread(wait_whole, cluster)

            async def advanced() -> bool:
                return await rules_of(http, cluster) == {RULES_NEXT}

            await until(advanced, "the rules move on")
            assert await holders_after_a_steal(http, cluster, nodes[0]) == [["B"]] * 3


FORCE: Final = {"name": "y", "reason": "the next round"}
