"""All workloads of the chaos lab on a healthy cluster: everything is served, and no checker objects."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from lab.chaos.checkers.catalogue import CHECKERS, check_all
from lab.chaos.checkers.registers import lost_updates
from lab.chaos.final_listing import record_final_holds
from lab.chaos.history import Header, History, HistoryWriter, read_history
from lab.chaos.lab import Lab, Workload
from lab.chaos.workloads.catalogue import WORKLOADS
from lab.chaos.workloads.stopped_clients import StoppedClients, StoppedClientsWithoutFence
from scripts.local_cluster import LocalCluster
from tests.process.nodes import node_ids

pytestmark = pytest.mark.process

RUN_S = 6.0
STOPPED_RUN_S = 12.0
"""Some of it passes until all client processes have started."""
STOPPED_RUNS_MAX = 5
"""Whether a client is stopped just between its read and its write is a matter of luck."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Give a cluster whose audit has room: it is judged from its first record on."""
    with LocalCluster.up(tmp_path_factory.mktemp("workloads")) as cluster:
        yield cluster


async def recorded(
    cluster: LocalCluster,
    path: Path,
    workloads: Iterable[type[Workload]] = tuple(WORKLOADS.values()),
    run_s: float = RUN_S,
) -> History:
    """Run workloads for a few seconds; return the history."""
    with HistoryWriter(path) as history:
        nodes = {node_id: cluster.node(node_id).http for node_id in node_ids(cluster)}
        history.write(Header(seed=3, target="processes", nodes=nodes))
        lab = Lab(nodes, history, seed=3)
        until_s = time.monotonic() + run_s
        async with asyncio.TaskGroup() as tasks:
            for workload in workloads:
                tasks.create_task(workload().run(lab, until_s))
        assert await record_final_holds(lab)
    return read_history(path)


async def test_all_workloads_on_a_healthy_cluster(cluster: LocalCluster, tmp_path: Path) -> None:
    """Each workload gets what it asks for, every checker has something to look at and is content."""
    history = await recorded(cluster, tmp_path / "history")
    assert check_all(history) == []
    assert not [item for item in history.operations if item.outcome == "unknown"]
    served = Counter(item.workload for item in history.operations if item.outcome == "ok")
    assert all(served[name] >= 10 for name in WORKLOADS), served
    kinds = {"watch-event", "take", "advance", "queue", "session-keepalive", "sem-renew"}
    kinds |= {"get", "convert", "add", "give-back", "force", "show"}
    assert kinds <= {item.kind for item in history.operations if item.outcome == "ok"}
    numbers = [number for item in history.operations for number in item.result.get("numbers", ())]
    is_whole = numbers == list(range(1, len(numbers) + 1))  # to tell all differences would take minutes
    assert is_whole, "the audit was read too late to be judged"
    assert any(
        holder.name.startswith(history.final_holds[0].prefix) for holder in history.final_holds[0].holders
    )
    assert {item.bound for item in history.of("reach")} == {"", *node_ids(cluster)}
    assert CHECKERS.keys() >= {"linearizability", "overlap", "early-lease", "final-holds"}


async def test_only_a_fence_stops_clients_that_were_stopped(cluster: LocalCluster, tmp_path: Path) -> None:
    """Processes are stopped beyond their lease: without a fence they lose updates, with one none."""
    workloads = [StoppedClients, StoppedClientsWithoutFence]
    for run in range(STOPPED_RUNS_MAX):
        history = await recorded(cluster, tmp_path / f"history-{run}", workloads, STOPPED_RUN_S)
        assert check_all(history) == []
        assert lost_updates(history, is_fenced=True) == []
        stale = [item for item in history.of(StoppedClients.name) if item.code == "stale-token"]
        if stale and lost_updates(history, is_fenced=False):
            return
    pytest.fail("no client was stopped between its read and its write, in either workload")
