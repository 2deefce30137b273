"""The model's memory of requests: which are remembered, and what makes two of them the same."""

import msgspec

from lockstate.words import limits
from lockstate.words.commands.cells import TransactCells
from lockstate.words.commands.entries import Command, Undecodable
from lockstate.words.commands.holds import MayWait, Renew, RenewByValue
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.ids import NO_HOLD
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import (
    Frozen,
    Granted,
    GrantedSeveral,
    PutOffTo,
    Queued,
    RateTaken,
    RateUsed,
    Renewed,
    Result,
    SessionOpened,
    Transacted,
)
from tests.property import model_takes
from tests.property.model_attempts import join
from tests.property.model_locks import names, position
from tests.property.model_parts import done_again
from tests.property.model_principals import is_foreign
from tests.property.model_records import Hold, Key, ModelState, Request, Ticket
from tests.property.model_views import renewed
from tests.support.vocabulary import request_content, request_scope


def request_key(state: ModelState, command: Command | Undecodable) -> Key | None:
    """Return the key under which a request is remembered, of who asks; None if it is not."""
    scope = request_scope(command)
    return None if scope is None else _key(scope, command.request_id, state.principal)


def _key(scope: str, request_id: str, principal: str) -> Key:
    return (scope, f"{request_id}\0{principal}" if principal else request_id)


def earlier_key(state: ModelState, command: Command | Undecodable) -> Key | None:
    """Return the key under which the same was asked before: by nobody if now by somebody, or vice versa.

    Two principals never share a request.
    """
    scope = request_scope(command)
    if scope is None:
        return None
    for principal in [""] if state.principal else sorted(state.askers):
        key = _key(scope, command.request_id, principal)
        if key in state.requests and state.requests[key].content == request_content(command):
            return key
    return None


def key_of(state: ModelState, command: Command | Undecodable) -> Key | None:
    """Return what a wait or hold is remembered by: the number of its command, or its request."""
    return state.number_key or request_key(state, command)


def without_holders(result: Result) -> Result:
    """Return what is remembered of a result: not who was in the way, nor which cycle there was."""
    return msgspec.structs.replace(result, holders=(), detail="") if isinstance(result, Refused) else result


def remember(state: ModelState, key: Key, command: Command | Undecodable, result: Result) -> None:
    """Keep the first outcome of a request, unless it was a mistake or changed nothing."""
    if isinstance(result, Refused):
        return
    if isinstance(result, RateTaken) and not result.allowed:
        return
    answers_to = result.hold_id if isinstance(result, Granted | Queued) else NO_HOLD
    waiting = isinstance(result, Queued)
    state.requests[key] = Request(
        request_content(command), answers_to, None if waiting else without_holders(result), state.now_ms
    )


def conclude(state: ModelState, ticket: Ticket, result: Granted | Refused) -> None:
    """Keep how the wait of a request ended."""
    kept = [request for stream in state.streams.values() for request in stream.kept.values()]
    for request in [*state.requests.values(), *kept]:
        if request.result is None and request.answers_to == ticket.ticket_id:
            request.result = without_holders(result)
            request.outcome_ms = state.now_ms


def forget(state: ModelState, key: Key | None, answers_to: str) -> None:
    """Forget a request that was undone."""
    if key in state.requests and state.requests[key].answers_to == answers_to:
        del state.requests[key]


def forget_old(state: ModelState) -> None:
    """Forget outcomes that are older than they must be."""
    for key, request in list(state.requests.items()):
        result = request.result
        if result is None or state.now_ms <= request.outcome_ms + limits.REQUEST_AGE_MS:
            continue
        if isinstance(result, RateTaken) and result.at_ms > state.now_ms:
            request.result, request.outcome_ms = _later(state, request, result), state.now_ms
        else:
            del state.requests[key]


def _later(state: ModelState, request: Request, taken: RateTaken) -> RateTaken:
    """Return what a rate limit has answered, as it is now: what was to be waited for may be over.

    0 would mean that no waiting helps.
    """
    ago_ms = state.now_ms - request.outcome_ms
    again_ms = max(1, taken.retry_after_ms - ago_ms) if taken.retry_after_ms else 0
    whole_ms = max(0, taken.reset_in_ms - ago_ms)
    return msgspec.structs.replace(taken, retry_after_ms=again_ms, reset_in_ms=whole_ms)


def _granted_later(granted: Granted, ago_ms: int) -> Granted:
    """Return a grant with what its rate limits say now of the time until they are whole."""
    if not isinstance(granted, GrantedSeveral):
        return granted
    rates = [(one.name, one.remaining, max(0, one.reset_in_ms - ago_ms)) for one in granted.rates]
    return msgspec.structs.replace(granted, rates=tuple([RateUsed(*one) for one in rates]))


def repeat(state: ModelState, command: Command | Undecodable, remembered: Request, key: Key) -> Result:
    """Answer a repeated request with its first outcome and what is left of the lease by now."""
    if remembered.content != request_content(command):
        return Refused(Reason.INVALID_REQUEST, "")
    state.repeated += 1
    return as_it_is_now(state, command, remembered, key)


def _renewed_by(state: ModelState, command: Renew | RenewByValue, result: Renewed) -> Hold | None:
    """Return the hold that a command has renewed, if it is still there: named by its id, or by its token."""
    if isinstance(command, Renew):
        hold = state.hold(command.hold_id)
        return None if is_foreign(state, hold) else hold
    return next((h for h in state.holds if command.name in names(h) and h.token == result.token), None)


def as_it_is_now(state: ModelState, command: Command | Undecodable, remembered: Request, key: Key) -> Result:
    """Answer with an outcome that was, under `key`, and what is left of the lease by now."""
    if isinstance(command, MayWait):
        ticket = state.ticket(remembered.answers_to)
        if ticket is not None:
            join(state, ticket, command.attempt_id)
            ticket.request = key
            return Queued(ticket.ticket_id, position(state, ticket))
    result = remembered.result
    assert result is not None, "a request without a result waits"
    match result:
        case Granted():
            hold = state.hold(result.hold_id)
            if hold is not None and hold.request == key:
                assert isinstance(command, MayWait)
                join(state, hold, command.attempt_id)
            result = _granted_later(result, state.now_ms - remembered.outcome_ms)
            return msgspec.structs.replace(result, expires_in_ms=state.left_ms(hold) if hold else 0)
        case Renewed():
            assert isinstance(command, Renew | RenewByValue)
            hold = _renewed_by(state, command, result)
            return renewed(state, hold, result.token) if hold else Refused(Reason.LEASE_EXPIRED, "")
        case PutOffTo() | Frozen() if result.ends_in_ms is not None:
            left_ms = result.ends_in_ms - (state.now_ms - remembered.outcome_ms)
            return msgspec.structs.replace(result, ends_in_ms=max(0, left_ms))
        case SessionOpened():
            session = state.session(result.session_id)
            left_ms = max(0, session.lease.expires_at_ms - state.now_ms) if session else 0
            return msgspec.structs.replace(result, expires_in_ms=left_ms)
        case Transacted():
            assert isinstance(command, TransactCells)
            return done_again(state, command, result)
        case RateTaken():
            assert isinstance(command, TakeRate)
            model_takes.join(state, key, command.attempt_id)
            return _later(state, remembered, result)
    return result
