"""Defects of concurrent reads and writes, and of conversions between modes that are not ordered."""

from typing import Any, Final

import lockstate.rules.conversions
from lockstate.rules.effects import Effects
from lockstate.rules.holds import changes
from lockstate.tables.claim_table import Freed
from lockstate.tables.records import Hold
from lockstate.words.modes import DRAWING, Mode
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced
from tests.simulation.mutations.states import beside

_CONVERTING: Final = Surroundings(minutes=2, client_settings={"vocabulary_share": 0.9, "think_s": 0.15})

_STRENGTH: Final = (
    Mode.CONCURRENT_READ,
    Mode.CONCURRENT_WRITE,
    Mode.SHARED,
    Mode.UPDATE,
    Mode.EXCLUSIVE,
)


def _is_weaker(old: Mode, new: Mode) -> bool:
    """Take all modes for ordered."""
    return _STRENGTH.index(new) <= _STRENGTH.index(old)


_BECOMES_EXCLUSIVE: Final = frozenset((old, new) for old, new in DRAWING if new is Mode.EXCLUSIVE)


def _convert_and_renew(effects: Effects, hold: Hold, *rest: Any, ticket: int = 0) -> Freed:
    """Let the lease of a hold begin anew with its new mode."""
    if not hold.is_endless:
        effects.state.extend(effects.state.lease_of(hold))
    return _convert(effects, hold, *rest, ticket=ticket)


def _convert_and_serve_nobody(effects: Effects, hold: Hold, *rest: Any, ticket: int = 0) -> Freed:
    """Leave those that the new mode lets in to the next end of something."""
    _convert(effects, hold, *rest, ticket=ticket)
    return []


_convert = changes.convert

MODES: Final = (
    Mutation(
        name="concurrent-write-beside-shared",
        sentence="Somebody reads what is protected while others write.",
        found_by=("holds-exclude", "delay-kept", "exclusion"),
        apply=beside(Mode.CONCURRENT_WRITE, Mode.SHARED),
        surroundings=_CONVERTING,
    ),
    Mutation(
        name="modes-taken-for-ordered",
        sentence="A protected read becomes a concurrent write at once, although others read.",
        found_by=("holds-exclude", "delay-kept", "exclusion"),
        apply=replaced(lockstate.rules.conversions, "is_down", _is_weaker),
        surroundings=_CONVERTING,
    ),
    Mutation(
        name="concurrent-write-keeps-token",
        sentence="Only a conversion to exclusive draws a token, not one to concurrent-write.",
        found_by=("token-drawn", "model-state", "model-events", "reply"),
        apply=replaced(changes, "DRAWING", _BECOMES_EXCLUSIVE),
        surroundings=_CONVERTING,
    ),
    Mutation(
        name="conversion-renews",
        sentence="A hold that gets another mode lives longer than its client was told.",
        found_by=("reply", "model-state", "model-events", "read-view", "lease-late"),
        apply=replaced(changes, "convert", _convert_and_renew),
        surroundings=_CONVERTING,
    ),
    Mutation(
        name="conversion-lets-nobody-in",
        sentence="Nobody is let in when a hold gets a mode that stands beside what is waited for.",
        found_by=("reply", "model-state", "model-events"),
        apply=replaced(changes, "convert", _convert_and_serve_nobody),
        surroundings=_CONVERTING,
    ),
)
