"""Members come and go on a running cluster, and clients do not notice."""

import asyncio
import signal
import time
from pathlib import Path

import pytest

from scripts.local_cluster import LocalCluster
from tests.process import history_checkers
from tests.process.load import Load
from tests.process.nodes import (
    Got,
    Http,
    LogSince,
    bring_all_back,
    exit_code,
    followers,
    forget_node,
    http_to,
    make_node,
    node_ids,
    until,
    urls,
    wait_whole,
)

pytestmark = pytest.mark.process

IDENTITY_REFUSED = 4
COMPACT_ENTRIES = 100
HOLDS = 8_000
"""Enough that a snapshot takes a while."""


def voters(got: Got) -> list[str]:
    """Return the voters, by the answer to a change."""
    assert got.status == 200, got
    return [member["id"] for member in got.body["members"] if member["state"] == "voter"]


async def join(cluster: LocalCluster, http: Http, asked: str, node_id: str) -> None:
    """Add a node, start it, and wait until it counts."""
    peer = make_node(cluster, node_id)
    await asyncio.to_thread(cluster.start, node_id)
    added = await http.add_member(asked, node_id, peer)
    assert added.status == 200, added

    async def counts() -> bool:
        return node_id in voters(await http.add_member(asked, node_id, peer))

    await until(counts, f"{node_id} counts")


async def leave(cluster: LocalCluster, http: Http, asked: str, node_id: str) -> None:
    """Remove a node that runs; it ends by itself, with the code for that."""
    removed = await http.remove_member(asked, node_id)

    async def is_decided() -> bool:
        nonlocal removed
        is_early = removed.status == 409 and "can be reached" in removed.body["detail"]
        if is_early:  # on a busy machine a link breaks now and then, and is made anew
            removed = await http.remove_member(asked, node_id)
        return not is_early

    await until(is_decided, f"{node_id} may go")
    assert removed.status == 200, removed
    assert node_id not in voters(removed)
    assert await asyncio.to_thread(exit_code, cluster, node_id) == IDENTITY_REFUSED
    forget_node(cluster, node_id)


async def test_from_three_to_five_and_back_under_load(tmp_path: Path) -> None:
    """Growing, and shrinking with the leader among those removed, costs clients no error.

    Tokens rise, and the nodes that were there first are not among those that are left.
    """
    with LocalCluster.up(tmp_path) as cluster:
        async with http_to(cluster) as http, Load(urls(cluster), prefix="grow") as load:
            for node_id in ("n4", "n5"):
                await join(cluster, http, "n1", node_id)
                await load.grants(100)
            assert set(await http.members("n5")) == {"n1", "n2", "n3", "n4", "n5"}
            leader = await asyncio.to_thread(cluster.leader)
            goes = [leader, next(node_id for node_id in ("n3", "n2") if node_id != leader)]
            for node_id in goes:
                await leave(cluster, http, "n5", node_id)
                await load.grants(100)
            remaining = node_ids(cluster)
            assert len(remaining) == 3
            assert set(await http.members("n5")) == set(remaining)
        assert not history_checkers.violations(load.history)
        assert not history_checkers.errors(load.history)
        # Those who are left are a cluster of three: any two go on.
        async with http_to(cluster) as http:
            await asyncio.to_thread(cluster.kill, remaining[0])
            assert (await http.acquire(remaining[1], "two-of-three")).status == 200


async def test_a_removed_node_that_comes_back_is_told(tmp_path: Path) -> None:
    """A node that was down when it was removed ends with code 4 and says what to do, whatever its id."""
    with LocalCluster.up(tmp_path) as cluster:
        async with http_to(cluster) as http:
            await join(cluster, http, "n2", "n4")
            await join(cluster, http, "n2", "n0")
            for gone in ("n4", "n0"):
                await asyncio.to_thread(cluster.kill, gone)
                assert gone not in voters(await http.remove_member("n2", gone))
                said = LogSince(cluster, gone)
                cluster.start(gone)
                assert await asyncio.to_thread(exit_code, cluster, gone) == IDENTITY_REFUSED
                (line, *_) = said.lines("event=node-failed")
                assert f"node {gone} was removed from this cluster" in line
                assert "empty data directory and --join" in line


async def test_who_was_away_finds_those_who_joined(tmp_path: Path) -> None:
    """A node that was down while all others were replaced is found by the new ones, and catches up."""
    with LocalCluster.up(tmp_path) as cluster:
        async with http_to(cluster) as http:
            await asyncio.to_thread(cluster.kill, "n3")
            for node_id in ("n0", "n4"):
                await join(cluster, http, "n2", node_id)
            for node_id in ("n1", "n2"):
                await leave(cluster, http, "n4", node_id)
            kept = await http.acquire("n4", "kept", ttl_ms=600_000)
            assert kept.status == 200
            # It knows n1 and n2 only, who are gone.
            await asyncio.to_thread(cluster.start, "n3")

            def has_list() -> bool:
                view = cluster.view("n3") or {"nodes": []}
                return {node["id"] for node in view["nodes"]} == {"n0", "n3", "n4"}

            await until(has_list, "n3 knows the members")
            await asyncio.to_thread(wait_whole, cluster)
            await asyncio.to_thread(cluster.kill, "n0")
            assert await http.token("n3", "kept") == kept.body["token"]


async def test_what_would_lose_the_quorum_is_refused(cluster: LocalCluster) -> None:
    """With one of three dead, the other follower cannot be removed; the dead one can, and comes back."""
    dead, alive = followers(cluster)
    async with http_to(cluster) as http:
        cluster.kill(dead)
        leader = cluster.leader()

        async def is_gone() -> bool:
            return (await http.members(leader))[dead] == "unreachable"

        await until(is_gone, "the leader misses the dead node")
        refused = await http.remove_member(alive, alive)
        assert (refused.status, refused.code) == (409, "member-change-refused")
        assert (
            f"of {', '.join(sorted((leader, dead)))} only {leader} can be reached" in refused.body["detail"]
        )
        refused = await http.remove_member(alive, leader)
        assert (refused.status, refused.code) == (409, "member-change-refused")
        assert cluster.leader() == leader, "nobody hands over in vain"
        assert (await http.remove_member(alive, "n9")).code == "member-not-found"
        taken = await http.add_member(alive, "n9", cluster.node(dead).peer)
        assert (taken.code, taken.status) == ("member-change-refused", 409)
        assert f"is the address of {dead}" in taken.body["detail"]
    bring_all_back(cluster)
    async with http_to(cluster) as http:
        assert len(await http.members("n1")) == 3


async def test_no_majority_no_change(cluster: LocalCluster) -> None:
    """Without a majority nothing can be changed: the node says that there is no leader, or does not know."""
    asked, *others = node_ids(cluster)
    for node_id in others:
        cluster.kill(node_id)
    async with http_to(cluster) as http:
        got = await http.call(
            asked,
            "POST",
            "/v1/cluster/members",
            {"id": "n9", "peer": "127.0.0.1:1", "reason": "by hand"},
            timeout_ms=1500,
        )
        assert got.code in ("no-leader", "outcome-unknown")
        for node_id in others:
            cluster.start(node_id)
        await asyncio.to_thread(cluster.wait_ready)
        # What is not known may have come true with the others: then n9 is there, and nobody else misses it.
        undone = await http.remove_member(asked, "n9")
        assert undone.code in ("member-not-found", "")
        assert len(await http.members(asked)) == 3
    bring_all_back(cluster)


async def test_a_change_on_any_node_and_a_removal_of_the_asked_leader(tmp_path: Path) -> None:
    """Followers pass a change on; a leader that is told to remove itself hands over, answers, and ends."""
    with LocalCluster.up(tmp_path) as cluster:
        async with http_to(cluster) as http:
            await join(cluster, http, followers(cluster)[0], "n4")
            leader = cluster.leader()
            removed = await http.remove_member(leader, leader)
            assert removed.status == 200
            assert len(voters(removed)) == 3
            assert await asyncio.to_thread(exit_code, cluster, leader) == IDENTITY_REFUSED
            forget_node(cluster, leader)
            # Said twice, it is still so.
            asked = node_ids(cluster)[0]
            assert voters(await http.remove_member(asked, leader)) == voters(removed)


async def test_a_joining_node_that_is_killed_still_joins(tmp_path: Path) -> None:
    """A node that dies again and again while it takes the snapshot counts in the end, and not before."""
    arguments = ["--compact-entries", str(COMPACT_ENTRIES)]
    with LocalCluster.up(tmp_path, extra_args=arguments) as cluster:
        async with http_to(cluster) as http:
            note = "n" * 1000
            for first in range(0, HOLDS, 100):
                names = [f"kept/{first + i}" for i in range(100)]
                batch = [http.acquire("n1", name, note=note, ttl_ms=600_000) for name in names]
                assert {got.status for got in await asyncio.gather(*batch)} == {200}
            leader_said = LogSince(cluster, cluster.leader())
            async with Load(urls(cluster), prefix="more", clients=4):
                await until(lambda: len(leader_said.lines("event=snapshot-written")) >= 2, "two compactions")

            peer = make_node(cluster, "n4")
            incoming = cluster.data_dir("n4") / "incoming.tmp"
            said = LogSince(cluster, "n4")
            assert voters(await http.add_member("n2", "n4", peer)) == ["n1", "n2", "n3"]

            def is_in_the_middle() -> bool:
                is_begun = incoming.exists() and incoming.stat().st_size > 0
                return is_begun or bool(said.lines("event=snapshot-installed"))

            for _ in range(3):
                await asyncio.to_thread(cluster.start, "n4")
                await until(is_in_the_middle, "a part of the snapshot")
                await asyncio.to_thread(cluster.kill, "n4")
            middles = 3 - len(said.lines("event=snapshot-installed"))
            print("kills in the middle of the snapshot:", middles)
            assert middles
            await asyncio.to_thread(cluster.start, "n4")

            async def counts() -> bool:
                return "n4" in voters(await http.add_member("n2", "n4", peer))

            await until(counts, "n4 counts")
            assert len(await http.tokens("n4", "kept/", is_stale=True)) == HOLDS


async def test_the_list_in_the_log_outlives_the_configuration(tmp_path: Path) -> None:
    """After a restart with the peers of the beginning, the members are those of the log; a line says so."""
    with LocalCluster.up(tmp_path) as cluster:
        async with http_to(cluster) as http:
            await join(cluster, http, "n1", "n4")
            await leave(cluster, http, "n1", "n3")
            kept = await http.acquire("n1", "kept", ttl_ms=600_000)
            said = LogSince(cluster, "n1")
            for node_id in node_ids(cluster):
                cluster.send_signal(node_id, signal.SIGKILL)
            for node_id in node_ids(cluster):
                await asyncio.to_thread(exit_code, cluster, node_id)
            for node_id in node_ids(cluster):
                await asyncio.to_thread(cluster.start, node_id)
            await asyncio.to_thread(cluster.wait_ready)
            (line,) = said.lines("event=members-differ")
            assert "n4=" in line.partition(" configured=")[0]
            assert "n3=" in line.partition(" configured=")[2]
            assert set(await http.members("n2")) == {"n1", "n2", "n4"}
            assert await http.token("n4", "kept") == kept.body["token"]
            # n4 counts: with n1 down, it and n2 are a majority.
            await asyncio.to_thread(cluster.kill, "n1")
            assert (await http.acquire("n4", "later")).status == 200


async def test_a_node_that_is_no_member_is_told(cluster: LocalCluster, tmp_path: Path) -> None:
    """A joining node that nobody has added waits and says so; it is not ready and changes nothing."""
    del tmp_path
    make_node(cluster, "n4")
    try:
        said = LogSince(cluster, "n4")
        cluster.start("n4")
        await until(lambda: said.lines("event=joining"), "the node says that it waits")
        await until(
            lambda: said.lines("event=not-let-in", "not a member"), "the node says why it is not let in"
        )
        async with http_to(cluster) as http:
            assert (await http.call("n4", "GET", "/readyz")).status == 503
            assert set(await http.members("n1")) == {"n1", "n2", "n3"}
    finally:
        cluster.kill("n4")
        forget_node(cluster, "n4")


async def test_one_node_grows_to_three(tmp_path: Path) -> None:
    """A cluster of one that has a secret and a peer port takes others, and survives its first node."""
    with LocalCluster.up(tmp_path, nodes=1) as cluster:
        async with http_to(cluster) as http:
            kept = await http.acquire("n1", "kept", ttl_ms=600_000)
            await join(cluster, http, "n1", "n2")
            await join(cluster, http, "n1", "n3")
            await asyncio.to_thread(cluster.kill, "n1")
            began_s = time.monotonic()
            assert await http.token("n2", "kept") == kept.body["token"]
            print("the first node was replaced as leader after, s:", round(time.monotonic() - began_s, 2))
