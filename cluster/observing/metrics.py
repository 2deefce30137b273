"""Counters of one node, plain and cheap; rendered elsewhere."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, get_args

from cluster.observing.contention import Contention
from cluster.observing.samples import Histogram, Sample, counter, gauge, histogram
from lockstate.machine import LockMachine
from lockstate.words.events import CellEventKind, EventKind
from lockstate.words.outcomes import Outcome
from lockstate.words.refusals import Refused
from lockstate.words.results import NumberedDone, Result

__all__ = ["NodeMetrics", "Sample", "gauge", "histogram"]


def _word(kind: type) -> str:
    """Return the word for results of this type, spelt as reasons are; all kinds of grants are `granted`."""
    first = [each for each in kind.__mro__ if each in get_args(Result)][-1]
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", first.__name__).lower()


_WORDS: Final[Mapping[type, str]] = {kind: _word(kind) for kind in get_args(Result)}

_STALL_BOUNDS_S: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class NodeMetrics:
    """What a node counts. `gauges` is asked for the present values when somebody reads them."""

    def __init__(self, gauges: Callable[[], Iterable[Sample]]) -> None:
        self._gauges = gauges
        self.commands: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.entries_proposed = 0
        self.commands_resent = 0
        self.leader_changes = 0
        self._led: tuple[str, int] | None = None
        self.sync_seconds = Histogram("holdfast_sync_seconds", "Time to write and sync the journal once.")
        self.apply_seconds = Histogram(
            "holdfast_apply_seconds", "Time to apply one entry. A node does nothing else meanwhile."
        )
        self.commit_seconds = Histogram(
            "holdfast_commit_seconds",
            "Time from proposing an entry as leader to applying it.",
            _STALL_BOUNDS_S,
        )
        self.loop_stall_seconds = Histogram(
            "holdfast_loop_stall_seconds",
            "By how much a timer that is due twice in a heartbeat came late.",
            _STALL_BOUNDS_S,
        )
        self.contention = Contention()
        self.cell_events: dict[CellEventKind, int] = dict.fromkeys(CellEventKind, 0)

    def led(self, leader_id: str | None, term: int) -> None:
        """Count a new leader. Neither a term without one counts, nor another role of this node."""
        if leader_id is not None and self._led != (leader_id, term):
            self._led = leader_id, term
            self.leader_changes += 1

    def applied(self, outcome: Outcome) -> None:
        """Count what applying one entry did."""
        self.contention.observe(outcome)
        for event in outcome.cell_events:
            self.cell_events[event.kind] += 1

    def answered(self, result: Result) -> None:
        """Count a command that was answered here, or each of a frame of a stream."""
        if type(result) is not NumberedDone:
            self.commands[_label(result)] += 1
            return
        for kind, count in Counter(map(type, result.results)).items():
            if issubclass(kind, Refused):
                self.commands.update([_label(each) for each in result.results if type(each) is kind])
            else:
                self.commands[_WORDS[kind]] += count
        if result.refused is not None:
            self.commands[_label(result.refused)] += 1

    def restored(self, machine: LockMachine) -> None:
        """Go on with the state of a snapshot."""
        self.contention.restart(machine)

    @property
    def events(self) -> dict[EventKind, int]:
        """Return how many events there were of each kind."""
        return self.contention.events

    def samples(self) -> Iterable[Sample]:
        """Return everything, grouped by name."""
        for result, count in sorted(self.commands.items()):
            text = "Commands answered here, by result."
            yield counter("commands_total", text, count, result=result)
        for event, count in [*sorted(self.events.items()), *sorted(self.cell_events.items())]:
            yield counter("events_total", "Events applied, by kind.", count, event=event)
        for code, count in sorted(self.failures.items()):
            text = "Commands without a result, by code."
            yield counter("failures_total", text, count, code=code)
        yield counter("entries_proposed_total", "Entries proposed as leader.", self.entries_proposed)
        text = "Commands sent again after a change of leader or connection."
        yield counter("commands_resent_total", text, self.commands_resent)
        yield counter("leader_changes_total", "Elections seen that had a winner.", self.leader_changes)
        yield from self.sync_seconds.samples()
        yield from self.apply_seconds.samples()
        yield from self.commit_seconds.samples()
        yield from self.loop_stall_seconds.samples()
        yield from self.contention.samples()
        yield from self._gauges()


def _label(result: Result) -> str:
    """Return the word under which a result is counted."""
    return result.reason.value if isinstance(result, Refused) else _WORDS[type(result)]
