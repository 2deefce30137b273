"""Lock modes and which of them may be held together. The conflict rules are this table and nothing else."""

import enum


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

ModeCounts = tuple[int, ...]
"""How many holders or waiters there are of each mode, in the order of `Mode`. A tuple, because there are two
for every active lock, and the garbage collector need not look at a tuple of numbers."""

NONE: ModeCounts = (0,) * len(Mode)
_PLACE = {mode: place for place, mode in enumerate(Mode)}


def counted(counts: ModeCounts, mode: Mode, by: int) -> ModeCounts:
    """Return `counts` with `by` more of `mode`."""
    place = _PLACE[mode]
    return (*counts[:place], counts[place] + by, *counts[place + 1 :])


def passable(counts: ModeCounts) -> frozenset[Mode]:
    """Return the modes that are compatible with every one that is present in `counts`."""
    allowed = ALL_MODES
    for mode, count in zip(Mode, counts, strict=True):
        if count:
            allowed &= COMPATIBLE[mode]
    return allowed
