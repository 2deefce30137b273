"""Ending holds of any kind by force, and lifting the delays that a force or an expiry leaves.

A hold keeps its kind for as long as it lives, and locks, semaphores and elections of one name are three
different things. So a call that finds another kind than its own is a mistake of its caller: it is refused
(here, or by `refuse_kind`), changes nothing, and is not remembered, for the corrected one may carry the
same `request_id`.
"""

from itertools import islice

from lockstate.reads.held import holder_view
from lockstate.reads.holders import holders_meant, holders_of
from lockstate.rules.checks import invalid
from lockstate.rules.effects import Effects
from lockstate.rules.holds import ends, waiting
from lockstate.tables.claim_table import Freed
from lockstate.tables.delays import delays_of, end_delay
from lockstate.words import limits
from lockstate.words.commands.overrides import ForceRelease, LiftDelay
from lockstate.words.events import EventKind
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import DelaysLifted, ForceReleased, Result
from lockstate.words.views import HolderView


class Kinds:
    """Applies the commands that name a kind to one state."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._state = effects.state

    def force_release(self, command: ForceRelease) -> Result:
        """End the holds of a name, or one of them, whoever has them."""
        refused = _check(command)
        if refused is not None:
            return refused
        ended = list(holders_meant(self._state, command.kind, command.name, command.token))
        if not ended:
            is_held = bool(holders_of(self._state, command.kind, command.name))
            nothing = self.nothing_of(command.kind, command.name, command.token, is_held=is_held)
            return nothing or ForceReleased(())
        released = tuple([holder_view(self._state, hold, command.name, command.kind) for hold in ended])
        freed: Freed = []
        for hold in ended:
            freed += ends.end(self._effects, hold, EventKind.FORCED, command.reason, command.lock_delay_ms)
        waiting.serve(self._effects, freed)
        return ForceReleased(released)

    def lift_delay(self, command: LiftDelay) -> Result:
        """End the delays of a name before their time, and serve those that wait for it."""
        refused = _check_lift(command)
        if refused is not None:
            return refused
        state = self._state
        delays = delays_of(state, command.kind, command.name)
        left_ms = max([delay.expires_at_ms - state.now_ms for delay in delays], default=0)
        freed: Freed = []
        for delay in delays:
            self._effects.tell_lifted(delay, command.reason)
            freed += end_delay(state, delay)
        waiting.serve(self._effects, freed)
        return DelaysLifted(len(delays), max(left_ms, 0))

    def nothing_of(self, kind: HoldKind, name: str, token: int, *, is_held: bool) -> Refused | None:
        """Say what there is instead: another kind of this name, or holders with other tokens."""
        others = () if is_held else self._holders_of_other_kinds(kind, name)
        if others:
            detail = f"name: no {kind} of this name is held, but the {others[0].kind} is"
            return Refused(Reason.WRONG_KIND, detail, others)
        if token:
            return Refused(Reason.NOT_HOLDER, f"token: nobody holds it with token {token}")
        return None

    def _holders_of_other_kinds(self, kind: HoldKind, name: str) -> tuple[HolderView, ...]:
        """Return holders of the first other kind that has any of this name."""
        for other in HoldKind:
            if other is not kind and (found := holders_of(self._state, other, name)):
                first = islice(found, limits.HOLDERS_SHOWN_MAX)
                return tuple([holder_view(self._state, hold, name, other) for hold in first])
        return ()


def _check(command: ForceRelease) -> Refused | None:
    refused = (
        limits.check_name(command.name)
        or limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX)
        or limits.check_range("lock_delay_ms", command.lock_delay_ms, limits.LOCK_DELAY_MS_MAX)
        or limits.check_range("token", command.token, limits.TOKEN_MAX)
    )
    if refused is None and command.kind is HoldKind.ELECTION and command.lock_delay_ms:
        return invalid("lock_delay_ms: an election has none")
    return refused


def _check_lift(command: LiftDelay) -> Refused | None:
    refused = limits.check_name(command.name) or limits.check_text(
        "reason", command.reason, limits.REASON_BYTES_MAX
    )
    if refused is None and command.kind is HoldKind.ELECTION:
        return invalid("kind: an election has no delay")
    return refused
