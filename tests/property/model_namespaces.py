"""Namespaces in the model: what was there when one was set is kept in lists, and all else is counted."""

from collections.abc import Iterable

from lockstate.words import limits
from lockstate.words.cell_operations import PutOperation
from lockstate.words.commands.admin import SetNamespace
from lockstate.words.commands.cells import PutCell
from lockstate.words.commands.holds import Acquire, AcquirePermits
from lockstate.words.commands.primitives import ResizeSemaphore
from lockstate.words.events import EventKind
from lockstate.words.kinds import HoldKind, IfHeld
from lockstate.words.refusals import Reason, Refused, RefusedInNamespace
from lockstate.words.results import NamespaceSet, Result
from lockstate.words.settings import NamespaceSettings
from lockstate.words.views import NamespaceSummary
from lockstate.words.wanted import PRIORITY_DEFAULT, Asking
from tests.property.model_acts import tell_act, text_of
from tests.property.model_locks import names
from tests.property.model_records import Hold, ModelNamespace, ModelState, Ticket

BAD = Refused(Reason.INVALID_REQUEST, "")


def lies_in(prefix: str, name: str) -> bool:
    """Whether a prefix covers a name."""
    parts = prefix.split("/")
    return name.split("/")[: len(parts)] == parts


def innermost(state: ModelState, name: str) -> tuple[str, NamespaceSettings]:
    """Return the longest prefix that covers a name and its settings, or "" and settings that say nothing."""
    covering = [prefix for prefix in state.namespaces if lies_in(prefix, name)]
    if not covering:
        return "", NamespaceSettings()
    prefix = max(covering, key=len)
    return prefix, state.namespaces[prefix].settings


def over(state: ModelState, of: Iterable[str]) -> list[str]:
    """Return the prefixes that cover any of the names: of each name the longest first."""
    found: list[str] = []
    for name in of:
        covering = [prefix for prefix in state.namespaces if lies_in(prefix, name)]
        found += [prefix for prefix in sorted(covering, key=len, reverse=True) if prefix not in found]
    return found


# What there is


def set_namespace(state: ModelState, command: SetNamespace) -> Result:
    """Set a namespace or remove it; what is there already is not counted."""
    prefix, reason = command.prefix, command.reason
    if command.settings is None:
        if state.namespaces.pop(prefix, None) is not None:
            tell_act(state, EventKind.NAMESPACE_REMOVED, prefix, reason)
        return NamespaceSet()
    tell_act(state, EventKind.NAMESPACE_SET, prefix, reason, value=text_of(command.settings))
    known = state.namespaces.get(command.prefix)
    if known is not None:
        known.settings = command.settings
        return NamespaceSet()
    state.namespaces[command.prefix] = ModelNamespace(
        command.settings,
        [(hold, hold.token) for hold in state.holds],
        list(state.tickets),
        list(state.cells),
        list(state.fences_made.values()),
        [*state.rates, *[place for _, place in state.places()]],
        list(state.delays),
    )
    return NamespaceSet()


def refuse_bad_reason(command: SetNamespace | ResizeSemaphore) -> Refused | None:
    """Return what is wrong with why somebody sets something."""
    return limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX)


def refuse_bad_namespace(command: SetNamespace) -> list[Refused | None]:
    """Return what is wrong with a command about namespaces, whatever the state."""
    found, settings = [limits.check_name(command.prefix), refuse_bad_reason(command)], command.settings
    if settings is None:
        return found
    lowest, highest = settings.ttl_ms_min, settings.ttl_ms_max
    ttls_ms = [ttl_ms for ttl_ms in (lowest, highest) if ttl_ms is not None]
    found += [None if limits.TTL_MS_MIN <= ttl_ms <= limits.TTL_MS_MAX else BAD for ttl_ms in ttls_ms]
    found.append(BAD if ttls_ms != sorted(ttls_ms) else None)
    found.append(None if 0 <= (settings.lock_delay_ms_min or 0) <= limits.LOCK_DELAY_MS_MAX else BAD)
    held_ms = settings.held_ms_max
    found.append(None if held_ms is None or limits.TTL_MS_MIN <= held_ms <= limits.HELD_MS_MAX else BAD)
    for number in (
        settings.holds,
        settings.waits,
        settings.cells,
        settings.fences,
        settings.rate_limits,
        settings.bytes,
    ):
        found.append(None if 0 <= (number or 0) <= limits.QUOTA_MAX else BAD)
    found.append(BAD if settings.if_held is IfHeld.COUNT else None)
    after_ms, grace_ms = settings.ask_after_ms_min, settings.grace_ms_min
    found.append(BAD if after_ms is None and grace_ms is not None else None)
    found.append(None if 0 <= (after_ms or 0) <= limits.WAIT_MS_MAX else BAD)
    found.append(None if 0 <= (grace_ms or 0) <= limits.GRACE_MS_MAX else BAD)
    if (rate := settings.rate) is not None:
        found.append(None if 1 <= rate.limit <= limits.RATE_LIMIT_MAX else BAD)
        found.append(
            None if limits.RATE_WINDOW_MS_MIN <= rate.window_ms <= limits.RATE_WINDOW_MS_MAX else BAD
        )
    return found


def _has(state: ModelState, prefix: str) -> list[Hold]:
    """Return the holds that a namespace counts."""
    before = state.namespaces[prefix].holds_before
    return [
        hold
        for hold in state.holds
        if any(lies_in(prefix, name) for name in names(hold))
        and not any(old is hold and token == hold.token for old, token in before)
    ]


def used_in(state: ModelState, prefix: str) -> dict[str, int]:
    """Return how much there is in a namespace of what it counts."""
    namespace, has = state.namespaces[prefix], _has(state, prefix)
    waits = [
        ticket
        for ticket in state.tickets
        if any(lies_in(prefix, name) for name in names(ticket))
        and not _is_among(ticket, namespace.waits_before)
    ]
    wanted = [one for one in waits if one.converts is None]
    entering = [one for one in wanted if not _is_among(one.adds, has)]
    those: list[Hold | Ticket] = [*has, *wanted]
    held = [name for thing in those for name in names(thing) if lies_in(prefix, name)]
    held += [
        delay.name
        for delay in state.delays
        if lies_in(prefix, delay.name) and not _is_among(delay, namespace.delays_before)
    ]
    cells = [cell for cell in state.cells if not _is_among(cell, namespace.cells_before)]
    inside = [cell for cell in cells if lies_in(prefix, cell.key.decode("utf-8", "replace"))]
    things: list[Hold | Ticket] = [*has, *[one if one.adds is None else one.adds for one in entering]]
    fences = [
        name
        for name, one in state.fences_made.items()
        if lies_in(prefix, name) and not _is_among(one, namespace.fences_before)
    ]
    inner = [rate for rate in state.rates if lies_in(prefix, rate.key[0])]
    rates = [rate.key[0] for rate in inner if not _is_among(rate, namespace.rates_before)]
    places = [
        place for rate in inner for place in rate.places if not _is_among(place, namespace.rates_before)
    ]
    texts = [text for thing in things for text in (thing.note, thing.value)]
    texts += [*held, *fences, *rates]
    return {
        "holds": len(held),
        "waits": len(waits) + len(places),
        "cells": len(inside),
        "fences": len(fences),
        "rate_limits": len(rates),
        "bytes": len("".join(texts).encode()) + sum(len(cell.key) + len(cell.value) for cell in inside),
    }


def _is_among(thing: object, things: Iterable[object]) -> bool:
    return any(one is thing for one in things)


def rows(state: ModelState) -> list[NamespaceSummary]:
    """Return all namespaces by prefix."""
    return [
        NamespaceSummary(prefix, namespace.settings, **used_in(state, prefix))
        for prefix, namespace in sorted(state.namespaces.items())
    ]


# What may be


def refuse_more_in(state: ModelState, what: str, of: Iterable[str]) -> Refused | None:
    """Return the refusal of one more thing with these names."""
    return _first(_refuse(state, prefix, what, 1) for prefix in over(state, of))


def refuse_named_in(
    state: ModelState, what: str, of: list[str], new: Ticket | Hold | None = None
) -> Refused | None:
    """Return the refusal of one more thing for each of these names, with what a hold says where it is new."""
    for prefix in over(state, of):
        inside = [name for name in of if lies_in(prefix, name)]
        texts = list(inside)
        if new is not None and not _is_among(new, _has(state, prefix)):
            texts += [new.note, new.value]
        size_bytes = len("".join(texts).encode())
        refused = _refuse(state, prefix, what, len(inside)) or _refuse(state, prefix, "bytes", size_bytes)
        if refused is not None:
            return refused
    return None


def refuse_passed_in(state: ModelState, giver: Hold) -> Refused | None:
    """Return the refusal of another hold in the place of this one, where this one does not count."""
    size_bytes = len("".join(names(giver)).encode())
    return _first(
        _refuse(state, prefix, "holds", 1) or _refuse(state, prefix, "bytes", size_bytes)
        for prefix in over(state, names(giver))
        if not _is_among(giver, _has(state, prefix))
    )


def refuse_texts_in(state: ModelState, hold: Hold, note: str, value: str) -> Refused | None:
    """Return the refusal of another note or value of a hold."""
    growth = len(f"{note}{value}".encode()) - len(f"{hold.note}{hold.value}".encode())
    has = [prefix for prefix in over(state, names(hold)) if _is_among(hold, _has(state, prefix))]
    for ticket in state.tickets:
        if ticket.adds is hold:
            entered = over(state, names(ticket))
            before = [one for one in entered if _is_among(ticket, state.namespaces[one].waits_before)]
            has += [prefix for prefix in entered if prefix not in [*has, *before]]
    return _first(_refuse(state, prefix, "bytes", growth) for prefix in has)


def refuse_cells(state: ModelState, puts: list[PutCell | PutOperation]) -> Refused | None:
    """Return the refusal of cells that are new, or become larger."""
    more: dict[str, tuple[int, int]] = {}
    for put in puts:
        cell = state.cell(put.key)
        growth = len(put.key) + len(put.value) - (len(cell.key) + len(cell.value) if cell else 0)
        for prefix in over(state, [put.key.decode("utf-8", "replace")]):
            if cell is None or not _is_among(cell, state.namespaces[prefix].cells_before):
                count, size_bytes = more.get(prefix, (0, 0))
                more[prefix] = count + (cell is None), size_bytes + growth
    return _first(
        _refuse(state, prefix, "cells", count) or _refuse(state, prefix, "bytes", size_bytes)
        for prefix, (count, size_bytes) in more.items()
    )


def _first(refusals: Iterable[Refused | None]) -> Refused | None:
    return next((refused for refused in refusals if refused is not None), None)


def if_held_in(state: ModelState, of: list[str]) -> IfHeld:
    """Return what an acquire means that does not say it, if its session has just that already."""
    says = [innermost(state, name)[1].if_held for name in of]
    return IfHeld.REFUSE if IfHeld.REFUSE in says else IfHeld.RENEW


def _refuse(state: ModelState, prefix: str, what: str, more: int) -> Refused | None:
    limit = getattr(state.namespaces[prefix].settings, what)
    used = used_in(state, prefix)[what]
    if limit is None or more <= 0 or used + more <= limit:
        return None
    facts = {"limit": limit, "used": used}
    return RefusedInNamespace(
        Reason.QUOTA_EXCEEDED, "", retry_after_ms=1000, facts=facts, namespace=prefix, quota=what
    )


def refuse_rare(state: ModelState, command: Acquire | AcquirePermits, of: list[str]) -> Refused | None:
    """Return the refusal of a priority or of no deadline, where it is not allowed."""
    rare = command.uncommon
    if rare is None:
        return None
    if rare.priority != PRIORITY_DEFAULT:
        for name in of:
            prefix, settings = innermost(state, name)
            if refused := _refuse_rare(prefix, settings.priority, name, rare.priority_not_for):
                return refused
    endless = refuse_endless(state, of, rare.endless_not_for) if rare.is_endless else None
    return endless or _refuse_asking(state, rare.asks, of)


def _refuse_asking(state: ModelState, asks: Asking | None, of: list[str]) -> Refused | None:
    """Return the refusal of a wait that asks by itself where it may not, too early or too harshly."""
    if asks is None:
        return None
    for name in of:
        prefix, settings = innermost(state, name)
        after_ms, grace_ms = settings.ask_after_ms_min, settings.grace_ms_min or 0
        if not prefix:
            return BAD
        if after_ms is None or asks.ask_after_ms < after_ms or asks.grace_ms < grace_ms:
            return RefusedInNamespace(Reason.INVALID_REQUEST, "", namespace=prefix)
    return None


def refuse_endless(state: ModelState, of: list[str], not_for: tuple[str, ...]) -> Refused | None:
    """Return the refusal of no deadline for one of these names."""
    for name in of:
        prefix, settings = innermost(state, name)
        if refused := _refuse_rare(prefix, settings.no_deadline, name, not_for):
            return refused
    return None


def _refuse_rare(prefix: str, is_allowed: object, name: str, not_for: tuple[str, ...]) -> Refused | None:
    if is_allowed is False:
        return RefusedInNamespace(Reason.INVALID_REQUEST, "", namespace=prefix)
    return BAD if is_allowed is None and name in not_for else None


def refuse_ttl(state: ModelState, ttl_ms: int, of: list[str]) -> Refused | None:
    """Return the refusal of a lease that is too short or too long for one of these names."""
    for name in of if ttl_ms else ():
        prefix, settings = innermost(state, name)
        too_short = settings.ttl_ms_min is not None and ttl_ms < settings.ttl_ms_min
        if too_short or (settings.ttl_ms_max is not None and ttl_ms > settings.ttl_ms_max):
            return RefusedInNamespace(Reason.TTL_OUT_OF_RANGE, "", namespace=prefix)
    return None


def longest_delay_ms(state: ModelState, thing: Hold | Ticket) -> int:
    """Return the lock-delay of a hold, or of what a ticket becomes: the longest that anybody wants."""
    if thing.kind is HoldKind.ELECTION:
        return thing.lock_delay_ms
    wanted = [innermost(state, name)[1].lock_delay_ms_min or 0 for name in names(thing)]
    return max([thing.lock_delay_ms, *wanted])
