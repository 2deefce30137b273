"""What clients know to belong to somebody: sessions and holds that others may try to use."""

from collections import OrderedDict
from typing import Final

from lockstate.words.commands.entries import Command
from lockstate.words.ids import HoldId, SessionId
from lockstate.words.results import Granted, Result, SessionOpened

KNOWN_MAX: Final = 100
"""How many of the newest are known."""


class Owned:
    """Ids of what belongs to a principal for sure: its nodes were told who asked for it."""

    def __init__(self) -> None:
        self.sessions: OrderedDict[SessionId, str] = OrderedDict()
        self.holds: OrderedDict[HoldId, str] = OrderedDict()

    def note(self, principal: str, command: Command, result: Result) -> None:
        """Note what a command of a principal has brought, unless an earlier attempt may have."""
        match result:
            case SessionOpened() if result.session_id == getattr(command, "session_id", ""):
                self.sessions[result.session_id] = principal
            case Granted() if result.hold_id == getattr(command, "hold_id", ""):
                # A conversion names none: its hold may be in a session that was opened for nobody.
                session_id: SessionId | None = getattr(command, "session_id", None)
                if session_id == "" or self.sessions.get(session_id or SessionId("")) == principal:
                    self.holds[result.hold_id] = principal
        for known in (self.sessions, self.holds):
            while len(known) > KNOWN_MAX:
                known.popitem(last=False)

    def sessions_of_others(self, principal: str) -> list[SessionId]:
        """Return what sessions belong to somebody else."""
        return [session_id for session_id, owner in self.sessions.items() if owner != principal]

    def holds_of_others(self, principal: str) -> list[HoldId]:
        """Return what holds belong to somebody else."""
        return [hold_id for hold_id, owner in self.holds.items() if owner != principal]
