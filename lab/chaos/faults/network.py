"""Networks that are cut in every shape, and networks that are bad. Nobody is told: packets do not come."""

import itertools
import time
from collections.abc import Iterable
from typing import ClassVar, Final

from lab.chaos.faults.fault import Fault
from lab.chaos.netns.links import CUT, Rule
from lab.chaos.netns.network import between
from lab.chaos.targets.netns import CLIENTS, NetnsTarget
from lab.chaos.targets.target import Ability

Links = list[tuple[str, str]]

SHARE_OF_LEADERS: Final = 0.5
"""How often a fault that may hit any node hits the leader."""
FLAPS_COUNT: Final = 8


class _NetworkFault(Fault[NetnsTarget]):
    """Links that obey a rule for a while."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"network"})
    lasts_s: ClassVar = (2.0, 6.0)
    rule: ClassVar = CUT

    def links(self) -> tuple[list[str], Links]:
        """Return whom it is about, and which links it hits."""
        raise NotImplementedError

    def begin(self) -> list[str]:
        """Let the links obey the rule."""
        where, links = self.links()
        self.target.network.change(self._key, links, self.rule)
        return where

    def end(self) -> None:
        """Let them pass all packets again, unless another fault hits them."""
        self.target.network.clear(self._key)

    @property
    def _key(self) -> str:
        return f"{self.name}-{id(self)}"

    def nodes(self) -> list[str]:
        """Return all nodes, in order."""
        return sorted(self.target.urls())

    def others(self, *nodes: str) -> list[str]:
        """Return all other nodes, in order."""
        return [node_id for node_id in self.nodes() if node_id not in nodes]

    def leader_or_other(self) -> str:
        """Return the node of the option `node`, or the leader as often as any other node."""
        if "node" in self.options or self.chance.random() > SHARE_OF_LEADERS:
            return self.some_node()
        return self.target.leader()


# -- cuts ---------------------------------------------------------------------------------------------------


class LeaderCut(_NetworkFault):
    """The leader loses its peers; clients still reach it."""

    name = "leader-cut"
    text = "the leader is cut from its peers; clients still reach it"
    weight = 2.0
    gap_s_max = 2.0

    def links(self) -> tuple[list[str], Links]:
        """Cut both directions."""
        leader = self.target.leader()
        return [leader], between([leader], self.others(leader))


class LeaderIsolated(_NetworkFault):
    """The leader loses peers and clients."""

    name = "leader-isolated"
    text = "the leader is cut from peers and clients"
    gap_s_max = 2.5

    def links(self) -> tuple[list[str], Links]:
        """Cut both directions."""
        leader = self.target.leader()
        return [leader], between([leader], [*self.others(leader), CLIENTS])


class ClientsCut(_NetworkFault):
    """Clients lose one node, which its peers still hear."""

    name = "clients-cut"
    text = "clients are cut from the leader, which leads on"
    gap_s_max = 2.5

    def links(self) -> tuple[list[str], Links]:
        """Cut both directions."""
        leader = self.target.leader()
        return [leader, CLIENTS], between([leader], [CLIENTS])


class FollowerCut(_NetworkFault):
    """A follower loses its peers; clients still reach it."""

    name = "follower-cut"
    text = "a follower is cut from its peers; clients still reach it"
    gap_s_max = 0.5

    def links(self) -> tuple[list[str], Links]:
        """Cut both directions."""
        follower = self.chance.choice(self.target.followers())
        return [follower], between([follower], self.others(follower))


class BlackHole(_NetworkFault):
    """Nothing that is sent to a node arrives."""

    name = "black-hole"
    text = "no packet to a node arrives, from peers or clients; what it sends does"
    gap_s_max = 2.5

    def links(self) -> tuple[list[str], Links]:
        """Cut one direction."""
        node_id = self.leader_or_other()
        return [node_id], [(other, node_id) for other in [*self.others(node_id), CLIENTS]]


class OneWayIn(_NetworkFault):
    """A node hears its peers and is not heard."""

    name = "one-way-in"
    text = "a node hears its peers and is not heard by them"
    gap_s_max = 2.0

    def links(self) -> tuple[list[str], Links]:
        """Cut what it sends."""
        node_id = self.leader_or_other()
        return [node_id], [(node_id, other) for other in self.others(node_id)]


class OneWayOut(_NetworkFault):
    """A node is heard by its peers and hears none of them."""

    name = "one-way-out"
    text = "a node is heard by its peers and hears none of them"
    gap_s_max = 2.0

    def links(self) -> tuple[list[str], Links]:
        """Cut what it is sent."""
        node_id = self.leader_or_other()
        return [node_id], [(other, node_id) for other in self.others(node_id)]


class Bridge(_NetworkFault):
    """Two halves see only one node in common."""

    name = "bridge"
    text = "two halves of the nodes are joined by one node only"
    gap_s_max = 2.0

    def links(self) -> tuple[list[str], Links]:
        """Cut the halves from each other."""
        bridge = self.some_node()
        others = self.others(bridge)
        self.chance.shuffle(others)
        middle = len(others) // 2
        return [bridge], between(others[:middle], others[middle:])


class Ring(_NetworkFault):
    """Each node sees its neighbours only; of three nodes, each is heard by the next one only."""

    name = "ring"
    text = "each node sees its two neighbours only; of three nodes each is heard by the next one only"
    gap_s_max = 8.0

    def links(self) -> tuple[list[str], Links]:
        """Cut all others."""
        nodes = self.nodes()
        self.chance.shuffle(nodes)
        kept = set(zip(nodes, [*nodes[1:], nodes[0]], strict=True))
        if len(nodes) > 3:  # noqa: PLR2004 - with three, all are neighbours
            kept |= {(to, source) for source, to in kept}
        return nodes, [pair for pair in itertools.permutations(nodes, 2) if pair not in kept]


class AllApart(_NetworkFault):
    """No node sees another."""

    name = "all-apart"
    text = "no node sees another one; clients see all"
    gap_s_max = 8.0

    def links(self) -> tuple[list[str], Links]:
        """Cut all links of nodes."""
        nodes = self.nodes()
        return nodes, list(itertools.permutations(nodes, 2))


class MinorityWithLeader(_NetworkFault):
    """The leader is in the smaller half."""

    name = "minority-with-leader"
    text = "the nodes are in two halves, with the leader in the smaller one"
    gap_s_max = 2.0

    def links(self) -> tuple[list[str], Links]:
        """Cut the halves from each other."""
        size = (len(self.nodes()) - 1) // 2
        leader = self.target.leader()
        minority = [leader, *self.chance.sample(self.others(leader), size - 1)]
        return minority, between(minority, self.others(*minority))


class Split(_NetworkFault):
    """The nodes are in two halves."""

    name = "split-2-3"
    text = "the nodes are in two halves, two and three of five; the leader is in either"
    gap_s_max = 2.0

    def links(self) -> tuple[list[str], Links]:
        """Cut the halves from each other."""
        nodes = self.nodes()
        minority = sorted(self.chance.sample(nodes, (len(nodes) - 1) // 2))
        return minority, between(minority, self.others(*minority))


class Flapping(_NetworkFault):
    """A cable with a loose contact."""

    name = "flapping"
    text = f"the leader is cut from its peers and heard again, {FLAPS_COUNT} times"
    lasts_s: ClassVar = (0.0, 0.0)
    gap_s_max = 3.0

    def links(self) -> tuple[list[str], Links]:
        """Cut who leads in the beginning."""
        leader = self.target.leader()
        return [leader], between([leader], self.others(leader))

    def begin(self) -> list[str]:
        """Cut and heal, each for a random while around an election."""
        where, links = self.links()
        for _ in range(FLAPS_COUNT):
            self.target.network.change(self._key, links, CUT)
            time.sleep(self.chance.uniform(0.1, 0.7))
            self.target.network.clear(self._key)
            time.sleep(self.chance.uniform(0.1, 0.7))
        return where


# -- bad links ----------------------------------------------------------------------------------------------


class _BadNetwork(_NetworkFault):
    """All links, those of the clients too, obey a rule."""

    lasts_s: ClassVar = (3.0, 8.0)

    def links(self) -> tuple[list[str], Links]:
        """Hit all."""
        return [], all_links([*self.nodes(), CLIENTS])


class Delay(_BadNetwork):
    """The nodes are on three continents."""

    name = "delay"
    text = "every packet takes 200 ms, in each direction"
    rule = Rule(delay_ms=200)
    gap_s_max = 5.0


class Jitter(_BadNetwork):
    """Queues on the way come and go."""

    name = "jitter"
    text = "every packet takes 5 to 105 ms, in order"
    rule = Rule(delay_ms=5, jitter_ms=100)
    gap_s_max = 3.0


class Loss(_BadNetwork):
    """Packets are lost."""

    name = "loss-5"
    text = "5 % of all packets are lost"
    rule = Rule(loss=0.05)
    gap_s_max = 1.5


class Reorder(_BadNetwork):
    """Packets overtake each other."""

    name = "reorder"
    text = "a quarter of all packets is overtaken by those behind"
    rule = Rule(delay_ms=2, reorder=0.25)
    gap_s_max = 1.0


class Duplicate(_BadNetwork):
    """Packets come twice."""

    name = "duplicate"
    text = "a quarter of all packets arrives twice"
    rule = Rule(duplicate=0.25)
    gap_s_max = 0.5


class Corrupt(_BadNetwork):
    """Packets are damaged; the kernels' checksums find most of it."""

    name = "corrupt"
    text = "2 % of all packets have a wrong bit"
    rule = Rule(corrupt=0.02)
    gap_s_max = 1.5


class SlowLink(_NetworkFault):
    """A node has hardly any bandwidth left."""

    name = "slow-link"
    text = "all links of a node and its peers carry 128 kbit/s"
    lasts_s: ClassVar = (3.0, 8.0)
    rule = Rule(rate_kbit_s=128)
    gap_s_max = 4.0

    def links(self) -> tuple[list[str], Links]:
        """Slow both directions."""
        node_id = self.leader_or_other()
        return [node_id], between([node_id], self.others(node_id))


def all_links(ends: Iterable[str]) -> Links:
    """Return every link between these ends."""
    return list(itertools.permutations(ends, 2))
