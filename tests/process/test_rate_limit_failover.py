"""Rate limits whose leader is killed while clients hammer them through all nodes."""

import asyncio
import contextlib
import itertools
from types import TracebackType
from typing import Any, NamedTuple, Self

import pytest

from holdfast import wire
from holdfast.values.clock import now_s
from scripts.local_cluster import LocalCluster
from tests.process.amount_checkers import Amount, fixed_window, gcra, sliding_window, too_fast
from tests.process.nodes import Http, bring_all_back, http_to, node_ids, until
from tests.process.patient_requests import ask, from_node

pytestmark = pytest.mark.process

PROMISES = {"fixed-window": fixed_window, "sliding-window": sliding_window, "gcra": gcra}
LIMIT = 20
WINDOW_MS = 2_000
"""Longer than a change of leader: a limit that began anew after it would admit twice within a window."""
MONTH_MS = 31 * 24 * 60 * 60 * 1000
"""A window that begins with the cluster, and does not end in a test."""
QUOTA = 400
COSTS = (1, 2, 3)
KILLS = 2
WAITS_MS = (0, 300, 700)
"""How long each client of a limiter waits for a place."""


class Taken(NamedTuple):
    """A request that was answered: it was admitted."""

    body: dict[str, Any]
    interval: Amount


class Takers:
    """Clients that take from one rate limit as fast as they can, and write down what they are given.

    They go on while the `async with` lasts; those of `costs` only until they are refused.
    """

    def __init__(
        self, http: Http, cluster: LocalCluster, limiter: dict[str, Any], costs: tuple[int, ...] = ()
    ) -> None:
        self._http = http
        self._nodes = node_ids(cluster)
        self.limiter = limiter
        self._costs = costs
        self._is_stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self.taken: list[Taken] = []
        self.refused = 0

    @property
    def admitted(self) -> int:
        """How much was taken."""
        return sum(item.interval.amount for item in self.taken)

    async def __aenter__(self) -> Self:
        kinds = [(cost, 0) for cost in self._costs] or [(1, wait_ms) for wait_ms in WAITS_MS]
        self._tasks = [
            asyncio.create_task(self._work(number, cost, wait_ms))
            for number, (cost, wait_ms) in enumerate(kinds)
        ]
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_stopping = True
        await asyncio.gather(*self._tasks)

    async def more(self, amount: int) -> None:
        """Wait until so much more has been admitted."""
        enough = self.admitted + amount
        await until(lambda: self._admitted_if_well() >= enough, f"{amount} more of {self.limiter}")

    async def all_refused(self) -> None:
        """Wait until every client has been refused."""
        await asyncio.gather(*self._tasks)

    def _admitted_if_well(self) -> int:
        # A client that broke would otherwise be seen only as a timeout.
        for task in self._tasks:
            if task.done():
                task.result()
        return self.admitted

    async def _work(self, client: int, cost: int, wait_ms: int) -> None:
        nodes = from_node(self._nodes, client)
        for number in itertools.count():
            body = self.limiter | {
                "cost": cost,
                "wait_ms": wait_ms,
                "request_id": f"rate-of-{self.limiter['name']}-{client}-{number}",
            }
            sent_s = now_s()
            got = await ask(self._http, nodes, wire.RATE_TAKE, body)
            assert got.status == 200, got
            if got.body["allowed"]:
                self.taken.append(Taken(body, Amount(from_s=sent_s, until_s=now_s(), amount=cost)))
            else:
                self.refused += 1
            if self._is_stopping or (self._costs and not got.body["allowed"]):
                return


def limiter(name: str, algorithm: str, limit: int, window_ms: int) -> dict[str, Any]:
    """Return the fields that say which rate limit it is."""
    return {
        "name": f"rates/{name}/{algorithm}",
        "algorithm": algorithm,
        "limit": limit,
        "window_ms": window_ms,
    }


async def test_leader_killed_while_hammered(cluster: LocalCluster) -> None:
    """No rate limit admits more in any span than it promises, and each goes on, when leaders are killed."""
    async with http_to(cluster) as http, contextlib.AsyncExitStack() as stack:
        hammered = {
            algorithm: await stack.enter_async_context(
                Takers(http, cluster, limiter("hammered", algorithm, LIMIT, WINDOW_MS))
            )
            for algorithm in PROMISES
        }
        for _ in range(KILLS):
            await asyncio.gather(*[takers.more(LIMIT) for takers in hammered.values()])
            await asyncio.to_thread(cluster.kill, cluster.leader())
            await asyncio.gather(*[takers.more(LIMIT) for takers in hammered.values()])
            await asyncio.to_thread(bring_all_back, cluster)
    for algorithm, takers in hammered.items():
        assert takers.refused, algorithm
        intervals = [item.interval for item in takers.taken]
        assert not too_fast(intervals, PROMISES[algorithm](LIMIT, WINDOW_MS)), algorithm


async def test_quota_over_leader_loss(cluster: LocalCluster) -> None:
    """A quota is given out whole and no more over a leader's death; repeats are answered as before."""
    async with http_to(cluster) as http, contextlib.AsyncExitStack() as stack:
        quotas = [
            await stack.enter_async_context(
                Takers(http, cluster, limiter("quota", algorithm, QUOTA, MONTH_MS), costs=COSTS)
            )
            for algorithm in PROMISES
        ]
        await asyncio.gather(*[takers.more(QUOTA // 4) for takers in quotas])
        assert max(takers.admitted for takers in quotas) < QUOTA, "the leader dies in the middle"
        await asyncio.to_thread(cluster.kill, cluster.leader())
        await asyncio.gather(*[takers.all_refused() for takers in quotas])
        await asyncio.to_thread(bring_all_back, cluster)
        for takers in quotas:
            assert takers.admitted == QUOTA
            again = await asyncio.gather(
                *[http.call("n2", "POST", wire.RATE_TAKE, item.body) for item in takers.taken]
            )
            assert [got.body["allowed"] for got in again] == [True] * len(takers.taken)
            one_more = takers.limiter | {"request_id": f"rate-of-{takers.limiter['name']}-one-more"}
            refused = await ask(http, node_ids(cluster), wire.RATE_TAKE, one_more)
            assert (refused.body["allowed"], refused.body["remaining"]) == (False, 0)
