"""The commands about locks: acquire one or several; and release, for every kind of hold."""

from typing import Final

from lockstate.rules.checks import check_acquire, check_unchanging
from lockstate.rules.effects import Effects
from lockstate.rules.holds import admission, changes, ends, grants, reentry, waiting
from lockstate.rules.namespace_rules import check_allowed, if_held_of
from lockstate.rules.refusals import LEASE_EXPIRED, SESSION_EXPIRED, lock_held, refuse_kind
from lockstate.rules.values import asked_of_hold, asked_of_ticket
from lockstate.tables.queues import can_go, is_free
from lockstate.tables.rare import Rare
from lockstate.tables.records import Hold, HoldOrTicket, RequestKey, Ticket, each_lock
from lockstate.words.claims import Claims, claims_of, claims_of_one
from lockstate.words.commands.holds import Acquire, Release
from lockstate.words.events import EventKind
from lockstate.words.ids import OwnerName, attempt_of
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import CONFLICTS, Scope
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import RELEASED, Released, Result
from lockstate.words.wanted import Wanted

_BY_CLIENT: Final = EventKind.RELEASED
"""The event of a hold that its client ends."""
_NODE: Final = Scope.NODE
"""Looked up in the class, it would take longer."""


class Locks:
    """Applies the commands about locks to one state."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._state = effects.state

    # -- acquire --------------------------------------------------------------------------------------------

    def acquire(self, command: Acquire, key: RequestKey | None = None) -> Result:
        """Grant, queue or refuse. `key` is the key under which the request is remembered."""
        state, effects = self._state, self._effects
        refused = self.check(command)
        if refused is not None:
            return refused
        # The record on which a hold that the session has already would be found.
        lock = state.locks.get(command.locks[0].name if command.locks else command.name)
        owner, session = command.owner, None
        if command.session_id:
            session = state.sessions.get(command.session_id)
            if session is None:
                return SESSION_EXPIRED
            owner = owner or session.owner
            if lock is not None:
                holders = lock.all_holders()
                held = reentry.held_already(
                    state, session, owner, holders, lambda hold: _is_same(hold, command)
                )
                if held is not None:
                    return reentry.held_again(effects, held, command, key)
        is_plain = command.scope is _NODE and not command.locks
        if is_plain:
            claims = claims_of_one(command.name, command.mode)
        else:
            claims = claims_of(command.name, command.mode, command.scope, command.locks)
        refused = admission.check_room(state, session, len(claims), command)
        if refused is not None:
            return refused
        is_alone = lock is None and is_plain and len(claims) == 1 and not state.freezes
        if is_alone or is_free(state, claims):
            return grants.begin(effects, self.hold(command, owner, key), claims, 0)
        return self._in_turn(command, owner, key, claims)

    def check(self, command: Acquire) -> Refused | None:
        """Refuse what is not well formed, reuses an id, or is not allowed for its names."""
        state = self._state
        hold_id: str = command.hold_id  # of no kind yet: it may be in use for a session
        refused = check_acquire(command)
        if refused is None and (
            hold_id in state.holds or hold_id in state.tickets or hold_id in state.sessions
        ):
            refused = admission.check_unused(state, "hold_id", hold_id)
        return refused or (
            check_allowed(state, command) if state.spaces or command.uncommon is not None else None
        )

    def _in_turn(self, command: Acquire, owner: OwnerName, key: RequestKey | None, claims: Claims) -> Result:
        """Grant what only those who come later wait for, or queue or refuse the request."""
        state, effects = self._state, self._effects
        name, claim = claims[0]
        lock = state.locks.get(name)
        if lock is None or not lock.held & CONFLICTS[claim]:
            ticket = self.ticket(command, owner, key)
            ticket.order = state.next_order  # the order it would get: it is judged as if it waited
            if can_go(state, ticket, claims):
                return waiting.pass_by(effects, ticket, claims)
        if command.wait_ms == 0:
            return lock_held(state, claims)
        return waiting.wait(effects, self.ticket(command, owner, key), claims, command.wait_ms)

    def hold(self, command: Acquire, owner: OwnerName, key: RequestKey | None) -> Hold:
        """Return the hold that `command` asks for, to be begun."""
        return self._record(Hold, command, owner, key, asked_of_hold(command.uncommon))

    def ticket(self, command: Acquire, owner: OwnerName, key: RequestKey | None) -> Ticket:
        """Return the ticket for what `command` asks for, with the place that its priority gives it."""
        rare = asked_of_ticket(command.uncommon, if_held_of(self._state, command))
        return self._record(Ticket, command, owner, key, rare)

    def _record(
        self,
        make: type[HoldOrTicket],
        command: Acquire,
        owner: OwnerName,
        key: RequestKey | None,
        rare: Rare | None,
    ) -> HoldOrTicket:
        """Return the hold that `command` asks for, or the ticket for it."""
        return make(
            0,
            0,
            command.ttl_ms,
            command.hold_id,
            command.name,
            command.mode,
            owner,
            command.session_id,
            self._state.now_ms,
            attempt_of(command.hold_id, command.attempt_id),
            key,
            command.scope,
            command.locks,
            rare=rare,
        )

    # -- release --------------------------------------------------------------------------------------------

    def release(self, command: Release) -> Result:
        """End a hold, or a part of one of several locks, and serve those that wait for it."""
        hold = self._state.holds.get(command.hold_id)
        if hold is None:
            return LEASE_EXPIRED
        if command.kind is not None and hold.kind is not command.kind:
            return refuse_kind(self._state, hold, command.kind)
        depth = hold.details.depth
        if command.names:
            return self._release_part(hold, command.names, depth)
        if depth > 1:
            return reentry.release_once(self._state, hold)
        freed = ends.end(self._effects, hold, _BY_CLIENT)
        if freed or self._state.rates.stale:
            waiting.serve(self._effects, freed)
        return RELEASED

    def _release_part(self, hold: Hold, names: tuple[str, ...], depth: int) -> Result:
        if hold.is_of_kinds:
            return Refused(Reason.INVALID_REQUEST, "names: a hold of several kinds ends as a whole")
        held = {lock.name: lock for lock in each_lock(hold)}
        if len(set(names)) < len(names):
            return Refused(Reason.INVALID_REQUEST, "names: a name is given twice")
        if foreign := [name for name in names if name not in held]:
            return Refused(Reason.NOT_HOLDER, f"names: the hold does not have {foreign[0]!r}")
        if depth > 1:
            return Refused(Reason.INVALID_REQUEST, f"names: the hold was acquired {depth} times")
        if len(names) == len(held):
            waiting.serve(self._effects, ends.end(self._effects, hold, _BY_CLIENT))
            return RELEASED
        refused = check_unchanging(self._state, hold, "names: the hold is")
        if refused is not None:
            return refused
        kept = tuple([lock for lock in hold.locks if lock.name not in names])
        waiting.serve(
            self._effects, changes.give_up(self._effects, hold, tuple([held[name] for name in names]), kept)
        )
        return Released(kept)


def _is_same(hold: Hold, command: Acquire) -> bool:
    """Whether a hold is exactly what `command` asks for."""
    if hold.kind is not HoldKind.LOCK or hold.permits:
        return False
    if hold.locks or command.locks:
        wanted = command.locks or (Wanted(command.name, command.mode, command.scope),)
        return set(each_lock(hold)) == set(wanted)
    return (hold.name, hold.mode, hold.scope) == (command.name, command.mode, command.scope)
