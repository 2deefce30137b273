"""Two processes with one identity: a copy of a data directory that runs beside its original.

All that a copy says of itself is true: node id, disk id, cluster id. Only one thing differs, the run id,
which every process makes for itself. A node that was restarted has a new one and never comes back with an
old one. So when connections of one node alternate between two runs, two processes speak in its name.

What this cannot see: a copy that never meets a peer that the original meets, too; a copy that runs when its
original does not, however old it is (it has forgotten what the original promised since).
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
        self.alternations_count = 0
        """How often a peer came back with a run id that another one had taken the place of."""

    def connected(self, peer_id: str, run_id: str) -> bool:
        """Record a connection; tell whether it shows that two processes use this peer's identity.

        Releases that say no run id are left out.
        """
        runs = self._runs.setdefault(peer_id, [])
        if not run_id or (runs and runs[-1] == run_id):
            return False
        is_back = run_id in runs
        if is_back:
            runs.remove(run_id)
            self.alternations_count += 1
            logger.error(
                "event=duplicate-node peer=%s run=%s other_run=%s detail=%r",
                peer_id,
                run_id,
                runs[-1],
                "two processes use this node's identity: one of them runs on a copy of its data directory;"
                " stop that one, and delete the copy",
            )
        runs.append(run_id)
        del runs[:-RUNS_COUNT_MAX]
        return is_back

    def keep(self, peer_ids: Collection[str]) -> None:
        """Forget all others than these peers."""
        self._runs = {peer_id: runs for peer_id, runs in self._runs.items() if peer_id in peer_ids}
