"""Revocation: a holder is asked to give up, and may say "not yet" once; after the grace it is forced.

A hold has one *plea* at most. Who asks again can only let it end earlier. What is asked of a hold goes with
it, whichever way it ends.
"""

from lockstate.reads.views import holders_meant, holders_of, parts_of, revoked_view
from lockstate.rules.holds import LEASE_EXPIRED, Holds, refuse_kind
from lockstate.rules.kinded import Kinds
from lockstate.tables import budget
from lockstate.tables.records import Hold, Plea
from lockstate.words import limits
from lockstate.words.commands import PutOff, Revoke
from lockstate.words.results import EventKind, PutOffTo, Reason, Refused, Result, Revoked


class Pleas:
    """Applies the commands about revocation to one state."""

    def __init__(self, holds: Holds, kinds: Kinds) -> None:
        self._holds = holds
        self._kinds = kinds
        self._state = holds.state

    def revoke(self, command: Revoke) -> Result:
        """Ask the holders of a name to give up within the grace."""
        refused = _check(command) or self._check_ticket(command)
        if refused is not None:
            return refused
        state = self._state
        asked = holders_meant(state, command.kind, command.name, command.token)
        if not asked:
            is_held = bool(holders_of(state, command.kind, command.name))
            nothing = self._kinds.nothing_of(command.kind, command.name, command.token, is_held=is_held)
            return nothing or Revoked(())
        if state.is_tight and (refused := budget.check_room(state)) is not None:
            return refused
        until_ms = state.now_ms + command.grace_ms
        later = [hold for hold in asked if not self._ends_by(hold, until_ms)]
        for hold in later[: limits.REVOKED_PER_COMMAND_MAX]:
            self._ask(hold, command)
        shown = [hold for hold in asked if hold.hold_id in state.pleas][: limits.REVOKED_PER_COMMAND_MAX]
        left = max(0, len(later) - limits.REVOKED_PER_COMMAND_MAX)
        return Revoked(tuple([revoked_view(state, hold, command.name, command.kind) for hold in shown]), left)

    def put_off(self, command: PutOff) -> Result:
        """Give the holder its grace once more."""
        state = self._state
        hold = state.holds.get(command.hold_id)
        if hold is None:
            return LEASE_EXPIRED
        if hold.kind is not command.kind:
            return refuse_kind(state, hold, command.kind)
        plea = state.pleas.get(command.hold_id)
        if plea is None:
            return Refused(Reason.NOT_REVOKED, "nobody has asked for this hold back")
        if plea.is_put_off:
            return Refused(Reason.NOT_REVOKED, "the hold was put off before; that is possible only once")
        state.ledger.change(plea)
        plea.is_put_off = True
        state.deadlines.move(plea, plea.expires_at_ms + plea.grace_ms)
        self._holds.effects.tell_plea(EventKind.PUT_OFF, hold, plea)
        return PutOffTo(hold.token, max(0, plea.expires_at_ms - state.now_ms))

    def end(self, plea: Plea) -> None:
        """Force the hold whose grace is over."""
        hold = self._state.holds[plea.hold_id]
        self._holds.serve(self._holds.end(hold, EventKind.FORCED, plea.reason))

    def _ends_by(self, hold: Hold, until_ms: int) -> bool:
        """Whether a hold is to be given up as early already."""
        known = self._state.pleas.get(hold.hold_id)
        return known is not None and known.expires_at_ms <= until_ms

    def _ask(self, hold: Hold, command: Revoke) -> None:
        """Ask one holder, who may have been asked for later."""
        state = self._state
        known = state.pleas.get(hold.hold_id)
        plea = Plea(
            state.take_order(),
            state.now_ms + command.grace_ms,
            hold.hold_id,
            command.reason,
            command.grace_ms,
            command.ticket,
            known is not None and known.is_put_off,
        )
        state.drop_plea(hold.hold_id)
        state.enter_plea(plea)
        self._holds.effects.tell_plea(EventKind.REVOKED, hold, plea)

    def _check_ticket(self, command: Revoke) -> Refused | None:
        """Refuse a ticket that does not wait for what is to be given up."""
        if not command.ticket:
            return None
        ticket = self._state.tickets_in_order.get(command.ticket)
        if ticket is not None and (command.kind, command.name) in [
            (part.kind, part.name) for part in parts_of(ticket)
        ]:
            return None
        return Refused(Reason.INVALID_REQUEST, "ticket: no waiter for this has that number")


def _check(command: Revoke) -> Refused | None:
    return (
        limits.check_name(command.name)
        or limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX)
        or limits.check_range("grace_ms", command.grace_ms, limits.GRACE_MS_MAX)
        or limits.check_range("token", command.token, limits.TOKEN_MAX)
        or limits.check_range("ticket", command.ticket, limits.TOKEN_MAX)
    )
