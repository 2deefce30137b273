"""Holds and waits as others may see them, and what a holder is to give up. None of this shows a secret."""

import heapq
from collections.abc import Iterable

import msgspec

from lockstate.reads.parts import part_of
from lockstate.tables.owners import own_id, session_name, shown_owner
from lockstate.tables.records import NOTHING, Hold, Plea, Semaphore, Session, Ticket
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.kinds import HoldKind
from lockstate.words.views import HolderView, HoldView, RevocationView, RevokedView, WaiterView


def remaining_ms(state: State, hold: Hold) -> int | None:
    """Return how much of the lease of `hold` is left; None if it has no deadline.

    A lease is worth nothing beyond the moment up to which the hold may be held.
    """
    if hold.is_endless or state.pleas.bounds_count:
        return None if hold.is_endless else _bounded_ms(state, hold)
    return max(0, state.lease_of(hold).expires_at_ms - state.now_ms)


def _bounded_ms(state: State, hold: Hold) -> int:
    """Return how much is left of a lease, or of the time for which the hold may be held if that is less."""
    bounds = [plea.ends_at_ms for plea in state.pleas.of_hold(hold.hold_id).values() if plea.is_bound]
    return max(0, min([state.lease_of(hold).expires_at_ms, *bounds]) - state.now_ms)


def available(semaphore: Semaphore) -> int:
    """Return how many permits nobody has; negative after a resize below what is held."""
    return semaphore.limit - semaphore.used


def told_value(record: Hold | Ticket) -> str:
    """Return the value of `record` as others may see it: no secret one, and of waiters only a candidate's."""
    rare = record.rare
    if rare is None:
        return ""
    is_told = not (rare.is_secret or isinstance(record, Ticket)) or record.kind is HoldKind.ELECTION
    return rare.value if is_told else ""


def holder_view(state: State, hold: Hold, name: str, kind: HoldKind = HoldKind.LOCK) -> HolderView:
    """Return `hold` as others may see it, as a holder of `name`; one of several kinds as one of `kind`."""
    part = part_of(hold, name, kind)
    owner = shown_owner(hold.owner, hold.hold_id)
    left_ms = remaining_ms(state, hold)
    return HolderView(
        owner, part.mode, hold.token, left_ms, hold.details.note, name, part.scope, part.kind, part.permits
    )


def hold_view(state: State, hold: Hold, name: str, kind: HoldKind = HoldKind.LOCK) -> HoldView:
    """Return `hold` as reads show it, as a holder of `name`."""
    # Not by way of `holder_view`: a listing shows a thousand of them in one piece.
    session = state.sessions.get(hold.session_id)
    part = part_of(hold, name, kind)
    return HoldView(
        shown_owner(hold.owner, hold.hold_id),
        part.mode,
        hold.token,
        remaining_ms(state, hold),
        hold.details.note,
        name,
        part.scope,
        part.kind,
        part.permits,
        state.now_ms - hold.since_ms,
        session_name(session) if session is not None else "",
        session.labels if session is not None else NOTHING,
        revocation_of(state, hold, part.kind, name) if state.pleas else None,
        told_value(hold) if hold.kind is not HoldKind.ELECTION else "",
        state.principals.of(hold) if state.owners else "",
    )


def hold_views(
    state: State, holds: Iterable[tuple[str, Hold]], kind: HoldKind = HoldKind.LOCK
) -> tuple[HoldView, ...]:
    """Return holds as reads show them, each as a holder of the name that comes with it."""
    return tuple([hold_view(state, hold, name, kind) for name, hold in holds])


def waiter_view(
    state: State, ticket: Ticket, name: str, place: int, kind: HoldKind = HoldKind.LOCK
) -> WaiterView:
    """Return `ticket` as others may see it, at its place in the queue for `name`."""
    part = part_of(ticket, name, kind)
    return WaiterView(
        shown_owner(ticket.owner, own_id(ticket)),
        part.mode,
        place,
        state.now_ms - ticket.since_ms,
        name,
        part.scope,
        part.kind,
        part.permits,
        ticket.is_conversion,
        ticket.order,
        session_name(session) if (session := state.sessions.get(ticket.session_id)) is not None else "",
        ticket.details.priority,
        state.principals.of(ticket) if state.owners else "",
    )


def revocations_of(state: State, hold: Hold) -> tuple[RevocationView, ...]:
    """Return what the holder of `hold` is to give up: each name once, the first that was asked for first."""
    pleas = state.pleas.told(hold.hold_id) if state.pleas else ()
    asked = dict.fromkeys([(plea.kind, plea.name) for plea in pleas])
    found = [revocation_of(state, hold, kind, name) for kind, name in asked]
    return tuple([one for one in found if one is not None])


def revocation_of(state: State, hold: Hold, kind: HoldKind, name: str) -> RevocationView | None:
    """Return until when the holder of `hold` is to give up this name of it; None if nobody has asked."""
    pleas = state.pleas.of_name(hold.hold_id, kind, name) if state.pleas else ()
    plea = min(
        [plea for plea in pleas if plea.is_told],
        key=lambda plea: (plea.expires_at_ms, plea.order),
        default=None,
    )
    return None if plea is None else _revocation_view(state, plea)


def revoked_of(state: State, session: Session) -> tuple[tuple[RevokedView, ...], int]:
    """Return what a session is to give up, what ends first, and until when it knows enough by that.

    Its lease is that of all its holds, so it is told of every bound that ends before. If more do than are
    shown, its lease is worth nothing beyond the first of the others: the next keepalive tells of that.
    """
    pleas, holds, until_ms = state.pleas, session.holds, session.expires_at_ms
    if len(pleas) < len(holds):
        known = [plea for plea in pleas.rows.values() if plea.hold_id in holds]
    else:
        known = [plea for hold_id in holds for plea in pleas.of_hold(hold_id).values()]
    found = [plea for plea in known if plea.is_told or plea.ends_at_ms < until_ms]
    count = limits.HOLDERS_SHOWN_MAX
    first = heapq.nsmallest(count + 1, found, key=lambda one: (one.ends_at_ms, one.order))
    views = [revoked_view(state, holds[one.hold_id], one.kind, _revocation_view(state, one)) for one in first]
    return tuple(views[:count]), min([until_ms, *[one.ends_at_ms for one in first[count:]]])


def revoked_view(state: State, hold: Hold, kind: HoldKind, revocation: RevocationView) -> RevokedView:
    """Return a hold that is to be given up, as a holder of what is to be given up."""
    shown = holder_view(state, hold, revocation.name, kind)
    return RevokedView(**msgspec.structs.asdict(shown), revocation=revocation)


def _revocation_view(state: State, plea: Plea) -> RevocationView:
    ends_in_ms = max(0, plea.ends_at_ms - state.now_ms)
    return RevocationView(plea.name, plea.reason, ends_in_ms, plea.ticket, plea.is_put_off)
