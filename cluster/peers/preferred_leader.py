"""The node that operators want to lead: when this leader hands leadership over to it.

The wish is in the state, so every leader knows it. Elections stay as they are: whoever leads looks whether
the preferred node could, and hands over as if somebody had asked for that. A node that comes and goes must
not pull leadership to and fro, so it has to be well for a while, and for longer each time that its lead did
not last.
"""

import logging
from collections.abc import Callable
from statistics import median_low
from typing import Final

from cluster.commands.clock_watch import ClockWatch
from cluster.config import NodeConfig
from cluster.consensus.compaction import LogSpace
from cluster.consensus.divergence import Divergence
from cluster.consensus.handover import Handovers
from cluster.consensus.replica import Replica
from cluster.peers.disk_watch import DiskWatch, is_slow
from cluster.peers.peer_table import PeerTable, Standing
from lockstate.machine import LockMachine

STEADY_S: Final = 30.0
"""For how long, in seconds, nothing may speak against the preferred node before it is handed leadership."""
STEADY_S_MAX: Final = 1800.0
"""The same after many attempts that did not last: each doubles the time."""
LASTS_S: Final = 600.0
"""The time, in seconds, after which a lead of the preferred node has lasted, and attempts are forgotten."""

logger = logging.getLogger(__name__)


class Preference:
    """When one node is handed leadership, as one other node sees it. Pure: times are of one clock."""

    def __init__(self) -> None:
        self._failures = 0
        self._fit_since_s: float | None = None
        self._leads_since_s: float | None = None
        self._is_tried = False
        """Whether this node has handed leadership over, and so has counted the attempt."""

    @property
    def steady_s(self) -> float:
        """For how long the node must be fit now before it leads."""
        return min(STEADY_S * 2.0**self._failures, STEADY_S_MAX)

    def saw_leader(self, *, is_preferred: bool, now_s: float) -> None:
        """Record that a node leads: the preferred one or another."""
        if is_preferred:
            if self._leads_since_s is None:
                self._leads_since_s = now_s
            if now_s - self._leads_since_s >= LASTS_S:
                self._failures = 0
                self._is_tried = False
        elif self._leads_since_s is not None:
            if now_s - self._leads_since_s < LASTS_S and not self._is_tried:
                self._fail()
            self._leads_since_s = None
            self._is_tried = False

    def rest_s(self, now_s: float) -> float:
        """Return for how long the node must stay fit yet."""
        fit_s = 0.0 if self._fit_since_s is None else now_s - self._fit_since_s
        return max(0.0, self.steady_s - fit_s)

    def is_due(self, *, is_fit: bool, now_s: float) -> bool:
        """Whether the node is to be handed leadership now; if so, the attempt is counted."""
        if not is_fit:
            self._fit_since_s = None
            return False
        if self._fit_since_s is None:
            self._fit_since_s = now_s
        if self.rest_s(now_s) > 0:
            return False
        self._fit_since_s = None
        self._fail()
        self._is_tried = True
        return True

    def _fail(self) -> None:
        """Count an attempt. There is an end to that, and no more need be counted."""
        if self.steady_s < STEADY_S_MAX:
            self._failures += 1


class PreferredLeader:
    """Sees to it that the preferred node leads, while this one does and that one could. One thread."""

    def __init__(
        self,
        config: NodeConfig,
        replica: Replica,
        table: PeerTable,
        *,
        is_alive: Callable[[str], bool],
        leader_id: Callable[[], str | None],
        handovers: Handovers,
        divergence: Divergence,
        clocks: ClockWatch,
        disk: DiskWatch,
        machine: Callable[[], LockMachine],
        now_s: Callable[[], float],
    ) -> None:
        """`is_alive` tells whether a peer is connected and has been heard of just now."""
        self._node_id = config.node_id
        self._behind_s_max = config.election_ms_min / 2000
        """How late the preferred node may be with what is committed here. During a handover, clients wait for
        as long, and it is given up after an election timeout."""
        self._replica = replica
        self._is_alive = is_alive
        self._table = table
        self._leader_id = leader_id
        self._handovers = handovers
        self._divergence = divergence
        self._clocks = clocks
        self._disk = disk
        self._machine = machine
        self._now_s = now_s
        self._preferred = ""
        self._forget()

    def _forget(self) -> None:
        """Begin anew, with another wish."""
        self._preference = Preference()
        self._goal = (0, 0.0)
        """An entry that was committed when the preferred node had all before it, and when that was."""

    def look(self) -> None:
        """Hand leadership over if the preferred node has been able to lead for long enough. By a timer."""
        node_id, leader_id = self._wish(), self._leader_id()
        if not node_id or leader_id is None:
            return
        now_s = self._now_s()
        self._preference.saw_leader(is_preferred=leader_id == node_id, now_s=now_s)
        is_ours = self._replica.role.is_leader and node_id != self._node_id
        is_fit = is_ours and not self._hindrance(node_id, now_s)
        if self._preference.is_due(is_fit=is_fit, now_s=now_s) and self._handovers.begin(node_id) is not None:
            logger.info("event=preferred-leader-takes-over to=%s", node_id)

    def why_not(self) -> str:
        """Return why this node, which leads, does not hand leadership over now; empty if another leads."""
        node_id, now_s = self._wish(), self._now_s()
        if node_id in ("", self._node_id) or not self._replica.role.is_leader:
            return ""
        return self._hindrance(node_id, now_s) or (
            f"it takes over in {self._preference.rest_s(now_s):.0f} s if nothing happens to it"
        )

    def _wish(self) -> str:
        """Return who is preferred now, empty if it is nobody; another wish begins anew."""
        wish = self._machine().state.preferred
        node_id = "" if wish is None else wish.node_id
        if node_id != self._preferred:
            self._preferred = node_id
            self._forget()
        return node_id

    def _hindrance(self, node_id: str, now_s: float) -> str:
        """Return what speaks against another node as leader, as far as this one knows; empty: nothing."""
        members = self._replica.membership.latest
        if node_id not in members.nodes:
            return "it is not a member"
        if not members.nodes[node_id].is_voter:
            return "it is joining"
        record = self._table.records[node_id]
        ping = record.ping
        if ping is None or record.standing is not Standing.MEMBER or not self._is_alive(node_id):
            return "it cannot be reached"
        if ping.log_room:
            return f"its log has room for {LogSpace(ping.log_room).name.lower().replace('_', ' ')} only"
        if node_id in self._divergence.differing:
            return "its state differs from that of the leader"
        if not self._clocks.is_fit(node_id):
            return "its clock is off"
        if is_slow(ping.sync_ms, self._usual_ms(node_id, now_s)):
            return f"its disk is slow: syncs take {ping.sync_ms} ms"
        if not members.serves or not self._replica.may_change_members or self._handovers.is_under_way:
            return "members or leader are changing"
        return "it has not caught up with the log" if self._is_behind(node_id, now_s) else ""

    def _usual_ms(self, node_id: str, now_s: float) -> int:
        """Return how long syncs take on the voters besides one, this node's included."""
        others = self._replica.membership.voters - {node_id, self._node_id}
        pings = self._table.pings()
        told = [pings[peer_id].sync_ms for peer_id in others if peer_id in pings]
        return median_low([self._disk.sync_ms(now_s), *told])

    def _is_behind(self, node_id: str, now_s: float) -> bool:
        """Whether a node has lacked for too long what was committed then: it always lacks the newest."""
        index, since_s = self._goal
        if self._replica.caught_up(node_id, index):
            self._goal = (self._replica.engine.commit_index, now_s)
            return False
        return now_s - since_s > self._behind_s_max
