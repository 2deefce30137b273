"""Clients see nothing of a lost leader but a slower answer."""

import asyncio
import signal
import statistics

import pytest

from holdfast._clock import now_s
from scripts.local_cluster import LocalCluster
from tests.process import history_checkers
from tests.process.load import Load
from tests.process.nodes import LogSince, bring_all_back, exit_code, urls

pytestmark = pytest.mark.process

KILLS = 5
KILL_GAP_S_MAX = 2.0
STOPS = 3
STOP_GAP_S_MAX = 0.2


async def test_leader_killed(cluster: LocalCluster) -> None:
    """A leader's kill -9 costs clients with 10 s deadlines no error, and less than 2 s without a grant."""
    gaps_s = []
    async with Load(urls(cluster), prefix="killed") as load:
        for _ in range(KILLS):
            leader = await asyncio.to_thread(cluster.leader)
            began_s = now_s()
            await asyncio.to_thread(cluster.kill, leader)
            await load.grants(100)
            gaps_s.append(history_checkers.longest_gap_s(load.history, began_s, now_s()))
            await asyncio.to_thread(bring_all_back, cluster)
    print(
        "longest time without a grant after kill -9 of the leader, s:",
        sorted(round(item, 3) for item in gaps_s),
    )
    assert not history_checkers.violations(load.history)
    assert not history_checkers.errors(load.history)
    assert statistics.median(gaps_s) < KILL_GAP_S_MAX


async def test_leader_stopped(cluster: LocalCluster) -> None:
    """A leader told to stop hands over first: no error, exit code 0, less than 200 ms without a grant."""
    gaps_s = []
    async with Load(urls(cluster), prefix="stopped") as load:
        for _ in range(STOPS):
            leader = await asyncio.to_thread(cluster.leader)
            term = (await asyncio.to_thread(cluster.view, leader) or {})["term"]
            said = LogSince(cluster, leader)
            began_s = now_s()
            cluster.send_signal(leader, signal.SIGTERM)
            assert await asyncio.to_thread(exit_code, cluster, leader) == 0
            await load.grants(100)
            gaps_s.append(history_checkers.longest_gap_s(load.history, began_s, now_s()))
            (line,) = said.lines("event=leadership-handed-over")
            successor = line.rpartition("to=")[2].strip()
            view = await asyncio.to_thread(cluster.view, successor) or {}
            # One election, and the one that the leader asked for.
            assert (view["leader"], view["term"]) == (successor, term + 1)
            await asyncio.to_thread(bring_all_back, cluster)
    print(
        "longest time without a grant around SIGTERM of the leader, s:",
        sorted(round(item, 3) for item in gaps_s),
    )
    assert not history_checkers.violations(load.history)
    assert not history_checkers.errors(load.history)
    assert statistics.median(gaps_s) < STOP_GAP_S_MAX
