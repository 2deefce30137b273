"""Additions: a hold gets more locks, without giving up what it has.

Who waits for them stands in their queues as everybody does, in order of arrival, and meanwhile keeps the hold
as it is. So additions can wait for each other's holds, as sessions do that acquire one lock after the other,
and like those the one that would close such a circle is refused. The hold gets all of the locks at once, and
with them the next token, which counts for the whole of it.
"""

from lockstate.rules.checks import check_together, check_unchanging, invalid
from lockstate.rules.effects import Effects
from lockstate.rules.holds import admission, changes, grants, waiting
from lockstate.rules.namespace_rules import check_endless, check_ttl
from lockstate.rules.refusals import LEASE_EXPIRED, lock_held
from lockstate.tables.queues import can_go, is_free
from lockstate.tables.records import Hold, RequestKey, each_lock
from lockstate.tables.state import State
from lockstate.words.claims import claims_of
from lockstate.words.commands.holds import AddLocks
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode, Scope
from lockstate.words.refusals import Refused
from lockstate.words.results import Result
from lockstate.words.wanted import Wanted


class Additions:
    """Applies additions to one state."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._state = effects.state

    def add(self, command: AddLocks, key: RequestKey | None = None) -> Result:
        """Give a hold more locks, let it wait for them, or refuse; the hold stays as it is until then."""
        effects, state = self._effects, self._state
        hold = state.holds.get(command.hold_id)
        refused = self._check(command, hold)
        if refused is not None or hold is None:
            return refused or LEASE_EXPIRED
        had = tuple(each_lock(hold))
        more = tuple([lock for lock in command.locks if lock not in had])
        if not more:
            return grants.grant_of(state, hold)
        claims = claims_of("", Mode.EXCLUSIVE, Scope.NODE, more)
        refused = (
            _check_beside(had, more)
            or _check_there(state, hold, more, command)
            or admission.check_room(state, state.sessions.get(hold.session_id), len(claims), None)
        )
        if refused is not None:
            return refused
        if is_free(state, claims):
            changes.add(effects, hold, more)
            return grants.grant_of(state, hold)
        wanted = "", Mode.EXCLUSIVE, Scope.NODE, more
        ticket = changes.ticket_for(command, hold, wanted, now_ms=state.now_ms, key=key, is_addition=True)
        ticket.order = state.next_order  # the order it would get: it is judged as if it waited
        if can_go(state, ticket, claims):
            # Only those are in the way that come after it, by their priorities.
            refused = waiting.check_passing(state, ticket)
            if refused is None:
                changes.add(effects, hold, more)
            return refused or grants.grant_of(state, hold)
        if command.wait_ms == 0:
            return lock_held(state, claims, (hold.hold_id,))
        return waiting.wait(effects, ticket, claims, command.wait_ms)

    def _check(self, command: AddLocks, hold: Hold | None) -> Refused | None:
        refused = (
            changes.check_change(self._state, command)
            or (None if command.locks else invalid("locks: is required"))
            or check_together(command.locks)
        )
        if refused is not None or hold is None:
            return refused
        if hold.kind is not HoldKind.LOCK or hold.permits:
            return invalid("hold_id: locks can be added only to a hold of locks")
        return check_unchanging(self._state, hold, "hold_id: is")


def _check_there(state: State, hold: Hold, more: tuple[Wanted, ...], command: AddLocks) -> Refused | None:
    """Refuse what the hold could not have been asked for with these locks: by namespaces and quotas."""
    names = [lock.name for lock in more]
    return (
        check_ttl(state, names, hold.ttl_ms)
        or (check_endless(state, names, command.endless_not_for) if hold.is_endless else None)
        or admission.check_added(state, hold, names)
    )


def _check_beside(had: tuple[Wanted, ...], more: tuple[Wanted, ...]) -> Refused | None:
    """Return why a hold that has some locks cannot have `more`, or None."""
    modes = {lock.name: lock.mode for lock in had}
    if twice := [lock.name for lock in more if lock.name in modes]:
        return invalid(f"locks: the hold has {twice[0]!r} already, as {modes[twice[0]]}: convert it")
    refused = check_together((*had, *more))
    return None if refused is None else invalid(f"with what the hold has, {refused.detail}")
