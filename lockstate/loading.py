"""Loading a snapshot: how many records at a time are added to a state."""

from collections.abc import Iterable

from lockstate.cells import Cell
from lockstate.priorities import ranked
from lockstate.records import NOTHING, Delay, Hold, Plea, Semaphore, Session, Ticket, adding
from lockstate.state import Origin, State, claims_of_hold


def load_sessions(state: State, sessions: Iterable[Session]) -> None:
    """Add sessions; their holds and tickets follow."""
    for session in sessions:
        if not session.labels:
            session.labels = NOTHING
        state.add_session(session)


def load_semaphores(state: State, semaphores: Iterable[tuple[str, int]]) -> None:
    """Add semaphores; their holds and tickets follow."""
    for name, limit in semaphores:
        state.add_semaphore(Semaphore(name, limit))


def load_holds(state: State, holds: Iterable[Hold]) -> None:
    """Add holds with their claims and leases. Equal strings become one object, to save memory."""
    sessions = state.sessions
    for hold in holds:
        if hold.session_id:
            session = sessions[hold.session_id]
            hold.session_id = session.session_id
            if hold.owner == session.owner:
                hold.owner = session.owner
        state.add_hold(hold, claims_of_hold(hold))


def load_delays(state: State, delays: Iterable[Delay]) -> None:
    """Add lock-delays with what they claim or withhold."""
    for delay in delays:
        state.enter_delay(delay)


def load_pleas(state: State, pleas: Iterable[Plea]) -> None:
    """Add what holders were asked to give up."""
    for plea in pleas:
        plea.hold_id = state.holds[plea.hold_id].hold_id
        state.enter_plea(plea)


def load_tickets(state: State, tickets: Iterable[Ticket]) -> None:
    """Add waiters to all their queues."""
    for ticket in tickets:
        extra = state.extras.get(ticket.hold_id)
        if extra.priority != ticket.priority:
            ticket = ranked(ticket, extra.priority)  # noqa: PLW2901 - the same one, as it was in memory
        if extra.is_addition:
            ticket = adding(ticket)  # noqa: PLW2901 - likewise
        state.add_ticket(ticket, claims_of_hold(ticket))
        for _, origin in extra.attempts:
            state.join_origin(ticket, origin)


def load_fences(state: State, fences: Iterable[tuple[str, int]]) -> None:
    """Add the highest tokens of resources."""
    for resource, token in fences:
        state.set_fence(resource, token)


def load_origins(state: State, origins: Iterable[tuple[str, Origin]]) -> None:
    """Add what is known of node processes."""
    for name, origin in origins:
        state.enter_origin(name, origin)


def load_cells(state: State, cells: Iterable[Cell]) -> None:
    """Add cells with their leases. Equal strings become one object, to save memory."""
    for cell in cells:
        if cell.session_id:
            cell.session_id = state.sessions[cell.session_id].session_id
        state.cells.enter(cell)
