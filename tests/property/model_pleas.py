"""Revocation in the model: a holder is asked to give up, may put that off once, and is forced in the end."""

from lockstate.words import limits
from lockstate.words.commands import ForceRelease, PutOff, Revoke
from lockstate.words.kinds import HoldKind
from lockstate.words.results import (
    EventKind,
    PutOffTo,
    Reason,
    Refused,
    Result,
    Revoked,
    SessionKept,
)
from tests.property.model_changes import tell
from tests.property.model_locks import Part, parts, parts_of
from tests.property.model_records import Hold, ModelState, Plea, Session
from tests.property.model_views import holder_view, revoked_view


def meant(state: ModelState, command: ForceRelease | Revoke) -> list[tuple[Hold, Part]] | Refused:
    """Return the holds of this very name and kind, all or the one with this token, or why there are none."""
    held = [(hold, part) for hold in state.holds for part in parts(hold) if part.name == command.name]
    of_kind = [(hold, part) for hold, part in held if part.kind is command.kind]
    found = [(hold, lock) for hold, lock in of_kind if command.token in {0, hold.token}]
    if held and not of_kind:
        kind = next(kind for kind in HoldKind if any(part.kind is kind for _, part in held))
        others = [holder_view(state, hold, part) for hold, part in held if part.kind is kind]
        return Refused(Reason.WRONG_KIND, "", tuple(others[: limits.HOLDERS_SHOWN_MAX]))
    if command.token and not found:
        return Refused(Reason.NOT_HOLDER, "")
    return found


def revoke(state: ModelState, command: Revoke) -> Result:
    """Ask holders to give up; one that is to do so earlier is not asked again."""
    waits = [t for t in state.tickets if t.number == command.ticket]
    if command.ticket and not any(parts_of(ticket, command.kind, command.name) for ticket in waits):
        return Refused(Reason.INVALID_REQUEST, "")
    found = meant(state, command)
    if isinstance(found, Refused):
        return found
    until_ms = state.now_ms + command.grace_ms
    asked = 0
    for hold, _ in found:
        known = state.plea(hold)
        if (known is None or known.until_ms > until_ms) and asked < limits.REVOKED_PER_COMMAND_MAX:
            asked += 1
            created = state.next_created()
            plea = Plea(hold, command.reason, command.grace_ms, until_ms, created, command.ticket)
            if known is not None:
                state.pleas.remove(known)
                plea.is_put_off = known.is_put_off
            state.pleas.append(plea)
            _tell(state, EventKind.REVOKED, plea)
    return Revoked(tuple(revoked_view(state, hold, lock) for hold, lock in found))


def put_off(state: ModelState, command: PutOff) -> Result:
    """Let the grace count once more."""
    hold = state.hold(command.hold_id)
    if hold is None:
        return Refused(Reason.LEASE_EXPIRED, "")
    plea = state.plea(hold)
    if plea is None or plea.is_put_off:
        return Refused(Reason.NOT_REVOKED, "")
    plea.is_put_off = True
    plea.until_ms += plea.grace_ms
    _tell(state, EventKind.PUT_OFF, plea)
    return PutOffTo(hold.token, max(0, plea.until_ms - state.now_ms))


def kept(state: ModelState, session: Session) -> SessionKept:
    """Keep a session, and tell which of its holds it is to give up."""
    left_ms = state.restart(session.lease)
    asked = [plea.hold for plea in state.pleas if plea.hold.session_id == session.session_id]
    views = tuple(revoked_view(state, hold, parts(hold)[0]) for hold in asked[: limits.HOLDERS_SHOWN_MAX])
    return SessionKept(session.session_id, left_ms, views)


def _tell(state: ModelState, kind: EventKind, plea: Plea) -> None:
    """Add an event for each lock of the hold that is to be given up."""
    ends_in_ms = max(0, plea.until_ms - state.now_ms)
    tell(
        state,
        kind,
        plea.hold,
        plea.hold.granted_at_ms,
        plea.reason,
        number=plea.ticket,
        ends_in_ms=ends_in_ms,
    )
