"""The whole state as bytes and back: versioned, canonical, no pickle. One definition of equal: the digest.

Only what cannot be derived is stored; tables of active names, queues and the deadline heap are rebuilt.
"""

import hashlib
from typing import Final

import msgspec

from lockstate.machine import LockMachine
from lockstate.requests import Remembered
from lockstate.state import Origin, State
from lockstate.tables import Delay, Hold, RequestKey, Session, Ticket

FORMAT: Final = 1


class SnapshotError(Exception):
    """The bytes are no snapshot that this version can read."""


class _SessionRow(msgspec.Struct, array_like=True, gc=False):
    """A session without its holds and tickets, which name it."""

    order: int
    expires_at_ms: int
    session_id: str
    ttl_ms: int
    owner: str
    labels: dict[str, str]
    is_own: bool


class _Image(msgspec.Struct, array_like=True):
    """A snapshot. Sessions in order of creation, holds of tokens, tickets of arrival, requests of age."""

    format: int
    revision: int
    now_ms: int
    next_token: int
    next_order: int
    sessions: list[_SessionRow]
    holds: list[Hold]
    tickets: list[Ticket]
    delays: list[Delay]
    requests: list[tuple[RequestKey, Remembered]]
    origins: list[tuple[str, Origin]]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Image)


def encode(machine: LockMachine) -> bytes:
    """Return the state as bytes; equal states give equal bytes."""
    state = machine.state
    delays = [lock.delay for lock in state.locks.values() if lock.delay is not None]
    return _encoder.encode(
        _Image(
            FORMAT,
            state.revision,
            state.now_ms,
            state.next_token,
            state.next_order,
            [_session_row(session) for session in state.sessions.values()],
            list(state.holds.values()),
            list(state.tickets.values()),
            sorted(delays, key=lambda delay: delay.order),
            state.requests.dump(),
            sorted(state.origins.items()),
        )
    )


def decode(data: bytes) -> LockMachine:
    """Return a machine in the state of `data`.

    Raises:
        SnapshotError: these bytes are no snapshot of a format that this version knows.
    """
    try:
        image = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotError(f"not a snapshot of this version: {error}") from error
    if image.format != FORMAT:
        raise SnapshotError(f"format {image.format}; this version reads format {FORMAT}")
    try:
        return LockMachine(_rebuild(image))
    except KeyError as error:
        raise SnapshotError(f"inconsistent: {error} is referred to and not there") from error


def digest(machine: LockMachine) -> str:
    """Return a digest of the state: two nodes at one revision have the same."""
    return hashlib.blake2b(encode(machine), digest_size=16).hexdigest()


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


def _rebuild(image: _Image) -> State:
    state = State()
    state.revision = image.revision
    state.now_ms = image.now_ms
    state.next_token = image.next_token
    state.next_order = image.next_order
    for row in image.sessions:
        session = Session(
            order=row.order,
            expires_at_ms=row.expires_at_ms,
            session_id=row.session_id,
            ttl_ms=row.ttl_ms,
            owner=row.owner,
            labels=row.labels,
            is_own=row.is_own,
        )
        state.add_session(session)
    for hold in image.holds:
        state.add_hold(hold)
    for ticket in image.tickets:
        state.add_ticket(ticket)
    for delay in image.delays:
        state.lock_for(delay.name).delay = delay
        state.deadlines.set(delay)
    state.requests.load(image.requests)
    state.origins = dict(image.origins)
    return state
