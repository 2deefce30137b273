"""Logs: log matching, leader completeness, and what is committed stays as it is.

Raft, sections 5.3 and 5.4. An entry is compared by digest and term; what was committed is kept for ever in a
few bytes per entry, everything else only as long as some log holds it.
"""

import hashlib
from array import array
from collections.abc import Mapping
from typing import Final, Protocol

from tests.simulation.checks.report import Report

LogEntry = tuple[bytes, int, int]
"""Command, index, term."""

_REGULAR: Final = b"\x00"
"""The library's mark of an ordinary command; an applied entry comes without it."""
RECHECKED: Final = 4
"""Old entries of each log that every comparison looks at again, in turn."""
REMEMBERED: Final = 20_000
"""So far behind the newest committed entry logs are compared with each other; then with what is committed."""
_NONE: Final = 0
_UNKNOWN: Final = -1


class Log(Protocol):
    """A node's log: entries without gaps, the first at index `first_index`."""

    @property
    def first_index(self) -> int:
        """Return the index of the first entry."""

    def __len__(self) -> int:
        """Return how many entries there are."""

    def __getitem__(self, position: int, /) -> LogEntry:
        """Return the entry at `first_index + position`."""


def last_index(log: Log) -> int:
    """Return the index of the newest entry."""
    return log.first_index + len(log) - 1


def at(log: Log, index: int) -> LogEntry | None:
    """Return the entry at `index` if the log holds it."""
    position = index - log.first_index
    return log[position] if 0 <= position < len(log) else None


def digest(command: bytes) -> int:
    """Return 63 bits of a digest of an entry, the same for a logged and an applied one; never 0."""
    content = command.removeprefix(_REGULAR)
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") >> 1 | 1


class Committed:
    """What is known to be committed: digest, term and revision of each index, from what nodes applied."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._digests = array("Q")
        self._terms = array("L")
        self._revisions = array("L")
        self.index = 0
        """The highest index that any node has applied."""
        self.revision = 0

    def applied(self, node_id: str, index: int, term: int, entry: bytes, revision: int) -> bool:
        """Compare an apply with all others; return whether it is the first one of this index."""
        known = self.digest(index)
        if known != _NONE:
            if known != digest(entry):
                self._report.fail(
                    "committed-entry", f"{node_id} applies another entry at index {index} than a node before"
                )
            if self._terms[index] != term:
                self._report.fail(
                    "committed-entry",
                    f"{node_id} applies index {index} in term {term}, another in {self._terms[index]}",
                )
            if self._revisions[index] != revision:
                self._report.fail(
                    "apply-order",
                    f"{node_id} is at revision {revision} after index {index}, another was at "
                    f"{self._revisions[index]}",
                )
            return False
        if index <= self.index:
            self._report.fail(
                "committed-entry", f"{node_id} applies an entry at index {index}, others had none there"
            )
        if revision != self.revision + 1:
            self._report.fail(
                "apply-order",
                f"{node_id} is at revision {revision} after index {index}, the first to apply it; nobody "
                f"was beyond {self.revision}",
            )
        self._note(index, term, digest(entry), revision)
        return True

    def digest(self, index: int) -> int:
        """Return the digest of the entry that was applied at `index`, 0 if none was."""
        return self._digests[index] if 0 <= index < len(self._digests) else _NONE

    def term(self, index: int) -> int:
        """Return the term of the entry that was applied at `index`."""
        return self._terms[index]

    def restored(self, node_id: str, index: int, revision: int) -> None:
        """Compare the place of a restored state with that of the entries; index 0: not known."""
        if revision > self.revision:
            self._report.fail(
                "apply-order", f"{node_id} restores revision {revision}, nobody was beyond {self.revision}"
            )
        known = self._revisions[index] if 0 < index < len(self._revisions) else 0
        if known not in (0, revision):
            self._report.fail(
                "apply-order",
                f"{node_id} restores revision {revision} at index {index}, it was {known} there",
            )

    def check_log(self, node_id: str, log: Log, index: int) -> None:
        """Compare what a leader must have at a committed index with what it has."""
        if index < log.first_index or self.digest(index) == _NONE:
            return
        entry = at(log, index)
        if entry is None:
            self._report.fail(
                "leader-completeness",
                f"{node_id} leads without the committed entry {index}; its log ends at {last_index(log)}",
            )
        if entry[2] != self._terms[index] or digest(entry[0]) != self.digest(index):
            self._report.fail(
                "leader-completeness",
                f"{node_id} leads with another entry at the committed index {index}",
                term=entry[2],
                committed_term=self._terms[index],
            )

    def _note(self, index: int, term: int, known: int, revision: int) -> None:
        gap = index - len(self._digests)
        if gap > 0:
            for column in (self._digests, self._terms, self._revisions):
                column.extend([0] * gap)
        self._digests.append(known)
        self._terms.append(term)
        self._revisions.append(revision)
        self.index, self.revision = index, revision


class Logs:
    """Log matching over all logs, entry by entry; leaders have all that is committed and only append."""

    def __init__(self, report: Report, committed: Committed) -> None:
        self._report = report
        self._committed = committed
        self._facts: dict[int, dict[int, tuple[int, int]]] = {}
        """By index and term: the digest of the entry and the term of the one before it.

        If all logs agree on these, then equal index and term mean equal prefixes, by induction.
        """
        self._seen: dict[str, tuple[int, int, int]] = {}
        """By node: first and last index looked at, and the term of the last."""
        self._turn = 0
        self._floor = 0
        self._led: dict[str, tuple[int, int]] = {}
        """By node: the last term it led in, and the end of its log then."""

    def leads(self, node_id: str, term: int, log: Log, *, is_newest: bool) -> None:
        """Check a leader's log. `is_newest`: the term is above all in which anything can be committed yet."""
        led_term, led_last = self._led.get(node_id, (0, 0))
        if led_term == term and last_index(log) < led_last:
            self._report.fail(
                "leader-append-only",
                f"{node_id} leads in term {term} and cut its log from {led_last} to {last_index(log)}",
            )
        self._led[node_id] = (term, last_index(log))
        if is_newest:
            newest = self._committed.index
            for index in range(max(newest - RECHECKED, log.first_index), newest + 1):
                self._committed.check_log(node_id, log, index)

    def compare(self, logs: Mapping[str, Log]) -> None:
        """Check the new entries of every log, and some of the old ones again."""
        self._turn += 1
        for node_id, log in logs.items():
            if len(log):
                self._check(node_id, log)
        self._prune(min((first for first, _, _ in self._seen.values()), default=0))

    def recovered(self, node_id: str, log: Log) -> None:
        """Check all of a log that was read from disk."""
        self._seen.pop(node_id, None)
        if len(log):
            self._check(node_id, log)

    def replaced(self, node_id: str) -> None:
        """Forget a log that is no more."""
        self._seen.pop(node_id, None)

    def _check(self, node_id: str, log: Log) -> None:
        first, last = log.first_index, last_index(log)
        seen_first, seen_last, seen_term = self._seen.get(node_id, (first, first - 1, 0))
        anchor = at(log, seen_last)
        is_grown = seen_last >= first and anchor is not None and anchor[2] == seen_term
        for index in range(seen_last + 1 if is_grown else first, last + 1):
            self._check_entry(node_id, log, index)
        if is_grown and seen_last >= seen_first:
            span = seen_last - first + 1
            start = self._turn * RECHECKED % span
            for offset in range(min(RECHECKED, span)):
                self._check_entry(node_id, log, first + (start + offset) % span)
        self._seen[node_id] = (first, last, log[len(log) - 1][2])

    def _check_entry(self, node_id: str, log: Log, index: int) -> None:
        entry = at(log, index)
        assert entry is not None, "only what the log holds is looked at"
        command, own_index, term = entry
        if own_index != index:
            self._report.fail("log-matching", f"{node_id} has an entry of index {own_index} at index {index}")
        known = digest(command)
        before = at(log, index - 1)
        previous_term = before[2] if before is not None else _UNKNOWN
        if index >= self._floor:
            self._check_fact(node_id, index, term, known, previous_term)
        committed = self._committed.digest(index)
        if committed not in (_NONE, known) and term == self._committed.term(index):
            self._report.fail(
                "log-matching", f"{node_id} has another entry at the committed index {index}, term {term}"
            )

    def _check_fact(self, node_id: str, index: int, term: int, known: int, previous_term: int) -> None:
        told = self._facts.setdefault(index, {}).setdefault(term, (known, previous_term))
        if told[0] != known:
            self._report.fail(
                "log-matching",
                f"{node_id} has another entry at index {index} in term {term} than another log",
            )
        if previous_term == _UNKNOWN:
            return
        if told[1] not in (_UNKNOWN, previous_term):
            self._report.fail(
                "log-matching",
                f"{node_id} agrees on index {index} in term {term}, and not on the entry before it",
                terms=(told[1], previous_term),
            )
        if term < previous_term:
            self._report.fail("log-matching", f"terms fall in the log of {node_id} at index {index}")
        self._facts[index][term] = (known, previous_term)

    def _prune(self, first: int) -> None:
        """Forget what no log holds any more, or is long committed."""
        floor = max(first, self._committed.index - REMEMBERED)
        while self._floor < floor:
            self._facts.pop(self._floor, None)
            self._floor += 1
