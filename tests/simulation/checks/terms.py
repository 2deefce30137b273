"""Terms and votes: one leader per term, one vote per node and term, nothing goes back on disk.

Raft, section 5.2 and figure 2 (persistent state).
"""

from collections.abc import Mapping
from typing import Any

from tests.simulation.checks.report import Report


class Terms:
    """Who led and who voted for whom, over crashes."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._leaders: dict[int, str] = {}
        self._votes: dict[tuple[str, int], str] = {}
        self._on_disk: dict[str, tuple[int, str | None]] = {}
        self.highest_led = 0

    def leads(self, node_id: str, term: int) -> bool:
        """Record that a node leads; return whether its term is new and above all others."""
        known = self._leaders.get(term)
        if known not in (None, node_id):
            self._report.fail("one-leader-per-term", f"{node_id} and {known} both lead in term {term}")
        self._leaders[term] = node_id
        is_newest = term > self.highest_led
        self.highest_led = max(self.highest_led, term)
        return is_newest

    def sent(self, source: str, target: str, message: Mapping[str, Any]) -> None:
        """Record a vote that leaves its node: for another, or for itself when it asks for votes."""
        if message["type"] not in ("response_vote", "request_vote"):
            return
        term, candidate = message["term"], target if message["type"] == "response_vote" else source
        known = self._votes.setdefault((source, term), candidate)
        if known != candidate:
            self._report.fail(
                "one-vote-per-term", f"{source} votes for {candidate} in term {term}, and did for {known}"
            )
        on_disk = self._on_disk.get(source)
        if on_disk is not None and on_disk[0] <= term and on_disk != (term, candidate):
            self._report.fail(
                "vote-on-disk", f"{source} shows a vote that is not on its disk", term=term, on_disk=on_disk
            )

    def stored(self, node_id: str, term: int, voted_for: str | None) -> None:
        """Record what is on a disk now, synced."""
        known_term, known_vote = self._on_disk.get(node_id, (0, None))
        if term < known_term:
            self._report.fail("term-on-disk", f"{node_id} goes back from term {known_term} to {term}")
        if term == known_term and known_vote is not None and voted_for != known_vote:
            self._report.fail(
                "term-on-disk",
                f"{node_id} changes its vote in term {term}",
                before=known_vote,
                after=voted_for,
            )
        voted = self._votes.get((node_id, term))
        if voted is not None and voted_for != voted:
            self._report.fail(
                "term-on-disk",
                f"{node_id} has forgotten its vote in term {term}",
                before=voted,
                after=voted_for,
            )
        self._on_disk[node_id] = (term, voted_for)

    def replaced(self, node_id: str) -> None:
        """Forget a disk that was replaced by an empty one. The votes that were shown stay."""
        self._on_disk.pop(node_id, None)
