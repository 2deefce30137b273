"""What operators do to the cluster itself. The state has no members: it only remembers who asked, and why.

A record says that somebody asked for it. It is committed before that is done, which may still fail.
"""

from typing import Final

from lockstate.rules.effects import Effects
from lockstate.words import limits
from lockstate.words.commands import RecordAct
from lockstate.words.results import Done, Result

_DONE: Final = Done()


def record(effects: Effects, command: RecordAct) -> Result:
    """Record that somebody asks for a change of the members, or for another leader."""
    refused = (
        limits.check_text("node_id", command.node_id, limits.ID_CHARS_MAX)
        or limits.check_text("peer", command.peer, limits.NAME_BYTES_MAX)
        or limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX)
    )
    if refused is not None:
        return refused
    effects.tell_asked(command)
    return _DONE
