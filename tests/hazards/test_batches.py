"""How long a command waits before it is sent, and how many messages commands take (H14)."""

import asyncio
from pathlib import Path

import pytest
from pysyncobj import FAIL_REASON

from cluster.commands import patience
from cluster.commands.encoded_command import encode
from cluster.commands.outbox import Answer
from lockstate.words.commands.sessions import KeepAlive
from lockstate.words.ids import SessionId
from lockstate.words.results import Granted
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


def keep_alive(cluster: Cluster, *node_ids: str) -> "list[asyncio.Future[Answer]]":
    """Have clients of these nodes keep sessions alive; whether there are any is not asked."""
    begun = []
    for node_id in node_ids:
        parts = cluster.nodes[node_id].parts
        begun.append(parts.outbox.submit(encode(KeepAlive(SessionId("s")), parts.machine), 3600).future)
        parts.outgoing.request_flush()
    return begun


@pytest.mark.parametrize("leader", ["a", "c"])
def test_keepalives_wait_for_company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leader: str) -> None:
    """Right behind an entry they make none of their own, at whichever node: the next one takes them along."""
    monkeypatch.setattr(patience, "WAIT_S", 1000.0)
    cluster, clients = whole_cluster(tmp_path, monkeypatch), Clients()
    cluster.elect(leader)
    clients.ask(cluster["a"])
    cluster.settle()
    parts = cluster.nodes[leader].parts
    metrics = parts.metrics
    proposed = metrics.entries_proposed
    begun = keep_alive(cluster, *"aabbcc")
    cluster.settle()
    assert not any(future.done() for future in begun)
    assert parts.group._patience._timer is not None, "nobody may come"
    answer = clients.ask(cluster["b"])
    cluster.settle()
    assert all(future.done() for future in [answer, *begun])
    assert metrics.entries_proposed == proposed + 1


def test_keepalives_do_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the last entry is long ago they wait for nothing; else soon nobody comes any more."""
    cluster, clients = whole_cluster(tmp_path, monkeypatch), Clients()
    cluster.elect("a")
    clients.ask(cluster["a"])
    cluster.settle()
    monkeypatch.setattr(patience, "WAIT_S", 0.0)
    monkeypatch.setattr(patience, "TOOK_S_MAX", 0.0)
    clients.ask(cluster["a"])
    cluster.settle()
    begun = keep_alive(cluster, *"abc")
    cluster.settle()
    assert all(future.done() for future in begun)
    monkeypatch.setattr(patience, "WAIT_S", 0.05)
    clients.ask(cluster["a"])
    cluster.settle()
    begun = keep_alive(cluster, *"bc")
    leader = cluster.nodes["a"]
    while not all(future.done() for future in begun):
        leader.loop.wait(asyncio.sleep(0.001))  # its timer goes by real time
        cluster.settle()
