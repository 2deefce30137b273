"""The whole state as bytes and back: versioned, canonical, no pickle. One definition of equal: the digest.

Only what cannot be derived is stored; tables of active names, queues and the deadline heap are rebuilt.
Tables are stored in groups of rows, so that a large state is decoded in steps of a few milliseconds.
"""

import gc
import hashlib
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from lockstate.machine import LockMachine
from lockstate.requests import Remembered
from lockstate.state import Origin, State
from lockstate.tables import Delay, Hold, RequestKey, Session, Ticket

FORMAT: Final = 2
"""Format 1 had each table as one array of rows instead of groups; it is still read."""
GROUP_ROWS: Final = 1000

_Row = TypeVar("_Row")
_Request = tuple[RequestKey, Remembered]
_NamedOrigin = tuple[str, Origin]


class SnapshotError(Exception):
    """The bytes are no snapshot that this version can read."""


class _SessionRow(msgspec.Struct, array_like=True, gc=False):
    """A session without its holds and tickets, which name it. It is read as a `Session`."""

    order: int
    expires_at_ms: int
    session_id: str
    ttl_ms: int
    owner: str
    labels: dict[str, str]
    is_own: bool


class _Head(msgspec.Struct, array_like=True):
    format: int
    revision: int
    now_ms: int
    next_token: int
    next_order: int


class _Image(_Head, array_like=True):
    """A snapshot. Sessions in order of creation, holds of tokens, tickets of arrival, requests of age."""

    tables: list[list[memoryview]]


class _Image1(_Head, array_like=True):
    sessions: list[Session]
    holds: list[Hold]
    tickets: list[Ticket]
    delays: list[Delay]
    requests: list[_Request]
    origins: list[_NamedOrigin]


_encoder = msgspec.msgpack.Encoder()
_head_decoder = msgspec.msgpack.Decoder(_Head)
_decoder = msgspec.msgpack.Decoder(_Image)
_decoder_1 = msgspec.msgpack.Decoder(_Image1)
_group_decoders: Final[tuple[msgspec.msgpack.Decoder[Any], ...]] = (
    msgspec.msgpack.Decoder(list[Session]),
    msgspec.msgpack.Decoder(list[Hold]),
    msgspec.msgpack.Decoder(list[Ticket]),
    msgspec.msgpack.Decoder(list[Delay]),
    msgspec.msgpack.Decoder(list[_Request]),
    msgspec.msgpack.Decoder(list[_NamedOrigin]),
)
"""Of the tables, in the order in which they are stored and can be rebuilt."""


def encode(machine: LockMachine) -> bytes:
    """Return the state as bytes; equal states give equal bytes."""
    state = machine.state
    delays = sorted(
        (lock.delay for lock in state.locks.values() if lock.delay is not None), key=lambda it: it.order
    )
    tables = [
        _groups(list(state.sessions.values()), lambda rows: [_session_row(row) for row in rows]),
        _groups(list(state.holds.values())),
        _groups(list(state.tickets.values())),
        _groups(delays),
        _groups(state.requests.dump()),
        _groups(sorted(state.origins.items())),
    ]
    return _encoder.encode((FORMAT, state.revision, state.now_ms, state.next_token, state.next_order, tables))


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
        if head.format not in (1, FORMAT):
            raise SnapshotError(f"format {head.format}; this version reads formats up to {FORMAT}")
        state = State()
        state.revision, state.now_ms = head.revision, head.now_ms
        state.next_token, state.next_order = head.next_token, head.next_order
        for load, rows in _tables(data, head.format):
            load(state, rows)
            yield
        state.deadlines.settle()
        yield
        yield from state.index_names()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotError(f"not a snapshot of this version: {error}") from error
    except KeyError as error:
        raise SnapshotError(f"inconsistent: {error} is referred to and not there") from error
    return LockMachine(state)


def digest(machine: LockMachine) -> str:
    """Return a digest of the state: two nodes at one revision have the same."""
    return hashlib.blake2b(encode(machine), digest_size=16).hexdigest()


def _groups(
    rows: Sequence[_Row], stored: Callable[[Sequence[_Row]], Sequence[Any]] = lambda rows: rows
) -> list[bytes]:
    return [
        _encoder.encode(stored(rows[first : first + GROUP_ROWS])) for first in range(0, len(rows), GROUP_ROWS)
    ]


def _session_row(session: Session) -> _SessionRow:
    return _SessionRow(
        session.order,
        session.expires_at_ms,
        session.session_id,
        session.ttl_ms,
        session.owner,
        session.labels,
        session.is_own,
    )


_LOADERS: Final[tuple[Callable[[State, Any], None], ...]] = (
    State.load_sessions,
    State.load_holds,
    State.load_tickets,
    State.load_delays,
    lambda state, rows: state.requests.load(rows),
    lambda state, rows: state.origins.update(rows),
)


def _tables(data: bytes | bytearray, image_format: int) -> Iterable[tuple[Callable[[State, Any], None], Any]]:
    """Yield the groups of rows of all tables in order, each with what loads it."""
    if image_format == 1:
        image = _decoder_1.decode(data)
        old = (image.sessions, image.holds, image.tickets, image.delays, image.requests, image.origins)
        yield from zip(_LOADERS, old, strict=True)
        return
    tables = _decoder.decode(data).tables
    if len(tables) != len(_LOADERS):
        raise SnapshotError(f"{len(tables)} tables; this version knows {len(_LOADERS)}")
    for load, decoder, groups in zip(_LOADERS, _group_decoders, tables, strict=True):
        for group in groups:
            yield load, decoder.decode(group)
