"""How a hold changes: it gets another mode, more locks, fewer locks, or other details.

Another mode (`conversions`) and more locks (`additions`) can be waited for. Such a change waits under an id
of its own, which its client cannot choose. One waits at a time, and the hold stays what it is until then; if
the hold ends, so does the wait.
"""

from typing import Any, Final

from lockstate.reads import parts
from lockstate.rules.effects import Effects
from lockstate.rules.holds import admission, grants
from lockstate.rules.namespace_rules import delay_of
from lockstate.tables.claim_table import Freed
from lockstate.tables.holds import claim_more, reclaim
from lockstate.tables.rare import PLAIN, changed
from lockstate.tables.records import Hold, RequestKey, Ticket, each_lock
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.claims import Claims, claims_of
from lockstate.words.commands.holds import Change
from lockstate.words.events import EventKind
from lockstate.words.ids import attempt_of
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import DRAWING, Mode, Scope
from lockstate.words.refusals import Refused
from lockstate.words.wanted import Wanted

_LOCK: Final = HoldKind.LOCK


def change_details(state: State, hold: Hold, **fields: Any) -> None:
    """Let a hold have other details (see `rare`) from now on. What they say counts."""
    rare = changed(hold.rare, **fields)
    says = rare or PLAIN
    if state.owners:
        state.principals.count_texts(hold, says.note, says.value)
    if state.spaces:
        state.namespaces.count_texts(hold, state.tickets.get(hold.changing), says.note, says.value)
    state.set_rare(hold, rare)


def convert(
    effects: Effects, hold: Hold, mode: Mode, locks: tuple[Wanted, ...], claims: Claims, *, ticket: int = 0
) -> Freed:
    """Give a hold another mode that nothing is in the way of; return what became free.

    `ticket` is the number of the wait that this ends.

    A hold that may write from now on, or is protected against a writer that it was not, gets a new token:
    the old one may be lower than that of another who has left since, and what the lock protects would
    refuse it as stale. From shared to update nothing of that happens.
    """
    state = effects.state
    token = hold.token
    if _draws_token(hold, mode):
        token = state.next_token
        state.next_token += 1
    state.namespaces.count_hold(hold, -1)
    freed = reclaim(state, hold, claims, token)
    state.ledger.change(hold)
    hold.mode, hold.locks = mode, locks
    state.namespaces.count_hold(hold, 1)
    if state.pleas:
        _drop_obeyed(state, hold)
    effects.tell(EventKind.CONVERTED, hold, state.now_ms - hold.since_ms, ticket=ticket)
    return freed


def _drop_obeyed(state: State, hold: Hold) -> None:
    """End the pleas to a hold that is not any more in the way of the waits for which they were made."""
    pleas, tickets = state.pleas, state.tickets_in_order
    for plea in list(pleas.of_hold(hold.hold_id).values()):
        ticket = tickets.get(plea.ticket)
        if ticket is not None and not parts.is_in_the_way(hold, ticket, plea.kind, plea.name):
            pleas.drop(plea)


def add(effects: Effects, hold: Hold, more: tuple[Wanted, ...], waited_ms: int = 0, ticket: int = 0) -> None:
    """Give a hold `more` locks that nothing is in the way of; `ticket` is the number of the wait for it.

    All of the hold is told of: what is new as granted, what it had as converted, for the token is another
    one. Nothing becomes free.
    """
    state = effects.state
    had, locks = tuple(each_lock(hold)), (*each_lock(hold), *more)
    token = state.next_token
    state.next_token += 1
    state.count_hold(hold, -1)
    claim_more(state, hold, claims_of("", hold.mode, hold.scope, locks), token)
    state.ledger.change(hold)
    hold.locks = locks
    state.count_hold(hold, 1)
    change_details(state, hold, lock_delay_ms=delay_of(state, hold))
    if state.spaces:
        grants.bound_time(state, hold, [parts.Part(_LOCK, lock.name) for lock in more])
    effects.tell(EventKind.CONVERTED, hold, state.now_ms - hold.since_ms, locks=had)
    effects.tell(EventKind.GRANTED, hold, waited_ms, locks=more, ticket=ticket)


def give_up(effects: Effects, hold: Hold, gone: tuple[Wanted, ...], kept: tuple[Wanted, ...]) -> Freed:
    """End a part of a hold of several locks, record the event, and return what became free."""
    state = effects.state
    freed = reclaim(state, hold, claims_of(hold.name, hold.mode, hold.scope, kept), hold.token)
    for lock in gone if state.pleas else ():
        for plea in state.pleas.of_name(hold.hold_id, _LOCK, lock.name):
            state.pleas.drop(plea)
    effects.tell(EventKind.RELEASED, hold, state.now_ms - hold.since_ms, locks=gone)
    state.ledger.change(hold)
    state.count_hold(hold, -1)
    hold.locks = kept
    state.count_hold(hold, 1)
    return freed


def _draws_token(hold: Hold, mode: Mode) -> bool:
    """Whether any lock of a hold needs a new token with this mode."""
    if not hold.locks:
        return (hold.mode, mode) in DRAWING
    return any((lock.mode, mode) in DRAWING for lock in hold.locks)


# -- what a change is asked for with -------------------------------------------------------------------------


def check_change(state: State, command: Change) -> Refused | None:
    """Return what is wrong with what all these commands have, or None."""
    return (
        limits.check_made_id("ticket_id", command.ticket_id)
        or limits.check_made_id("attempt_id", command.attempt_id)
        or limits.check_range("wait_ms", command.wait_ms, limits.WAIT_MS_MAX)
        or admission.check_unused(state, "ticket_id", command.ticket_id)
    )


def ticket_for(
    command: Change,
    hold: Hold,
    wanted: tuple[str, Mode, Scope, tuple[Wanted, ...]],
    *,
    now_ms: int,
    key: RequestKey | None,
    is_addition: bool = False,
) -> Ticket:
    """Return the ticket for a change, without an order and a deadline.

    `wanted` are name, mode, scope and locks, as a ticket has them; `key` is that of the request.
    """
    name, mode, scope, locks = wanted
    return Ticket(
        0,
        0,
        0,
        command.ticket_id,
        name,
        mode,
        hold.owner,
        hold.session_id,
        now_ms,
        attempt_of(command.ticket_id, command.attempt_id),
        key,
        scope,
        locks,
        rare=changed(None, note=hold.details.note, is_addition=is_addition),
        changes=hold.hold_id,
    )
