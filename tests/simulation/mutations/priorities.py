"""Defects of priorities: of the order of queues, of what makes up for a priority, of what newcomers pass."""

from collections.abc import Iterator
from typing import Any, Final

import lockstate.rules.locks
import lockstate.stored.snapshot
import lockstate.tables.tickets
from lockstate.tables.rare import changed
from lockstate.tables.records import Ticket
from lockstate.words.ids import HoldId
from lockstate.words.wanted import PRIORITY_DEFAULT
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced
from tests.simulation.mutations.states import can_overtake

_VARIED: Final = Surroundings(minutes=2, client_settings={"vocabulary_share": 0.8, "think_s": 0.2})
_RESTARTS: Final = Surroundings(
    minutes=3,
    rates={"kill": 6.0},
    client_settings={"vocabulary_share": 0.8, "think_s": 0.2, "wait_ms": (10_000, 40_000)},
    settings={"compact_entries": 50},
)


def _steps_of_hours(ticket: Ticket) -> int:
    """Make a step of priority worth more than any wait."""
    return 1_000 * (PRIORITY_DEFAULT - ticket.details.priority)


def _in_order_of_arrival(tables: Any) -> Iterator[tuple[Any, Any]]:
    """Take the tickets of a snapshot for ordinary ones."""
    for table, rows in _rows(tables):
        for row in rows:
            if isinstance(row, Ticket):
                row.rare = changed(row.rare, priority=PRIORITY_DEFAULT)
        yield table, rows


_rows = lockstate.stored.snapshot._rows


def _at_the_end(queue: dict[HoldId, Ticket], ticket: Ticket) -> None:
    """Put whoever waits for permits behind all others."""
    queue[ticket.hold_id] = ticket


PRIORITIES: Final = (
    Mutation(
        name="priority-never-ages",
        sentence="A higher priority goes first, however long others have waited.",
        found_by=("first-come", "model-events", "model-state", "reply", "read-view", "deadlock-real"),
        apply=replaced(Ticket, "steps", property(_steps_of_hours)),
        surroundings=_VARIED,
    ),
    Mutation(
        name="priority-lost-in-snapshot",
        sentence="A node that restarts puts all waiters in the order of their arrival.",
        found_by=("first-come", "model-events", "model-state", "reply", "read-view", "equal-digest"),
        apply=replaced(lockstate.stored.snapshot, "_rows", _in_order_of_arrival),
        surroundings=_RESTARTS,
    ),
    Mutation(
        name="priority-not-for-permits",
        sentence="The queue of a semaphore is in order of arrival, whatever the priorities.",
        found_by=("first-come", "model-events", "model-state", "reply", "read-view"),
        apply=replaced(lockstate.tables.tickets, "stand_in", _at_the_end),
        surroundings=_VARIED,
    ),
    Mutation(
        name="newcomer-passes-everybody",
        sentence="A newcomer is granted if no hold is in the way, even past earlier waiters.",
        found_by=("first-come", "model-events", "model-state", "reply"),
        apply=replaced(lockstate.rules.locks, "can_go", can_overtake),
        surroundings=_VARIED,
    ),
)
