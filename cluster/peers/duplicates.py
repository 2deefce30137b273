"""Two processes with one identity: a copy of a data directory that runs beside its original.

All that a copy says of itself is true: node id, disk id, cluster id. Only one thing differs, the run id,
which every process makes for itself. A node that was restarted has a new one and never comes back with an
old one. So when connections of one node alternate between two runs, two processes speak in its name.

They must not take turns: each would vote, and acknowledge what the other one has not. A process is not let in
while another run of its node is connected and alive. After a crash the kernel of the old one, or its silence,
has ended that connection before the new process is there.

The process that is not let in learns of it, and takes no part (shut_out). What this cannot see: a copy that
never meets a peer that the original meets, too; a copy that runs when its original does not. Of the latter,
one that is older is known by how far it goes (entry_check).
"""

import logging
from collections.abc import Collection
from typing import Final

logger = logging.getLogger(__name__)

RUNS_COUNT_MAX: Final = 16
"""The run ids of one peer that are remembered, newest last."""


class Runs:
    """Which runs of each peer this node has been connected with, in order."""

    def __init__(self) -> None:
        self._runs: dict[str, list[str]] = {}
        self._refused: dict[str, list[str]] = {}
        self.alternations_count = 0
        """How often a peer came with the run id of another process than the one that spoke for it."""

    def connected(self, peer_id: str, run_id: str) -> bool:
        """Record a connection; tell whether it shows that two processes use this peer's identity."""
        runs = self._runs.setdefault(peer_id, [])
        if runs and runs[-1] == run_id:
            return False
        is_back = run_id in runs
        if is_back:
            runs.remove(run_id)
            self.alternations_count += 1
            self._tell(peer_id, run_id, runs[-1])
        runs.append(run_id)
        del runs[:-RUNS_COUNT_MAX]
        return is_back

    def refused(self, peer_id: str, run_id: str) -> None:
        """Record a process that was not let in because another run is connected. Each is told of once."""
        self.alternations_count += 1
        told = self._refused.setdefault(peer_id, [])
        if run_id not in told:
            told.append(run_id)
            del told[:-RUNS_COUNT_MAX]
            self._tell(peer_id, run_id, self._runs.get(peer_id, [""])[-1])

    def keep(self, peer_ids: Collection[str]) -> None:
        """Forget all others than these peers."""
        self._runs = {peer_id: runs for peer_id, runs in self._runs.items() if peer_id in peer_ids}
        self._refused = {peer_id: runs for peer_id, runs in self._refused.items() if peer_id in peer_ids}

    @staticmethod
    def _tell(peer_id: str, run_id: str, other_run_id: str) -> None:
        logger.error(
            "event=duplicate-node peer=%s run=%s other_run=%s detail=%r",
            peer_id,
            run_id,
            other_run_id,
            "two processes use this node's identity: one of them runs on a copy of its data directory. Decide"
            " which is to live, and stop the other (see 'Copies of a data directory' in docs/operating.md)",
        )
