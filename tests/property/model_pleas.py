"""Revocation in the model: a holder is asked to give up, may put that off once, and is forced in the end."""

import msgspec

from lockstate.words import limits
from lockstate.words.commands.holds import PutOff
from lockstate.words.commands.overrides import ForceRelease, Revoke, WithdrawRevocation
from lockstate.words.events import EventKind
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import PutOffTo, Result, RevocationsWithdrawn, Revoked, SessionKept
from lockstate.words.views import RevokedView
from tests.property.model_changes import hinders, tell, tell_plea
from tests.property.model_locks import Part, parts, parts_of
from tests.property.model_records import Hold, ModelState, Plea, Session, Ticket
from tests.property.model_views import holder_view, plea_view, revoked_view


def meant(
    state: ModelState, command: ForceRelease | Revoke | WithdrawRevocation
) -> list[tuple[Hold, Part]] | Refused:
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
    waiter = next((t for t in waits if parts_of(t, command.kind, command.name)), None)
    if command.ticket and waiter is None:
        return Refused(Reason.INVALID_REQUEST, "")
    found = meant(state, command)
    if isinstance(found, Refused):
        return found
    if waiter is not None:
        found = [(hold, part) for hold, part in found if hinders(hold, part, waiter)]
    _ask(state, command, waiter, found)
    views = [revoked_view(state, hold, part) for hold, part in found]
    return Revoked(tuple(view for view in views if view is not None))


def ask_by_itself(state: ModelState, waiter: Ticket) -> None:
    """Ask for a wait, once, who is in its way and of its own principal or of a lower priority."""
    asks, waiter.asks = waiter.asks, None
    assert asks is not None
    waiter.has_asked = True
    for want in parts(waiter):
        found = [
            (hold, part)
            for hold in state.holds
            for part in parts_of(hold, want.kind, want.name)
            if hinders(hold, part, waiter)
            and (hold.priority < waiter.priority or hold.principal == waiter.principal)
        ]
        command = Revoke(want.name, "a wait needs it", asks.grace_ms, want.kind, 0, waiter.number)
        _ask(state, command, waiter, found)


def _ask(state: ModelState, command: Revoke, waiter: Ticket | None, found: list[tuple[Hold, Part]]) -> None:
    """Ask the first that are not to give up as early already."""
    until_ms = state.now_ms + command.grace_ms
    asked = 0
    for hold, part in found:
        of_name = [p for p in state.asked(hold) if (p.kind, p.name) == (part.kind, part.name)]
        of_name = [p for p in of_name if not p.is_bound]
        known = next((p for p in of_name if p.waiter is waiter), None)
        for_waits = [p for p in of_name if p.waiter is not None]
        if known is None and waiter is not None and len(for_waits) >= limits.PLEAS_PER_NAME_MAX:
            continue
        if (known is None or known.until_ms > until_ms) and asked < limits.REVOKED_PER_COMMAND_MAX:
            asked += 1
            created = state.next_created()
            plea = Plea(hold, part.kind, part.name, command.reason, command.grace_ms, until_ms, created)
            plea.ticket, plea.waiter = command.ticket, waiter
            plea.is_put_off = any(p.is_put_off for p in of_name)
            if known is not None:
                state.pleas.remove(known)
            state.pleas.append(plea)
            tell_plea(state, EventKind.REVOKED, plea)


def withdraw(state: ModelState, command: WithdrawRevocation) -> Result:
    """Forget what holders were asked for this name, whoever asked, or what was asked for one wait."""
    found = meant(state, command)
    if isinstance(found, Refused):
        return found
    asked = [
        plea
        for hold, part in found
        for plea in state.asked(hold)
        if (plea.kind, plea.name) == (part.kind, part.name)
        and not plea.is_bound
        and command.ticket in {0, plea.ticket}
    ]
    now = asked[: limits.REVOKED_PER_COMMAND_MAX]
    for plea in now:
        state.pleas.remove(plea)
        tell(
            state,
            EventKind.REVOCATION_WITHDRAWN,
            plea.hold,
            plea.hold.granted_at_ms,
            command.reason,
            only=parts_of(plea.hold, plea.kind, plea.name),
            number=plea.ticket,
        )
    return RevocationsWithdrawn(len(now), len(asked) - len(now))


def put_off(state: ModelState, command: PutOff) -> Result:
    """Let each grace that was not put off before count once more."""
    hold = state.hold(command.hold_id)
    if hold is None:
        return Refused(Reason.LEASE_EXPIRED, "")
    pleas = state.asked(hold)
    new = [plea for plea in pleas if not plea.is_put_off]
    if not new:
        return Refused(Reason.NOT_REVOKED, "")
    for plea in new:
        plea.is_put_off = True
        plea.until_ms += plea.grace_ms
        tell_plea(state, EventKind.PUT_OFF, plea)
    return PutOffTo(hold.token, max(0, min(plea.until_ms for plea in pleas) - state.now_ms))


def kept(state: ModelState, session: Session) -> SessionKept:
    """Keep a session, and tell which of its holds it is to give up, or will be within its lease."""
    left_ms = state.restart(session.lease)
    until_ms = session.lease.expires_at_ms
    of_session = [p for p in state.pleas if p.hold.session_id == session.session_id]
    asked = [p for p in of_session if p.is_told or p.ends_at_ms < until_ms]
    asked.sort(key=lambda p: (p.ends_at_ms, p.created))
    views = []
    for plea in asked[: limits.HOLDERS_SHOWN_MAX]:
        shown = holder_view(state, plea.hold, parts_of(plea.hold, plea.kind, plea.name)[0])
        views.append(RevokedView(**msgspec.structs.asdict(shown), revocation=plea_view(state, plea)))
    untold = [plea.ends_at_ms for plea in asked[limits.HOLDERS_SHOWN_MAX :]]
    if untold:
        left_ms = max(0, min(left_ms, untold[0] - state.now_ms))
    return SessionKept(session.session_id, left_ms, tuple(views))
