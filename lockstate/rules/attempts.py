"""The attempts at one request that may still be told its outcome.

A client that hears nothing asks again, on another node, and the log does not say which of its attempts it
gave up: a node that stood still may bring the first one behind the second. So all of them count. What they
asked for is undone when the last of them is taken back, and not before: else the end of a connection that is
long forgotten would take the hold from a client that was told of it.

The newest one stands in the record itself, the others in its `rare`.
"""

from lockstate.tables.rare import Others, changed
from lockstate.tables.records import Hold, Ticket
from lockstate.tables.requests import key_of
from lockstate.tables.state import State
from lockstate.tables.tickets import join_origins, leave_origins
from lockstate.words import limits
from lockstate.words.ids import NO_ATTEMPT, NO_HOLD, AttemptId, HoldId
from lockstate.words.results import Granted, Queued


def join(state: State, of: Hold | Ticket, attempt_id: AttemptId) -> None:
    """Let another attempt wait for `of`, or have it: the newest of all."""
    others = of.details.attempts
    if attempt_id != of.attempt_id:
        others = (*others, (of.attempt_id, _origin(of)))
        others = tuple([other for other in others if other[0] != attempt_id])
        if len(others) > limits.ATTEMPTS_COUNT_MAX:
            # Whoever is dropped may have been told of it, so it is never undone.
            others = ((NO_ATTEMPT, ""), *others[2:])
    _set(state, of, attempt_id, state.asking, others)


def leave(state: State, of: Hold | Ticket, attempt_id: AttemptId) -> bool:
    """Take an attempt back. Return whether it was the only one, so that what it asked for is to be undone."""
    others = of.details.attempts
    if of.attempt_id != attempt_id:
        left = tuple([other for other in others if other[0] != attempt_id])
        if left != others:
            _set(state, of, of.attempt_id, _origin(of), left)
        return False
    if not others:
        return True
    _set(state, of, *others[-1], others[:-1])
    return False


def leave_origin(state: State, ticket: Ticket, origin: str) -> bool:
    """Take back the attempts whose connections a node process kept. Return whether there are no others."""
    others = ticket.details.attempts
    left = [other for other in (*others, (ticket.attempt_id, ticket.origin)) if other[1] != origin]
    if not left:
        return True
    _set(state, ticket, *left[-1], tuple(left[:-1]))
    return False


def of_request(
    state: State, principal: str, scope: str, request_id: str
) -> tuple[HoldId, tuple[AttemptId, ...]]:
    """Return what a request waits under or was granted, and all attempts at it; none if it has nothing.

    A hold that the session had before, or that was given to a later request, is not this one's.
    """
    for key in (key_of(principal, (scope, request_id)), (scope, request_id)):
        remembered = state.requests.get(key)
        result = None if remembered is None else remembered.result
        if not (isinstance(result, Queued) or (isinstance(result, Granted) and not result.depth)):
            continue
        of = state.tickets.get(result.hold_id) or state.holds.get(result.hold_id)
        if of is not None and of.request == key:
            return of.hold_id, (*[attempt_id for attempt_id, _ in of.details.attempts], of.attempt_id)
    return NO_HOLD, ()


def _origin(of: Hold | Ticket) -> str:
    return of.origin if isinstance(of, Ticket) else ""


def _set(state: State, of: Hold | Ticket, attempt_id: AttemptId, origin: str, others: Others) -> None:
    """Record which attempts there are, and under which node processes a ticket is found."""
    state.ledger.change(of)
    if isinstance(of, Ticket):
        leave_origins(state, of)
        of.origin = origin
    of.attempt_id = attempt_id
    if others != of.details.attempts:
        state.set_rare(of, changed(of.rare, attempts=others))
    if isinstance(of, Ticket):
        join_origins(state, of)
