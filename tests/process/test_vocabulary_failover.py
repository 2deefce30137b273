"""Semaphores, conversions, several locks, subtrees and elections whose leader is killed."""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import wire
from holdfast.values.clock import now_s
from scripts.local_cluster import LocalCluster
from tests.process import history_checkers
from tests.process.amount_checkers import Amount, too_much
from tests.process.history_checkers import GRANTED, Operation
from tests.process.nodes import Http, bring_all_back, followers, http_to, node_ids, until, wait_whole
from tests.process.patient_requests import ask, at, from_node, queue_is, read, without_times, write

pytestmark = pytest.mark.process

WAIT_MS = 20_000
TTL_MS = 60_000
LEADING_TTL_MS = 1_500
"""Of the session of an elected leader: it is over soon if nobody keeps it alive."""
KEEPALIVE_S = 0.2
PERMITS = 5
WEIGHTS = (1, 2, 3, 4, 2, 1)


class PermitUsers:
    """Clients that take permits of one semaphore and give them back, through all nodes in turn."""

    def __init__(self, http: Http, cluster: LocalCluster) -> None:
        self._http = http
        self._nodes = node_ids(cluster)
        self.is_stopping = False
        self.history: list[Operation] = []
        self.held: list[Amount] = []

    async def work(self, client: int, permits: int) -> None:
        """Be one client."""
        nodes = from_node(self._nodes, client)
        for number in itertools.count():
            if self.is_stopping:
                return
            request = f"permits-of-client-{client}-{number}"
            asked_s = now_s()
            body = {"name": "failover/permits", "limit": PERMITS, "permits": permits, "ttl_ms": TTL_MS}
            body |= {"wait_ms": WAIT_MS, "request_id": request}
            got = await ask(self._http, nodes, wire.SEMAPHORE_ACQUIRE, body)
            assert got.status == 200, got
            held_s, token = now_s(), got.body["token"]
            self.history.append(
                Operation(
                    client=client,
                    kind="acquire",
                    name="failover/permits",
                    started_s=asked_s,
                    ended_s=held_s,
                    outcomes=(GRANTED,),
                    token=token,
                )
            )
            # What the permits are for: something that refuses a token below one that it has seen.
            fence = {"name": f"failover/{client}", "token": token, "request_id": f"{request}-fence"}
            assert (await ask(self._http, nodes, wire.FENCE_ADVANCE, fence)).status == 200
            self.held.append(Amount(from_s=held_s, until_s=now_s(), amount=permits))
            give_back = {"hold_id": got.body["hold_id"], "request_id": f"{request}-release"}
            assert (await ask(self._http, nodes, wire.SEMAPHORE_RELEASE, give_back)).status == 200


async def test_permits_over_leader_loss(cluster: LocalCluster) -> None:
    """Clients are served while the leader is killed: tokens rise, and no more permits are held than exist."""
    async with http_to(cluster) as http, asyncio.TaskGroup() as group:
        users = PermitUsers(http, cluster)
        for client, permits in enumerate(WEIGHTS):
            group.create_task(users.work(client, permits))

        async def all_served(times: int) -> None:
            seen = len(users.history)

            def is_so() -> bool:
                served = [item.client for item in users.history[seen:]]
                return all(served.count(client) >= times for client in range(len(WEIGHTS)))

            await until(is_so, f"each client gets permits {times} times")

        await all_served(5)
        await asyncio.to_thread(cluster.kill, cluster.leader())
        await all_served(5)
        await asyncio.to_thread(bring_all_back, cluster)
        await all_served(5)
        users.is_stopping = True
    assert not too_much(users.held, PERMITS)
    assert too_much(users.held, PERMITS - 1), "the checker sees what is held"
    assert not history_checkers.tokens_that_fall(users.history)


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three nodes that keep their waits for 4.5 s without a leader: an election may be slow."""
    with LocalCluster.up(tmp_path, extra_args=["--election-ms-max", "3000"]) as started:
        wait_whole(started)
        yield started


async def test_holds_and_waits_over_leader_loss(patient: LocalCluster) -> None:
    """Holds and waits of all kinds outlive the leader; waiters are served, with tokens above all others."""
    leader, (one, other) = patient.leader(), followers(patient)
    semaphore, converted = at(wire.SEMAPHORE, "loss/permits"), at(wire.LOCK, "loss/converted")
    paths = [
        semaphore,
        converted,
        *[at(wire.LOCK, f"loss/{item}") for item in ("a", "b", "tree", "tree/x/y")],
    ]
    permits = {"name": "loss/permits", "limit": PERMITS, "ttl_ms": TTL_MS}
    async with http_to(patient) as http:
        three = await write(http, leader, wire.SEMAPHORE_ACQUIRE, **permits, permits=3)
        two = await write(http, one, wire.SEMAPHORE_ACQUIRE, **permits, permits=2)
        both = [{"name": "loss/a"}, {"name": "loss/b", "mode": "shared"}]
        several = await write(http, leader, wire.LOCK_ACQUIRE, locks=both, ttl_ms=TTL_MS)
        tree = (await http.acquire(one, "loss/tree", scope="subtree")).body
        writer, reader = [
            (await http.acquire(node_id, "loss/converted", mode="shared", owner=node_id)).body
            for node_id in (leader, one)
        ]
        # The first waits where it is, the second moves to another node when its own one dies.
        conversion = {"hold_id": writer["hold_id"], "mode": "exclusive", "wait_ms": WAIT_MS}
        converting = asyncio.create_task(
            ask(http, [one, other], wire.LOCK_CONVERT, conversion | {"request_id": "conversion-at-the-loss"})
        )
        four = permits | {
            "permits": 4,
            "owner": "four",
            "wait_ms": WAIT_MS,
            "request_id": "four-permits-at-the-loss",
        }
        waiting = asyncio.create_task(ask(http, [leader, other], wire.SEMAPHORE_ACQUIRE, four))
        await queue_is(http, one, converted, leader)
        await queue_is(http, one, semaphore, "four")
        late = asyncio.create_task(http.acquire(other, "loss/converted", owner="late", wait_ms=WAIT_MS))
        await queue_is(http, one, converted, leader, "late")
        before = [await read(http, other, path) for path in paths]

        await asyncio.to_thread(patient.kill, leader)
        assert [await read(http, other, path) for path in paths] == before

        await http.release(other, reader["hold_id"])
        up = await converting
        assert (up.status, up.body["mode"], up.body["hold_id"]) == (200, "exclusive", writer["hold_id"])
        await queue_is(http, other, converted, "late")
        await http.release(one, writer["hold_id"])
        after_up = await late
        await write(http, one, wire.SEMAPHORE_RELEASE, hold_id=three["hold_id"])
        seen = await read(http, one, semaphore)
        assert (seen["available"], len(seen["queue"])) == (3, 1), "four do not fit, and nobody overtakes"
        await write(http, other, wire.SEMAPHORE_RELEASE, hold_id=two["hold_id"])
        served = await waiting
        assert (served.status, served.body["permits"], served.body["available"]) == (200, 4, 1)
        granted = [three, two, several, tree, writer, reader, up.body, after_up.body, served.body]
        tokens = [item["token"] for item in granted]
        assert tokens == sorted(set(tokens)), f"{history_checkers.BROKEN} tokens do not rise: {tokens}"

        below = await http.acquire(other, "loss/tree/x/y")
        assert (below.status, below.code) == (409, "lock-held")
        (holder,) = below.body["holders"]
        assert (holder["name"], holder["scope"], holder["token"]) == ("loss/tree", "subtree", tree["token"])
        rest = await write(http, one, wire.LOCK_RELEASE, hold_id=several["hold_id"], names=["loss/a"])
        assert [item["name"] for item in rest["locks"]] == ["loss/b"]
        assert await http.token(other, "loss/a") is None
        assert await http.token(other, "loss/b") == several["token"]


async def keep_alive(http: Http, nodes: list[str], session_id: str, is_over: asyncio.Event) -> None:
    """Keep a session alive until the event comes."""
    path = at(wire.SESSION_KEEPALIVE, session_id)
    for number in itertools.count():
        kept = await ask(http, nodes, path, {"request_id": f"{session_id[:16]}-{number}"})
        assert kept.status == 200, kept
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(is_over.wait(), KEEPALIVE_S)
            return


async def test_election_over_leader_loss(patient: LocalCluster) -> None:
    """The elected stays so over the leader's death while its session is kept alive, and no longer."""
    leader, (one, other) = patient.leader(), followers(patient)
    election = at(wire.ELECTION, "loss/leads")
    is_over = asyncio.Event()
    async with http_to(patient) as http:
        first = (await write(http, leader, wire.SESSIONS, ttl_ms=LEADING_TTL_MS))["session_id"]
        second = (await write(http, leader, wire.SESSIONS, ttl_ms=TTL_MS))["session_id"]
        keeping = asyncio.create_task(keep_alive(http, [leader, one, other], first, is_over))
        campaign = {"name": "loss/leads", "wait_ms": WAIT_MS}
        won = await write(http, one, wire.ELECTION_CAMPAIGN, **campaign, session_id=first, value="first")
        next_one = asyncio.create_task(
            write(http, other, wire.ELECTION_CAMPAIGN, **campaign, session_id=second, value="second")
        )
        await until(lambda: _has_queue(http, one, election), "the second one waits")
        before = await read(http, one, election)
        await asyncio.to_thread(patient.kill, leader)
        # A lease as long as the session, from after the kill: when it is over, so would be the session.
        await http.acquire(other, "loss/probe", ttl_ms=LEADING_TTL_MS)
        await until(lambda: _is_free(http, one, "loss/probe"), "as much time passes as the session had")
        assert await read(http, one, election) == before
        assert before["leader"].items() >= without_times(won["leader"]).items()
        is_over.set()
        await keeping
        elected = await next_one
        assert elected["token"] > won["token"], (
            f"{history_checkers.BROKEN} a later leader has no higher token"
        )
        assert (await read(http, one, election))["leader"]["value"] == "second"
        gone = await http.call(one, "POST", wire.ELECTION_PROCLAIM, {"hold_id": won["hold_id"], "value": "x"})
        assert (gone.status, gone.code) == (410, "lease-expired")


async def _has_queue(http: Http, node_id: str, path: str) -> bool:
    return bool((await read(http, node_id, path))["queue"])


async def _is_free(http: Http, node_id: str, name: str) -> bool:
    return await http.token(node_id, name) is None
