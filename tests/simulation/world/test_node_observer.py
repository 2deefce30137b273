"""What the checkers are told of the syncs of a node that has gone on meanwhile."""

from types import SimpleNamespace
from typing import Any, cast

from cluster.assembly import Parts
from tests.simulation.checks.scripted_cluster import ScriptedCluster, objects
from tests.simulation.world.node_observer import NodeObserver
from tests.simulation.world.raft_trace import RaftTrace
from tests.simulation.world.trace import Trace


class _Journal(list[tuple[bytes, int, int]]):
    """Entries, each with its index and term."""

    synced_index = 0


def _group(term: int, synced_index: int, *log: tuple[int, int]) -> Parts:
    """Return what the observer looks at of a node: its term, and a log of indexes and terms."""
    journal = _Journal([(b"", index, of_term) for index, of_term in log])
    journal.synced_index = synced_index
    parts: Any = SimpleNamespace(
        journal=journal, replica=SimpleNamespace(engine=SimpleNamespace(term=term, applied_index=0))
    )
    return cast("Parts", parts)


def _observer(cluster: ScriptedCluster) -> NodeObserver:
    return NodeObserver(cluster.checkers, Trace(), RaftTrace(lambda _: None), lambda: cluster.now_us)


def test_a_log_may_be_cut_in_a_newer_term_while_a_sync_ends() -> None:
    """A newer leader may cut what was promised before, while the sync of that is still under way."""
    cluster = ScriptedCluster()
    observer = _observer(cluster)
    observer.stored("a", _group(1, 5, (4, 1), (5, 1)), 1, "a")
    observer.stored("a", _group(2, 4, (4, 1), (5, 2)), 1, "a")
    observer.stored("a", _group(2, 5, (4, 1), (5, 2)), 2, None)
    assert cluster.checkers.violation is None


def test_a_leader_that_hears_of_a_newer_term_while_it_syncs_has_what_it_synced() -> None:
    """Nothing was cut, and what it counts for its own term is on its disk."""
    cluster = ScriptedCluster()
    observer = _observer(cluster)
    observer.stored("a", _group(1, 4, (4, 1)), 1, "a")
    observer.stored("a", _group(2, 5, (4, 1), (5, 1)), 1, "a")
    assert cluster.checkers.violation is None


def test_a_leader_that_cuts_its_log_in_its_own_term_is_found() -> None:
    """It counted what it cut for a majority."""
    cluster = ScriptedCluster()
    observer = _observer(cluster)
    observer.stored("a", _group(1, 5, (4, 1), (5, 1)), 1, "a")
    with objects("promise-kept"):
        observer.stored("a", _group(1, 4, (4, 1)), 1, "a")
