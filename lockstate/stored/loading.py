"""Loading a snapshot: how many records at a time are added to a state."""

from collections.abc import Iterable

from lockstate.tables.cells import Cell, size_of
from lockstate.tables.records import NOTHING, Ask, Delay, FrozenPrefix, Hold, Plea, Semaphore, Session, Ticket
from lockstate.tables.state import Origin, State, claims_of_hold
from lockstate.words.ids import attempt_of


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
    """Add holds with their claims and leases. Equal texts and numbers become one object, to save memory."""
    sessions = state.sessions
    numbers: dict[int, int] = {}
    for hold in holds:
        hold.attempt_id = attempt_of(hold.hold_id, hold.attempt_id)
        hold.ttl_ms = numbers.setdefault(hold.ttl_ms, hold.ttl_ms)
        hold.since_ms = numbers.setdefault(hold.since_ms, hold.since_ms)
        hold.expires_at_ms = numbers.setdefault(hold.expires_at_ms, hold.expires_at_ms)
        if hold.session_id:
            session = sessions[hold.session_id]
            hold.session_id = session.session_id
            if hold.owner == session.owner:
                hold.owner = session.owner
            if hold.request is not None and hold.request[0] == session.session_id:
                hold.request = (session.session_id, hold.request[1])
        state.add_hold(hold, claims_of_hold(hold))


def load_delays(state: State, delays: Iterable[Delay]) -> None:
    """Add lock-delays with what they claim or withhold."""
    for delay in delays:
        state.enter_delay(delay)


def load_pleas(state: State, pleas: Iterable[Plea]) -> None:
    """Add what holders were asked to give up."""
    for plea in pleas:
        plea.hold_id = state.holds[plea.hold_id].hold_id
        state.pleas.enter(plea)


def load_asks(state: State, asks: Iterable[Ask]) -> None:
    """Let waits ask by themselves."""
    for ask in asks:
        ask.hold_id = state.tickets[ask.hold_id].hold_id
        state.pleas.enter_ask(ask)


def load_freezes(state: State, freezes: Iterable[FrozenPrefix]) -> None:
    """Add frozen prefixes."""
    for freeze in freezes:
        state.enter_freeze(freeze)


def load_tickets(state: State, tickets: Iterable[Ticket]) -> None:
    """Add waiters to all their queues."""
    for ticket in tickets:
        ticket.attempt_id = attempt_of(ticket.hold_id, ticket.attempt_id)
        state.add_ticket(ticket, claims_of_hold(ticket))


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
        state.namespaces.count_cell(cell, 1)


def load_principals_of_cells(state: State, rows: Iterable[tuple[bytes, str]]) -> None:
    """Add for whom cells count. Raises KeyError for one that is not there."""
    names: dict[str, str] = {}
    for key, principal in rows:
        cell = state.cells.get(key)
        if cell is None:
            raise KeyError(key)
        state.principals.put_cell(cell.key, names.setdefault(principal, principal), size_of(cell))


def load_principals_of_fences(state: State, rows: Iterable[tuple[str, str]]) -> None:
    """Add for whom fences count. Raises KeyError for one that is not there."""
    names: dict[str, str] = {}
    for resource, principal in rows:
        if resource not in state.fences:
            raise KeyError(resource)
        state.principals.put_fence(resource, names.setdefault(principal, principal))


def load_fences_of_namespaces(state: State, rows: Iterable[tuple[str, int]]) -> None:
    """Add the creation numbers of fences. Raises KeyError for one that is not there."""
    for resource, order in rows:
        if resource not in state.fences:
            raise KeyError(resource)
        state.namespaces.put_fence(resource, order)
