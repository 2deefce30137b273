"""What everybody holds and waits for, of every kind, when all nodes die at once."""

import asyncio
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from holdfast import wire
from scripts.local_cluster import LocalCluster
from tests.process.load import Load
from tests.process.nodes import Http, LogSince, bring_all_back, http_to, node_ids, until, urls
from tests.process.patient_requests import ask, at, queue_is, read, write
from tests.process.test_kill_all import kill_all

pytestmark = pytest.mark.process

WAIT_MS = 20_000
TTL_MS = 60_000
MONTH_MS = 31 * 24 * 60 * 60 * 1000

Asked = tuple[str, dict[str, Any]]
"""A path, and what is sent there."""


class Parties:
    """Three sessions, each of which holds what another one waits for, or soon will.

    p has the permit and waits for the lock, q has the lock and waits to lead, r leads.
    """

    def __init__(self, http: Http, nodes: list[str]) -> None:
        self._http = http
        self._nodes = nodes
        self.sessions: dict[str, str] = {}
        self.held: dict[str, Any] = {}
        self.lost: list[asyncio.Task[Any]] = []

    async def hold(self) -> None:
        """Let each of them get something."""
        for owner, node_id in zip("pqr", self._nodes, strict=True):
            opened = await write(self._http, node_id, wire.SESSIONS, ttl_ms=TTL_MS)
            self.sessions[owner] = opened["session_id"]
        first: dict[str, Asked] = {
            "p": (wire.SEMAPHORE_ACQUIRE, {"name": "all/permit", "limit": 1}),
            "q": (wire.LOCK_ACQUIRE, {"name": "all/lock"}),
            "r": (wire.ELECTION_CAMPAIGN, {"name": "all/leads", "value": "r leads"}),
        }
        for owner, (path, fields) in first.items():
            self.held[owner] = await write(self._http, self._nodes[0], path, **fields, **self.party(owner))

    def party(self, owner: str) -> dict[str, Any]:
        """Return the fields that say who asks."""
        return {"session_id": self.sessions[owner], "owner": owner}

    def wanted(self, owner: str) -> Asked:
        """Return what one of them wants: path and body, the same each time."""
        wants: dict[str, Asked] = {
            "p": (wire.LOCK_ACQUIRE, {"name": "all/lock"}),
            "q": (wire.ELECTION_CAMPAIGN, {"name": "all/leads", "value": "q leads"}),
            "r": (wire.SEMAPHORE_ACQUIRE, {"name": "all/permit", "limit": 1}),
        }
        path, fields = wants[owner]
        patience = {"wait_ms": WAIT_MS, "request_id": f"all-together-for-{owner}"}
        return path, fields | self.party(owner) | patience

    async def wait(self, owner: str) -> None:
        """Let one of them wait at a node, with nothing done about it when that dies."""
        path, body = self.wanted(owner)
        self.lost.append(asyncio.create_task(self._http.call(self._nodes[0], "POST", path, body)))
        queue = at(wire.LOCK, "all/lock") if owner == "p" else at(wire.ELECTION, "all/leads")
        await queue_is(self._http, self._nodes[1], queue, owner)


async def test_all_killed_with_everything_held(compacting: LocalCluster) -> None:
    """After kill -9 of all nodes everything is as it was, waits and what they mean for deadlocks included."""
    cluster = compacting
    nodes = node_ids(cluster)
    quota = {"name": "all/quota", "limit": 2, "cost": 2, "window_ms": MONTH_MS, "algorithm": "gcra"}
    async with http_to(cluster) as http:
        assert (
            await http.call("n1", "PUT", "/v1/namespaces/all", {"holds": 50, "waits": 9, "reason": "by hand"})
        ).status == 200
        parties = Parties(http, nodes)
        await parties.hold()
        await parties.wait("p")
        await write(http, "n1", wire.RATE_TAKE, **quota)
        both = [{"name": "all/a"}, {"name": "all/b", "mode": "update"}]
        several = await write(http, "n1", wire.LOCK_ACQUIRE, locks=both, ttl_ms=TTL_MS)
        # One half is in a snapshot, the other in the log behind it.
        said = [LogSince(cluster, node_id) for node_id in nodes]
        async with Load(urls(cluster), prefix="all-load", clients=4):
            await until(lambda: all(item.lines("event=snapshot-written") for item in said), "all compact")
        await parties.wait("q")
        tree = (await http.acquire("n2", "all/tree", scope="subtree")).body
        token = tree["token"]
        await write(http, "n3", wire.FENCE_ADVANCE, name="all/disk", token=token)
        looked_at = [
            *[at(wire.LOCK, f"all/{item}") for item in ("lock", "a", "b", "tree", "tree/x")],
            at(wire.SEMAPHORE, "all/permit"),
            at(wire.ELECTION, "all/leads"),
            *[at(wire.SESSION, item) for item in parties.sessions.values()],
            *[at(wire.SESSION_AUDIT, item) for item in parties.sessions.values()],
            wire.NAMESPACES,
            *[f"{wire.AUDIT}?name={quote(item, safe='')}" for item in ("all/lock", "all/b", "all/tree")],
        ]
        before = [await read(http, "n1", path) for path in looked_at]
        (namespace,) = (await read(http, "n1", wire.NAMESPACES))["namespaces"]
        assert (namespace["used"]["waits"], namespace["used"]["fences"]) == (2, 1)

        await asyncio.to_thread(kill_all, cluster)
        for lost in await asyncio.gather(*parties.lost, return_exceptions=True):
            assert isinstance(lost, aiohttp.ClientError)
        for node_id in nodes:
            cluster.start(node_id)
        await until(lambda: _answers(http, "n2"), "a node answers")

        # Before anybody repeats anything: the waits are known from the disk alone.
        assert [await read(http, "n2", path) for path in looked_at] == before
        refused = await ask(http, nodes, *parties.wanted("r"))
        assert (refused.status, refused.code) == (409, "deadlock")
        assert [(item["owner"], item["name"], item["kind"]) for item in refused.body["cycle"]] == [
            ("r", "all/permit", "semaphore"),
            ("p", "all/lock", "lock"),
            ("q", "all/leads", "election"),
        ]
        p, q = [asyncio.create_task(ask(http, nodes, *parties.wanted(owner))) for owner in "pq"]
        await asyncio.to_thread(bring_all_back, cluster)
        await write(http, "n3", wire.ELECTION_RESIGN, hold_id=parties.held["r"]["hold_id"])
        leads = (await q).body
        await write(http, "n1", wire.LOCK_RELEASE, hold_id=parties.held["q"]["hold_id"])
        locked = (await p).body
        assert token < leads["token"] < locked["token"]
        assert several["token"] == await http.token("n3", "all/b")

        stale = await http.call("n1", "POST", wire.FENCE_ADVANCE, {"name": "all/disk", "token": token - 1})
        assert (stale.status, stale.code, stale.body["highest_token"]) == (409, "stale-token", token)
        assert (await write(http, "n2", wire.FENCE_CHECK, name="all/tree/x", token=token))["valid"]
        assert not (await write(http, "n3", wire.RATE_TAKE, **quota))["allowed"]
        told = (await read(http, "n2", f"{wire.AUDIT}?name={quote('all/lock', safe='')}"))["events"]
        first = parties.held["q"]["token"]
        assert [(item["event"], item["owner"], item["token"]) for item in told] == [
            ("granted", "p", locked["token"]),
            ("released", "q", first),
            ("granted", "q", first),
        ]


async def _answers(http: Http, node_id: str) -> bool:
    """Whether a node is there, and has a leader."""
    try:
        return (await http.lock(node_id, "all/lock")).status == 200
    except aiohttp.ClientError:
        return False
