"""From a snapshot: the moves of `state` for many records at a time."""

from collections.abc import Iterable

from lockstate.records import NOTHING, Delay, Hold, Semaphore, Session, Ticket
from lockstate.state import State, claims_of_hold


def load_sessions(state: State, sessions: Iterable[Session]) -> None:
    """Enter sessions that have neither holds nor tickets yet."""
    for session in sessions:
        if not session.labels:
            session.labels = NOTHING
        state.add_session(session)


def load_semaphores(state: State, semaphores: Iterable[tuple[str, int]]) -> None:
    """Enter semaphores that nobody holds yet."""
    for name, limit in semaphores:
        state.semaphores[name] = Semaphore(name, limit)


def load_holds(state: State, holds: Iterable[Hold]) -> None:
    """Enter holds with what they claim and their leases. Equal strings become one."""
    sessions = state.sessions
    for hold in holds:
        if hold.session_id:
            session = sessions[hold.session_id]
            hold.session_id = session.session_id
            if hold.owner == session.owner:
                hold.owner = session.owner
        state.add_hold(hold, claims_of_hold(hold))


def load_delays(state: State, delays: Iterable[Delay]) -> None:
    """Enter lock-delays with what they keep."""
    for delay in delays:
        state.enter_delay(delay)


def load_tickets(state: State, tickets: Iterable[Ticket]) -> None:
    """Enter waiters in all their queues."""
    for ticket in tickets:
        state.add_ticket(ticket, claims_of_hold(ticket))
