"""Random histories in which members come and go, besides everything that test_random_histories.py does."""

from pathlib import Path
from random import Random

import pytest

from cluster.consensus import snapshot_transfer
from cluster.consensus.member_list import Members
from tests.hazards.member_operators import Operators
from tests.hazards.replica_nodes import our_cluster
from tests.hazards.test_random_histories import MOVES, SEEDS, Chaos
from tests.hazards.virtual_cluster import Checker, Cluster

IDS = "abcdef"
FIRST = "abc"


class MemberChaos(Chaos):
    """As Chaos, with an operator that adds and removes at random. Nothing cuts a removed node off."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        super().__init__(cluster, random)
        self.operators = Operators(cluster)
        self.lists: dict[int, Members] = {}
        self.moves |= {self.add: 0.8, self.remove: 0.6, self.look: 20}

    def add(self) -> None:
        """Ask a node that believes to lead for one node more."""
        leaders = self.cluster.leaders()
        if leaders:
            self.operators.add(self._random.choice(leaders), self._random.choice(IDS))

    def remove(self) -> None:
        """Ask a node that believes to lead for one node less."""
        leaders = self.cluster.leaders()
        if leaders:
            self.operators.remove(self._random.choice(leaders), self._random.choice(IDS))

    def look(self) -> None:
        """Let nodes see how changes stand and promote; compare the lists that they know to be committed."""
        self.operators.step()
        for node_id, node in self.cluster.nodes.items():
            committed = node.replica.membership.committed
            if committed.version == 0:
                continue
            known = self.lists.setdefault(committed.version, committed)
            assert known == committed, f"{node_id} has {committed} committed, somebody has {known}"


def random_run(seed: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Checker, MemberChaos]:
    """Make a random run; what happens in it is checked as it happens."""
    random = Random(seed)
    cluster, checker = our_cluster(
        directory,
        monkeypatch,
        seed,
        node_ids=IDS,
        member_ids=FIRST,
        compact_entries=random.choice((8, 40, 10_000)),
        in_flight_max=random.choice((1, 1, 4)),
    )
    for node in cluster.nodes.values():
        node.room = random.choice((4, 1_000_000))
    chaos = MemberChaos(cluster, random)
    for _ in range(MOVES):
        chaos.move()
        cluster.clock.rest()
    return checker, chaos


@pytest.mark.parametrize("seed", SEEDS)
def test_histories_agree_while_members_change(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One entry per index, one leader per term, one list per version; all is well when the faults end."""
    monkeypatch.setattr(snapshot_transfer, "CHUNK_BYTES", Random(seed).choice((32, 1024)))
    checker, chaos = random_run(seed, tmp_path, monkeypatch)
    cluster = chaos.cluster
    assert checker.committed, "a run that commits nothing shows nothing"
    assert len(chaos.lists) > 1, "a run that changes no member shows nothing"
    cluster.heal()
    chaos.operators.run_ms(10_000)
    newest = max((node.replica.membership.committed for node in cluster.nodes.values()), key=version_of)
    voters = sorted(newest.voters)
    leader = cluster.leader_of(voters) or ""
    assert leader in voters, f"no leader of {newest}"
    cluster[leader].propose(b"the end")
    cluster.run_until(lambda: all(b"the end" in cluster[node_id].values for node_id in voters), 20_000)
    for node_id in voters:
        assert dict(cluster[node_id].entries) == checker.committed


def version_of(members: Members) -> int:
    """Return how new a list is."""
    return members.version
