"""Counters of one node, plain and cheap; rendered elsewhere."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

Sample = tuple[str, str, str, dict[str, str], float]
"""Name, help, type (counter, gauge or histogram), labels, value."""

_SYNC_BOUNDS_S: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


def gauge(name: str, text: str, value: float, **labels: str) -> Sample:
    """Return a present value; its name gets the product's prefix."""
    return f"holdfast_{name}", text, "gauge", labels, float(value)


class Histogram:
    """Counts of observations up to each bound, for one quantity in seconds."""

    def __init__(self, name: str, text: str, bounds_s: tuple[float, ...] = _SYNC_BOUNDS_S) -> None:
        self._name = name
        self._text = text
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self._sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one observation."""
        self._counts[bisect_left(self._bounds_s, seconds)] += 1
        self._sum_s += seconds

    def samples(self) -> Iterable[Sample]:
        """Return the cumulative buckets, sum and count."""
        total = 0
        for bound, count in zip((*map(str, self._bounds_s), "+Inf"), self._counts, strict=True):
            total += count
            yield f"{self._name}_bucket", self._text, "histogram", {"le": bound}, total
        yield f"{self._name}_sum", self._text, "histogram", {}, self._sum_s
        yield f"{self._name}_count", self._text, "histogram", {}, total


class Metrics:
    """What a node counts. `gauges` is asked for the present values when somebody reads them."""

    def __init__(self, gauges: Callable[[], Iterable[Sample]]) -> None:
        self._gauges = gauges
        self.commands: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.entries_proposed = 0
        self.commands_resent = 0
        self.leadership_changes = 0
        self.sync_seconds = Histogram("holdfast_sync_seconds", "Time to write and sync the journal once.")

    def samples(self) -> Iterable[Sample]:
        """Return everything, grouped by name."""
        for result, count in sorted(self.commands.items()):
            text = "Commands answered here, by result."
            yield "holdfast_commands_total", text, "counter", {"result": result}, count
        for event, count in sorted(self.events.items()):
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
        yield from self._gauges()
