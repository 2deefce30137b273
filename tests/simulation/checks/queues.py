"""queue-told: who follows a queue by its events learns of each wait once, and of its end once."""

from collections.abc import Sequence

from lockstate.machine import LockMachine
from lockstate.words.events import Event
from tests.simulation.checks.report import Report
from tests.support.ticket_book import TicketBook


class Queues:
    """The tickets that wait, by the events alone."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._book = TicketBook()
        self._began = False

    def applied(self, machine: LockMachine, events: Sequence[Event]) -> None:
        """Take the events of an entry, and compare who is left with those that wait in the state."""
        objection = self._book.watch(events)
        if objection is not None:
            self._report.fail("queue-told", objection)
        waiting = sorted(ticket.order for ticket in machine.state.tickets.values())
        if waiting and not self._began:
            return
        # From the first moment on at which nobody waits, the book is complete.
        self._began = True
        if self._book.numbers != waiting:
            told = f"by the events {self._book.numbers} wait, by the state {waiting}"
            self._report.fail("queue-told", f"revision {machine.revision}: {told}")
