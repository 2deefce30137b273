"""How commands are refused: what is in the way, and when to ask again. Nothing is decided here."""

from collections.abc import Container, Iterable
from itertools import islice
from typing import Final

from lockstate.reads import held, parts, places
from lockstate.tables.blockers import shown_conflicts, shown_covering
from lockstate.tables.freezes import freeze_of
from lockstate.tables.queues import is_free
from lockstate.tables.records import Hold, Permits, Semaphore
from lockstate.tables.state import State
from lockstate.tables.wait_graph import Cycle
from lockstate.words import limits
from lockstate.words.claims import Claims, shown_name
from lockstate.words.ids import HoldId
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Reason, Refused
from lockstate.words.views import HolderView

SESSION_EXPIRED: Final = Refused(Reason.SESSION_EXPIRED, "the session has expired or never existed")
LEASE_EXPIRED: Final = Refused(Reason.LEASE_EXPIRED, "the hold has ended or never existed")


def in_the_way(state: State, claims: Claims, permits: Permits, but: Container[HoldId] = ()) -> Refused:
    """Return the refusal that says who is in the way, except `but`, and when to ask again.

    Of several kinds it tells of the locks if one of them cannot be had, else of a semaphore.
    """
    if state.freezes and (refused := frozen(state, claims, permits)) is not None:
        return refused
    if not permits or (claims and not is_free(state, claims)):
        return lock_held(state, claims, but)
    semaphores = [(state.semaphores[name], count) for name, count in permits]
    lacking = [one for one, count in semaphores if one.queue or one.used + count > one.limit]
    return no_permits(state, (lacking or [semaphores[0][0]])[0])


def lock_held(state: State, claims: Claims, but: Container[HoldId] = ()) -> Refused:
    """Return the refusal that says who is in the way of `claims`, except `but`, and when to ask again."""
    if state.freezes and (refused := frozen(state, claims)) is not None:
        return refused
    conflicting = shown_conflicts(state, claims, but)
    named = conflicting or shown_covering(state, claims)
    holders = tuple([held.holder_view(state, hold, shown_name(name)) for name, hold in named])
    delays_ms = places.delays_ms(state, claims)
    if conflicting:
        detail = f"held by {holders[0].owner}"
    elif delays_ms:
        detail = "delayed after an expiry or a forced release"
    else:
        detail = "others wait for it"
    waits_ms = _known(holders) + delays_ms
    retry_after_ms = _pause_ms(waits_ms)
    return Refused(Reason.LOCK_HELD, detail, holders, places.queue_length(state, claims), retry_after_ms)


def no_permits(state: State, semaphore: Semaphore) -> Refused:
    """Return the refusal that says who has the permits, and when to ask again."""
    if state.freezes and (refused := frozen(state, (), ((semaphore.name, 0),))) is not None:
        return refused
    first = islice(semaphore.holders.values(), limits.HOLDERS_SHOWN_MAX)
    holders = tuple([held.holder_view(state, hold, semaphore.name, HoldKind.SEMAPHORE) for hold in first])
    available = max(held.available(semaphore), 0)
    others = ", and others wait" if semaphore.queue else ""
    waits_ms = _known(holders)
    first_delays = islice(semaphore.delays.values(), limits.HOLDERS_SHOWN_MAX)
    waits_ms += [delay.expires_at_ms - state.now_ms for delay in first_delays]
    return Refused(
        Reason.NO_PERMITS,
        f"{available} of {semaphore.limit} permits are available{others}",
        holders,
        len(semaphore.queue),
        _pause_ms(waits_ms),
        (),
        {"available": available, "limit": semaphore.limit},
    )


def refuse_kind(state: State, hold: Hold, kind: HoldKind) -> Refused:
    """Return the refusal of a command that takes a hold for one of another kind."""
    holder = held.holder_view(state, hold, parts.parts_of(hold)[0].name)
    return Refused(Reason.WRONG_KIND, f"hold_id: its kind is {hold.kind}, not {kind}", (holder,))


def frozen(state: State, claims: Claims, permits: Permits = ()) -> Refused | None:
    """Refuse what a freeze is in the way of; the refusal says why, and when to ask again."""
    freeze = freeze_of(state.freezes, claims, permits)
    if freeze is None:
        return None
    why = f": {freeze.reason}" if freeze.reason else ""
    left_ms = freeze.expires_at_ms - state.now_ms if freeze.expires_at_ms else limits.RETRY_MS
    return Refused(Reason.FROZEN, f"{freeze.prefix!r} is frozen{why}", retry_after_ms=_pause_ms([left_ms]))


def refused_as_held(hold: Hold) -> Refused:
    """Return the refusal of an acquire that must not find its session holding the same already."""
    return Refused(Reason.ALREADY_HELD, f"the session holds it already, with token {hold.token}")


def refused_for(cycle: Cycle) -> Refused:
    """Return the refusal that names a deadlock."""
    steps = cycle.steps[: limits.CYCLE_SHOWN_MAX]
    way = ", ".join(f"{step.owner} waits for {step.name}" for step in steps)
    reason = Reason.CONVERSION_DEADLOCK if cycle.is_of_conversions else Reason.DEADLOCK
    return Refused(reason, f"would wait for ever: {way}", cycle=steps)


def _pause_ms(waits_ms: list[int]) -> int:
    """Return when to ask again, if what is in the way ends after these times: within a second.

    Holders release long before their leases end.
    """
    return max(1, min([*waits_ms, limits.RETRY_MS]))


def _known(holders: Iterable[HolderView]) -> list[int]:
    """Return when holds end, of those that have a deadline."""
    return [holder.expires_in_ms for holder in holders if holder.expires_in_ms is not None]
