"""Elections: asked for before they begin, and won by the votes of a majority.

Raft, section 5.2; PreVote, section 9.6 of Ongaro's dissertation. Facts are the messages that leave nodes, and
what the nodes knew at that moment.
"""

from collections.abc import Collection, Mapping
from typing import Any

from tests.simulation.checks.report import Report


class Elections:
    """Who agreed to which election, and who voted in it."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._agreed: dict[tuple[str, int], set[str]] = {}
        self._votes: dict[tuple[str, int], set[str]] = {}

    def sent(self, source: str, target: str, message: Mapping[str, Any], *, hears_leader: bool) -> None:
        """Record a consent; `hears_leader`: its sender leads, or has heard a leader lately."""
        if message["type"] != "pre_vote_granted":
            return
        if hears_leader:
            self._report.fail(
                "leader-kept",
                f"{source} agrees that {target} stands in term {message['term']}, and hears a leader",
            )
        self._agreed.setdefault((target, message["term"]), set()).add(source)

    def received(self, node_id: str, source: str, message: Mapping[str, Any]) -> None:
        """Record a vote that arrives."""
        if message["type"] == "response_vote":
            self._votes.setdefault((node_id, message["term"]), set()).add(source)

    def stands(self, node_id: str, term: int, voters: Collection[str]) -> None:
        """Check that a majority agreed to an election. Not for one that the leader itself asked for."""
        agreed = self._agreed.get((node_id, term), set()) | {node_id}
        if not _is_majority(agreed, voters):
            self._report.fail(
                "election-agreed", f"{node_id} stands in term {term}; only {sorted(agreed)} agreed to that"
            )

    def leads(self, node_id: str, term: int, voters: Collection[str]) -> None:
        """Check that a majority voted for a leader when it begins to lead."""
        votes = self._votes.get((node_id, term), set()) | {node_id}
        if not _is_majority(votes, voters):
            self._report.fail(
                "elected-by-majority",
                f"{node_id} leads in term {term}; of {sorted(voters)} only {sorted(votes)} voted for it",
            )


def _is_majority(those: Collection[str], voters: Collection[str]) -> bool:
    return 2 * len(set(those) & set(voters)) > len(set(voters))
