"""A node that is older than the log (H19): the library skips what it does not know, and loses its place."""

import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pysyncobj import FAIL_REASON, replicated

from cluster.errors import ClusterError, NodeFailed
from lockstate.stored import snapshot
from lockstate.words import codec
from tests.hazards.bare_library import BareNode, bare_cluster
from tests.hazards.whole_nodes import Clients, whole_cluster


class NewerNode(BareNode):
    """A node of the next version of the same program."""

    @replicated(ver=1)  # type: ignore[untyped-decorator]
    def note(self, value: Any) -> None:
        """Append a value, as before."""
        self.values.append(value)


def command_of_all_versions(node: BareNode, value: str) -> bytes:
    """Return a command that older nodes know too."""
    return b"\x00" + pickle.dumps((node._methodToID["note_v0"], (value,)), 2)


def test_an_older_node_of_the_bare_library_does_commands_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """H19: behind an entry that it cannot apply, a node counts one entry less than it has applied.

    So it applies the last one again, in silence; from then on its state is another one.
    """
    cluster = bare_cluster(monkeypatch, kinds=dict.fromkeys("ab", NewerNode))
    cluster.elect("a")
    outcomes = cluster["a"].outcomes

    def note(_: Any, outcome: int) -> None:
        outcomes.append(outcome)

    cluster["a"].setCodeVersion(1, callback=note)
    for value in ("one", "two"):
        cluster["a"]._applyCommand(command_of_all_versions(cluster["a"], value), note)
    cluster.run_ms(2000)
    assert outcomes == [FAIL_REASON.SUCCESS] * 3
    assert cluster["a"].values == cluster["b"].values == ["one", "two"]
    assert cluster["c"].values == ["one", "two", "two"]
    assert len({cluster[node_id].raftLastApplied for node_id in "abc"}) == 1


def test_a_node_that_is_older_than_the_log_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H19: our node applies nothing of a newer format and nothing behind it, stops, and says what to do."""
    cluster, clients = whole_cluster(tmp_path, monkeypatch), Clients()
    cluster.elect("a")
    cluster["a"].parts.replica.engine.append(msgspec.msgpack.encode((codec.FORMAT_NEWEST + 1, 0, [])))
    answers = [clients.ask(cluster["a"]) for _ in range(2)]
    cluster.run_ms(2000)
    failed = [cluster[node_id].parts.loop.failure for node_id in "abc"]
    failures = [future.result() for future in failed if future.done()]
    assert len(failures) >= 2, "those who heard that the entry is committed"
    assert all(isinstance(failure, NodeFailed) for failure in failures)
    assert all("upgrade this node" in str(failure) for failure in failures)
    assert [cluster[node_id].machine.next_token for node_id in "abc"] == [1, 1, 1]
    assert all(isinstance(answer.exception(), ClusterError) for answer in answers)


def test_a_node_that_is_older_than_a_snapshot_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H19: a snapshot of newer rules is not taken for damage: the node keeps what it has, and stops."""
    cluster, clients = whole_cluster(tmp_path, monkeypatch, compact_entries=100), Clients()
    cluster.elect("a")
    answer = clients.ask(cluster["a"])
    cluster.run_ms(1000)
    assert answer.done()
    cluster.isolate("c")
    before = cluster["c"].machine.revision
    while cluster["a"].machine.revision < before + 100:
        clients.ask(cluster["a"])
        cluster.run_ms(50)
    cluster["a"].parts.replica.engine.force_compaction()
    cluster.run_until((tmp_path / "a" / "snapshot").exists)
    # From here on this is an older release, which does not know what the others wrote.
    monkeypatch.setattr(snapshot, "FORMAT_NEWEST", 0)
    cluster.connect("a", "c")
    cluster.run_until(cluster["c"].parts.loop.failure.done)
    failure = cluster["c"].parts.loop.failure.result()
    assert isinstance(failure, NodeFailed)
    assert str(failure).startswith("the snapshot has format 1, which this release does not know")
    assert cluster["c"].machine.revision == before
    assert not (tmp_path / "c" / "snapshot").exists()
    assert not cluster["a"].parts.loop.failure.done()
