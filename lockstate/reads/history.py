"""What happened last: to a name, by a session, and what ended a hold."""

from itertools import islice
from typing import Final

from lockstate.tables.audit import Linked
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.events import Event, EventKind
from lockstate.words.ids import HoldId, SessionId

ENDINGS_SEARCHED_MAX: Final = 1000
"""Newest events among which the end of a hold or session is looked for: a refusal must stay cheap."""
HOLD_ENDINGS: Final = frozenset(
    {EventKind.RELEASED, EventKind.EXPIRED, EventKind.FORCED, EventKind.HANDED_OVER}
)
"""What a hold ends with."""
SESSION_ENDINGS: Final = frozenset({EventKind.SESSION_EXPIRED, EventKind.SESSION_FORCED})
"""What a session ends with that its client does not close."""


def audit(
    state: State,
    name: str,
    session_id: SessionId | HoldId,
    limit: int,
    behind: int | None,
    *,
    by_operators: bool,
) -> list[Linked]:
    """Return what happened last, the newest first: to a name, by a session, or at all.

    Behind the number of a record the oldest come first. `by_operators`: only what operators did to others.
    """
    limit = min(max(limit, 1), limits.AUDIT_LIMIT_MAX)

    def is_wanted(event: Event) -> bool:
        return (
            (not name or event.name == name)
            and (not session_id or event.session_id == session_id)
            and (not by_operators or event.concerns_others)
        )

    return list(islice(state.audit.records(is_wanted, behind), limit))


def ending(state: State, session_id: SessionId, hold_id: HoldId) -> Event | None:
    """Return what ended a session, or else a hold with a lease of its own; None if that was long ago."""
    lease_id, kinds = (session_id, SESSION_ENDINGS) if session_id else (hold_id, HOLD_ENDINGS)
    newest = islice(reversed(state.audit.events), ENDINGS_SEARCHED_MAX if lease_id else 0)
    return next((one for one in newest if one.session_id == lease_id and one.kind in kinds), None)
