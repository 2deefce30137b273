"""How long a command waits before it is sent, and how many messages commands take (H14)."""

from pathlib import Path

import pytest
from pysyncobj import FAIL_REASON

from lockstate.results import Granted
from tests.hazards.bare_library import bare_cluster
from tests.hazards.virtual_cluster import Cluster
from tests.hazards.whole_nodes import Clients, whole_cluster

COUNT = 100


def test_a_command_waits_for_the_period_of_the_bare_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """H14: on a network without any delay a follower's command takes more than a period of 100 ms."""
    cluster = bare_cluster(monkeypatch)
    cluster.elect("a")
    cluster["c"].propose("a lock")
    before_s = cluster.clock.now_s
    cluster.run_until(lambda: cluster["c"].outcomes == [FAIL_REASON.SUCCESS])
    assert cluster.clock.now_s - before_s > 0.1


def test_our_command_waits_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H14: in the same moves our follower's client has its answer while no time passes."""
    cluster, clients = whole_cluster(tmp_path, monkeypatch), Clients()
    cluster.elect("a")
    before_s = cluster.clock.now_s
    answer = clients.ask(cluster["c"])
    cluster.settle()
    assert isinstance(answer.result().result, Granted)
    assert cluster.clock.now_s == before_s


def note_messages(cluster: Cluster) -> list[str]:
    """Return a list that gets the ways of all messages with entries from now on."""
    ways: list[str] = []

    def look(source: str, target: str, message: dict[str, object]) -> None:
        if message.get("entries") or message["type"] == "RAFT":
            ways.append(f"{source}-{target}")

    cluster.network.on_send.append(look)
    return ways


def test_each_command_of_the_bare_library_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """H14: without waiting for the period, 100 commands are 100 messages to each follower."""
    cluster = bare_cluster(monkeypatch, appendEntriesUseBatch=False)
    cluster.elect("a")
    ways = note_messages(cluster)
    cluster["a"].propose(*range(COUNT))
    cluster.run_until(lambda: len(cluster["a"].outcomes) == COUNT)
    assert len(ways) >= 2 * COUNT


def test_our_commands_share_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H14: 100 of ours, with everything that nodes say about them, take fewer than 20 messages in all."""
    cluster, clients = whole_cluster(tmp_path, monkeypatch), Clients()
    cluster.elect("a")
    ways = note_messages(cluster)
    answers = [clients.ask(cluster["a"]) for _ in range(COUNT)]
    cluster.settle()
    assert all(answer.done() for answer in answers)
    assert len(ways) < 20
    cluster.run_ms(100)
