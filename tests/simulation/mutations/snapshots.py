"""Defects of snapshots: what a restored node does not know any more."""

import copy
from collections.abc import Callable, Generator
from typing import Final

import msgspec

from cluster.group import Group
from lockstate.stored import snapshot
from lockstate.tables.deadlines import Deadlines, Timed
from lockstate.tables.freezes import FrozenPrefixes
from lockstate.tables.rates import RateLimits
from lockstate.tables.requests import RequestMemory
from lockstate.tables.state import State
from tests.simulation.mutations.mutation import (
    OPERATED,
    Apply,
    Mutation,
    Surroundings,
    in_namespaces,
    replaced,
)

RESTORING: Final = Surroundings(
    rates={"kill": 4.0, "isolate": 1.0, "power": 1.0}, settings={"compact_entries": 20, "chunk_bytes": 4_096}
)
"""Many snapshots, and nodes that start from them."""
RESTORING_ALL: Final = msgspec.structs.replace(RESTORING, client_settings={"vocabulary_share": 0.8})
"""The same, with the whole vocabulary."""
_IN_NAMESPACES: Final = msgspec.structs.replace(RESTORING, client_settings=OPERATED, around=in_namespaces)


def snapshot_without(hide: Callable[[State], None]) -> Apply:
    """Return what leaves something out of a node's snapshots, and not out of anybody's digests."""

    def encode_state(group: Group) -> bytes:
        state = group.machine.state
        held = vars(state).copy()
        hide(state)
        try:
            return snapshot.encode(group.machine.state)
        finally:
            vars(state).update(held)

    return replaced(Group, "encode_state", encode_state)


def _forget_token(state: State) -> None:
    state.next_token = 1 + max([hold.token for hold in state.holds.values()], default=0)


def _forget_requests(state: State) -> None:
    state.requests = RequestMemory()


def _forget_freezes(state: State) -> None:
    state.freezes = FrozenPrefixes(state.deadlines, state.ledger)


def _forget_bounds(state: State) -> None:
    rows = state.pleas.rows
    state.pleas = copy.copy(state.pleas)
    state.pleas.rows = {order: plea for order, plea in rows.items() if not plea.is_bound}


def _forget_asks(state: State) -> None:
    state.pleas = copy.copy(state.pleas)
    state.pleas.asks = {}


def _forget_origins(state: State) -> None:
    state.origins = {}


class _Forgetful(Deadlines):
    """A calendar that has forgotten what was made before `first_order`, and what is due behind that."""

    first_order = 0

    def due(self, now_ms: int) -> Timed | None:
        """Return what is due, unless it is forgotten."""
        record = super().due(now_ms)
        return record if record is None or record.order >= self.first_order else None


_decode_in_steps = snapshot.decode_in_steps


def _decode_without_deadlines(data: bytes) -> Generator[None, None, State]:
    """Forget that what a snapshot holds ends by itself."""
    state = yield from _decode_in_steps(data)
    state.deadlines.__class__ = _Forgetful
    vars(state.deadlines)["first_order"] = state.next_order
    return state


def _forget_values(state: State) -> None:
    state.holds = {hold_id: msgspec.structs.replace(hold, value="") for hold_id, hold in state.holds.items()}


def _forget_fences(state: State) -> None:
    state.fences = {}


def _forget_rates(state: State) -> None:
    state.rates = RateLimits(Deadlines(), state.take_order, state.ledger, state.count_rate)


SNAPSHOTS: Final = (
    Mutation(
        name="token-counter-not-in-snapshot",
        sentence="A restored node goes on from the highest token that somebody still holds.",
        found_by=("equal-digest", "tokens-once"),
        apply=snapshot_without(_forget_token),
        surroundings=RESTORING,
    ),
    Mutation(
        name="dedupe-lost-in-snapshot",
        sentence="A restored node knows nothing of the requests that it answered.",
        found_by=("equal-digest", "one-outcome"),
        apply=snapshot_without(_forget_requests),
        surroundings=RESTORING,
    ),
    Mutation(
        name="freezes-lost-in-snapshot",
        sentence="A restored node grants what is frozen.",
        found_by=("equal-digest",),
        apply=snapshot_without(_forget_freezes),
        surroundings=RESTORING_ALL,
    ),
    Mutation(
        name="bounds-lost-in-snapshot",
        sentence="A restored node does not know for how long what is held may be held.",
        found_by=("equal-digest", "model-state", "model-events", "read-view"),
        apply=snapshot_without(_forget_bounds),
        surroundings=_IN_NAMESPACES,
    ),
    Mutation(
        name="asks-lost-in-snapshot",
        sentence="A restored node does not know which waits are to ask by themselves.",
        found_by=("equal-digest", "model-state", "model-events", "read-view"),
        apply=snapshot_without(_forget_asks),
        surroundings=_IN_NAMESPACES,
    ),
    Mutation(
        name="origins-lost-in-snapshot",
        sentence="A restored node does not know which numbered commands were applied.",
        found_by=("equal-digest",),
        apply=snapshot_without(_forget_origins),
        surroundings=RESTORING,
    ),
    Mutation(
        name="deadlines-lost-in-snapshot",
        sentence="After a restore, what was held or waited for before does not end by itself.",
        found_by=("equal-digest", "model-state", "lease-late"),
        apply=replaced(snapshot, "decode_in_steps", _decode_without_deadlines),
        surroundings=RESTORING,
    ),
    Mutation(
        name="election-value-lost-in-snapshot",
        sentence="A restored node knows who leads, and not what the leader says.",
        found_by=("equal-digest", "read-view", "model-events"),
        apply=snapshot_without(_forget_values),
        surroundings=RESTORING_ALL,
    ),
    Mutation(
        name="fences-lost-in-snapshot",
        sentence="A restored node does not know which tokens its resources have seen.",
        found_by=("equal-digest", "fence-rises"),
        apply=snapshot_without(_forget_fences),
        surroundings=RESTORING_ALL,
    ),
    Mutation(
        name="rates-lost-in-snapshot",
        sentence="A restored node begins every rate limit anew.",
        found_by=("equal-digest", "rate-promise"),
        apply=snapshot_without(_forget_rates),
        surroundings=RESTORING_ALL,
    ),
)
