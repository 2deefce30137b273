"""Freezes: nothing new is granted at or below a prefix, for some time or until it is thawed.

What is held goes on, and what waits keeps its place. Where a freeze is in the way is asked in `queues`.
"""

from typing import Final

from lockstate.reads.freezes import ends_in_ms, left_below
from lockstate.reads.holders import queue_of
from lockstate.reads.listings import walk
from lockstate.rules.effects import Effects
from lockstate.rules.holds import waiting
from lockstate.tables import budget
from lockstate.tables.claim_table import Freed
from lockstate.tables.records import FrozenPrefix
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.claims import claims_of, record_name
from lockstate.words.commands.overrides import Freeze, Thaw
from lockstate.words.events import EventKind
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode, Scope
from lockstate.words.refusals import Refused
from lockstate.words.results import Frozen, Result, Thawed

_NOT_LOCKS: Final = (HoldKind.ELECTION, HoldKind.SEMAPHORE)
"""What waits below a prefix and has no claims of a tree by which it could be found."""


class Freezes:
    """Applies the commands about freezes to one state."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._state = effects.state

    def freeze(self, command: Freeze) -> Result:
        """Freeze a prefix, or give its freeze another end and reason."""
        state, prefix = self._state, command.prefix
        known = state.freezes.get(prefix)
        refused = (
            _check(command)
            or limits.check_range("for_ms", command.for_ms, limits.FREEZE_MS_MAX)
            or (
                limits.check_count(len(state.freezes), limits.FREEZES_COUNT_MAX, "freezes")
                if known is None
                else None
            )
            or budget.check_room(state)
        )
        if refused is not None:
            return refused
        until_ms = state.now_ms + command.for_ms if command.for_ms else 0
        since_ms = state.now_ms if known is None else known.since_ms
        if known is not None:
            state.freezes.drop(known)
        freeze = FrozenPrefix(state.take_order(), until_ms, prefix, command.reason, since_ms)
        state.freezes.enter(freeze)
        self._effects.tell_freeze(EventKind.FROZEN, freeze, command.reason)
        return Frozen(ends_in_ms(state, freeze), left_below(state, prefix))

    def thaw(self, command: Thaw) -> Result:
        """End the freeze of a prefix, if there is one, and serve those that wait for it."""
        refused = _check(command)
        if refused is not None:
            return refused
        freeze = self._state.freezes.get(command.prefix)
        if freeze is not None:
            self._end(freeze, command.reason)
        return Thawed(freeze is not None)

    def end(self, freeze: FrozenPrefix) -> None:
        """Thaw a prefix whose time is over."""
        self._end(freeze, "")

    def _end(self, freeze: FrozenPrefix, reason: str) -> None:
        self._state.freezes.drop(freeze)
        self._effects.tell_freeze(EventKind.THAWED, freeze, reason)
        waiting.serve(self._effects, _freed(self._state, freeze.prefix))


def _freed(state: State, prefix: str) -> Freed:
    """Return what the end of a freeze lets go: for locks the same as that of a lock of the subtree."""
    freed = list(claims_of(prefix, Mode.EXCLUSIVE, Scope.SUBTREE))
    names = [(kind, prefix) for kind in _NOT_LOCKS if queue_of(state, kind, prefix)]
    names += [(kind, name) for kind, name, _, queue in walk(state, prefix + "/", "", _NOT_LOCKS) if queue]
    return [*freed, *[(record_name(kind, name), Mode.EXCLUSIVE.place) for kind, name in names]]


def _check(command: Freeze | Thaw) -> Refused | None:
    return limits.check_prefix(command.prefix) or limits.check_text(
        "reason", command.reason, limits.REASON_BYTES_MAX
    )
