"""Warnings about holds without a deadline: nothing but somebody's release or force will end them.

The leader tells of each when it is granted, and once an hour how many there are. Owners and names come from
clients, so they are quoted.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from lockstate.machine import LockMachine
from lockstate.tables.happened import told_in
from lockstate.tables.owners import shown_owner
from lockstate.words.events import Event, EventKind
from lockstate.words.ids import HoldId

logger = logging.getLogger(__name__)

PERIOD_S: Final = 3600.0
"""Seconds between two lines that say how many there are."""


class EndlessLog:
    """Writes the lines of one node. `now_s` is a clock in seconds that never goes back."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._next_s: float | None = None

    def tell(self, events: Sequence[Event], machine: LockMachine) -> None:
        """Warn of each grant without a deadline among the events of the newest entry."""
        if not machine.state.endless_count:
            return
        for event in told_in(events):
            if type(event) is not Event or event.kind is not EventKind.GRANTED:
                continue
            hold = machine.state.holds.get(HoldId(event.session_id))
            if hold is not None and hold.is_endless:
                owner = shown_owner(event.owner, event.session_id)
                logger.warning(
                    "event=granted-without-deadline kind=%s name=%r token=%d owner=%r revision=%d",
                    event.of,
                    event.name,
                    event.token,
                    owner,
                    event.revision,
                )

    def look(self, machine: LockMachine, *, is_leader: bool) -> None:
        """Say how many there are, once an hour for as long as this node leads."""
        count = machine.state.endless_count
        if not count or not is_leader:
            self._next_s = None
        elif self._next_s is None:
            self._next_s = self._now_s() + PERIOD_S
        elif self._now_s() >= self._next_s:
            self._next_s = self._now_s() + PERIOD_S
            logger.warning("event=held-without-deadline count=%d", count)
