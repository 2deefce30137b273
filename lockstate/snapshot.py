"""The whole state as bytes and back: versioned, canonical, no pickle. One definition of equal: the digest.

Only what cannot be derived is stored; active names, queues, claims and deadlines are rebuilt. Tables are
stored in groups of rows, so that a large state is decoded in steps of a few milliseconds.
"""

import gc
import hashlib
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from lockstate import loading
from lockstate.ids import OwnerName, SessionId
from lockstate.machine import LockMachine
from lockstate.rates import RateRow
from lockstate.records import Delay, Hold, RequestKey, Session, Ticket
from lockstate.requests import Remembered
from lockstate.results import Event
from lockstate.state import Origin, State

FORMAT: Final = 4
"""Changes together with a rule for how a cluster moves to the new format."""
GROUP_ROWS: Final = 1000

_Request = tuple[RequestKey, Remembered]
_NamedOrigin = tuple[str, Origin]
_Limit = tuple[str, int]


class SnapshotError(Exception):
    """The bytes are no snapshot that this version can read."""


class _SessionRow(msgspec.Struct, array_like=True, gc=False):
    """A session without its holds and tickets, which name it. It is read as a `Session`."""

    order: int
    expires_at_ms: int
    ttl_ms: int
    session_id: SessionId
    owner: OwnerName
    labels: dict[str, str]


class _Head(msgspec.Struct, array_like=True):
    format: int
    revision: int
    now_ms: int
    next_token: int
    next_order: int


class _Image(_Head, array_like=True):
    """A snapshot. Sessions in order of creation, holds of tokens, tickets of arrival, requests of age."""

    tables: list[list[memoryview]]


class _Table(NamedTuple):
    """How one table is stored and entered again."""

    rows: Callable[[State], Sequence[Any]]
    stored: Callable[[Any], Any] | None
    decoder: msgspec.msgpack.Decoder[Any]
    load: Callable[[State, Any], None]


def _session_row(session: Session) -> _SessionRow:
    return _SessionRow(
        session.order,
        session.expires_at_ms,
        session.ttl_ms,
        session.session_id,
        session.owner,
        session.labels,
    )


def _delays(state: State) -> list[Delay]:
    return sorted([*state.delays.values(), *state.permit_delays.values()], key=lambda delay: delay.order)


def _semaphores(state: State) -> list[_Limit]:
    return sorted([(semaphore.name, semaphore.limit) for semaphore in state.semaphores.values()])


_encoder = msgspec.msgpack.Encoder()
_head_decoder = msgspec.msgpack.Decoder(_Head)
_decoder = msgspec.msgpack.Decoder(_Image)

_TABLES: Final = (
    _Table(
        lambda state: list(state.sessions.values()),
        _session_row,
        msgspec.msgpack.Decoder(list[Session]),
        loading.load_sessions,
    ),
    _Table(_semaphores, None, msgspec.msgpack.Decoder(list[_Limit]), loading.load_semaphores),
    _Table(
        lambda state: list(state.holds.values()),
        None,
        msgspec.msgpack.Decoder(list[Hold]),
        loading.load_holds,
    ),
    _Table(_delays, None, msgspec.msgpack.Decoder(list[Delay]), loading.load_delays),
    _Table(
        lambda state: list(state.tickets.values()),
        None,
        msgspec.msgpack.Decoder(list[Ticket]),
        loading.load_tickets,
    ),
    _Table(
        lambda state: state.rates.dump(),
        None,
        msgspec.msgpack.Decoder(list[RateRow]),
        lambda state, rows: state.rates.load(rows),
    ),
    _Table(
        lambda state: sorted(state.fences.items()),
        None,
        msgspec.msgpack.Decoder(list[_Limit]),
        lambda state, rows: state.fences.update(rows),
    ),
    _Table(
        lambda state: state.requests.dump(),
        None,
        msgspec.msgpack.Decoder(list[_Request]),
        lambda state, rows: state.requests.load(rows),
    ),
    _Table(
        lambda state: list(state.audit),
        None,
        msgspec.msgpack.Decoder(list[Event]),
        lambda state, rows: state.audit.extend(rows),
    ),
    _Table(
        lambda state: sorted(state.origins.items()),
        None,
        msgspec.msgpack.Decoder(list[_NamedOrigin]),
        lambda state, rows: state.origins.update(rows),
    ),
)
"""All tables, in the order in which they can be rebuilt."""


def encode(machine: LockMachine) -> bytes:
    """Return the state as bytes; equal states give equal bytes."""
    state = machine.state
    tables = [_groups(table, table.rows(state)) for table in _TABLES]
    return _encoder.encode((FORMAT, state.revision, state.now_ms, state.next_token, state.next_order, tables))


def _groups(table: _Table, rows: Sequence[Any]) -> list[bytes]:
    groups: list[bytes] = []
    for first in range(0, len(rows), GROUP_ROWS):
        group = rows[first : first + GROUP_ROWS]
        groups.append(
            _encoder.encode(group if table.stored is None else [table.stored(row) for row in group])
        )
    return groups


def decode(data: bytes) -> LockMachine:
    """Return a machine in the state of `data`.

    Raises:
        SnapshotError: these bytes are no snapshot of a format that this version knows.
    """
    # The collector would look through a million new objects again and again, and nothing of it is garbage.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        steps = decode_in_steps(data)
        while True:
            next(steps)
    except StopIteration as end:
        machine: LockMachine = end.value
        return machine
    finally:
        if was_enabled:
            gc.enable()


def decode_in_steps(data: bytes | bytearray) -> Generator[None, None, LockMachine]:
    """Decode as `decode` does, a few milliseconds of work for each `next`; the machine is the return value.

    `data` must stay as it is until the end. Raises SnapshotError, at any step.
    """
    try:
        head = _head_decoder.decode(data)
        if head.format != FORMAT:
            raise SnapshotError(f"format {head.format}; this version reads format {FORMAT}")
        state = State()
        state.revision, state.now_ms = head.revision, head.now_ms
        state.next_token, state.next_order = head.next_token, head.next_order
        for table, rows in _stored_tables(data):
            table.load(state, rows)
            state.names.settle()
            yield
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotError(f"not a snapshot of this version: {error}") from error
    except KeyError as error:
        raise SnapshotError(f"inconsistent: {error} is referred to and not there") from error
    return LockMachine(state)


def digest(machine: LockMachine) -> str:
    """Return a digest of the state: two nodes at one revision have the same."""
    return hashlib.blake2b(encode(machine), digest_size=16).hexdigest()


def _stored_tables(data: bytes | bytearray) -> Iterable[tuple[_Table, Any]]:
    """Yield the groups of rows of all tables in order, each with its table."""
    tables = _decoder.decode(data).tables
    if len(tables) != len(_TABLES):
        raise SnapshotError(f"{len(tables)} tables; this version knows {len(_TABLES)}")
    for table, groups in zip(_TABLES, tables, strict=True):
        for group in groups:
            yield table, table.decoder.decode(group)
