"""Clients see nothing of a lost leader but a slower answer."""

import asyncio
import signal
import statistics

import pytest

from holdfast.values.clock import now_s
from scripts.local_cluster import LocalCluster
from tests.process import history_checkers
from tests.process.load import Load
from tests.process.nodes import LogSince, bring_all_back, exit_code, urls

pytestmark = pytest.mark.process

KILLS = 5
KILL_GAP_S_MAX = 2.0
STOPS = 3
STOP_GAP_S_MAX = 0.2


async def gaps_after_kills(cluster: LocalCluster) -> list[float]:
    """Kill the leader several times under load, which may cost no client with a 10 s deadline an error.

    Return for each kill the longest time without a grant, in seconds.
    """
    gaps_s = []
    async with Load(urls(cluster), prefix="killed") as load:
        for _ in range(KILLS):
            leader = await asyncio.to_thread(cluster.leader)
            began_s = now_s()
            await asyncio.to_thread(cluster.kill, leader)
            await load.grants(100)
            gaps_s.append(history_checkers.longest_gap_s(load.history, began_s, now_s()))
            await asyncio.to_thread(bring_all_back, cluster)
    print("longest time without a grant after kill -9 of the leader, s:", rounded(gaps_s))
    assert not history_checkers.violations(load.history)
    assert not history_checkers.errors(load.history)
    return gaps_s


async def gaps_after_stops(cluster: LocalCluster) -> list[float]:
    """Stop the leader several times under load: it hands over, ends with code 0, and no client sees an error.

    Return for each stop the longest time without a grant, in seconds.
    """
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
    print("longest time without a grant around SIGTERM of the leader, s:", rounded(gaps_s))
    assert not history_checkers.violations(load.history)
    assert not history_checkers.errors(load.history)
    return gaps_s


def rounded(gaps_s: list[float]) -> list[float]:
    """Return gaps as people read them."""
    return sorted(round(item, 3) for item in gaps_s)


async def test_leader_killed(cluster: LocalCluster) -> None:
    """A leader's kill -9 costs clients with 10 s deadlines no error."""
    assert len(await gaps_after_kills(cluster)) == KILLS


async def test_leader_stopped(patient: LocalCluster) -> None:
    """A leader told to stop hands over first, in one election: no error, exit code 0."""
    assert len(await gaps_after_stops(patient)) == STOPS


@pytest.mark.timed
async def test_leader_killed_in_time(cluster: LocalCluster) -> None:
    """A leader's kill -9 costs less than 2 s without a grant."""
    assert statistics.median(await gaps_after_kills(cluster)) < KILL_GAP_S_MAX


@pytest.mark.timed
async def test_leader_stopped_in_time(cluster: LocalCluster) -> None:
    """A leader told to stop costs less than 200 ms without a grant."""
    assert statistics.median(await gaps_after_stops(cluster)) < STOP_GAP_S_MAX
