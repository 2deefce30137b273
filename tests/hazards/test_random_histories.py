"""Random histories of our nodes.

Late and lost messages, kills, restarts, compaction. The checker sees everything.

A failure names its seed; the same seed repeats the run. `HOLDFAST_SEEDS=100-200` runs others than the
fixed ones.
"""

import os
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cluster.consensus import snapshot_transfer
from tests.hazards.replica_nodes import our_cluster
from tests.hazards.virtual_cluster import Checker, Cluster

MOVES = 6000
_FIRST, _, _LAST = os.environ.get("HOLDFAST_SEEDS", "1-12").partition("-")
SEEDS = range(int(_FIRST), int(_LAST) + 1)


class Chaos:
    """Makes one random move after the other."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self.cluster = cluster
        self._random = random
        self._proposed = 0
        self.moves = {
            self.deliver: 60,
            self.work: 40,
            self.tick: 25,
            self.propose: 10,
            self.disconnect: 0.7,
            self.lose_sight: 0.7,
            self.connect: 3,
            self.transfer: 0.3,
            self.crash: 0.4,
            self.restart: 1.5,
        }

    def move(self) -> None:
        """Make a move."""
        (move,) = self._random.choices(list(self.moves), list(self.moves.values()))
        move()

    def deliver(self) -> None:
        """Deliver the next message of one direction."""
        waiting = self.cluster.network.waiting()
        if waiting:
            self.cluster.deliver(*self._random.choice(waiting))

    def work(self) -> None:
        """Let a node tick or sync, if it is due."""
        self._any_node().work()

    def tick(self) -> None:
        """Let time pass; one node's timer rings."""
        self.cluster.clock.pass_ms(self._random.choice((1, 2, 5, 10, 50)))
        self._any_node().timer()

    def propose(self) -> None:
        """Give a leader, perhaps a false one, a few commands."""
        leaders = self.cluster.leaders()
        if leaders:
            count = self._random.randint(1, 5)
            entries = [b"%d" % (self._proposed + number) for number in range(count)]
            self._proposed += count
            self.cluster[self._random.choice(leaders)].propose(*entries)

    def transfer(self) -> None:
        """Ask any other node to take over."""
        leaders = self.cluster.leaders()
        if leaders:
            leader = self._random.choice(leaders)
            self.hand_over(
                self.cluster[leader], self._random.choice([i for i in self.cluster.ids if i != leader])
            )

    def hand_over(self, leader: Any, successor: str) -> None:
        """Ask `successor`, if it has the whole log."""
        leader.transfer(successor)

    def disconnect(self) -> None:
        """Break a connection."""
        self.cluster.disconnect(*self._pair())

    def lose_sight(self) -> None:
        """Break a connection so that only one side notices."""
        one, other = self._pair()
        self.cluster.lose_sight(*self._random.choice(((one, other), (other, one))))

    def connect(self) -> None:
        """Repair a connection, if it is broken and both nodes are up."""
        one, other = self._pair()
        if not {(one, other), (other, one)} <= self.cluster.network.connected:
            self.cluster.connect(one, other)

    def crash(self) -> None:
        """Kill a node, unless it is the last one."""
        if len(self.cluster.nodes) > 1:
            self.cluster.crash(self._random.choice(sorted(self.cluster.nodes)))

    def restart(self) -> None:
        """Start a dead node and connect it."""
        dead = [node_id for node_id in self.cluster.ids if node_id not in self.cluster.nodes]
        if dead:
            node_id = self._random.choice(dead)
            self.cluster.start(node_id)
            for peer_id in self.cluster.nodes:
                if peer_id != node_id:
                    self.cluster.connect(node_id, peer_id)

    def _any_node(self) -> Any:
        return self.cluster[self._random.choice(sorted(self.cluster.nodes))]

    def _pair(self) -> tuple[str, str]:
        return self._random.choice(list(combinations(self.cluster.ids, 2)))


def random_run(
    seed: int, directory: Path, monkeypatch: pytest.MonkeyPatch, node_ids: str
) -> tuple[Cluster, Checker]:
    """Make a random run; what happens in it is checked as it happens."""
    random = Random(seed)
    monkeypatch.setattr(snapshot_transfer, "CHUNK_BYTES", random.choice((32, 1024)))
    cluster, checker = our_cluster(
        directory,
        monkeypatch,
        seed,
        node_ids=node_ids,
        compact_entries=random.choice((8, 40, 10_000)),
        in_flight_max=random.choice((1, 1, 4, 10)),
    )
    for node in cluster.nodes.values():
        # Few messages fit a connection: snapshots pause until there is room.
        node.room = random.choice((4, 1_000_000))
    chaos = Chaos(cluster, random)
    for _ in range(MOVES):
        chaos.move()
        cluster.clock.rest()
    return cluster, checker


@pytest.mark.parametrize("node_ids", ["abc", "abcde"])
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_histories_agree(
    seed: int, node_ids: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No index has two entries, no term two leaders, and no node votes twice."""
    _, checker = random_run(seed, tmp_path, monkeypatch, node_ids)
    assert checker.committed, "a run that commits nothing shows nothing"


@pytest.mark.parametrize("seed", SEEDS)
def test_when_all_is_well_again_everything_arrives(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once nodes and connections are back, all nodes soon hold what anybody ever applied."""
    cluster, checker = random_run(seed, tmp_path, monkeypatch, "abc")
    cluster.heal()
    cluster.run_ms(5000)
    assert cluster.leader_of("abc") is not None
    cluster[cluster.leader_of("abc") or ""].propose(b"the end")
    cluster.run_until(lambda: all(b"the end" in cluster[node_id].values for node_id in "abc"), 20_000)
    for node_id in "abc":
        assert dict(cluster[node_id].entries) == checker.committed
