"""Loading a snapshot: how many records at a time are added to a state."""

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import Final

import msgspec

from lockstate.tables import marks
from lockstate.tables.cells import Cell, size_of
from lockstate.tables.claim_table import claims_of_hold
from lockstate.tables.delays import enter_delay
from lockstate.tables.holds import add_hold
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
from lockstate.tables.state import Origin, State
from lockstate.tables.tickets import add_ticket
from lockstate.words.ids import AttemptId, SessionId, attempt_of
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import INTENT, UNIT, Scope
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

    Plain locks, which nearly all of them are, are added together, as many as follow each other.
    """
    rows = list(holds)
    _share_numbers(rows)
    if all(map(_is_plain, rows)) and _load_plain(state, rows):
        return
    seen: set[str] = set()
    for is_plain, run in groupby(rows, lambda hold: _is_plain(hold) and _is_new(state, hold.name, seen)):
        if is_plain:
            _load_plain(state, list(run))
            continue
        for hold in run:
            if hold.session_id:
                _share(state.sessions[hold.session_id], hold)
            add_hold(state, hold, claims_of_hold(hold))


def _share_numbers(rows: list[Hold]) -> None:
    """Let equal numbers be one object, and the id of an attempt that of its hold if it is the same text."""
    numbers: dict[int, int] = {}
    share = numbers.setdefault
    ttls, begins = [hold.ttl_ms for hold in rows], [hold.since_ms for hold in rows]
    ends = [hold.expires_at_ms for hold in rows]
    shared = (map(share, each, each) for each in (ttls, begins, ends))
    for hold, ttl_ms, since_ms, expires_at_ms in zip(rows, *shared, strict=True):
        hold.ttl_ms = ttl_ms
        hold.since_ms = since_ms
        hold.expires_at_ms = expires_at_ms
        hold_id = hold.hold_id
        if hold.attempt_id == hold_id:
            hold.attempt_id = AttemptId(hold_id)


def _is_plain(hold: Hold) -> bool:
    """Whether it is a hold of one name itself and nothing else, and has a deadline."""
    return (
        hold.rare is None
        and not hold.permits
        and hold.kind is _LOCK
        and hold.scope is _NODE
        and hold.name != ""
        and (hold.ttl_ms > 0 or hold.session_id != "")
    )


def _is_new(state: State, name: str, seen: set[str]) -> bool:
    """Whether nobody holds this name, nor a row that was asked about before."""
    is_new = name not in seen and name not in state.locks
    seen.add(name)
    return is_new


def _load_plain(state: State, rows: list[Hold]) -> bool:
    """Add plain holds of new names: to each table what `add_hold` would, but a table at a time.

    So there is no note of what has changed: marks go into the sum at once, and intents are counted with those
    of siblings. Changes nothing and returns False if a name is held already, or by two of them.
    """
    fresh = {hold.name: Lock(hold.name, UNIT[hold.mode.place], 0, hold, NOTHING) for hold in rows}
    if len(fresh) < len(rows) or not state.locks.keys().isdisjoint(fresh):
        return False
    by_id = state.holds
    for hold in rows:
        by_id[hold.hold_id] = hold
    if state.owners or state.spaces:
        for hold in rows:
            state.count_hold(hold, 1)
    state.locks.update(fresh)
    state.names.young.extend(fresh.values())
    state.claimed.both_count += len(state.intents.keys() & fresh.keys())
    below = [(hold.name.rpartition("/")[0], hold.mode.place + INTENT) for hold in rows if "/" in hold.name]
    state.claimed.add_intents(Counter(below))
    leased = [hold for hold in rows if not hold.session_id]
    if len(leased) < len(rows):
        _join_sessions(state, [hold for hold in rows if hold.session_id])
    ends = [hold.expires_at_ms for hold in leased]
    for hold in leased:
        hold.expires_at_ms = 0  # which the mark of a record leaves out
    state.ledger.settled_sum += marks.sum_of_records(rows)
    for hold, expires_at_ms in zip(leased, ends, strict=True):
        hold.expires_at_ms = expires_at_ms
    state.deadlines.add_all(leased)
    return True


def _join_sessions(state: State, rows: list[Hold]) -> None:
    """Let plain holds live with their sessions."""
    sessions = state.sessions
    for hold in rows:
        session = sessions[hold.session_id]
        _share(session, hold)
        session.claims_count += 1 + hold.name.count("/")
        if session.holds is NOTHING or session.by_owner is not None:
            session.add_hold(hold)
        else:
            session.holds[hold.hold_id] = hold


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
        enter_delay(state, delay)


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
        state.freezes.enter(freeze)


def load_tickets(state: State, tickets: Iterable[Ticket]) -> None:
    """Add waiters to all their queues."""
    for ticket in tickets:
        ticket.attempt_id = attempt_of(ticket.hold_id, ticket.attempt_id)
        if ticket.session_id:
            _share(state.sessions[ticket.session_id], ticket)
        add_ticket(state, ticket, claims_of_hold(ticket))


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
