"""How something ended whose client asks for it too late: what the newest records of the audit tell of it.

The state forgets what is over. The audit has it for a while, so this is a hint for people and nothing to
rely on. Only the principal whose it was, who knows the id, is told.
"""

from typing import Final

import msgspec

from lockstate.machine import LockMachine
from lockstate.words.commands.entries import Command
from lockstate.words.events import Event, EventKind
from lockstate.words.ids import NO_HOLD, NO_SESSION
from lockstate.words.refusals import Reason

_WORDS: Final = {
    EventKind.RELEASED: "the hold was released",
    EventKind.EXPIRED: "the lease expired",
    EventKind.FORCED: "the hold was ended by force",
    EventKind.HANDED_OVER: "the hold was handed over",
    EventKind.SESSION_EXPIRED: "the session expired",
    EventKind.SESSION_FORCED: "the session was ended by force",
}


class Ended(msgspec.Struct, kw_only=True):
    """How a hold or a session ended: `ago_ms` before, by `event`; if by force, by whom and why."""

    event: EventKind
    ago_ms: int
    by: str | msgspec.UnsetType = msgspec.UNSET
    reason: str | msgspec.UnsetType = msgspec.UNSET


def of(machine: LockMachine, command: Command, refused: Reason, principal: str) -> Ended | None:
    """Return how what a command names ended, None if the audit does not tell any more."""
    if refused is Reason.LEASE_EXPIRED:
        event = machine.ending(hold_id=getattr(command, "hold_id", NO_HOLD))
    elif refused is Reason.SESSION_EXPIRED:
        event = machine.ending(session_id=getattr(command, "session_id", NO_SESSION))
    else:
        return None
    if event is None or (principal and event.principal not in ("", principal)):
        return None
    return _shown(event, machine.now_ms)


def _shown(event: Event, now_ms: int) -> Ended:
    ended = Ended(event=event.kind, ago_ms=max(0, now_ms - event.now_ms))
    if event.by:
        ended.by = event.by
    if event.reason:
        ended.reason = event.reason
    return ended


def told(ended: Ended) -> str:
    """Return it as a sentence."""
    by = f" by {ended.by}" if isinstance(ended.by, str) else ""
    why = f": {ended.reason}" if isinstance(ended.reason, str) else ""
    return f"{_WORDS[ended.event]}{by} {ended.ago_ms / 1000:g} s ago{why}"
