"""How long locks, semaphores and elections are waited for and held, counted while entries are applied.

Every node applies every entry, so all count the same: take one node's figures, do not add them up. They have
two labels. `kind` is lock, semaphore or election; `path` is the first part of the name, which tells one use
from another as long as names begin with what they are for ("orders/17", "orders/18").

Clients choose names, so the number of paths needs a bound. The first to come are counted by themselves, all
later ones together as `other`, until the node starts again. None makes room for another: a counter that went
away and came back would look like a restart to who reads it, and a flood of names that come once would push
out those that matter.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from cluster.observing.samples import Sample, counter, histogram
from lockstate.machine import LockMachine
from lockstate.reads.parts import parts_of
from lockstate.tables.happened import PlainEnd, PlainGrant, told_in
from lockstate.words.events import Event, EventKind, Left
from lockstate.words.kinds import HoldKind
from lockstate.words.outcomes import Outcome, Settled
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, GrantedSeveral, NumberedDone, Result

PATHS_COUNT_MAX: Final = 20
"""Paths counted by themselves, as many as a person compares. Each makes some 50 time series for each kind."""
OTHER: Final = "other"
"""The path of all that came later. A name whose first part is this very word is counted with them."""

BOUNDS_MS: Final = (3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
"""From one round trip to a quarter of an hour, for waits and holds alike: the two are compared."""
_BOUNDS_S: Final = (*(f"{bound_ms / 1000:g}" for bound_ms in BOUNDS_MS), "+Inf")

NAMES_KEPT_MAX: Final = 4096
_KEPT_CHARS_MAX: Final = 64
"""Names of locks whose series need not be looked for, two megabytes at most."""

_LOCK: Final = HoldKind.LOCK
_GRANTED: Final = EventKind.GRANTED
_RELEASED: Final = EventKind.RELEASED
_ELECTED: Final = EventKind.ELECTED
_LEFT: Final = EventKind.LEFT
_MAY_TELL_OF_DEADLOCKS: Final = frozenset({Refused, NumberedDone})
_ENDS: Final = frozenset(
    {
        EventKind.RELEASED,
        EventKind.RESIGNED,
        EventKind.EXPIRED,
        EventKind.FORCED,
        EventKind.HANDED_OVER,
    }
)


class _Lengths:
    """How many lasted up to each bound, and how long all together."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.sum_ms = 0

    def add(self, lasted_ms: int) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS_MS, lasted_ms)] += 1
        self.sum_ms += lasted_ms


class _Series:
    """What is counted of one kind and path. Events are counted by what they say; the rest follows from that.

    `queue_shift` is the difference between that and how many wait: who was let through, and who began to wait
    before the first event.
    """

    __slots__ = ("deadlocks", "events", "gave_up", "held", "labels", "queue_shift", "repeats", "waited")

    def __init__(self, kind: HoldKind, path: str) -> None:
        self.labels = {"kind": kind.value, "path": path}
        self.events = dict.fromkeys(EventKind, 0)
        self.repeats = 0
        self.queue_shift = 0
        self.deadlocks = {Reason.DEADLOCK: 0, Reason.CONVERSION_DEADLOCK: 0}
        self.held, self.waited, self.gave_up = _Lengths(), _Lengths(), _Lengths()

    @property
    def queue_length(self) -> int:
        """Return how many wait now."""
        return self.events[EventKind.QUEUED] - self.events[EventKind.LEFT] + self.queue_shift

    @property
    def grants(self) -> int:
        """Return how many grants there were. `repeats` are leaders who said something else."""
        return self.events[EventKind.GRANTED] + self.events[EventKind.ELECTED] - self.repeats


_PLAIN: Final[tuple[tuple[str, str, str, Callable[[_Series], int]], ...]] = (
    ("queue_length", "Waiting now.", "gauge", lambda row: row.queue_length),
    ("grants_total", "Locks, permits and elections granted.", "counter", lambda row: row.grants),
    (
        "expiries_total",
        "Holds whose lease ended.",
        "counter",
        lambda row: row.events[EventKind.EXPIRED],
    ),
    (
        "forced_releases_total",
        "Holds ended by force.",
        "counter",
        lambda row: row.events[EventKind.FORCED],
    ),
    (
        "conversions_total",
        "Changes of mode, or of the token by an addition.",
        "counter",
        lambda row: row.events[EventKind.CONVERTED],
    ),
)
_DEADLOCKS: Final = "Requests refused because they would have waited for ever."
_WAITS: Final = "How long requests waited in queues, until a grant or another end."
_HOLDS: Final = "How long holds lasted."


class Contention:
    """The counts of one node. Of a hold of several locks each lock counts."""

    def __init__(self, paths_count_max: int = PATHS_COUNT_MAX) -> None:
        self._paths_count_max = paths_count_max
        self._paths: dict[str, None] = {}
        self._series = {kind: {OTHER: _Series(kind, OTHER)} for kind in HoldKind}
        self._of_locks: dict[str, _Series] = {}
        """The series of the latest names of locks: who is granted one gives it back, and comes again."""
        self._newest_elected = 0

    @property
    def events(self) -> dict[EventKind, int]:
        """Return how many events there were of each kind."""
        totals = dict.fromkeys(EventKind, 0)
        for series in self._all():
            for kind, count in series.events.items():
                totals[kind] += count
        return totals

    @property
    def grants_and_waits(self) -> tuple[int, int]:
        """Return how many grants there were, and how many requests had to wait, of all kinds."""
        rows = list(self._all())
        return sum(row.grants for row in rows), sum(row.events[EventKind.QUEUED] for row in rows)

    # -- what the node does ---------------------------------------------------------------------------------

    def observe(self, outcome: Outcome) -> None:
        """Count what applying one entry did."""
        if outcome.settled:
            self._leave_queues(outcome.settled)
        of_locks, bounds_ms, now_ms = self._of_locks, BOUNDS_MS, outcome.now_ms
        told: Any
        for told in told_in(outcome.events):
            kind = told.__class__
            if kind is PlainGrant:
                series = of_locks.get(told.name) or self._at(_LOCK, told.name)
                series.events[_GRANTED] += 1
            elif kind is PlainEnd:
                hold = told.hold
                series = of_locks.get(hold.name) or self._at(_LOCK, hold.name)
                series.events[_RELEASED] += 1
                # As `add` does it: nearly every other event is the end of a hold.
                held, lasted_ms = series.held, now_ms - hold.since_ms
                held.counts[bisect_left(bounds_ms, lasted_ms)] += 1
                held.sum_ms += lasted_ms
            else:
                self._count(told)
        for batch in outcome.batches:
            if not _MAY_TELL_OF_DEADLOCKS.isdisjoint(map(type, batch.results)):
                self._count_deadlocks(batch.results)

    def _count(self, event: Event) -> None:
        """Count what is not of a plain lock."""
        kind, series = event.kind, self._at(event.of, event.name)
        series.events[kind] += 1
        if kind in _ENDS:
            series.held.add(event.lasted_ms)
        elif kind is _LEFT:
            lengths = series.waited if event.reason == Left.SHARED else series.gave_up
            lengths.add(event.lasted_ms)
        elif kind is _ELECTED and not self._is_election(event):
            series.repeats += 1

    def _count_deadlocks(self, results: Sequence[Result]) -> None:
        """Count what was refused for a deadlock, also within frames of streams. Mostly there is none."""
        for result in results:
            if type(result) is Refused:
                if result.cycle:
                    wanted = result.cycle[0]
                    self._at(wanted.kind, wanted.name).deadlocks[result.reason] += 1
            elif type(result) is NumberedDone and Refused in map(type, result.results):
                self._count_deadlocks(result.results)

    def restart(self, machine: LockMachine) -> None:
        """Go on with the state of a snapshot: what led to it was not seen here, so its queues are counted."""
        self._newest_elected = machine.next_token - 1
        for series in self._all():
            series.queue_shift -= series.queue_length
        for ticket in machine.state.tickets.values():
            for part in parts_of(ticket):
                self._at(part.kind, part.name).queue_shift += 1

    def _leave_queues(self, settled: Iterable[Settled]) -> None:
        """Take who was let through out of the queues, and count how long that took.

        Events do not tell: a wait may last no millisecond of cluster time, that of a conversion says how old
        the hold is. What an addition did not wait for, its hold had already. A wait that ended otherwise
        tells so itself, as does one that shares the hold of another.
        """
        for end in settled:
            granted = end.result
            if isinstance(granted, Granted) and not granted.depth:
                added = [(HoldKind.LOCK, lock.name) for lock in end.added]
                for kind, name in added or _parts_of(granted):
                    series = self._at(kind, name)
                    series.queue_shift -= 1
                    series.waited.add(end.waited_ms)

    def _is_election(self, event: Event) -> bool:
        """Whether somebody was elected. A leader that says something else does so with the token it had."""
        if event.token <= self._newest_elected:
            return False
        self._newest_elected = event.token
        return True

    # -- the series -----------------------------------------------------------------------------------------

    def _at(self, kind: HoldKind, name: str) -> _Series:
        path = name.partition("/")[0]
        series = self._series[kind].get(path) or self._find(kind, path)
        if kind is _LOCK and len(name) <= _KEPT_CHARS_MAX:
            if len(self._of_locks) >= NAMES_KEPT_MAX:
                self._of_locks.clear()
            self._of_locks[name] = series
        return series

    def _find(self, kind: HoldKind, path: str) -> _Series:
        """Return the series of what is counted for the first time, or came too late to have its own."""
        of_kind = self._series[kind]
        if path not in self._paths:
            if not path or len(self._paths) >= self._paths_count_max:
                return of_kind[OTHER]
            self._paths[path] = None
        series = of_kind[path] = _Series(kind, path)
        return series

    def _all(self) -> Iterator[_Series]:
        for of_kind in self._series.values():
            yield from of_kind.values()

    # -- what is shown --------------------------------------------------------------------------------------

    def samples(self) -> Iterator[Sample]:
        """Return everything, grouped by name. Histograms appear with their first observation.

        Those of `other` always do, so that a metric is known before anything happens.
        """
        every = list(self._all())
        for name, text, kind, value_of in _PLAIN:
            for series in every:
                yield f"holdfast_{name}", text, kind, series.labels, value_of(series)
        for series in every:
            for reason, count in series.deadlocks.items():
                yield counter("deadlocks_total", _DEADLOCKS, count, **series.labels, reason=reason)
        for series in every:
            for outcome, lengths in (("granted", series.waited), ("ended", series.gave_up)):
                labels = {**series.labels, "outcome": outcome}
                yield from _histogram("holdfast_wait_seconds", _WAITS, labels, lengths)
        for series in every:
            yield from _histogram("holdfast_hold_seconds", _HOLDS, series.labels, series.held)


def _histogram(name: str, text: str, labels: dict[str, str], lengths: _Lengths) -> Iterator[Sample]:
    if any(lengths.counts) or labels["path"] == OTHER:
        buckets = zip(_BOUNDS_S, lengths.counts, strict=True)
        yield from histogram(name, text, labels, buckets, lengths.sum_ms / 1000)


def _parts_of(granted: Granted) -> list[tuple[HoldKind, str]]:
    """Return the kind and the name of each thing that was granted."""
    if isinstance(granted, GrantedSeveral):
        locks = [(HoldKind.LOCK, lock.name) for lock in granted.locks]
        return locks + [(HoldKind.SEMAPHORE, one.name) for one in granted.held]
    return [(_kind_of(granted), held.name) for held in granted.locks or (granted,)]


def _kind_of(granted: Granted) -> HoldKind:
    """Return what a grant is of: only semaphores have permits, and only an election names its owner."""
    if granted.permits:
        return HoldKind.SEMAPHORE
    return HoldKind.ELECTION if granted.owner else HoldKind.LOCK
