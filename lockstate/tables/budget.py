"""How much memory a state takes, and the bound that it is held to.

What is counted is an estimate, the same on every node and after every restart: for each record so many bytes
as it was measured to take, and twice the bytes of all it says (once those of a cell's key and value). It is
near what Python takes for ordinary records, and up to 2.5 times too low for texts that mix ASCII with
characters beyond U+FFFF. The audit has a bound of its own and is left out.

A state that has reached its bound refuses, with `overloaded`, what would make it larger. What ends, renews or
reads something is never refused for want of room, so it can get below the bound again.

`bytes_max` is part of the state: a committed entry sets it, because all nodes must refuse the same commands.
"""

from typing import Final

from lockstate.tables import marks
from lockstate.tables.ledger import NO_ROOM, NOTED_MAX, mark_of_session
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.refusals import Reason, Refused

_TEXT_FACTOR: Final = 2
"""Bytes in memory for a byte of a record's encoding. Characters beyond ASCII are kept twice."""
_SESSION: Final = 380
_HOLD: Final = 400
_TICKET: Final = 1200
_LOCK: Final = 220
_SEMAPHORE: Final = 700
_DELAY: Final = 400
_PLEA: Final = 450
_ASK: Final = 330
_FREEZE: Final = 450
_REQUEST: Final = 300
_STREAM: Final = 420
_KEPT: Final = 330
_FENCE: Final = 110
_RARE: Final = 170
_PRINCIPAL: Final = 140
_QUOTA: Final = 250
_NAMESPACE: Final = 900
_FENCE_IN_NAMESPACE: Final = 140
_RATE_LIMIT: Final = 650
_PLACE: Final = 900
_CELL: Final = 320
_RATE_ROW: Final = 20
"""Bytes that a record of each table takes in memory beside its texts, with its places in all tables: as
measured with CPython 3.11, rounded up."""
_NOTED_BYTES_MAX: Final = 1 << 20
"""Bytes that a record which the ledger has noted may take, with all that came with it: more than a hold of 64
names with 30 ancestors each does, or a rate limit with the longest log."""


def bytes_of(state: State) -> int:
    """Return how many bytes `state` takes. It costs a microsecond, however large the state is."""
    return _with_records(state, state.ledger.sum)


def recounted(state: State) -> int:
    """Return the bytes as `bytes_of` does, from the records themselves: slow if there are many."""
    sums = sum([mark_of_session(session) for session in state.sessions.values()])
    sums += sum([marks.of_record(cell) for cell in state.cells.all()])
    tables = state.holds, state.tickets, state.delays, state.permit_delays, state.freezes
    for records in (*tables, state.pleas.rows, state.pleas.asks):
        sums += sum([marks.of_record(record) for record in records.values()])
    sums += sum([marks.of_length(len(resource)) for resource in state.fences])
    sums += (
        state.streams.recomputed_sum()
        + state.requests.recomputed_sum()
        + state.rates.recomputed_sum()
        + state.principals.recomputed_sum()
        + state.namespaces.recomputed_sum()
    )
    return _with_records(state, sums)


def _with_records(state: State, sums: int) -> int:
    return (
        _TEXT_FACTOR * marks.length_in(sums)
        + _SESSION * len(state.sessions)
        + _HOLD * len(state.holds)
        + _TICKET * len(state.tickets)
        + _LOCK * len(state.claimed)
        + _SEMAPHORE * len(state.semaphores)
        + _DELAY * (len(state.delays) + len(state.permit_delays))
        + _PLEA * len(state.pleas)
        + _ASK * len(state.pleas.asks)
        + _FREEZE * len(state.freezes)
        + _REQUEST * len(state.requests)
        + _STREAM * len(state.streams)
        + _KEPT * state.streams.kept_count
        + _FENCE * len(state.fences)
        + _RARE * state.rare_count
        + _PRINCIPAL * state.principals.rows_count
        + _QUOTA * len(state.principals.quotas)
        + _NAMESPACE * len(state.spaces)
        + _FENCE_IN_NAMESPACE * len(state.namespaces.fences)
        + _RATE_LIMIT * len(state.rates)
        + _PLACE * len(state.rates.places)
        + _CELL * len(state.cells)
        - (_TEXT_FACTOR - 1) * state.cells.content_bytes
        + _RATE_ROW * state.rates.rows_count
    )


def begin_entry(state: State) -> None:
    """Find out whether the state is so near to its bound that each command of an entry must be looked at.

    Whether it is does not depend on what was made up in the ledger: as long as what is noted there can take
    no more than there is room for, the state is not near to its bound, whatever it really takes.
    """
    ledger = state.ledger
    if ledger.settled_sum == ledger.counted_sum and len(ledger.noted) <= ledger.room:
        return
    spare_bytes = _spare_bytes(state, ledger.settled_sum)
    if len(ledger.noted) > min(NOTED_MAX, spare_bytes // _NOTED_BYTES_MAX):
        spare_bytes = _spare_bytes(state, ledger.sum)
    state.is_tight = spare_bytes < 0
    ledger.counted_sum = ledger.settled_sum
    ledger.room = min(NOTED_MAX, spare_bytes // _NOTED_BYTES_MAX)


def _spare_bytes(state: State, sums: int) -> int:
    """Return how much larger the state could be without being near to its bound; negative if it is near."""
    return state.bytes_max - limits.STATE_GROWTH_MAX - _with_records(state, sums)


def is_full(state: State) -> bool:
    """Whether the state has reached its bound."""
    return state.is_tight and bytes_of(state) >= state.bytes_max


def check_room(state: State) -> Refused | None:
    """Refuse what would make the state larger if it has reached its bound."""
    if not is_full(state):
        return None
    return Refused(
        Reason.OVERLOADED,
        f"the state takes {bytes_of(state)} bytes; {state.bytes_max} are allowed",
        (),
        0,
        limits.RETRY_MS,
    )


def set_bound(state: State, bytes_max: int) -> None:
    """Set another bound; one that is too small to work with is ignored."""
    if bytes_max >= limits.STATE_BYTES_LEAST:
        state.bytes_max = bytes_max
        state.ledger.room = NO_ROOM
