"""How a hold begins, and what its holder is told of it."""

from collections.abc import Iterable
from typing import Final

import msgspec

from lockstate.reads import held, parts
from lockstate.rules.effects import Effects
from lockstate.rules.namespace_rules import delay_of, held_ms_max_of
from lockstate.rules.rates import Taken, take_together
from lockstate.tables.holds import add_hold
from lockstate.tables.rare import changed
from lockstate.tables.rates import Taker
from lockstate.tables.records import Hold, Plea, Ticket, permits_in
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.claims import Claims
from lockstate.words.events import HELD_TOO_LONG, Event, EventKind
from lockstate.words.ids import NO_OWNER
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Refused
from lockstate.words.results import Granted, GrantedSeveral, PermitsHeld
from lockstate.words.wanted import WantedRate

_LOCK: Final = HoldKind.LOCK
_SEMAPHORE: Final = HoldKind.SEMAPHORE
_ELECTION: Final = HoldKind.ELECTION
_GRANTED: Final = EventKind.GRANTED
"""Members under names of this module: looking one up in its enumeration costs more than making an event."""


def begin(effects: Effects, hold: Hold, claims: Claims, waited_ms: int, ticket: int = 0) -> Granted:
    """Begin a hold that nothing is in the way of: it gets the next token, and its lease begins now.

    `ticket` is the number of the wait that it ends.
    """
    state = effects.state
    hold.token = state.next_token
    state.next_token += 1
    if state.spaces and (delay_ms := delay_of(state, hold)) != hold.details.lock_delay_ms:
        hold.rare = changed(hold.rare, lock_delay_ms=delay_ms)
    if hold.ttl_ms:
        hold.order = state.take_order()
        state.start(hold)
        if hold.rare is not None and hold.rare.at_ms:
            hold.expires_at_ms = hold.rare.at_ms + hold.ttl_ms  # before that its holder cannot use it
    lease = add_hold(state, hold, claims)
    if state.spaces:
        bound_time(state, hold, [hold] if hold.name else parts.parts_of(hold))
    kind = EventKind.ELECTED if hold.kind is _ELECTION else _GRANTED
    if hold.name:
        # The same as below for a single thing, which nearly every grant is of, without the calls.
        effects.events.append(
            Event(
                state.revision,
                state.now_ms,
                kind,
                hold.name,
                hold.mode,
                hold.owner,
                hold.token,
                hold.session_id or hold.hold_id,
                waited_ms,
                "",
                hold.kind,
                hold.scope,
                hold.permits,
                held.told_value(hold),
                ticket,
                0,
                state.principals.of(hold) if state.owners else "",
            )
        )
        if hold.rare is not None or hold.kind is not _LOCK or hold.hold_id in state.pleas.of_holds:
            return grant_of(state, hold)
        expires_in_ms = lease.expires_at_ms - state.now_ms
        if expires_in_ms <= 0:
            if hold.is_endless:
                return grant_of(state, hold)
            expires_in_ms = 0  # overdue, not ended yet
        return Granted(hold.hold_id, hold.token, hold.name, hold.mode, expires_in_ms, NO_OWNER, hold.scope)
    effects.tell(kind, hold, waited_ms, ticket=ticket)
    return grant_of(state, hold)


def bound_time(state: State, hold: Hold, granted: Iterable[Hold | parts.Part]) -> None:
    """Note until when a hold may have each of these names, which it has just got.

    Only where a namespace says so. The holder is told some time before.
    """
    since_ms = max(state.now_ms, hold.details.at_ms)
    for part in granted:
        held_ms_max = held_ms_max_of(state, part.name)
        if held_ms_max is None:
            continue
        notice_ms = min(held_ms_max // 2, limits.HELD_NOTICE_MS_MAX)
        bound = Plea(
            state.take_order(),
            since_ms + held_ms_max - notice_ms,
            hold.hold_id,
            part.name,
            part.kind,
            HELD_TOO_LONG,
            notice_ms,
            is_put_off=True,
            is_bound=True,
            is_told=False,
        )
        state.pleas.enter(bound)


def grant_of(state: State, hold: Hold) -> Granted:
    """Return the grant of a hold as its holder is to see it now."""
    expires_in_ms = held.remaining_ms(state, hold)
    if hold.kind is _LOCK:
        granted = Granted(
            hold.hold_id,
            hold.token,
            hold.name,
            hold.mode,
            expires_in_ms,
            NO_OWNER,
            hold.scope,
            hold.locks,
            value=hold.details.value,
        )
        return _of_kinds(state, hold, granted) if hold.permits else granted
    if hold.kind is _SEMAPHORE:
        return _of_permits(state, hold, expires_in_ms)
    return Granted(hold.hold_id, hold.token, hold.name, hold.mode, expires_in_ms, hold.owner)


def _of_permits(state: State, hold: Hold, expires_in_ms: int | None) -> Granted:
    """Return the grant of permits of a semaphore."""
    semaphore = state.semaphores[hold.name]
    return Granted(
        hold.hold_id,
        hold.token,
        hold.name,
        hold.mode,
        expires_in_ms,
        NO_OWNER,
        hold.scope,
        (),
        hold.permits,
        held.available(semaphore),
        0,
        semaphore.limit,
        hold.details.value,
    )


def _of_kinds(state: State, hold: Hold, granted: Granted) -> GrantedSeveral:
    """Return the grant of a hold of several kinds."""
    semaphores = [(state.semaphores[name], count) for name, count in permits_in(hold)]
    return GrantedSeveral(
        **msgspec.structs.asdict(granted),
        held=tuple(
            [PermitsHeld(one.name, count, held.available(one), one.limit) for one, count in semaphores]
        ),
        at_ms=hold.details.at_ms,
    )


def take_rates(
    state: State, by: Hold | Ticket, wanted: tuple[WantedRate, ...], wait_ms: int
) -> Taken | Refused:
    """Take from rate limits for a hold, all or none, within what is left of its wait."""
    taker = Taker((by.hold_id,), principal=state.principals.of(by))
    return take_together(state, wanted, max(wait_ms, 0), taker)


def begin_several(
    effects: Effects,
    hold: Hold,
    claims: Claims,
    taken: Taken,
    waited_ms: int,
    *,
    ticket: int = 0,
) -> Granted:
    """Begin a hold of several kinds, for which there are the permits, and the rates have been `taken`."""
    at_ms, used = taken
    if at_ms > effects.state.now_ms:
        hold.rare = changed(hold.rare, at_ms=at_ms)
    granted = begin(effects, hold, claims, waited_ms, ticket)
    return msgspec.structs.replace(granted, rates=used)
