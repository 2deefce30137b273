"""How a session gets again what it holds already, counted or not, and how that is taken back."""

from collections.abc import Callable, Collection

import msgspec

from lockstate.rules.effects import Effects
from lockstate.rules.holds import admission, changes, ends, grants
from lockstate.rules.namespace_rules import delay_of, if_held_of
from lockstate.rules.refusals import refused_as_held
from lockstate.tables.owners import wish_of
from lockstate.tables.records import NOTHING, Hold, RequestKey, Session
from lockstate.tables.state import State
from lockstate.tables.tickets import remove_ticket
from lockstate.words.claims import Claims
from lockstate.words.commands.holds import Acquire
from lockstate.words.events import EventKind, Left
from lockstate.words.ids import NO_ATTEMPT, AttemptId, OwnerName
from lockstate.words.kinds import HoldKind, IfHeld
from lockstate.words.refusals import Refused
from lockstate.words.results import Granted, Released
from lockstate.words.wanted import ORDINARY


def held_already(
    state: State,
    session: Session,
    owner: OwnerName,
    holders: Collection[Hold],
    is_wanted: Callable[[Hold], bool],
) -> Hold | None:
    """Return the wanted hold among `holders` that `session` has as `owner` already, or None."""
    mine = session.holds_of(owner)
    known = mine.values() if len(mine) < len(holders) else holders
    state.searched_count += len(known)
    found = [
        hold
        for hold in known
        if hold.session_id == session.session_id and hold.owner == owner and is_wanted(hold)
    ]
    return min(found, key=lambda hold: hold.token, default=None)


def held_again(effects: Effects, hold: Hold, command: Acquire, key: RequestKey | None) -> Granted | Refused:
    """Renew, count or refuse what a session holds already. Note, delay and value are taken if given."""
    if_held = if_held_of(effects.state, command)
    if if_held is IfHeld.REFUSE and hold.details.depth:
        return refused_as_held(hold)
    asked, has = command.uncommon or ORDINARY, hold.details
    refused = admission.check_texts(effects.state, hold, asked.note or has.note, asked.value or has.value)
    if refused is not None:
        return refused
    effects.state.extend(effects.state.lease_of(hold))
    _take_over(effects.state, hold, asked.note, asked.lock_delay_ms, if_held)
    _take_value(effects.state, hold, asked.value, is_secret=asked.is_secret)
    return _passed_on(effects, hold, command.attempt_id, key, "")


def renewed(
    effects: Effects, hold: Hold, attempt_id: AttemptId, key: RequestKey | None, value: str = ""
) -> Granted:
    """Renew what a session holds already, and hand it to the attempt that asks for it again.

    A leader says `value` from now on.
    """
    effects.state.extend(effects.state.lease_of(hold))
    return _passed_on(effects, hold, attempt_id, key, value)


def share(effects: Effects, hold: Hold, claims: Claims) -> None:
    """Give a hold to all other tickets of its session that want the same, for acquire is reentrant.

    What they free needs no serving: the hold claims the same. Their leases are not renewed, for their
    clients have given no sign of life since they asked.
    """
    state = effects.state
    if hold.kind is HoldKind.SEMAPHORE:
        return
    wish = wish_of(hold)
    for ticket in list(state.wishes.get(wish, NOTHING).values()) if wish else ():
        asked = ticket.details
        if asked.if_held is IfHeld.REFUSE and hold.details.depth:
            ends.end_wait(effects, ticket, Left.ALREADY_HELD, refused_as_held(hold))
            continue
        remove_ticket(state, ticket, claims)
        _take_over(state, hold, asked.note, asked.lock_delay_ms, asked.if_held)
        if hold.kind is not HoldKind.ELECTION:
            _take_value(state, hold, asked.value, is_secret=asked.is_secret)
        granted = _passed_on(effects, hold, ticket.attempt_id, ticket.request, asked.value)
        effects.settle(ticket, granted)
        effects.tell_left(ticket, Left.SHARED)


def _take_value(state: State, hold: Hold, value: str, *, is_secret: bool) -> None:
    """Let a hold have the value, if there is one, that another acquire of it gives."""
    if value:
        changes.change_details(state, hold, value=value, is_secret=is_secret)


def _take_over(state: State, hold: Hold, note: str, lock_delay_ms: int, if_held: IfHeld) -> None:
    """Let a hold say and do what another acquire of it asks for, or the first of one handed over."""
    has = hold.details
    if note or lock_delay_ms:
        changes.change_details(
            state, hold, note=note or has.note, lock_delay_ms=lock_delay_ms or has.lock_delay_ms
        )
        changes.change_details(state, hold, lock_delay_ms=delay_of(state, hold))
    if if_held is IfHeld.COUNT or not has.depth:
        changes.change_details(state, hold, depth=has.depth + 1)


def release_once(state: State, hold: Hold) -> Released:
    """Count one release of a hold that takes several."""
    depth = hold.details.depth - 1
    changes.change_details(state, hold, depth=depth)
    return Released((), depth)


def uncount(state: State, hold: Hold) -> None:
    """Take back the newest counted acquire; what was counted before is not its own to undo.

    The attempt is forgotten: a second cancel of it, which does come, finds nothing to take back.
    """
    release_once(state, hold)
    hold.attempt_id = NO_ATTEMPT


def _passed_on(
    effects: Effects, hold: Hold, attempt_id: AttemptId, key: RequestKey | None, value: str
) -> Granted:
    state = effects.state
    state.ledger.change(hold)
    hold.attempt_id, hold.request = attempt_id, key
    if hold.details.attempts:
        changes.change_details(state, hold, attempts=())
    if hold.kind is HoldKind.ELECTION:
        proclaim(effects, hold, value)
    return msgspec.structs.replace(grants.grant_of(state, hold), depth=hold.details.depth)


def proclaim(effects: Effects, hold: Hold, value: str) -> None:
    """Set what a leader says; nothing happens if it says that already."""
    if value != hold.details.value:
        changes.change_details(effects.state, hold, value=value)
        effects.tell(EventKind.ELECTED, hold, 0)
