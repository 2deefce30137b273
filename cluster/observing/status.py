"""What a node says about itself and its peers: plain values, made on request."""

import msgspec

from cluster.observing.obstacles import Obstacle


class PeerStatus(msgspec.Struct, frozen=True):
    """One node as the asked node sees it.

    `state` is leader, follower, candidate, starting, joining (it gets the log and does not count yet) or
    unreachable.
    """

    id: str
    http: str
    peer: str
    state: str
    revision: int


class ClusterStatus(msgspec.Struct, frozen=True):
    """The cluster as one node sees it.

    `lag_ms` is how long this node has heard from no leader: 0 on the leader, None if it has heard none since
    it started. `obstacles` is what keeps it from serving, or the cluster from doing what it should, the
    gravest first. Nodes at the same `revision` have the same `digest`, 16 hexadecimal digits of the state
    there.
    """

    node_id: str
    leader: str | None
    term: int
    revision: int
    lag_ms: int | None
    ready: bool
    nodes: tuple[PeerStatus, ...]
    obstacles: tuple[Obstacle, ...] = ()
    digest: str = ""
