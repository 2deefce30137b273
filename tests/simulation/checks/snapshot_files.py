"""Snapshots on disks: what is put in place is newer than what was there, and holds what is committed."""

from tests.simulation.checks.logs import Committed
from tests.simulation.checks.report import Report

Place = tuple[int, int]
"""Index and term of the newest entry that a snapshot holds."""


class SnapshotFiles:
    """Every snapshot that a node puts in the place of another one."""

    def __init__(self, report: Report, committed: Committed) -> None:
        self._report = report
        self._committed = committed

    def placed(self, node_id: str, before: Place | None, after: Place) -> None:
        """Check a snapshot that replaces another, or none."""
        index, term = after
        if before is not None and index < before[0]:
            self._report.fail(
                "snapshot-newer",
                f"{node_id} puts a snapshot up to {index} in the place of one up to {before[0]}",
            )
        if self._committed.digest(index) and self._committed.term(index) != term:
            self._report.fail(
                "snapshot-committed",
                f"{node_id} has a snapshot up to {index} of term {term}; committed there is one of term "
                f"{self._committed.term(index)}",
            )
