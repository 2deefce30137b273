"""The fingerprint of a state: 64 bits that two nodes at one revision share, kept up with every change.

It is derived, so it is not stored: a snapshot that is loaded gives the fingerprint of the state it was made
of. What it has of a record is in `marks`; the sums are kept where the records are kept.

In it, completely: sessions, holds, tickets, pleas, waits that ask, freezes, streams, delays, semaphores,
fences, cells, fixed windows and leaky buckets, places of rate limits, origins, remembered requests, to whom
everything belongs and the quotas, the namespaces, all deadlines, the counters, cluster time, the active
rules, why they are held, and who should lead. Of the log of a sliding window its end, its length and its
total. Not in it: the audit, which decides nothing, and of which each event tells of a change that is in it;
and what is derived from all this, as the fingerprint is.
"""

from typing import Final

from lockstate.tables import marks
from lockstate.tables.ledger import mark_of_session
from lockstate.tables.state import State, number_of_fence, number_of_origin, number_of_semaphore
from lockstate.words import limits

VERSION: Final = 1
"""The version of what is in a fingerprint: only those of one version are compared. Whoever changes a stored
record, or anything in `marks`, counts it up: tests/compat has the fingerprints of stored states."""

_REVISION: Final = 0x9E3779B97F4A7C15
_NOW: Final = 0xC2B2AE3D27D4EB4F
_TOKEN: Final = 0x165667B19E3779F9
_ORDER: Final = 0xD6E8FEB86659FD93
_RULES: Final = 0xFF51AFD7ED558CCD
_BYTES_MAX: Final = 0xC4CEB9FE1A85EC53
_CELLS: Final = 0x9FB21C651E98DF25
"""Odd numbers with about as many ones as zeros, one for each counter of the state."""


def of(state: State) -> int:
    """Return the fingerprint of `state`. It takes as long as much has changed since it was last asked for."""
    values_sum = state.semaphore_values.sum + state.fence_values.sum + state.origin_values.sum
    return _with_counters(state, state.ledger.sum + state.deadlines.sum + values_sum)


def recomputed(state: State) -> int:
    """Return the fingerprint as `of` does, from the records themselves: it takes as long as they are many."""
    sums = sum([mark_of_session(session) for session in state.sessions.values()])
    sums += sum([marks.of_record(cell) for cell in state.cells.all()])
    tables = state.holds, state.tickets, state.delays, state.permit_delays, state.freezes
    for records in (*tables, state.pleas.rows, state.pleas.asks):
        sums += sum([marks.of_record(record) for record in records.values()])
    sums += sum([marks.of_name(name) * number_of_semaphore(one) for name, one in state.semaphores.items()])
    sums += sum([marks.of_name(name) * number_of_fence(token) for name, token in state.fences.items()])
    sums += sum([marks.of_name(name) * number_of_origin(origin) for name, origin in state.origins.items()])
    sums += sum([marks.of_content(remembered) for _, remembered in state.requests.dump()])
    sums += (
        state.streams.recomputed_sum()
        + state.principals.recomputed_sum()
        + state.namespaces.recomputed_sum()
        + state.rates.recomputed_sum()
        + state.deadlines.recomputed_sum()
    )
    return _with_counters(state, sums)


def _with_counters(state: State, sums: int) -> int:
    return (
        sums
        + state.revision * _REVISION
        + state.now_ms * _NOW
        + state.next_token * _TOKEN
        + state.next_order * _ORDER
        + state.rules * _RULES
        + state.cells.revision * _CELLS
        + (state.bytes_max - limits.STATE_BYTES_MAX) * _BYTES_MAX
        + sum([marks.of_content(said) for said in (state.rules_hold, state.preferred) if said is not None])
    ) & marks.WORD
