"""What operators do in the model to what others have: end a session, lift a delay, forget a fence."""

from lockstate.words.commands import ForceCloseSession, ForgetFence, LiftDelay
from lockstate.words.ids import NO_OWNER, NO_SESSION
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode, Scope
from lockstate.words.results import (
    DelaysLifted,
    Event,
    EventKind,
    FenceForgotten,
    Reason,
    Refused,
    Result,
    SessionForced,
)
from tests.property.model_changes import end_session, serve
from tests.property.model_records import Delay, ModelState


def override(state: ModelState, command: ForceCloseSession | LiftDelay | ForgetFence) -> Result:
    """Carry out one of them."""
    match command:
        case ForceCloseSession():
            return force_close(state, command)
        case LiftDelay():
            return lift_delay(state, command)
        case ForgetFence():
            return forget_fence(state, command)


def force_close(state: ModelState, command: ForceCloseSession) -> Result:
    """End the session of a public name, as if each of its holds were forced."""
    session = next((s for s in state.sessions if s.public_name == command.session_name), None)
    if session is None:
        return Refused(Reason.SESSION_EXPIRED, "")
    names = end_session(state, session, EventKind.FORCED, command.reason)
    return SessionForced(command.session_name, session.owner, names)


def lift_delay(state: ModelState, command: LiftDelay) -> Result:
    """End all delays of this very name."""
    lifted = [d for d in state.delays if d.kind is command.kind and d.name == command.name]
    for delay in lifted:
        state.delays.remove(delay)
        _tell(state, EventKind.DELAY_LIFTED, command.name, command.reason, delay=delay)
    serve(state)
    return DelaysLifted(len(lifted), max([0, *[delay.until_ms - state.now_ms for delay in lifted]]))


def forget_fence(state: ModelState, command: ForgetFence) -> Result:
    """Forget what a resource has seen."""
    token = state.fences.pop(command.resource, None)
    state.fences_of.pop(command.resource, None)
    state.fences_made.pop(command.resource, None)
    if token is not None:
        _tell(state, EventKind.FENCE_FORGOTTEN, command.resource, command.reason, token)
    return FenceForgotten(token)


def _tell(
    state: ModelState, kind: EventKind, name: str, reason: str, token: int = 0, *, delay: Delay | None = None
) -> None:
    """Add an event of what is nobody's."""
    of, scope = (delay.kind, delay.scope) if delay else (HoldKind.LOCK, Scope.NODE)
    permits, when = delay.permits if delay else 0, (state.revision, state.now_ms)
    event = Event(
        *when, kind, name, Mode.EXCLUSIVE, NO_OWNER, token, NO_SESSION, 0, reason, of, scope, permits,
        by=state.principal,
    )  # fmt: skip
    state.events.append(event)
    state.history.append(event)
