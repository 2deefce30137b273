"""Whether this node should lead, by its clock and its disk and by what its peers say of theirs."""

from collections.abc import Callable

from cluster.commands.clock_watch import ClockWatch
from cluster.consensus.handover import Handovers
from cluster.consensus.replica import Replica
from cluster.consensus.unfit_leader import UnfitLeader
from cluster.peers.disk_watch import SLOW_MS, DiskWatch, is_slow
from cluster.peers.peer_table import PeerTable


class Fitness:
    """Keeps this node from leading while another should. One thread."""

    def __init__(
        self,
        replica: Replica,
        handovers: Handovers,
        table: PeerTable,
        *,
        clocks: ClockWatch,
        disk: DiskWatch,
        now_s: Callable[[], float],
    ) -> None:
        """`clocks` and `disk` are what this node measures, `table` has what the others say of theirs."""
        self._replica = replica
        self._table = table
        self._clocks = clocks
        self._disk = disk
        self._now_s = now_s
        self._off_clock = UnfitLeader(replica, handovers, clocks.is_fit, now_s)
        self._slow_disk = UnfitLeader(replica, handovers, self._has_quicker_disk, now_s)

    def look(self) -> None:
        """Lead only if nothing speaks against it, or nobody else can. Called by a timer."""
        reason = "clock" if self._clocks.is_off else ""
        self._replica.prevote.is_unfit = bool(reason)
        self._off_clock.step(reason)
        now_s = self._now_s()
        # With a disk that is quick it makes no difference how quick the others are.
        others_ms = self._syncs_elsewhere() if self._disk.sync_ms(now_s) > SLOW_MS else {}
        self._slow_disk.step(self._disk.reason_to_hand_over(others_ms, now_s))

    def _syncs_elsewhere(self) -> dict[str, int]:
        """Return how long syncs take on the other voters that are connected, in ms."""
        voters, pings = self._replica.membership.voters, self._table.pings()
        return {peer_id: ping.sync_ms for peer_id, ping in pings.items() if peer_id in voters}

    def _has_quicker_disk(self, peer_id: str) -> bool:
        """Whether a peer may lead in the place of this node, whose disk is slow."""
        others_ms = self._syncs_elsewhere()
        is_quick = not is_slow(others_ms.get(peer_id, 0), min(others_ms.values()))
        return self._clocks.is_fit(peer_id) and is_quick
