"""The chaos lab's target `netns` with real nodes: cuts, one-way cuts and bad links hit nodes and clients."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.chaos.faults.catalogue import FAULTS
from lab.chaos.history import HistoryWriter
from lab.chaos.http_client import Attempt, send
from lab.chaos.netns import network as netns
from lab.chaos.targets.netns import CLIENTS, NetnsTarget
from scripts.lib import guardian
from tests.support.processes import wait_until

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(bool(netns.missing()), reason=netns.missing() or "nothing is missing"),
]

ANSWER_S = 5.0
SILENCE_S = 0.5


@pytest.fixture(scope="module")
def _opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetnsTarget]:
    target = NetnsTarget(3, tmp_path_factory.mktemp("netns"))
    with guardian.guarded():
        target.open()
        try:
            yield target
        finally:
            target.close()


@pytest.fixture
def target(_opened: NetnsTarget) -> Iterator[NetnsTarget]:
    """Three nodes that are ready, on a network that is whole before and after."""
    _opened.wait_ready()
    yield _opened
    _opened.network.clear()


def ask_as_client(target: NetnsTarget, folder: Path, node_id: str, timeout_s: float) -> Attempt:
    """Send one request from where the clients sit; it ends at the node that is asked."""

    async def asked() -> Attempt:
        with HistoryWriter(folder / "history.jsonl") as history:
            lab = target.lab(history, seed=1, scale=1.0)
            async with lab.open_session() as session:
                return await send(session, "GET", lab.nodes[node_id] + "/livez", None, timeout_s)

    return asyncio.run(asked())


def test_a_cut_leader_is_replaced_and_follows_after_the_heal(target: NetnsTarget) -> None:
    """The others elect a leader while the old one runs on; after the heal all three name one leader."""
    old = target.leader()
    fault = FAULTS["leader-cut"](target, random.Random(1), {})
    try:
        assert fault.begin() == [old]
        wait_until(lambda: target.leader() != old, "another node leads")
        assert target.ask(old, "/livez") is not None
        dropped = target.network.counts()
        assert all(dropped[old, other].dropped for other in target.urls() if other != old)
    finally:
        fault.end()
        fault.end()
    target.wait_ready()
    assert target.leader() != old


def test_clients_sit_behind_the_switch_and_the_lab_does_not(target: NetnsTarget, tmp_path: Path) -> None:
    """A node that is cut from clients does not answer them, and still answers the lab."""
    leader = target.leader()
    assert ask_as_client(target, tmp_path, leader, ANSWER_S).fate == "ok"
    before = target.network.counts()[CLIENTS, leader]
    fault = FAULTS["clients-cut"](target, random.Random(1), {})
    try:
        assert fault.begin() == [leader, CLIENTS]
        assert ask_as_client(target, tmp_path, leader, SILENCE_S).fate == "lost"
        assert target.network.counts()[CLIENTS, leader].dropped > before.dropped
        assert target.leader() == leader
    finally:
        fault.end()
    assert ask_as_client(target, tmp_path, leader, ANSWER_S).fate == "ok"


@pytest.mark.parametrize(
    ("name", "cut_links"),
    [
        ("leader-cut", 4),
        ("leader-isolated", 6),
        ("clients-cut", 2),
        ("follower-cut", 4),
        ("black-hole", 3),
        ("one-way-in", 2),
        ("one-way-out", 2),
        ("bridge", 2),
        ("ring", 3),
        ("all-apart", 6),
        ("minority-with-leader", 4),
        ("split-2-3", 4),
    ],
)
def test_a_shape_cuts_as_many_links_as_it_says(target: NetnsTarget, name: str, cut_links: int) -> None:
    """Each shape of three nodes is made of so many cut directions, each of them a link's."""
    fault = FAULTS[name](target, random.Random(1), {})
    where, links = fault.links()  # type: ignore[attr-defined] # what all faults of the network have
    assert where
    assert len(set(links)) == cut_links
    assert set(links) <= set(target.network.counts())


def test_a_node_may_join_and_be_killed(target: NetnsTarget) -> None:
    """Faults of members and processes work in namespaces, too."""
    added = FAULTS["member-added"](target, random.Random(1), {})
    try:
        assert added.begin() == ["n4"]
        killed = FAULTS["kill-leader"](target, random.Random(1), {})
        killed.begin()
        killed.end()
        target.wait_ready()
    finally:
        added.end()
    target.wait_ready()
    assert sorted(target.urls()) == ["n1", "n2", "n3"]
