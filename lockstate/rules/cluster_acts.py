"""What operators do to the cluster itself.

The state has no members: of a change of those it only remembers who asked, and why. Such a record is
committed before the change is made, which may still fail. Nor does it know who leads: of that it remembers
who should.
"""

from typing import Final

from lockstate.rules.effects import Effects
from lockstate.tables.records import PreferredLeader, RulesHold
from lockstate.words import limits
from lockstate.words.commands.admin import HoldRules, PreferLeader, RecordAct
from lockstate.words.events import EventKind
from lockstate.words.kinds import ClusterAct
from lockstate.words.results import Done, LeaderPreferred, Result, RulesHeld

_DONE: Final = Done()


def hold_rules(effects: Effects, command: HoldRules) -> Result:
    """Keep the rules as they are from here on, also for another reason than before, or no longer."""
    refused = limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX)
    if refused is not None:
        return refused
    state = effects.state
    known = state.rules_hold
    if command.is_held:
        since_ms = state.now_ms if known is None else known.since_ms
        state.rules_hold = RulesHold(since_ms, state.principals.asking, command.reason)
        effects.tell_rules_hold(EventKind.RULES_HELD, state.rules_hold, command.reason)
    elif known is not None:
        state.rules_hold = None
        effects.tell_rules_hold(EventKind.RULES_RELEASED, known, command.reason)
    return RulesHeld(state.rules, known is not None)


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
    if command.act is ClusterAct.REMOVE:
        _end_preference(effects, command.node_id, command.reason)
    return _DONE


def prefer_leader(effects: Effects, command: PreferLeader) -> Result:
    """Remember who should lead from here on, also for another reason than before, or that nobody should."""
    refused = limits.check_text("node_id", command.node_id, limits.ID_CHARS_MAX) or limits.check_text(
        "reason", command.reason, limits.REASON_BYTES_MAX
    )
    if refused is not None:
        return refused
    state = effects.state
    was = "" if state.preferred is None else state.preferred.node_id
    if command.node_id:
        since_ms = state.preferred.since_ms if state.preferred and was == command.node_id else state.now_ms
        by = state.principals.asking
        state.preferred = PreferredLeader(since_ms, command.node_id, by, command.reason)
        effects.tell_preference(EventKind.LEADER_PREFERRED, state.preferred, command.reason)
    else:
        _end_preference(effects, was, command.reason)
    return LeaderPreferred(was)


def _end_preference(effects: Effects, node_id: str, reason: str) -> None:
    """Forget that a node should lead, if it is the one that should."""
    known = effects.state.preferred
    if known is not None and known.node_id == node_id:
        effects.state.preferred = None
        effects.tell_preference(EventKind.PREFERENCE_ENDED, known, reason)
