"""What becomes of a state with which a new cluster begins: of a backup, or of a node that was left.

The clients of the old cluster may go on for a while, and its state may have gone further than this one. So
what was granted ends, unless an operator knows better, and tokens go on far above all that the old cluster
can have given out: whatever a fence has seen of a grant of the new one refuses all grants of the old.

The ends are not audited one by one: they would push out what the audit knows. One record tells of them all.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from lockstate.rules.effects import Effects
from lockstate.rules.holds import ends, waiting
from lockstate.tables.claim_table import Freed
from lockstate.tables.records import Session
from lockstate.words.events import EventKind, Left
from lockstate.words.refusals import Reason, Refused

TOKENS_SKIPPED: Final = 1 << 32
"""How far tokens go on above the newest that is known. At 100,000 grants a second the old cluster would have
to have gone on for twelve hours to give out so many."""
_ENDED: Final = Refused(Reason.TICKET_ENDED, "the cluster was restored")


class Restoration(NamedTuple):
    """How a state is restored: what people are told of where it comes from, and what is kept.

    Tokens go on at `token_min`; if that is 0, TOKENS_SKIPPED above the newest one that is known. Holds, waits
    and sessions end, unless `keeps_holds`: then leases begin anew.
    """

    source: str
    keeps_holds: bool = False
    token_min: int = 0


class Restoring:
    """Restores one state."""

    def __init__(self, effects: Effects, end_session: Callable[[Session, EventKind], object]) -> None:
        self._effects, self._end_session = effects, end_session
        self._state = effects.state

    def restore(self, restoration: Restoration) -> None:
        """Let the state begin in a new cluster, and record that. It takes as long as there is much."""
        state, effects = self._state, self._effects
        counts = (len(state.holds), len(state.tickets), len(state.sessions))
        if restoration.keeps_holds:
            self._renew_all()
            done = "kept"
        else:
            self._end_all()
            effects.drop()
            done = "ended"
        token_min = restoration.token_min or state.next_token - 1 + TOKENS_SKIPPED
        state.next_token = max(state.next_token, token_min)
        state.preferred = None  # it was one of the old cluster's nodes
        what = "holds: {}, waits: {}, sessions: {}".format(*counts)
        effects.tell_restored(f"{restoration.source}; {done} {what}")
        state.claimed.settle()
        state.make_up()

    def _renew_all(self) -> None:
        """Begin all leases anew, of sessions and of holds that have one of their own."""
        state = self._state
        for session in state.sessions.values():
            state.extend(session)
        for hold in state.holds.values():
            if hold.ttl_ms:
                state.extend(hold)

    def _end_all(self) -> None:
        """End waits, sessions and holds, in this order: nothing may be granted. Lock-delays follow."""
        state, effects = self._state, self._effects
        freed: Freed = []
        for ticket in list(state.tickets.values()):
            freed += ends.end_wait(effects, ticket, Left.FORCED, _ENDED)
        for session in list(state.sessions.values()):
            self._end_session(session, EventKind.FORCED)
        for hold in list(state.holds.values()):
            freed += ends.end(effects, hold, EventKind.FORCED)
        waiting.serve(effects, freed)
