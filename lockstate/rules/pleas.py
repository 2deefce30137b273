"""Revocation: a holder is asked to give up, and may say "not yet" once; after the grace it is forced.

A *plea* hangs on one name of a hold. A holder that gives that name up in time has obeyed and keeps the rest;
otherwise the hold ends as a whole, as by force. Whoever asks again can only let the plea end earlier. A plea
that is made for a wait asks only holders that are in its way. It ends with the wait, or when the holder
converts to a mode that is not in the way any more. Any plea of somebody can be withdrawn: then its hold is
as if nobody had asked.

A wait may ask by itself once it has waited for some time, where a namespace lets it: the holders in its way
that are of its own principal or of a lower priority. That is a revocation for this wait like any other.

A hold that is handed over passes on what it was asked for the name: its receiver has what is left of the
grace, or whoever is asked could keep the lock among friends for ever.

A *bound* is a plea that nobody makes: where a namespace has `held_ms_max`, each name of a grant gets one. Its
holder hears of it a while before the end, as of any plea, and cannot put it off. The hold expires then: that
is nobody's deed.
"""

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Final

import msgspec

from lockstate.reads.held import revocation_of, revoked_view
from lockstate.reads.holders import holders_meant, holders_of
from lockstate.reads.parts import is_in_the_way, parts_of
from lockstate.rules.checks import invalid
from lockstate.rules.effects import Effects
from lockstate.rules.holds import ends, waiting
from lockstate.rules.kinded import Kinds
from lockstate.rules.refusals import LEASE_EXPIRED, refuse_kind
from lockstate.tables import budget
from lockstate.tables.pleas import key_of
from lockstate.tables.records import Ask, Hold, Plea, Ticket
from lockstate.words import limits
from lockstate.words.commands.holds import PutOff
from lockstate.words.commands.overrides import Revoke, WithdrawRevocation
from lockstate.words.events import HELD_TOO_LONG, EventKind
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import PutOffTo, Result, RevocationsWithdrawn, Revoked
from lockstate.words.views import RevokedView

ASKED_BY_A_WAIT: Final = "a wait needs it"
"""The reason of what a wait asks by itself."""


class Pleas:
    """Applies the commands about revocation to one state."""

    def __init__(self, effects: Effects, kinds: Kinds) -> None:
        self._effects = effects
        self._kinds = kinds
        self._state = effects.state

    def revoke(self, command: Revoke) -> Result:
        """Ask the holders of a name to give up within the grace."""
        state = self._state
        ticket = state.tickets_in_order.get(command.ticket) if command.ticket else None
        refused = _check_asking(command) or _check(command) or _check_ticket(command, ticket)
        if refused is not None:
            return refused
        asked = holders_meant(state, command.kind, command.name, command.token)
        if not asked:
            return self._refuse_nothing(command) or Revoked(())
        if ticket is not None:
            asked = [hold for hold in asked if is_in_the_way(hold, ticket, command.kind, command.name)]
        if state.is_tight and (refused := budget.check_room(state)) is not None:
            return refused
        left = self._ask_all(asked, command)
        return Revoked(self._shown(asked, command), left)

    def ask(self, ask: Ask) -> None:
        """Let a wait ask that has waited for so long. Without room nobody is asked, and it waits on."""
        state = self._state
        ticket = state.tickets[ask.hold_id]
        state.pleas.drop_ask(ask)
        asks = ticket.details.asks
        assert asks is not None, "a wait asks that says so"
        # While time passes, `is_tight` is not yet that of this entry.
        if budget.bytes_of(state) >= state.bytes_max:
            return
        for part in parts_of(ticket):
            command = Revoke(part.name, ASKED_BY_A_WAIT, asks.grace_ms, part.kind, 0, ticket.order)
            held = holders_of(state, part.kind, part.name)
            asked = [
                hold
                for hold in held
                if self._may_ask(ticket, hold) and is_in_the_way(hold, ticket, part.kind, part.name)
            ]
            self._ask_all(asked, command)

    def _may_ask(self, ticket: Ticket, hold: Hold) -> bool:
        """Whether a wait may ask for a hold: it has a lower priority, or belongs to the same principal."""
        principals = self._state.principals
        is_lower = hold.details.priority < ticket.details.priority
        return is_lower or principals.of(hold) == principals.of(ticket)

    def _ask_all(self, asked: Collection[Hold], command: Revoke) -> int:
        """Ask the first of those that are not to give up as early already; return how many are left."""
        later = [hold for hold in asked if not self._is_asked(hold, command)]
        for hold in later[: limits.REVOKED_PER_COMMAND_MAX]:
            self._ask(hold, command)
        return max(0, len(later) - limits.REVOKED_PER_COMMAND_MAX)

    def withdraw(self, command: WithdrawRevocation) -> Result:
        """Take back what the holders of a name were asked, whoever has asked."""
        state = self._state
        refused = _check(command)
        if refused is not None:
            return refused
        held = holders_meant(state, command.kind, command.name, command.token)
        if not held:
            return self._refuse_nothing(command) or RevocationsWithdrawn(0)
        found = [
            (hold, plea)
            for hold in (held if state.pleas else ())
            for plea in state.pleas.of_name(hold.hold_id, command.kind, command.name)
            if not plea.is_bound and command.ticket in {0, plea.ticket}
        ]
        for hold, plea in found[: limits.REVOKED_PER_COMMAND_MAX]:
            state.pleas.drop(plea)
            self._effects.tell_withdrawn(hold, plea, command.reason)
        left = max(0, len(found) - limits.REVOKED_PER_COMMAND_MAX)
        return RevocationsWithdrawn(len(found) - left, left)

    def _refuse_nothing(self, command: Revoke | WithdrawRevocation) -> Refused | None:
        """Refuse a command that finds no holder, if another kind is held, or with other tokens."""
        is_held = bool(holders_of(self._state, command.kind, command.name))
        return self._kinds.nothing_of(command.kind, command.name, command.token, is_held=is_held)

    def _shown(self, asked: Collection[Hold], command: Revoke) -> tuple[RevokedView, ...]:
        """Return the first holders that are to give the name up, whoever has asked, with the earliest end."""
        kind = command.kind
        asked_of = ((hold, revocation_of(self._state, hold, kind, command.name)) for hold in asked)
        shown = (revoked_view(self._state, hold, kind, one) for hold, one in asked_of if one is not None)
        return tuple(islice(shown, limits.REVOKED_PER_COMMAND_MAX))

    def put_off(self, command: PutOff) -> Result:
        """Give the holder its grace once more, for each name that it has not put off before."""
        state = self._state
        hold = state.holds.get(command.hold_id)
        if hold is None:
            return LEASE_EXPIRED
        if hold.kind is not command.kind:
            return refuse_kind(state, hold, command.kind)
        pleas = state.pleas.told(command.hold_id)
        if not pleas:
            return Refused(Reason.NOT_REVOKED, "nobody has asked for this hold back")
        if all(plea.is_bound for plea in pleas):
            return Refused(Reason.NOT_REVOKED, "the hold may not be held longer; that cannot be put off")
        if all(plea.is_put_off for plea in pleas):
            return Refused(Reason.NOT_REVOKED, "the hold was put off before; that is possible only once")
        for plea in pleas:
            if not plea.is_put_off:
                state.ledger.change(plea)
                plea.is_put_off = True
                state.deadlines.move(plea, plea.expires_at_ms + plea.grace_ms)
                self._effects.tell_plea(EventKind.PUT_OFF, hold, plea)
        return PutOffTo(hold.token, max(0, min(plea.expires_at_ms for plea in pleas) - state.now_ms))

    def pass_on(self, asked: Sequence[Plea], hold: Hold) -> None:
        """Ask the receiver of a hand-over what its giver was `asked`, with what is left of the same grace.

        It is not asked for a wait that it is not in the way of, or by one that may not ask it by itself. The
        earlier of two bounds counts.
        """
        state = self._state
        for plea in asked:
            ticket = state.tickets_in_order.get(plea.ticket)
            if plea.ticket and (ticket is None or not self._goes_on(plea, ticket, hold)):
                continue
            own = state.pleas.of_hold(hold.hold_id).get(key_of(plea)) if plea.is_bound else None
            if own is not None:
                if own.ends_at_ms <= plea.ends_at_ms:
                    continue
                state.pleas.drop(own)
            passed_on = msgspec.structs.replace(plea, order=state.take_order(), hold_id=hold.hold_id)
            state.pleas.enter(passed_on)
            if passed_on.is_told:
                self._effects.tell_plea(EventKind.REVOKED, hold, passed_on)

    def _goes_on(self, plea: Plea, ticket: Ticket, hold: Hold) -> bool:
        """Whether what was asked for a wait concerns the receiver of a hand-over."""
        asks_itself = ticket.details.asks is not None and plea.reason == ASKED_BY_A_WAIT
        return (not asks_itself or self._may_ask(ticket, hold)) and is_in_the_way(
            hold, ticket, plea.kind, plea.name
        )

    def end(self, plea: Plea) -> None:
        """End the hold whose grace is over, or tell its holder that it soon will be."""
        hold = self._state.holds[plea.hold_id]
        if not plea.is_told:
            self._state.ledger.change(plea)
            plea.is_told = True
            self._state.deadlines.move(plea, plea.expires_at_ms + plea.grace_ms)
            self._effects.tell_plea(EventKind.REVOKED, hold, plea)
            return
        kind = EventKind.EXPIRED if plea.is_bound else EventKind.FORCED
        waiting.serve(self._effects, ends.end(self._effects, hold, kind, plea.reason))

    def _is_asked(self, hold: Hold, command: Revoke) -> bool:
        """Whether a hold is to be given up as early already, or for too many waits to ask for another one."""
        state = self._state
        known = state.pleas.of_hold(hold.hold_id).get((command.kind, command.name, command.ticket))
        if known is not None:
            return known.expires_at_ms <= state.now_ms + command.grace_ms
        if not command.ticket:
            return False
        others = state.pleas.of_name(hold.hold_id, command.kind, command.name)
        return len([plea for plea in others if plea.ticket]) >= limits.PLEAS_PER_NAME_MAX

    def _ask(self, hold: Hold, command: Revoke) -> None:
        """Ask one holder, which may have been asked before, to give up later."""
        state = self._state
        every = state.pleas.of_name(hold.hold_id, command.kind, command.name)
        of_name = [plea for plea in every if not plea.is_bound]
        plea = Plea(
            state.take_order(),
            state.now_ms + command.grace_ms,
            hold.hold_id,
            command.name,
            command.kind,
            command.reason,
            command.grace_ms,
            command.ticket,
            any(known.is_put_off for known in of_name),
        )
        for known in of_name:
            if known.ticket == command.ticket:
                state.pleas.drop(known)
        state.pleas.enter(plea)
        self._effects.tell_plea(EventKind.REVOKED, hold, plea)


def _check_ticket(command: Revoke, ticket: Ticket | None) -> Refused | None:
    """Refuse a ticket that does not wait for what is to be given up."""
    wanted = [(part.kind, part.name) for part in parts_of(ticket)] if ticket is not None else []
    if not command.ticket or (command.kind, command.name) in wanted:
        return None
    return Refused(Reason.INVALID_REQUEST, "ticket: no waiter for this has that number")


def _check_asking(command: Revoke) -> Refused | None:
    if command.reason == HELD_TOO_LONG:
        return invalid(f"reason: only the cluster says {HELD_TOO_LONG}")
    return limits.check_range("grace_ms", command.grace_ms, limits.GRACE_MS_MAX)


def _check(command: Revoke | WithdrawRevocation) -> Refused | None:
    return (
        limits.check_name(command.name)
        or limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX)
        or limits.check_range("token", command.token, limits.TOKEN_MAX)
        or limits.check_range("ticket", command.ticket, limits.TOKEN_MAX)
    )
