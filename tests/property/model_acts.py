"""Events in the model of what belongs to nobody: what operators did to it, or set for all."""

import json
from enum import Enum
from typing import Any

import msgspec

from lockstate.words.commands.admin import HoldRules, PreferLeader, RecordAct
from lockstate.words.events import Event, EventKind
from lockstate.words.ids import NO_OWNER, NO_SESSION
from lockstate.words.modes import Mode
from lockstate.words.results import Done, LeaderPreferred, Result, RulesHeld
from lockstate.words.settings import NamespaceSettings, Quota
from lockstate.words.versions import RULES_FIRST
from tests.property.model_records import ModelState


def tell_act(state: ModelState, kind: EventKind, name: str, reason: str, **said: Any) -> None:
    """Add an event of what is nobody's; `said` are its other fields."""
    when, by = (state.revision, state.now_ms), state.principal
    plain = Event(*when, kind, name, Mode.EXCLUSIVE, NO_OWNER, 0, NO_SESSION, 0, reason, by=by)
    event = msgspec.structs.replace(plain, **said)
    state.events.append(event)
    state.history.append(event)


def record_act(state: ModelState, command: RecordAct) -> Result:
    """Remember who asks for a change of the cluster."""
    said = {"id": command.node_id, "peer": command.peer}
    value = json.dumps({what: text for what, text in said.items() if text}, separators=(",", ":"))
    kind = EventKind("transfer-asked" if command.act == "transfer" else f"member-{command.act}-asked")
    tell_act(state, kind, "", command.reason, value=value)
    if command.act == "remove" and state.preferred[:1] == [command.node_id]:
        _end_preference(state, command.reason)
    return Done()


def prefer_leader(state: ModelState, command: PreferLeader) -> Result:
    """Remember who should lead, and since when; nobody should if no node is named."""
    was = state.preferred[0] if state.preferred else ""
    if not command.node_id:
        if was:
            _end_preference(state, command.reason)
        return LeaderPreferred(was)
    if was != command.node_id:
        state.preferred, state.preferred_ms = [command.node_id], state.now_ms
    _tell_preference(state, EventKind.LEADER_PREFERRED, command.reason)
    return LeaderPreferred(was)


def _end_preference(state: ModelState, reason: str) -> None:
    _tell_preference(state, EventKind.PREFERENCE_ENDED, reason)
    state.preferred.clear()


def _tell_preference(state: ModelState, kind: EventKind, reason: str) -> None:
    (node_id,) = state.preferred
    value = json.dumps({"id": node_id}, separators=(",", ":"))
    tell_act(state, kind, "", reason, value=value, lasted_ms=state.now_ms - state.preferred_ms)


def hold_rules(state: ModelState, command: HoldRules) -> Result:
    """Hold the rules of the cluster, or let go of them. The model follows the first ones alone."""
    known, since_ms = state.rules_held_ms, state.now_ms
    if known is not None:
        since_ms = known
    if command.is_held or known is not None:
        kind = EventKind.RULES_HELD if command.is_held else EventKind.RULES_RELEASED
        tell_act(state, kind, "", command.reason, lasted_ms=state.now_ms - since_ms)
    state.rules_held_ms = since_ms if command.is_held else None
    return RulesHeld(RULES_FIRST, known is not None)


def text_of(settings: NamespaceSettings | Quota) -> str:
    """Return what settings say, as JSON."""
    return json.dumps(_said(settings), separators=(",", ":"))


def _said(settings: Any) -> Any:
    if isinstance(settings, msgspec.Struct):
        said = {field: getattr(settings, field) for field in settings.__struct_fields__}
        return {field: _said(value) for field, value in said.items() if value is not None}
    return settings.value if isinstance(settings, Enum) else settings
