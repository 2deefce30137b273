"""Real nodes that know their callers: what belongs to whom is the same on each of them, and lasts."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from holdfast import wire
from scripts.local_cluster import LocalCluster
from tests.process.nodes import Got, make_node, node_ids, until
from tests.support.known_cluster import LINES, TOKENS, KnownCluster
from tests.unit.http_api.serving import bearer

pytestmark = pytest.mark.process

TTL_MS = 600_000
USED = dict.fromkeys(("sessions", "holds", "waits", "cells", "fences", "rate_limits", "bytes"), 0)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three nodes with one tokens file."""
    file = tmp_path / "tokens"
    file.write_bytes(LINES)
    file.chmod(0o600)
    with KnownCluster.up(tmp_path / "cluster", extra_args=["--tokens", str(file)]) as started:
        yield started


async def ask(cluster: LocalCluster, node_id: str, who: str, method: str, path: str, **body: Any) -> Got:
    """Make one call as somebody, to one node."""
    url = cluster.node(node_id).http + path
    async with (
        aiohttp.ClientSession() as client,
        client.request(method, url, json=body or None, headers=bearer(TOKENS[who])) as response,
    ):
        return Got(response.status, await response.json(content_type=None))


async def renewals(cluster: LocalCluster, hold_id: str) -> list[tuple[str, str]]:
    """Return what Ann and Bob are told on each node when they renew a hold."""
    told = []
    for node_id in ("n1", "n2", "n3"):
        for who in ("ann", "bob"):
            got = await ask(cluster, node_id, who, "POST", wire.LOCK_RENEW, hold_id=hold_id)
            told.append((who, got.code))
    return told


async def test_what_belongs_to_whom_on_every_node(cluster: LocalCluster) -> None:
    """It does not matter through which node it was made; quotas count what was made through any."""
    got = await ask(cluster, "n1", "ann", "POST", wire.SESSIONS, ttl_ms=TTL_MS)
    session_id = got.body["session_id"]
    lease: dict[str, Any] = {"session_id": session_id}
    in_session = (await ask(cluster, "n2", "ann", "POST", wire.LOCK_ACQUIRE, name="a", **lease)).body
    # With a wait and without, which are two ways through a node.
    lease = {"ttl_ms": TTL_MS, "wait_ms": 1000}
    own = (await ask(cluster, "n3", "ann", "POST", wire.LOCK_ACQUIRE, name="b", **lease)).body
    for hold_id in (in_session["hold_id"], own["hold_id"]):
        assert await renewals(cluster, hold_id) == [("ann", ""), ("bob", "lease-expired")] * 3
    assert (await ask(cluster, "n3", "bob", "GET", f"/v1/sessions/{session_id}")).code == "session-expired"
    assert (await ask(cluster, "n1", "ops", "PUT", "/v1/quotas/ann", holds=2, reason="by hand")).status == 200
    third = await ask(cluster, "n2", "ann", "POST", wire.LOCK_ACQUIRE, name="c", **lease)
    assert third.code == "quota-exceeded"
    for node_id in node_ids(cluster):
        await asyncio.to_thread(cluster.kill, node_id)
    for node_id in node_ids(cluster):
        cluster.start(node_id)
    await asyncio.to_thread(cluster.wait_ready)
    assert await renewals(cluster, own["hold_id"]) == [("ann", ""), ("bob", "lease-expired")] * 3
    (row,) = (await ask(cluster, "n2", "ops", "GET", wire.QUOTAS)).body["quotas"]
    assert (row["principal"], row["used"]) == ("ann", USED | {"sessions": 1, "holds": 2, "bytes": 2})


async def test_a_node_that_joins_lets_nobody_reach_what_is_anothers(cluster: LocalCluster) -> None:
    """Neither before it counts, when it does not know the rules of the cluster yet, nor afterwards."""
    own = await ask(cluster, "n1", "ann", "POST", wire.LOCK_ACQUIRE, name="a", ttl_ms=TTL_MS)
    peer = make_node(cluster, "n4")
    await asyncio.to_thread(cluster.start, "n4")
    told: set[str] = set()

    async def counts() -> bool:
        added = await ask(
            cluster, "n1", "ops", "POST", wire.CLUSTER_MEMBERS, id="n4", peer=peer, reason="by hand"
        )
        try:
            renewed = await ask(cluster, "n4", "bob", "POST", wire.LOCK_RENEW, hold_id=own.body["hold_id"])
        except aiohttp.ClientConnectionError:  # it has only begun to start
            return False
        told.add(renewed.code)
        states = {member["id"]: member["state"] for member in added.body["members"]}
        return states.get("n4") == "voter" and renewed.code == "lease-expired"

    await until(counts, "n4 counts")
    assert told <= {"lease-expired", "no-leader", "not-ready"}


async def test_a_principal_that_is_shut_out_is_granted_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    """Its wait, on whatever node, ends soon after one node has read the file: nothing is granted for it."""
    held = await ask(cluster, "n1", "bob", "POST", wire.LOCK_ACQUIRE, name="a", ttl_ms=TTL_MS)
    fields = {"name": "a", "ttl_ms": TTL_MS, "wait_ms": 24 * 3_600_000}
    waiting = asyncio.ensure_future(ask(cluster, "n2", "ann", "POST", wire.LOCK_ACQUIRE, **fields))

    async def waits() -> bool:
        return bool((await ask(cluster, "n1", "ops", "GET", f"{wire.HOLDS}?principal=ann")).body["tickets"])

    await until(waits, "ann waits")
    file = tmp_path / "tokens"
    new = tmp_path / "tokens.new"
    new.write_bytes(b"".join([line for line in file.read_bytes().splitlines(True) if line[:4] != b"ann "]))
    new.chmod(0o600)
    new.replace(file)
    refused = await waiting
    assert (refused.status, refused.code) == (410, "ticket-ended")
    assert "principal 'ann' is not let in any more by n" in refused.body["detail"]
    released = await ask(cluster, "n3", "bob", "POST", wire.LOCK_RELEASE, hold_id=held.body["hold_id"])
    assert released.status == 200
    assert (await ask(cluster, "n1", "ops", "GET", "/v1/locks/a")).body["state"] == "free"
    events = (await ask(cluster, "n1", "ops", "GET", f"{wire.AUDIT}?name=a")).body["events"]
    assert [one["principal"] for one in events if one["event"] == "wait-forced"] == ["ann"]
