"""Lock modes and which of them may be held together. The conflict rules are this table and nothing else."""

import enum
from collections.abc import Iterable


class Mode(enum.StrEnum):
    """How a lock is held. The value is the word used in JSON."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"


COMPATIBLE: dict[Mode, frozenset[Mode]] = {
    Mode.EXCLUSIVE: frozenset(),
    Mode.SHARED: frozenset({Mode.SHARED}),
}
"""For each mode, the modes that others may hold at the same time. Symmetric."""

ALL_MODES: frozenset[Mode] = frozenset(Mode)


def passable(modes: Iterable[Mode]) -> frozenset[Mode]:
    """Return the modes that are compatible with every one of `modes`."""
    allowed = ALL_MODES
    for mode in modes:
        allowed &= COMPATIBLE[mode]
    return allowed
