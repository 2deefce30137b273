"""The rules that the cluster follows: they move on only when every voter knows the next ones.

That all follow the same ones at a revision is a matter of the states (equal-digest).
"""

from collections.abc import Mapping

from lockstate.words.versions import RULES_FIRST
from tests.simulation.checks.report import Report


class Rules:
    """The newest rules that any node has followed."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.newest = RULES_FIRST

    def follow(self, node_id: str, rules: int, known: Mapping[str, int]) -> None:
        """Tell that a node is the first that follows newer rules, and what the voters know."""
        self.newest = rules
        for voter, newest in sorted(known.items()):
            if newest < rules:
                self._report.fail(
                    "rules-known", f"{node_id} follows rules {rules}, and {voter} knows {newest} at most"
                )
