"""States: equal revision, equal digest, on all nodes and after every restore; and all equal to the model's.

The digest of a whole state is dear, so it is taken at every k-th revision, the same on all nodes, and at
restores; at every revision what is cheap is compared, and the product's own fingerprint.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from lockstate.invariants.tables import streams_are_right
from lockstate.machine import LockMachine
from lockstate.reads import listings
from lockstate.stored import snapshot
from lockstate.words.events import CellEvent, Event, EventKind
from lockstate.words.views import StreamView
from tests.property import model_principals
from tests.simulation.checks.comparable import plain
from tests.simulation.checks.model_replay import Expected
from tests.simulation.checks.report import Report

VIEWS_MAX = 1000
"""Locks that are compared with the model's, one by one."""


def fingerprint(machine: LockMachine) -> int:
    """Return a number of what is cheap to read: time, counters, sizes of tables, numbers of the origins.

    The product's fingerprint is in it: a correct node that has another one would stop.
    """
    state = machine.state
    return hash(
        (
            machine.rules,
            machine.revision,
            machine.now_ms,
            machine.next_token,
            machine.fingerprint,
            len(state.locks),
            len(state.holds),
            len(state.tickets),
            len(state.sessions),
            len(state.requests),
            len(state.semaphores),
            len(state.rates),
            sum(state.fences.values()),
            len(state.cells),
            state.cells.revision,
            len(state.audit.events),
            sum([origin.last_seq for origin in state.origins.values()]),
        )
    )


class States:
    """What the state was at each revision, from whoever got there first."""

    def __init__(self, report: Report, digest_every: int) -> None:
        self._report = report
        self._every = digest_every
        self._digests: dict[int, str] = {0: snapshot.digest(LockMachine().state)}
        self._fingerprints = array("q", [fingerprint(LockMachine())])

    def applied(self, node_id: str, machine: LockMachine) -> None:
        """Compare the state after an apply."""
        revision = machine.revision
        if revision == len(self._fingerprints):
            self._fingerprints.append(fingerprint(machine))
        if revision % self._every == 0:
            self.same(node_id, machine)
        else:
            self._same_fingerprint(node_id, machine)

    def same(self, node_id: str, machine: LockMachine) -> None:
        """Compare all of a state: after a restore, and at the end."""
        self._same_fingerprint(node_id, machine)
        digest = snapshot.digest(machine.state)
        known = self._digests.setdefault(machine.revision, digest)
        if known != digest:
            self._report.fail("equal-digest", f"{node_id} has another state at revision {machine.revision}")
        try:
            streams_are_right(machine.state)
        except AssertionError as wrong:
            self._report.fail("streams-counted", f"{node_id} at revision {machine.revision}: {wrong}")

    def as_expected(self, node_id: str, machine: LockMachine, expected: Expected) -> None:
        """Compare the newest state with the model's."""
        known = (machine.revision, machine.now_ms, machine.next_token)
        wanted = (expected.revision, expected.now_ms, expected.next_token)
        if known != wanted:
            self._report.fail(
                "model-state",
                f"{node_id} differs from the model in (revision, now_ms, next_token)",
                is_so=known,
                wanted=wanted,
            )
        self._streams_as_expected(node_id, machine, expected)
        self._origins_as_expected(node_id, machine, expected)
        if machine.revision % self._every == 0:
            self.views_as_expected(node_id, machine, expected)

    def _streams_as_expected(self, node_id: str, machine: LockMachine, expected: Expected) -> None:
        """Compare what is kept for the streams: what is acknowledged too late is told by nobody."""
        for session_id, stream in expected.state.streams.items():
            view, other = machine.stream(session_id), StreamView(stream.epoch, stream.last, len(stream.kept))
            if view != other:
                self._report.fail("model-state", f"{node_id} keeps another stream", is_so=view, wanted=other)

    def _origins_as_expected(self, node_id: str, machine: LockMachine, expected: Expected) -> None:
        """Compare which node processes keep waiting clients: what is left by one that is gone has to end."""
        origins, wanted = set(machine.waiting_origins()), {origin for _, origin in expected.waiting_at()}
        if origins != wanted:
            self._report.fail(
                "model-state", f"{node_id} has waits of other processes", is_so=origins, wanted=wanted
            )

    def events_as_expected(self, node_id: str, events: Sequence[Event], wanted: Sequence[Event]) -> None:
        """Compare what a node tells of an entry with what the model does."""
        told, known = _in_order(events), _in_order(wanted)
        for one, other in zip(told, known, strict=False):
            if one != other:
                self._report.fail(
                    "model-events", f"{node_id} tells of another event", is_so=one, wanted=other
                )
        if len(told) != len(known):
            self._report.fail("model-events", f"{node_id} tells of other events", is_so=events, wanted=wanted)

    def cells_as_expected(
        self, node_id: str, events: Sequence[CellEvent], wanted: Sequence[CellEvent]
    ) -> None:
        """Compare what a node tells of cells with what the model does, in order."""
        if list(events) != list(wanted):
            self._report.fail(
                "model-events", f"{node_id} tells of other changes of cells", is_so=events, wanted=wanted
            )

    def views_as_expected(self, node_id: str, machine: LockMachine, expected: Expected) -> None:
        """Compare what readers see with what the model shows."""
        seen, _ = machine.locks("", "", VIEWS_MAX)
        wanted, _ = expected.locks("", "", VIEWS_MAX)
        for one, other in zip(seen, wanted, strict=False):
            if plain(one) != plain(other):
                self._report.fail(
                    "model-state", f"{node_id} shows a lock as the model does not", is_so=one, wanted=other
                )
        if len(seen) != len(wanted):
            self._report.fail(
                "model-state", f"{node_id} shows {len(seen)} active locks, the model {len(wanted)}"
            )
        for what, view, other in _views(machine, expected):
            if plain(view) != plain(other):
                self._report.fail(
                    "model-state", f"{node_id} shows {what} as the model does not", is_so=view, wanted=other
                )

    def _same_fingerprint(self, node_id: str, machine: LockMachine) -> None:
        revision = machine.revision
        if revision < len(self._fingerprints) and self._fingerprints[revision] != fingerprint(machine):
            self._report.fail("equal-digest", f"{node_id} has another state at revision {revision}")


def _in_order(events: Sequence[Event]) -> list[Event]:
    """Return the events of each name in their order; that of names is not promised. Ends of waits last."""
    told = [event for event in events if event.kind is not EventKind.LEFT]
    ends = [event for event in events if event.kind is EventKind.LEFT]
    ends.sort(key=lambda event: (event.of, event.name, event.session_id, event.mode, event.lasted_ms))
    return [plain(event) for event in [*sorted(told, key=lambda event: (event.of, event.name)), *ends]]


def _views(machine: LockMachine, expected: Expected) -> Iterator[tuple[str, Any, Any]]:
    """Yield what readers see besides locks, and what they should see."""
    state = expected.state
    for session in state.sessions:
        yield "a session", machine.session(session.session_id), expected.session(session.session_id)
    for name in state.limits:
        yield "a semaphore", machine.semaphore(name), expected.semaphore(name)
    for name in expected.elections():
        yield "an election", machine.election(name), expected.election(name)
    yield "its cells", machine.cells(b"", b"", VIEWS_MAX)[0], expected.cells(b"", b"", VIEWS_MAX)[0]
    yield "its principals", listings.principals(machine.state, "", VIEWS_MAX)[0], model_principals.rows(state)
    yield "its fences", sorted(machine.state.fences.items()), sorted(state.fences.items())
