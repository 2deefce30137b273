"""The commands about those who wait and whose client is gone: of one attempt, of a whole node process."""

import heapq

from lockstate import limits
from lockstate.commands import AbandonWaits, Cancel
from lockstate.holds import Holds
from lockstate.ids import HoldId
from lockstate.records import NOTHING, Ticket
from lockstate.results import Cancelled, EventKind, Result, WaitsAbandoned
from lockstate.state import Freed


class Waits:
    """Ends the waits of one state before their time."""

    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self._state = holds.state

    def cancel(self, command: Cancel) -> Result:
        """Undo an attempt whose client never heard of it; a later attempt of the same request keeps it.

        It may have been granted meanwhile: then the hold ends.
        """
        state, holds = self._state, self._holds
        ticket = state.tickets.get(command.hold_id)
        hold = state.holds.get(command.hold_id)
        freed: Freed = []
        # Told to all: an earlier attempt of the same request may still wait on another connection.
        if ticket is not None and ticket.attempt_id == command.attempt_id:
            state.requests.forget(ticket.request, ticket.hold_id)
            freed = holds.end_wait(ticket)
        elif hold is not None and hold.attempt_id == command.attempt_id:
            state.requests.forget(hold.request, hold.hold_id)
            freed = holds.end(hold, EventKind.RELEASED)
        else:
            return Cancelled(undone=False)
        holds.serve(freed)
        return Cancelled(undone=True)

    def abandon(self, command: AbandonWaits) -> Result:
        """Undo the waits of a node process that is gone, so that nobody gets what no client will hear of."""
        state, holds = self._state, self._holds
        tickets: dict[HoldId, Ticket] = state.origin_tickets.get(command.origin, NOTHING)
        # By arrival: a repeated request is entered here anew, and a snapshot does not say when.
        ended = heapq.nsmallest(
            limits.ABANDONED_PER_COMMAND_MAX, tickets.values(), key=lambda ticket: ticket.order
        )
        freed: Freed = []
        for ticket in ended:
            state.requests.forget(ticket.request, ticket.hold_id)
            freed += holds.end_wait(ticket)
        holds.serve(freed)
        return WaitsAbandoned(len(ended), len(tickets))
