"""Who leads, as far as this node can tell, and the wait for a change of that."""

import asyncio

from cluster.consensus.replica import Replica
from cluster.peers.links import PeerLinks


class LeaderWatch:
    """What one node knows of the leader. One thread."""

    def __init__(self, replica: Replica, links: PeerLinks, silence_ms_max: int) -> None:
        """Take a leader that has been silent for longer than `silence_ms_max` for none."""
        self._replica = replica
        self._links = links
        self._silence_ms_max = silence_ms_max
        self.changed = asyncio.Event()
        """Set, and replaced by a new one, when who leads may have changed."""

    def leader_id(self) -> str | None:
        """Return who leads, None if the one this node knew of cannot be reached or has gone silent."""
        role = self._replica.role
        if role.is_leader or role.leader_id is None:
            return role.leader_id
        is_silent = self._replica.prevote.leader_silence_s * 1000 > self._silence_ms_max
        return None if is_silent or not self._links.is_up(role.leader_id) else role.leader_id

    def tell(self) -> None:
        """Let everybody who waits for a change of leadership look again, on the other nodes too."""
        self._links.ping()
        self.changed.set()
        self.changed = asyncio.Event()
