"""Reads: a read sees the model's state at its revision, and nothing that was told before it is newer."""

from dataclasses import dataclass, field

from tests.simulation.checks.comparable import plain
from tests.simulation.checks.model_replay import Expected
from tests.simulation.checks.report import Report
from tests.simulation.workload.history import Query, Read, View


@dataclass(slots=True)
class _Open:
    """A read without an answer, and what it would see at each revision since it was asked."""

    read: Read
    views: dict[int, View] = field(default_factory=dict)


class Reads:
    """Open reads. What they may see is noted while they are open, so that no old state is needed."""

    def __init__(self, report: Report, expected: Expected) -> None:
        self._report = report
        self._expected = expected
        self._open: dict[int, _Open] = {}
        self.checked_count = 0
        self.unchecked_count = 0
        """Answers from a revision that had passed when they were asked for: fresh enough, not compared."""

    def called(self, read: Read) -> None:
        """Record a read."""
        opened = self._open[read.number] = _Open(read)
        self._note(opened)

    def applied(self) -> None:
        """Record what open reads would see now."""
        seen: dict[Query, View] = {}
        revision = self._expected.revision
        for opened in self._open.values():
            query = opened.read.query
            if query not in seen:
                seen[query] = query.ask(self._expected)
            opened.views[revision] = seen[query]

    def _note(self, opened: _Open) -> None:
        opened.views[self._expected.revision] = opened.read.query.ask(self._expected)

    def replied(self, read: Read, value: View, revision: int) -> None:
        """Check what a read saw."""
        views = self._open.pop(read.number).views
        if revision < read.known_revision:
            self._report.fail(
                "read-fresh",
                f"{read.client} read revision {revision} on {read.node_id}; {read.known_revision} had been "
                "told to somebody before",
                query=read.query,
            )
        if revision > self._expected.revision:
            self._report.fail(
                "read-view",
                f"{read.client} read revision {revision}, nobody is beyond {self._expected.revision}",
            )
        if revision not in views:
            self.unchecked_count += 1
            return
        self.checked_count += 1
        if plain(value) != plain(views[revision]):
            self._report.fail(
                "read-view",
                f"{read.client} read on {read.node_id} what was not so at revision {revision}",
                query=read.query,
                told=value,
                wanted=views[revision],
            )

    def ended(self, read: Read) -> None:
        """Forget a read that got no answer."""
        del self._open[read.number]
