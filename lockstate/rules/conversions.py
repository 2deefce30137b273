"""Conversion: a hold gets another mode.

One that goes with all that the old one goes with is *down*, and had at once: nothing that stands beside the
old mode is in the way of the new one. Every other is *up*, also between modes that are not ordered: it waits
until nothing is in the way that the hold itself is not, for it excludes what it did not before.
"""

from lockstate.rules import deadlocks
from lockstate.rules.checks import check_unchanging, invalid
from lockstate.rules.effects import Effects
from lockstate.rules.holds import admission, changes, grants, waiting
from lockstate.rules.refusals import LEASE_EXPIRED, lock_held, refused_for
from lockstate.tables.queues import can_go
from lockstate.tables.records import Hold, RequestKey
from lockstate.words.claims import claims_of
from lockstate.words.commands.holds import Convert
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import is_down
from lockstate.words.refusals import Refused
from lockstate.words.results import Result
from lockstate.words.wanted import Wanted


class Conversions:
    """Applies conversions to one state."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._state = effects.state

    def convert(self, command: Convert, key: RequestKey | None = None) -> Result:
        """Give every lock of a hold the mode, or let it wait for that ahead of all newcomers.

        Two conversions that wait for each other's hold would wait for ever: the second is refused, even if
        it would not have waited.
        """
        effects, state = self._effects, self._state
        hold = state.holds.get(command.hold_id)
        refused = self._check(command, hold)
        if refused is not None or hold is None:
            return refused or LEASE_EXPIRED
        modes = {lock.mode for lock in hold.locks} if hold.locks else {hold.mode}
        if modes == {command.mode}:
            return grants.grant_of(state, hold)
        locks = tuple([Wanted(lock.name, command.mode, lock.scope) for lock in hold.locks])
        claims = claims_of(hold.name, command.mode, hold.scope, locks)
        if all(is_down(mode, command.mode) for mode in modes):
            waiting.serve(effects, changes.convert(effects, hold, command.mode, locks, claims))
            return grants.grant_of(state, hold)
        wanted = hold.name, command.mode, hold.scope, locks
        ticket = changes.ticket_for(command, hold, wanted, now_ms=state.now_ms, key=key)
        ticket.order = state.next_order  # the order it would get: it is judged as if it waited
        if can_go(state, ticket, claims):
            waiting.serve(effects, changes.convert(effects, hold, command.mode, locks, claims))
            return grants.grant_of(state, hold)
        if command.wait_ms:
            session = state.sessions.get(hold.session_id)
            return admission.check_room(state, session, len(claims), None) or waiting.wait(
                effects, ticket, claims, command.wait_ms
            )
        cycle = deadlocks.find(state, ticket)
        if cycle is not None and cycle.is_of_conversions:
            return refused_for(cycle)
        return lock_held(state, claims, (hold.hold_id,))

    def _check(self, command: Convert, hold: Hold | None) -> Refused | None:
        refused = changes.check_change(self._state, command)
        if refused is not None or hold is None:
            return refused
        if hold.kind is not HoldKind.LOCK or hold.permits:
            return invalid("hold_id: only a lock can be converted")
        return check_unchanging(self._state, hold, "hold_id: is")
