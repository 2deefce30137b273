"""Which attempts at a request may still be told its outcome, in the model: all that were not taken back."""

from lockstate.words import limits
from lockstate.words.ids import NO_ATTEMPT, AttemptId
from tests.property.model_records import Hold, ModelState, Ticket


def join(state: ModelState, thing: Hold | Ticket, attempt_id: AttemptId) -> None:
    """Another attempt waits for something or has it."""
    everybody = [*thing.others, (thing.attempt_id, _origin(thing))]
    others = [other for other in everybody if other[0] != attempt_id]
    if len(others) > limits.ATTEMPTS_COUNT_MAX:
        others = [(NO_ATTEMPT, ""), *others[1 - limits.ATTEMPTS_COUNT_MAX :]]
    _become(thing, [*others, (attempt_id, state.asking)])


def is_last(thing: Hold | Ticket, attempt_id: AttemptId) -> bool:
    """Take an attempt back. Whether nobody else waits for this or has it; if so, it stays as it was."""
    everybody = [*thing.others, (thing.attempt_id, _origin(thing))]
    left = [other for other in everybody if other[0] != attempt_id]
    if left:
        _become(thing, left)
    return not left


def is_left_by(ticket: Ticket, origin: str) -> bool:
    """Take back what came through a node. Whether nobody else waits."""
    left = [other for other in [*ticket.others, (ticket.attempt_id, ticket.origin)] if other[1] != origin]
    if left:
        _become(ticket, left)
    return not left


def came_through(ticket: Ticket, origin: str) -> bool:
    """Whether a client of a node waits for this."""
    return origin in {ticket.origin, *[other[1] for other in ticket.others]}


def origins(state: ModelState) -> set[str]:
    """Return the node processes through which somebody waits."""
    return {ticket.origin for ticket in state.tickets} | {
        origin for ticket in state.tickets for _, origin in ticket.others
    }


def _origin(thing: Hold | Ticket) -> str:
    return thing.origin if isinstance(thing, Ticket) else ""


def _become(thing: Hold | Ticket, everybody: list[tuple[AttemptId, str]]) -> None:
    thing.others, (thing.attempt_id, origin) = everybody[:-1], everybody[-1]
    if isinstance(thing, Ticket):
        thing.origin = origin
