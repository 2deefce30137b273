"""Hand-over: the holder of a lock gives it to a waiter or a session of its choice, ahead of all that wait.

One hold ends and the next begins in the same command, with another token, so the lock is never free in
between. The receiver gets what it could have acquired if only the giver had left: other holders, freezes and
quotas are in its way as in that of anybody, waiters are not. These wait for the receiver from then on, so the
hand-over is refused if the receiver waits for one of them elsewhere.

A waiter has asked for the lock, so it may belong to anybody. A session has not: it must belong to the
principal that asks, and what bounds the time of the giver bounds its own. Whoever knows the id of a session
of nobody, a secret, uses it; its public name is not enough.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from lockstate.rules import deadlocks
from lockstate.rules.checks import check_unchanging, invalid
from lockstate.rules.effects import Effects
from lockstate.rules.holds import admission, ends, grants, reentry, waiting
from lockstate.rules.refusals import LEASE_EXPIRED, frozen, lock_held, refused_as_held, refused_for
from lockstate.tables.claim_table import claims_of_hold
from lockstate.tables.owners import order_in, session_name, shown_owner
from lockstate.tables.rare import changed
from lockstate.tables.records import Claimant, Hold, Plea, Session, Ticket, each_lock, hold_of
from lockstate.tables.state import State
from lockstate.tables.tickets import remove_ticket
from lockstate.words import limits
from lockstate.words.claims import Claims
from lockstate.words.commands.holds import HandOver
from lockstate.words.events import EventKind
from lockstate.words.ids import NO_ATTEMPT
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import CONFLICTS, UNIT
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import HandedOver, Result
from lockstate.words.wanted import Wanted

_NOT_ACQUIRED: Final = changed(None, depth=0)
"""What a session is handed: nobody is inside, so its first acquire takes it, whatever `if_held` says."""


class HandOvers:
    """Applies hand-overs to one state."""

    def __init__(self, effects: Effects, pass_on: Callable[[Sequence[Plea], Hold], None]) -> None:
        """`pass_on` asks the receiver what the giver was asked."""
        self._effects = effects
        self._state = effects.state
        self._pass_on = pass_on

    def hand_over(self, command: HandOver) -> Result:
        """End a hold and begin that of its receiver, or refuse and change nothing."""
        state, giver = self._state, self._state.holds.get(command.hold_id)
        refused = _check(command)
        if refused is not None or giver is None:
            return refused or LEASE_EXPIRED
        refused = _check_giver(state, giver)
        if refused is not None:
            return refused
        (lock,) = each_lock(giver)
        receiver = self._receiver(command, giver, lock)
        if isinstance(receiver, Refused):
            return receiver
        claims = claims_of_hold(receiver)
        refused = self._check_claims(giver, claims) or self._check_deadlock(giver, receiver)
        return refused or self._go(giver, receiver, claims)

    def _receiver(self, command: HandOver, giver: Hold, lock: Wanted) -> Ticket | Hold | Refused:
        """Return the ticket that is to get the lock, or the hold that a session is to have."""
        state = self._state
        if command.to_ticket:
            ticket = state.tickets_in_order.get(command.to_ticket)
            if ticket is None or not _waits_for(ticket, lock):
                # The same answer for both: what others wait for is not for the giver to know.
                detail = f"to_ticket: number {command.to_ticket} does not wait for {lock.name!r} alone"
                return Refused(Reason.TICKET_ENDED, detail)
            return ticket
        session = state.sessions_in_order.get(order_in(command.to_session))
        if (
            session is None
            or session_name(session) != command.to_session
            or not state.principals.is_own(session.session_id)
        ):
            detail = f"to_session: you have no session with the public name {command.to_session!r}"
            return Refused(Reason.SESSION_EXPIRED, detail)
        hold = Hold(
            0,
            0,
            0,
            command.new_hold_id,
            lock.name,
            lock.mode,
            session.owner,
            session.session_id,
            state.now_ms,
            NO_ATTEMPT,
            None,
            lock.scope,
            rare=_NOT_ACQUIRED,
        )
        return self._check_session(session, giver, hold) or hold

    def _check_session(self, session: Session, giver: Hold, hold: Hold) -> Refused | None:
        """Refuse a session that could not acquire it, though the giver had left."""
        state = self._state
        if giver.session_id == session.session_id:
            return invalid("to_session: the hold belongs to this session")
        refused = admission.check_unused(state, "new_hold_id", hold.hold_id)
        if refused is not None:
            return refused
        (lock,) = each_lock(giver)
        holders = state.locks[lock.name].all_holders()
        held = reentry.held_already(
            state, session, session.owner, holders, lambda one: (*each_lock(one),) == (lock,)
        )
        if held is not None:
            return refused_as_held(held)
        principal = state.owners.get(session.session_id, "")
        if state.principals.of(giver) != principal:
            refused = state.principals.check_named("holds", (lock.name,), of=principal)
        refused = refused or state.namespaces.check_passed(giver)
        return refused or admission.check_room(state, session, len(claims_of_hold(hold)), None)

    def _check_claims(self, giver: Hold, claims: Claims) -> Refused | None:
        """Refuse what a freeze, a delay or another holder than the giver is in the way of."""
        state = self._state
        if state.freezes and (refused := frozen(state, claims)) is not None:
            return refused
        own: dict[str, int] = {}
        for name, claim in claims_of_hold(giver):
            own[name] = own.get(name, 0) + UNIT[claim]
        if any((state.claimed.held_on(name) - own.get(name, 0)) & CONFLICTS[claim] for name, claim in claims):
            return lock_held(state, claims, (giver.hold_id,))
        return None

    def _check_deadlock(self, giver: Hold, receiver: Ticket | Hold) -> Refused | None:
        """Refuse a receiver that waits elsewhere for one that waits for the lock."""
        if not receiver.session_id:
            return None  # it waits for nothing else
        if isinstance(receiver, Hold):
            fields = {field: getattr(receiver, field) for field in Claimant.__struct_fields__}
            receiver = Ticket(**fields)
        cycle = deadlocks.find_beside(self._state, receiver, giver)
        return None if cycle is None else msgspec.structs.replace(refused_for(cycle), reason=Reason.DEADLOCK)

    def _go(self, giver: Hold, receiver: Ticket | Hold, claims: Claims) -> HandedOver:
        """Let the lock pass from one to the other; then serve those that can stand beside the receiver."""
        state, effects = self._state, self._effects
        asked = [
            plea
            for plea in state.pleas.of_hold(giver.hold_id).values()
            if not plea.is_bound or isinstance(receiver, Hold)
        ]
        freed = ends.end(effects, giver, EventKind.HANDED_OVER)
        effects.tell_receiver(state.next_token)
        if isinstance(receiver, Ticket):
            remove_ticket(state, receiver, claims)
            hold = hold_of(receiver, state.now_ms)
            waited_ms = state.now_ms - receiver.since_ms
            effects.settle(receiver, grants.begin(effects, hold, claims, waited_ms, receiver.order))
        else:
            hold = receiver
            grants.begin(effects, hold, claims, 0)
        reentry.share(effects, hold, claims)
        self._pass_on(asked, hold)
        waiting.serve(effects, freed)
        return HandedOver(hold.token, shown_owner(hold.owner, hold.hold_id))


def _check(command: HandOver) -> Refused | None:
    """Return what is wrong with the command itself, or None."""
    if bool(command.to_ticket) == bool(command.to_session):
        return invalid("to_ticket, to_session: give exactly one of the two")
    if bool(command.new_hold_id) != bool(command.to_session):
        return invalid("new_hold_id: give it with to_session, and only then")
    if command.new_hold_id:
        return limits.check_made_id("new_hold_id", command.new_hold_id)
    return limits.check_range("to_ticket", command.to_ticket, limits.TOKEN_MAX)


def _check_giver(state: State, giver: Hold) -> Refused | None:
    """Refuse what is not a hold of one lock, or is about to be changed."""
    if giver.kind is not HoldKind.LOCK or giver.permits:
        return invalid("hold_id: only a lock can be handed over")
    if len(giver.locks) > 1:
        return invalid(f"hold_id: the hold has {len(giver.locks)} locks; only one can be handed over")
    if giver.details.depth > 1:
        return invalid(f"hold_id: the hold was acquired {giver.details.depth} times")
    return check_unchanging(state, giver, "hold_id: is")


def _waits_for(ticket: Ticket, lock: Wanted) -> bool:
    """Whether a wait is for this lock, and for nothing else."""
    is_for_one = ticket.kind is HoldKind.LOCK and not (ticket.permits or ticket.changes)
    return is_for_one and [one.name for one in each_lock(ticket)] == [lock.name]
