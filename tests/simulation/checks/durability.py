"""Promises of disks: what is committed was on the disks of a majority, and no disk forgets its promises."""

from collections.abc import Iterable, Mapping
from typing import Any

from tests.simulation.checks.logs import Log, last_index
from tests.simulation.checks.report import Report


class Durability:
    """Up to where each node has promised its log to be on disk, by term."""

    def __init__(self, report: Report, node_ids: Iterable[str]) -> None:
        self._report = report
        self._members = frozenset(node_ids)
        self._promises: dict[str, dict[int, int]] = {}
        self._told: dict[str, tuple[int, int]] = {}
        """By node: the newest term in which it promised anything, and up to where. For ever."""
        self._terms: dict[str, int] = {}
        self._replaced: set[str] = set()
        """Whose disk is not the one that knows of the promises."""
        self._synced: dict[str, int] = {}
        self._follows: dict[str, int] = {}
        """The newest term of which a running node has heard a leader; its disk may know it later."""

    def members(self, node_ids: Iterable[str]) -> None:
        """From now on these count: a majority of them is needed."""
        self._members = frozenset(node_ids)

    def in_term(self, node_id: str, term: int) -> None:
        """Record a node's term."""
        self._terms[node_id] = max(term, self._terms.get(node_id, 0))

    def follows(self, node_id: str, term: int) -> None:
        """Record in which term a running node knows of a leader."""
        self._follows[node_id] = term

    def synced(self, node_id: str, index: int, term: int | None = None) -> None:
        """Record up to where a log is on disk, in truth: perhaps less than before, never than promised.

        A leader only appends: nothing that was promised in its term is cut in it. `term` is that in which the
        node is, which may be newer than the one on its disk: then the log may have been cut in it already.
        """
        term = self._terms.get(node_id, 0) if term is None else term
        promised = self._promises.get(node_id, {}).get(term, 0)
        if index < promised:
            self._report.fail(
                "promise-kept",
                f"{node_id} promised its log up to {promised} in this very term, and cut it to {index}",
            )
        self._synced[node_id] = index

    def matched(self, leader_id: str, term: int, peer_id: str, index: int) -> None:
        """Check that a leader takes no more for promised than its peer has promised in its term."""
        promised = self._told.get(peer_id, (0, 0))
        if promised < (term, index) and index > 0:
            self._report.fail(
                "match-index",
                f"{leader_id}, leader of term {term}, takes the log of {peer_id} for its own up to {index}; "
                f"it last promised {promised[1]}, in term {promised[0]}",
            )

    def acknowledged(self, node_id: str, index: int, term: int | None = None) -> None:
        """Record a promise, in `term` or else in the node's own one.

        One that leaves late, in a term that is over, is of what was on the disk then: a newer leader may have
        cut it since. It is held against nobody, and makes no majority: who has an entry votes for nobody who
        lacks it.
        """
        synced = self._synced.get(node_id)
        is_late = term is not None and term < self._follows.get(node_id, 0)
        term = self._terms.get(node_id, 0) if term is None else term
        if not is_late:
            if synced is not None and index > synced:
                self._report.fail(
                    "promise-on-disk", f"{node_id} promises its log up to {index}, on its disk is {synced}"
                )
            promises = self._promises.setdefault(node_id, {})
            promises[term] = max(index, promises.get(term, 0))
        self._told[node_id] = max(self._told.get(node_id, (0, 0)), (term, index))

    def sent(self, source: str, message: Mapping[str, Any]) -> None:
        """Record an acknowledgement that leaves its node."""
        if message["type"] == "next_node_idx" and message["success"]:
            self.acknowledged(source, message["next_node_idx"] - 1, message.get("term"))

    def committed(self, node_id: str, index: int, term: int) -> None:
        """Count who has promised an entry when the first node applies it.

        Terms rise in a log: a promise in a term below that of the entry was for something else.
        """
        have = [member for member in sorted(self._members) if self._promised(member, term) >= index]
        if 2 * len(have) <= len(self._members):
            self._report.fail(
                "committed-by-majority",
                f"{node_id} applies index {index} of term {term}; only {have or 'nobody'} promised it",
                promises=self._promises,
            )
        for promises in self._promises.values():
            for old in [known for known in promises if known < term]:
                del promises[old]

    def _promised(self, node_id: str, term: int) -> int:
        promises = self._promises.get(node_id, {})
        return max((index for known, index in promises.items() if known >= term), default=0)

    def recovered(self, node_id: str, term: int, log: Log) -> None:
        """Check that a disk kept what was promised in its last term; a later one may have cut it."""
        promised = self._promises.get(node_id, {}).get(term, 0)
        if last_index(log) >= promised:
            self._replaced.discard(node_id)
        elif node_id not in self._replaced:
            self._report.fail(
                "promise-kept",
                f"{node_id} promised its log up to {promised} in term {term}, and came back with "
                f"{last_index(log)}",
            )
        self._synced.pop(node_id, None)
        self._follows.pop(node_id, None)
        self.in_term(node_id, term)

    def replaced(self, node_id: str) -> None:
        """Record a disk that was replaced by an empty one. Its promises were counted rightly."""
        self._replaced.add(node_id)
        self._synced.pop(node_id, None)
        self._terms.pop(node_id, None)
