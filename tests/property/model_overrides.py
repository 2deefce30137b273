"""What operators do in the model to what others have or want: end, lift, forget, freeze."""

from lockstate.words import limits
from lockstate.words.commands.overrides import (
    ForceCloseSession,
    ForceWaits,
    ForgetFence,
    ForgetRates,
    Freeze,
    LiftDelay,
    Thaw,
)
from lockstate.words.events import EventKind, Left
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import (
    DelaysLifted,
    FenceForgotten,
    Frozen,
    RatesForgotten,
    Result,
    SessionForced,
    Thawed,
    WaitsForced,
)
from lockstate.words.views import LeftView
from tests.property.model_acts import tell_act
from tests.property.model_changes import end_session, end_wait, serve, tell, tell_freeze
from tests.property.model_locks import claims, is_left_in, parts_of, queue
from tests.property.model_records import ModelFreeze, ModelState, Rate, Ticket
from tests.property.model_views import waiter_view

Override = ForceCloseSession | ForceWaits | LiftDelay | ForgetFence | ForgetRates | Freeze | Thaw


def override(state: ModelState, command: Override) -> Result:
    """Carry out one of them."""
    match command:
        case ForceWaits():
            return force_waits(state, command)
        case ForceCloseSession():
            return force_close(state, command)
        case LiftDelay():
            return lift_delay(state, command)
        case ForgetFence():
            return forget_fence(state, command)
        case ForgetRates():
            return forget_rates(state, command)
        case Freeze():
            return freeze(state, command)
        case Thaw():
            return thaw(state, command)


def force_close(state: ModelState, command: ForceCloseSession) -> Result:
    """End the session of a public name, as if each of its holds were forced."""
    session = next((s for s in state.sessions if s.public_name == command.session_name), None)
    if session is None:
        return Refused(Reason.SESSION_EXPIRED, "")
    names = end_session(state, session, EventKind.FORCED, command.reason)
    return SessionForced(command.session_name, session.owner, names)


def force_waits(state: ModelState, command: ForceWaits) -> Result:
    """End the waits for this very name and kind, all or the one with this number."""
    waits = queue(state, command.kind, command.name)
    meant = [(at, ticket) for at, ticket in enumerate(waits, 1) if command.ticket in {0, ticket.number}]
    if command.ticket and not meant:
        return Refused(Reason.TICKET_ENDED, "")
    ended: list[tuple[int, Ticket]] = []
    for place in meant[: limits.WAITS_FORCED_PER_COMMAND_MAX]:
        if sum(claims(ticket) for _, ticket in ended) < limits.EXPIRIES_PER_ENTRY_MAX:
            ended.append(place)
    shown = [
        waiter_view(state, ticket, part, at)
        for at, ticket in ended
        for part in parts_of(ticket, command.kind, command.name)
    ]
    for _, ticket in ended:
        tell(state, EventKind.WAIT_FORCED, ticket, ticket.queued_at_ms, command.reason)
        end_wait(state, ticket, Left.FORCED, Refused(Reason.TICKET_ENDED, ""))
    serve(state)
    return WaitsForced(tuple(shown), len(meant) - len(ended))


def lift_delay(state: ModelState, command: LiftDelay) -> Result:
    """End all delays of this very name."""
    lifted = [d for d in state.delays if d.kind is command.kind and d.name == command.name]
    for delay in lifted:
        state.delays.remove(delay)
        tell_act(
            state,
            EventKind.DELAY_LIFTED,
            command.name,
            command.reason,
            of=delay.kind,
            scope=delay.scope,
            permits=delay.permits,
        )
    serve(state)
    return DelaysLifted(len(lifted), max([0, *[delay.until_ms - state.now_ms for delay in lifted]]))


def forget_fence(state: ModelState, command: ForgetFence) -> Result:
    """Forget what a resource has seen."""
    token = state.fences.pop(command.name, None)
    state.fences_of.pop(command.name, None)
    state.fences_made.pop(command.name, None)
    if token is not None:
        tell_act(state, EventKind.FENCE_FORGOTTEN, command.name, command.reason, token=token)
    return FenceForgotten(token)


def forget_rates(state: ModelState, command: ForgetRates) -> Result:
    """Forget what was taken from rate limits, and what is to be taken for moments to come."""
    meant = [
        rate
        for rate in sorted(state.rates, key=lambda rate: rate.key)
        if rate.key[0] == command.name or (command.is_prefix and rate.key[0].startswith(command.name))
    ]
    gone: list[Rate] = []
    for rate in meant:
        if sum(1 + len(one.places) for one in gone) < limits.RATES_FORGOTTEN_MAX:
            gone.append(rate)
    for rate in gone:
        state.rates = [one for one in state.rates if one is not rate]
        name, whose = rate.key[0], rate.principal
        tell_act(state, EventKind.RATE_LIMIT_FORGOTTEN, name, command.reason, principal=whose)
    return RatesForgotten(len(gone), len(gone) < len(meant))


def freeze(state: ModelState, command: Freeze) -> Result:
    """Freeze a prefix, in place of the freeze that it has."""
    known = next((one for one in state.freezes if one.prefix == command.prefix), None)
    until_ms = state.now_ms + command.for_ms if command.for_ms else None
    since_ms = state.now_ms if known is None else known.since_ms
    if known is not None:
        state.freezes.remove(known)
    new = ModelFreeze(command.prefix, command.reason, since_ms, until_ms, state.next_created())
    state.freezes.append(new)
    tell_freeze(state, EventKind.FROZEN, new, command.reason)
    return Frozen(command.for_ms or None, left_below(state, command.prefix))


def left_below(state: ModelState, prefix: str) -> LeftView:
    """Return how much is held and waited for there."""
    holds = [hold for hold in state.holds if is_left_in(prefix, hold)]
    return LeftView(len(holds), len([ticket for ticket in state.tickets if is_left_in(prefix, ticket)]))


def thaw(state: ModelState, command: Thaw) -> Result:
    """End the freeze of a prefix."""
    known = [one for one in state.freezes if one.prefix == command.prefix]
    for one in known:
        state.freezes.remove(one)
        tell_freeze(state, EventKind.THAWED, one, command.reason)
    serve(state)
    return Thawed(bool(known))
