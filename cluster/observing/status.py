"""What a node says about itself and its peers: plain values, made on request."""

from typing import Final

import msgspec

from cluster.observing.obstacles import Obstacle

_JOINING: Final = "joining"
_DOWN: Final = frozenset({"unreachable", "starting"})
"""States of nodes that cannot be part of a majority."""


class PeerStatus(msgspec.Struct, frozen=True):
    """One node as the asked node sees it.

    `state` is leader, follower, candidate, starting, joining (it gets the log and does not count yet) or
    unreachable. `version` is what it runs, and `rules` are the newest that it knows; of a node that cannot be
    reached, what it said last: empty and 0 if it never has since the asked node started.
    """

    id: str
    http: str
    peer: str
    state: str
    revision: int
    version: str = ""
    rules: int = 0


class OwnStatus(msgspec.Struct, frozen=True):
    """What the asked node says of itself; None where it does not know.

    `state_bytes` is the counted memory of the state, `directory_bytes` what its data directory takes, and
    `free_bytes` what is left on that disk. `connections` are those of clients. From `log_level` on it logs,
    for `log_level_ms` more if somebody has set that for a time.
    """

    uptime_ms: int
    state_bytes: int
    state_bytes_max: int
    directory_bytes: int | None = None
    free_bytes: int | None = None
    snapshot_bytes: int | None = None
    snapshot_age_ms: int | None = None
    connections: int = 0
    connections_max: int = 0
    log_level: str = ""
    log_level_ms: int | None = None


class RulesHoldStatus(msgspec.Struct, frozen=True):
    """Why the cluster stays at its rules, for how many ms already, and who wants it: "" if not known."""

    by: str
    reason: str
    held_ms: int


class PreferredLeaderStatus(msgspec.Struct, frozen=True):
    """The node that should lead, who wants it ("" if not known), why, and for how many ms already.

    `why_not` is why the asked node, which leads, does not hand leadership over yet; empty of any other.
    """

    id: str
    by: str
    reason: str
    for_ms: int
    why_not: str = ""


class ClusterStatus(msgspec.Struct, frozen=True):
    """The cluster as one node sees it.

    `lag_ms` is how long this node has heard from no leader: 0 on the leader, None if it has heard none since
    it started. `obstacles` is what keeps it from serving, or the cluster from doing what it should, the
    gravest first. Nodes at the same `revision` have the same `digest`, 16 hexadecimal digits of the state
    there. `rules` are those that the cluster follows, and `rules_hold` says why it keeps to them, if somebody
    wants that. `now_ms` is the cluster time of the newest entry there, and `own` what the node says of itself
    alone. `preferred` is who should lead, if somebody wants that.
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
    rules: int = 0
    now_ms: int = 0
    own: OwnStatus | None = None
    rules_hold: RulesHoldStatus | None = None
    preferred: PreferredLeaderStatus | None = None

    @property
    def survives(self) -> int | None:
        """How many more voters may fail while a majority is left; None if there is no leader now."""
        if self.leader is None or not self.ready:
            return None
        voters = [node for node in self.nodes if node.state != _JOINING]
        up_count = sum(node.state not in _DOWN for node in voters)
        return max(0, up_count - (len(voters) // 2 + 1))
