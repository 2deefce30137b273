"""How much a leader puts into one entry: what it applies in 50 ms, going by what its last entries took.

The load of commands is an estimate, and machines differ. So a leader measures how long its entries take to be
applied, and what came out bounds the next one. While an entry is applied a node does nothing else.
"""

from typing import Final

from cluster.commands.encoded_command import FREE

ENTRY_S_MAX: Final = 0.05
"""Seconds that an entry may take to be applied, by what was measured: a heartbeat is twice as long."""
_KEPT: Final = 0.5
"""What was measured before counts by this part of its weight when another entry has been measured."""
_ENTRY_LOAD: Final = 8 * FREE
"""What an entry takes without any command, as load."""


class Pace:
    """Knows the load of entries that are under way, and how long those before them took."""

    def __init__(self) -> None:
        self._under_way: dict[int, int] = {}
        """Load by index."""
        self._load = self._took_s = 0.0
        """Of the last entries, each half as much as the one behind it."""

    @property
    def load_max(self) -> int | None:
        """Return how much load an entry may have, what each command has free among it; None if any."""
        return int(ENTRY_S_MAX * self._load / self._took_s) - _ENTRY_LOAD if self._took_s else None

    def proposed(self, index: int, load: int) -> None:
        """Record what was put into an entry of this node."""
        self._under_way[index] = load

    def applied(self, index: int, took_s: float) -> None:
        """Record how long an entry took, if it is one of this node and of this leadership."""
        load = self._under_way.pop(index, None)
        if load is not None:
            self._load = self._load * _KEPT + load + _ENTRY_LOAD
            self._took_s = self._took_s * _KEPT + took_s

    def clear(self) -> None:
        """Forget what is under way: this node no longer leads, or only begins to."""
        self._under_way.clear()
