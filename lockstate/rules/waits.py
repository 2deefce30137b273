"""The commands that end waits: whose clients are gone, of one attempt or of a node process; and by force."""

import heapq

from lockstate.reads.held import waiter_view
from lockstate.reads.holders import queue_of
from lockstate.rules import attempts
from lockstate.rules.effects import Effects
from lockstate.rules.holds import ends, reentry, waiting
from lockstate.tables.claim_table import Freed, weight_of
from lockstate.tables.records import NOTHING, Ticket
from lockstate.words import limits
from lockstate.words.commands.entries import AbandonWaits, Cancel
from lockstate.words.commands.overrides import ForceWaits
from lockstate.words.events import EventKind, Left
from lockstate.words.ids import NO_HOLD, HoldId
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Cancelled, Result, WaitsAbandoned, WaitsForced


class Waits:
    """Applies the commands that end waits to one state."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._state = effects.state

    def cancel(self, command: Cancel) -> Result:
        """Undo an attempt that its client does not know to have succeeded, unless others may be told of it.

        If it has been granted meanwhile, the hold ends, or one of the acquires that it counts. The place of a
        rate limit is given back if its moment is still to come.
        """
        state, effects = self._state, self._effects
        ticket = state.tickets.get(command.hold_id)
        hold = state.holds.get(command.hold_id)
        freed: Freed = []
        # Every node is told: an earlier attempt of the request may still wait on another connection.
        if ticket is not None and attempts.leave(state, ticket, command.attempt_id):
            state.requests.forget(ticket.request, ticket.hold_id)
            freed = ends.end_wait(effects, ticket, Left.CANCELLED)
        elif hold is not None and attempts.leave(state, hold, command.attempt_id):
            state.requests.forget(hold.request, hold.hold_id)
            if hold.details.depth > 1:
                reentry.uncount(state, hold)
            else:
                freed = ends.end(effects, hold, EventKind.RELEASED)
        elif ticket is not None or hold is not None:
            return Cancelled(undone=False)
        else:
            place = state.rates.leave(command.attempt_id, state.now_ms)
            if place is not None:
                state.requests.forget(place.request, NO_HOLD)
            return Cancelled(undone=place is not None)
        waiting.serve(effects, freed)
        return Cancelled(undone=True)

    def abandon(self, command: AbandonWaits) -> Result:
        """End waits of a node process that is gone, so that nothing is granted without a client to use it.

        Only so many at a time, and only so many claims: the leader asks until none is left.
        """
        state, effects = self._state, self._effects
        tickets: dict[HoldId, Ticket] = state.origin_tickets.get(command.origin, NOTHING)
        # By arrival, not by place in the table: a repeated request moved back, and a snapshot forgets that.
        first = heapq.nsmallest(
            limits.ABANDONED_PER_COMMAND_MAX, tickets.values(), key=lambda ticket: ticket.order
        )
        # Others stay: their clients asked again, on another node.
        ended: list[Ticket] = []
        left = limits.EXPIRIES_PER_ENTRY_MAX
        for ticket in first:
            if left <= 0:
                break
            if attempts.leave_origin(state, ticket, command.origin):
                ended.append(ticket)
                left -= weight_of(ticket)
        freed: Freed = []
        for ticket in ended:
            state.requests.forget(ticket.request, ticket.hold_id)
            freed += ends.end_wait(effects, ticket, Left.ABANDONED)
        waiting.serve(effects, freed)
        return WaitsAbandoned(len(ended), len(tickets))

    def force(self, command: ForceWaits) -> Result:
        """End the waits for a name, or one of them, whoever waits: only so many, and only so many claims."""
        refused = _check(command)
        if refused is not None:
            return refused
        state, effects = self._state, self._effects
        queue = enumerate(queue_of(state, command.kind, command.name), 1)
        meant = [(place, one) for place, one in queue if command.ticket in (0, one.order)]
        if command.ticket and not meant:
            return Refused(Reason.TICKET_ENDED, f"ticket: no wait for this has number {command.ticket}")
        ended: list[tuple[int, Ticket]] = []
        left = limits.EXPIRIES_PER_ENTRY_MAX
        for place, ticket in meant[: limits.WAITS_FORCED_PER_COMMAND_MAX]:
            if left <= 0:
                break
            ended.append((place, ticket))
            left -= weight_of(ticket)
        shown = [waiter_view(state, one, command.name, place, command.kind) for place, one in ended]
        refusal = _refusal(command.reason)
        freed: Freed = []
        for _, ticket in ended:
            waited_ms = state.now_ms - ticket.since_ms
            effects.tell(EventKind.WAIT_FORCED, ticket, waited_ms, command.reason)
            freed += ends.end_wait(effects, ticket, Left.FORCED, refusal)
        waiting.serve(effects, freed)
        return WaitsForced(tuple(shown), len(meant) - len(ended))


def _refusal(reason: str) -> Refused:
    """Return what those that waited are told."""
    return Refused(Reason.TICKET_ENDED, "an operator ended the wait" + (f": {reason}" if reason else ""))


def _check(command: ForceWaits) -> Refused | None:
    return (
        limits.check_name(command.name)
        or limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX)
        or limits.check_range("ticket", command.ticket, limits.TOKEN_MAX)
    )
