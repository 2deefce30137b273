"""Principals in the model: whose everything is, and how much each may have."""

import msgspec

from lockstate.words import limits
from lockstate.words.commands.admin import SetQuota
from lockstate.words.commands.entries import Command, Undecodable
from lockstate.words.commands.holds import AddLocks, Convert, HandOver, Proclaim, PutOff, Release, Renew
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.commands.streams import Numbered
from lockstate.words.events import EventKind
from lockstate.words.ids import NO_SESSION
from lockstate.words.refusals import QuotaExceeded, Reason, Refused
from lockstate.words.results import QuotaSet, Result
from lockstate.words.views import PrincipalRow
from tests.property.model_acts import tell_act, text_of
from tests.property.model_locks import names
from tests.property.model_records import Hold, ModelState, Session, Ticket

BAD = Refused(Reason.INVALID_REQUEST, "")
EVERYBODY = "*"


def refuse_bad_principal(principal: str) -> Refused | None:
    """Return the refusal of a name that nobody can have."""
    if principal in {"", EVERYBODY}:
        return BAD
    return limits.check_text("principal", principal, limits.PRINCIPAL_BYTES_MAX)


def is_foreign(state: ModelState, thing: Session | Hold | None) -> bool:
    """Whether something belongs to another principal than the one that asks."""
    return bool(thing and state.principal and thing.principal and thing.principal != state.principal)


def refuse_foreign(state: ModelState, command: Command | Undecodable) -> Refused | None:
    """Return the refusal of a command that names what is somebody else's."""
    if isinstance(command, OpenSession | Numbered):
        return None
    if isinstance(command, Renew | Release | Convert | AddLocks | Proclaim | PutOff | HandOver):
        foreign = is_foreign(state, state.hold(command.hold_id))
        return Refused(Reason.LEASE_EXPIRED, "") if foreign else None
    foreign = is_foreign(state, state.session(getattr(command, "session_id", NO_SESSION)))
    return Refused(Reason.SESSION_EXPIRED, "") if foreign else None


def principal_of_new(state: ModelState, session: Session | None) -> str:
    """Return whose a new hold or wait is."""
    return state.principal if session is None else session.principal


def used_by(state: ModelState, principal: str) -> dict[str, int]:
    """Return how much of everything a principal has."""
    waits = [ticket for ticket in state.tickets if ticket.principal == principal]
    holds: list[Hold | Ticket] = [hold for hold in state.holds if hold.principal == principal]
    held = [name for thing in (*holds, *waits) if not _converts(thing) for name in names(thing)]
    held += [delay.name for delay in state.delays if delay.principal == principal]
    fences = [name for name, maker in state.fences_of.items() if maker == principal]
    rates = [rate.key[0] for rate in state.rates if rate.principal == principal]
    holds += [ticket for ticket in waits if ticket.changes is None]
    sessions = [session for session in state.sessions if session.principal == principal]
    cells = [cell for cell in state.cells if cell.principal == principal]
    texts = [text for thing in holds for text in (thing.note, thing.value)]
    texts += [text for session in sessions for pair in session.labels.items() for text in pair]
    texts += [*held, *fences, *rates]
    size_bytes = len("".join(texts).encode()) + sum(len(cell.key) + len(cell.value) for cell in cells)
    return {
        "sessions": len(sessions),
        "holds": len(held),
        "waits": len(waits) + sum(place.principal == principal for _, place in state.places()),
        "cells": len(cells),
        "fences": len(fences),
        "rate_limits": len(rates),
        "bytes": size_bytes,
    }


def _converts(thing: Hold | Ticket) -> bool:
    """Whether something is a wait that wants no name beside those of its hold."""
    return isinstance(thing, Ticket) and thing.converts is not None


def rows(state: ModelState) -> list[PrincipalRow]:
    """Return all principals that have anything or a quota, by name."""
    used = {name: used_by(state, name) for name in sorted({*state.askers, *state.quotas})}
    return [
        PrincipalRow(name, state.quotas.get(name), **has)
        for name, has in used.items()
        if any(has.values()) or name in state.quotas
    ]


def refuse_more(state: ModelState, what: str, more: int = 1, of: str | None = None) -> Refused | None:
    """Return the refusal of who would have more than its quota says: of who asks, or of another."""
    principal = state.principal if of is None else of
    own = state.quotas.get(principal, state.quotas.get(EVERYBODY))
    limit = getattr(own, what) if own is not None and principal else None
    if limit is None or more <= 0:
        return None
    used = used_by(state, principal)[what]
    if used + more <= limit:
        return None
    facts = {"limit": limit, "used": used}
    return QuotaExceeded(Reason.QUOTA_EXCEEDED, "", retry_after_ms=1000, facts=facts, quota=what)


def refuse_texts(state: ModelState, *texts: str, instead_of: tuple[str, ...] = ()) -> Refused | None:
    """Return the refusal of who would say more than its quota has room for."""
    return refuse_more(state, "bytes", len("".join(texts).encode()) - len("".join(instead_of).encode()))


def refuse_named(
    state: ModelState, what: str, of: list[str], *said: str, by: str | None = None
) -> Refused | None:
    """Return the refusal of more things with these names, of what is `said` beside them, too."""
    size_bytes = len("".join([*of, *said]).encode())
    return refuse_more(state, what, len(of), by) or refuse_more(state, "bytes", size_bytes, by)


def set_quota(state: ModelState, command: SetQuota) -> Result:
    """Bound what somebody may have, or end the bound."""
    refused = None if command.principal == EVERYBODY else refuse_bad_principal(command.principal)
    refused = refused or limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX)
    if refused is not None:
        return refused
    quota, who = command.quota, {"principal": command.principal}
    if quota is None:
        if state.quotas.pop(command.principal, None) is not None:
            tell_act(state, EventKind.QUOTA_REMOVED, "", command.reason, **who)
        return QuotaSet()
    numbers = [number for number in msgspec.structs.astuple(quota) if number is not None]
    if not all(0 <= number <= limits.QUOTA_MAX for number in numbers):
        return BAD
    if state.quotas.get(command.principal) != quota:
        tell_act(state, EventKind.QUOTA_SET, "", command.reason, value=text_of(quota), **who)
    state.quotas[command.principal] = quota
    return QuotaSet()
