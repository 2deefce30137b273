"""Fences: the highest token that each resource has seen.

None is forgotten by itself, or a stale token could pass: only when an operator says so, with a reason.
"""

from lockstate.rules.effects import Effects
from lockstate.tables import budget
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.commands.overrides import ForgetFence
from lockstate.words.commands.primitives import AdvanceFence
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import FenceAdvanced, FenceForgotten, Result


def advance(state: State, command: AdvanceFence) -> Result:
    """Raise the highest token of a resource, or refuse one that is below it, or that nobody was given.

    The latter would shut out all holders until their tokens have come so far.
    """
    refused = limits.check_name(command.name)
    if refused is not None:
        return refused
    newest = state.next_token - 1
    if not 0 <= command.token <= newest:
        detail = f"token: {command.token}; must be 0 to {newest}, the newest that was granted"
        return Refused(Reason.INVALID_REQUEST, detail)
    highest = state.fences.get(command.name)
    if highest is None:
        refused = (
            limits.check_count(len(state.fences), limits.FENCES_COUNT_MAX, "fences")
            or budget.check_room(state)
            or state.principals.check_named("fences", (command.name,))
            or state.namespaces.check_named("fences", (command.name,))
        )
        if refused is not None:
            return refused
        if state.principals.asking:
            state.principals.put_fence(command.name, state.principals.asking)
        if state.namespaces.over((command.name,)):
            state.namespaces.put_fence(command.name, state.take_order())
    elif command.token < highest:
        detail = f"a newer holder was here: {highest} is the highest token"
        return Refused(Reason.STALE_TOKEN, detail, facts={"highest_token": highest})
    state.set_fence(command.name, command.token)
    return FenceAdvanced(command.token)


def forget(effects: Effects, command: ForgetFence) -> Result:
    """Forget the highest token of a resource, which accepts any from now on."""
    refused = limits.check_name(command.name) or limits.check_text(
        "reason", command.reason, limits.REASON_BYTES_MAX
    )
    if refused is not None:
        return refused
    highest = effects.state.fences.get(command.name)
    if highest is not None:
        effects.state.forget_fence(command.name)
        effects.tell_forgotten(command.name, highest, command.reason)
    return FenceForgotten(highest)
