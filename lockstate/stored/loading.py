"""Loading a snapshot: how many records at a time are added to a state."""

from collections.abc import Iterable
from typing import Final

import msgspec

from lockstate.tables.cells import Cell, size_of
from lockstate.tables.marks import of_record
from lockstate.tables.records import (
    NOTHING,
    Ask,
    Claimant,
    Delay,
    FrozenPrefix,
    Hold,
    Kept,
    Lock,
    Plea,
    Semaphore,
    Session,
    Ticket,
)
from lockstate.tables.state import Origin, State, claims_of_hold
from lockstate.words.ids import SessionId, attempt_of
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import INTENT, UNIT, Claim, Scope
from lockstate.words.results import Granted

_LOCK: Final = HoldKind.LOCK
_NODE: Final = Scope.NODE


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
    """Add holds with their claims and leases. Equal texts and numbers become one object, to save memory.

    Of a plain lock, which nearly all of them are, every table gets here what `State.add_hold` would give it,
    without a note of what has changed: its mark goes into the sum at once, and its intents are counted with
    those of its siblings.
    """
    sessions, is_counted = state.sessions, bool(state.owners or state.spaces)
    by_id, locks, young, intents = state.holds, state.locks, state.names.young, state.intents
    numbers: dict[int, int] = {}
    below: dict[tuple[str, Claim], int] = {}
    leased: list[Hold] = []
    sums = 0
    for hold in holds:
        hold.attempt_id = attempt_of(hold.hold_id, hold.attempt_id)
        hold.ttl_ms = ttl_ms = numbers.setdefault(hold.ttl_ms, hold.ttl_ms)
        hold.since_ms = numbers.setdefault(hold.since_ms, hold.since_ms)
        hold.expires_at_ms = numbers.setdefault(hold.expires_at_ms, hold.expires_at_ms)
        session = None
        if hold.session_id:
            session = sessions[hold.session_id]
            _share(session, hold)
        name = hold.name
        if (
            not name
            or name in locks
            or hold.kind is not _LOCK
            or hold.scope is not _NODE
            or hold.permits
            or hold.rare is not None
            or (session is None and not ttl_ms)
        ):
            state.add_hold(hold, claims_of_hold(hold))
            continue
        by_id[hold.hold_id] = hold
        sums += of_record(hold)
        if is_counted:
            state.count_hold(hold, 1)
        place = hold.mode.place
        locks[name] = lock = Lock(name, UNIT[place], 0, hold, NOTHING)
        young.append(lock)
        if name in intents:
            state.claimed.both_count += 1
        depth = name.count("/")
        if depth:
            parent = name.rpartition("/")[0], place + INTENT
            below[parent] = below.get(parent, 0) + 1
        if session is None:
            leased.append(hold)
        else:
            session.claims_count += 1 + depth
            session.add_hold(hold)
    state.ledger.settled_sum += sums
    state.deadlines.add_all(leased)
    state.claimed.add_intents(below)


def _share(session: Session, record: Claimant) -> None:
    """Let a hold or a ticket of a session have the texts of the session that it has, too."""
    record.session_id = session.session_id
    if record.owner == session.owner:
        record.owner = session.owner
    if record.request is not None and record.request[0] == session.session_id:
        record.request = (session.session_id, record.request[1])


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
        if ticket.session_id:
            _share(state.sessions[ticket.session_id], ticket)
        state.add_ticket(ticket, claims_of_hold(ticket))


def load_streams(state: State, streams: Iterable[tuple[SessionId, int, int]]) -> None:
    """Add streams; what they keep follows."""
    sessions = state.sessions
    state.streams.load([(sessions[one].session_id, epoch, last) for one, epoch, last in streams])


def load_kept(state: State, rows: Iterable[tuple[SessionId, int, Kept]]) -> None:
    """Add outcomes that streams keep. A grant has the texts of its hold, while there is one."""
    loaded = list(rows)
    for _, _, kept in loaded:
        granted = kept.result
        if granted.__class__ is Granted and (hold := state.holds.get(granted.hold_id)) is not None:
            name = hold.name if hold.name == granted.name else granted.name
            kept.result = msgspec.structs.replace(granted, hold_id=hold.hold_id, name=name)
    state.streams.load_kept(loaded)


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
