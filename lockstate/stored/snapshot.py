"""The whole state as bytes and back: versioned, canonical, no pickle. One definition of equal: the digest.

    snapshot   [1, revision, now_ms, next_token, next_order, fields, tables]
    fields     {name: value}: the rules, and what differs from its default

A state has exactly one encoding: fields and tables are those of its rules, so later rules may add some
without a new format. A field or a table that this release does not know is refused.

Only what cannot be derived is stored; active names, queues, claims and deadlines are rebuilt. Tables are
stored in groups of rows, so that a large state is decoded in steps of a few milliseconds.
"""

import gc
import hashlib
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from lockstate.stored import loading
from lockstate.tables.audit import Base, KeptAct
from lockstate.tables.cells import Cell
from lockstate.tables.namespaces import Namespace
from lockstate.tables.rates import Place, RateRow
from lockstate.tables.records import (
    Ask,
    Delay,
    FrozenPrefix,
    Hold,
    Kept,
    Plea,
    PreferredLeader,
    RequestKey,
    RulesHold,
    Session,
    Ticket,
)
from lockstate.tables.requests import Remembered
from lockstate.tables.state import Origin, State
from lockstate.words import limits
from lockstate.words.events import Event
from lockstate.words.ids import OwnerName, SessionId
from lockstate.words.settings import Quota
from lockstate.words.versions import (
    GROUP,
    GROUPS_COUNT,
    RULES,
    SNAPSHOT_FORMATS,
    UnknownVersionError,
    too_new,
)

FORMAT_NEWEST: Final = max(SNAPSHOT_FORMATS)
"""The newest format that this release reads and writes."""
GROUP_ROWS: Final = 1000
"""Rows that are decoded in one step: a few milliseconds of work."""

_Request = tuple[RequestKey, Remembered]
_NamedOrigin = tuple[str, Origin]
_Limit = tuple[str, int]


class SnapshotError(Exception):
    """The bytes are not a snapshot that this version can read."""


class SnapshotTooNewError(SnapshotError, UnknownVersionError):
    """Only a newer release can read the snapshot: the node that meets it must stop."""


class _SessionRow(msgspec.Struct, array_like=True, gc=False):
    """A session without its holds and tickets, which name it. It is read as a `Session`."""

    order: int
    expires_at_ms: int
    ttl_ms: int
    session_id: SessionId
    owner: OwnerName
    labels: dict[str, str]


class _SnapshotHead(msgspec.Struct, array_like=True):
    format: int
    revision: int
    now_ms: int
    next_token: int
    next_order: int


class _ActiveRules(msgspec.Struct):
    """The one field whose meaning never changes: it says whether this release knows the others."""

    rules: int


class _Fields(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The named fields."""

    rules: int
    group: int = GROUP
    groups_count: int = GROUPS_COUNT
    bytes_max: int = limits.STATE_BYTES_MAX
    cells_revision: int = 0
    rules_hold: RulesHold | None = None
    preferred: PreferredLeader | None = None


class _HeadWithRules(_SnapshotHead, array_like=True):
    fields: _ActiveRules


_Tables = list[list[memoryview]]
"""Sessions in order of creation, holds of tokens, tickets of arrival, requests of age."""


class _Image(_SnapshotHead, array_like=True):
    """A snapshot."""

    fields: _Fields
    tables: _Tables


class _Table(NamedTuple):
    """How one table is stored and loaded again."""

    rows: Callable[[State], Sequence[Any]]
    stored: Callable[[Any], Any] | None
    decoder: msgspec.msgpack.Decoder[Any]
    load: Callable[[State, Any], None]
    is_first: bool = False
    """Whether it is loaded before all others, because these look into it."""


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
_head_decoder = msgspec.msgpack.Decoder(_SnapshotHead)
_rules_decoder = msgspec.msgpack.Decoder(_HeadWithRules)
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
        lambda state: list(state.rates.places.values()),
        None,
        msgspec.msgpack.Decoder(list[Place]),
        lambda state, rows: state.rates.load_places(rows),
    ),
    _Table(
        lambda state: sorted(state.fences.items()),
        None,
        msgspec.msgpack.Decoder(list[_Limit]),
        loading.load_fences,
    ),
    _Table(
        lambda state: state.requests.dump(),
        None,
        msgspec.msgpack.Decoder(list[_Request]),
        lambda state, rows: state.requests.load(rows),
    ),
    _Table(
        lambda state: list(state.audit.events),
        None,
        msgspec.msgpack.Decoder(list[Event]),
        lambda state, rows: state.audit.load(rows),
    ),
    _Table(
        lambda state: sorted(state.origins.items()),
        None,
        msgspec.msgpack.Decoder(list[_NamedOrigin]),
        loading.load_origins,
    ),
    _Table(
        lambda state: state.cells.all(),
        None,
        msgspec.msgpack.Decoder(list[Cell]),
        loading.load_cells,
    ),
    _Table(
        lambda state: list(state.pleas.rows.values()),
        None,
        msgspec.msgpack.Decoder(list[Plea]),
        loading.load_pleas,
    ),
    _Table(
        lambda state: list(state.pleas.asks.values()),
        None,
        msgspec.msgpack.Decoder(list[Ask]),
        loading.load_asks,
    ),
    _Table(
        lambda state: state.streams.dump(),
        None,
        msgspec.msgpack.Decoder(list[tuple[SessionId, int, int]]),
        loading.load_streams,
    ),
    _Table(
        lambda state: state.streams.dump_kept(),
        None,
        msgspec.msgpack.Decoder(list[tuple[SessionId, int, Kept]]),
        loading.load_kept,
    ),
    _Table(
        lambda state: state.principals.dump(),
        None,
        msgspec.msgpack.Decoder(list[tuple[str, str]]),
        lambda state, rows: state.principals.load(rows),
        is_first=True,
    ),
    _Table(
        lambda state: state.principals.dump_quotas(),
        None,
        msgspec.msgpack.Decoder(list[tuple[str, Quota]]),
        lambda state, rows: state.principals.load_quotas(rows),
    ),
    _Table(
        lambda state: sorted(state.principals.cells.items()),
        None,
        msgspec.msgpack.Decoder(list[tuple[bytes, str]]),
        loading.load_principals_of_cells,
    ),
    _Table(
        lambda state: sorted(state.principals.fences.items()),
        None,
        msgspec.msgpack.Decoder(list[tuple[str, str]]),
        loading.load_principals_of_fences,
    ),
    _Table(
        lambda state: state.audit.base(),
        None,
        msgspec.msgpack.Decoder(list[Base]),
        lambda state, rows: state.audit.load_base(rows),
        is_first=True,
    ),
    _Table(
        lambda state: state.audit.acts.all(),
        None,
        msgspec.msgpack.Decoder(list[KeptAct]),
        lambda state, rows: state.audit.acts.load(rows),
    ),
    _Table(
        lambda state: state.namespaces.dump(),
        None,
        msgspec.msgpack.Decoder(list[Namespace]),
        lambda state, rows: state.namespaces.load(rows),
        is_first=True,
    ),
    _Table(
        lambda state: sorted(state.namespaces.fences.items()),
        None,
        msgspec.msgpack.Decoder(list[tuple[str, int]]),
        loading.load_fences_of_namespaces,
    ),
    _Table(
        lambda state: sorted(state.freezes.values(), key=lambda freeze: freeze.order),
        None,
        msgspec.msgpack.Decoder(list[FrozenPrefix]),
        loading.load_freezes,
    ),
)
"""All tables, in the order in which they are stored."""


def encode(state: State) -> bytes:
    """Return the state as bytes; equal states give equal bytes."""
    fields = _Fields(
        rules=state.rules,
        bytes_max=state.bytes_max,
        cells_revision=state.cells.revision,
        rules_hold=state.rules_hold,
        preferred=state.preferred,
    )
    tables = [_groups(table, table.rows(state)) for table in _TABLES]
    head = (FORMAT_NEWEST, state.revision, state.now_ms, state.next_token, state.next_order)
    return _encoder.encode((*head, fields, tables))


def _groups(table: _Table, rows: Sequence[Any]) -> list[bytes]:
    groups: list[bytes] = []
    for first in range(0, len(rows), GROUP_ROWS):
        group = rows[first : first + GROUP_ROWS]
        groups.append(
            _encoder.encode(group if table.stored is None else [table.stored(row) for row in group])
        )
    return groups


def decode(data: bytes) -> State:
    """Return the state that `data` is.

    Raises:
        SnapshotError: these bytes are not a snapshot that this version knows.
    """
    # The collector would look through a million new objects again and again, and nothing of it is garbage.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        steps = decode_in_steps(data)
        while True:
            next(steps)
    except StopIteration as end:
        state: State = end.value
        return state
    finally:
        if was_enabled:
            gc.enable()


def decode_in_steps(data: bytes | bytearray) -> Generator[None, None, State]:
    """Decode as `decode` does, a few milliseconds of work for each `next`; the state is the return value.

    `data` must stay as it is until the end. Raises SnapshotError, at any step; SnapshotTooNewError at the
    first one.
    """
    try:
        state, tables = _begin(data)
        for table, rows in _rows(tables):
            table.load(state, rows)
            state.make_up()
            yield
        yield from state.names.sort_all()
        state.claimed.settle()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotError(f"not a snapshot of this version: {error}") from error
    except KeyError as error:
        raise SnapshotError(f"inconsistent: {error} is referred to and not there") from error
    return state


def steps_count(data: bytes | bytearray) -> int:
    """Return how many groups of rows these bytes have. Raises SnapshotError.

    `decode_in_steps` takes a step for each, and then a few to sort names.
    """
    try:
        return sum(len(groups) for groups in _decoder.decode(data).tables)
    except msgspec.DecodeError as error:
        raise SnapshotError(f"not a snapshot of this version: {error}") from error


def digest(state: State) -> str:
    """Return a digest of the state: two nodes at one revision have the same."""
    return hashlib.blake2b(encode(state), digest_size=16).hexdigest()


def _begin(data: bytes | bytearray) -> tuple[State, _Tables]:
    """Return a state that has what the head says, and the tables to fill it with."""
    head = _head_decoder.decode(data)
    if head.format > FORMAT_NEWEST:
        raise SnapshotTooNewError(str(too_new(f"the snapshot has format {head.format}")))
    if head.format not in SNAPSHOT_FORMATS:
        raise SnapshotError(
            f"format {head.format}; this version reads formats from {min(SNAPSHOT_FORMATS)} on"
        )
    state = State()
    state.revision, state.now_ms = head.revision, head.now_ms
    state.next_token, state.next_order = head.next_token, head.next_order
    state.rules = _rules_decoder.decode(data).fields.rules
    if state.rules not in RULES:
        raise SnapshotTooNewError(str(too_new(f"the snapshot is of rules {state.rules}")))
    image = _decoder.decode(data)
    if (image.fields.group, image.fields.groups_count) != (GROUP, GROUPS_COUNT):
        raise SnapshotError(f"it is of group {image.fields.group} of {image.fields.groups_count}")
    state.bytes_max = image.fields.bytes_max
    state.cells.revision = image.fields.cells_revision
    state.rules_hold = image.fields.rules_hold
    state.preferred = image.fields.preferred
    return state, image.tables


def _rows(tables: _Tables) -> Iterable[tuple[_Table, Any]]:
    """Yield the groups of rows of all tables, each with its table, in the order in which they are loaded."""
    if len(tables) != len(_TABLES):
        raise SnapshotError(f"{len(tables)} tables; a state has {len(_TABLES)}")
    stored = zip(_TABLES, tables, strict=True)
    for table, groups in sorted(stored, key=lambda pair: not pair[0].is_first):
        for group in groups:
            yield table, table.decoder.decode(group)
