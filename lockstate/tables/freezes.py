"""Frozen prefixes: nothing new is granted at or below one of them, until it is thawed.

A prefix covers names by whole parts, as a namespace's does. What is held there goes on: a freeze stops grants
only. So it is not a claim, which could not stand beside the holds that are to drain.

A lock of scope subtree is covered by a freeze of its own name, of a name above it, and of one below it: it
would be a new lock of what is frozen.
"""

from bisect import bisect_left, insort

from lockstate.tables.deadlines import Deadlines
from lockstate.tables.ledger import Ledger
from lockstate.tables.records import FrozenPrefix, Permits
from lockstate.words.claims import Claims, shown_name
from lockstate.words.modes import is_intent, is_tree


class FrozenPrefixes(dict[str, FrozenPrefix]):
    """Freezes by their prefixes."""

    def __init__(self, deadlines: Deadlines, ledger: Ledger) -> None:
        """Make the table of a state in which nothing is frozen."""
        super().__init__()
        self._deadlines, self._ledger = deadlines, ledger
        self.in_order: list[str] = []
        """The prefixes, sorted: what is below a name lies side by side."""

    def enter(self, freeze: FrozenPrefix) -> None:
        """Add a freeze of a prefix that has none, with its deadline if it has one."""
        if freeze.expires_at_ms:
            self._deadlines.add(freeze)
        self._ledger.noted[freeze] = 0
        self[freeze.prefix] = freeze
        insort(self.in_order, freeze.prefix)

    def drop(self, freeze: FrozenPrefix) -> None:
        """Take out the freeze of a prefix."""
        del self[freeze.prefix]
        del self.in_order[bisect_left(self.in_order, freeze.prefix)]
        if freeze.expires_at_ms:
            self._deadlines.remove(freeze)
        self._ledger.remove(freeze)


def freeze_of(freezes: FrozenPrefixes, claims: Claims, permits: Permits = ()) -> FrozenPrefix | None:
    """Return a freeze that covers any of these, None if none does. Callers ask first if there is any."""
    for name, claim in claims:
        if is_intent(claim):
            continue  # it is on a name above, which is looked at with the name that it is for
        found = _above(freezes, shown_name(name)) or (_below(freezes, name) if is_tree(claim) else None)
        if found is not None:
            return found
    return next(filter(None, [_above(freezes, name) for name, _ in permits]), None)


def _above(freezes: FrozenPrefixes, name: str) -> FrozenPrefix | None:
    """Return the longest frozen prefix that covers a name."""
    end = len(name)
    while end > 0:
        freeze = freezes.get(name[:end])
        if freeze is not None:
            return freeze
        end = name.rfind("/", 0, end)
    return None


def _below(freezes: FrozenPrefixes, name: str) -> FrozenPrefix | None:
    """Return the first frozen prefix below a name."""
    below = name + "/"
    at = bisect_left(freezes.in_order, below)
    first = freezes.in_order[at : at + 1]
    return freezes[first[0]] if first and first[0].startswith(below) else None
