"""Changes of the member list, as leaders append them: one node at a time, and by a leader sure of its log.

Ongaro's dissertation, section 4.1, and his correction of single-server changes.
"""

from collections.abc import Collection

import msgspec

from tests.simulation.checks.report import Report


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """A member list that a leader has just appended, and the one that counted before."""

    leader_id: str
    term: int
    index: int
    voters: Collection[str]
    index_before: int
    voters_before: Collection[str]
    committed: int
    committed_term: int | None
    """The term of the newest entry that the leader knows to be committed."""


class Changes:
    """What every change must be like."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def appended(self, change: Appended) -> None:
        """Check a change when it is appended."""
        who = f"{change.leader_id}, leader of term {change.term}, changes the members at index {change.index}"
        if change.index_before > change.committed:
            self._report.fail(
                "one-change", f"{who}; the change at index {change.index_before} is not committed yet"
            )
        if len(set(change.voters) ^ set(change.voters_before)) > 1:
            self._report.fail(
                "one-change", f"{who} from {sorted(change.voters_before)} to {sorted(change.voters)}"
            )
        if change.committed_term != change.term:
            self._report.fail("sure-leader", f"{who} before it has committed anything in its term")
