"""Counters of one node, plain and cheap; rendered elsewhere."""

from collections import Counter
from collections.abc import Callable, Iterable

from cluster.observing.contention import Contention
from cluster.observing.samples import Histogram, Sample, gauge
from lockstate.machine import LockMachine
from lockstate.results import CellEventKind, Outcome

__all__ = ["Metrics", "Sample", "gauge"]


class Metrics:
    """What a node counts. `gauges` is asked for the present values when somebody reads them."""

    def __init__(self, gauges: Callable[[], Iterable[Sample]]) -> None:
        self._gauges = gauges
        self.commands: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.entries_proposed = 0
        self.commands_resent = 0
        self.leadership_changes = 0
        self.sync_seconds = Histogram("holdfast_sync_seconds", "Time to write and sync the journal once.")
        self.contention = Contention()
        self.events = self.contention.events
        self.cell_events: dict[CellEventKind, int] = dict.fromkeys(CellEventKind, 0)

    def applied(self, outcome: Outcome) -> None:
        """Count what applying one entry did."""
        self.contention.observe(outcome)
        for event in outcome.cell_events:
            self.cell_events[event.kind] += 1

    def restored(self, machine: LockMachine) -> None:
        """Go on with the state of a snapshot."""
        self.contention.restart(machine)

    def samples(self) -> Iterable[Sample]:
        """Return everything, grouped by name."""
        for result, count in sorted(self.commands.items()):
            text = "Commands answered here, by result."
            yield "holdfast_commands_total", text, "counter", {"result": result}, count
        for event, count in [*sorted(self.events.items()), *sorted(self.cell_events.items())]:
            yield "holdfast_events_total", "Events applied, by kind.", "counter", {"event": event}, count
        for code, count in sorted(self.failures.items()):
            text = "Commands without a result, by code."
            yield "holdfast_failures_total", text, "counter", {"code": code}, count
        text = "Entries proposed as leader."
        yield "holdfast_entries_proposed_total", text, "counter", {}, self.entries_proposed
        text = "Commands sent again after a change of leader or connection."
        yield "holdfast_commands_resent_total", text, "counter", {}, self.commands_resent
        text = "Changes of leader, term or role seen."
        yield "holdfast_leadership_changes_total", text, "counter", {}, self.leadership_changes
        yield from self.sync_seconds.samples()
        yield from self.contention.samples()
        yield from self._gauges()
