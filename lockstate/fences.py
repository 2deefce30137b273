"""Fences: the highest token that each resource has seen. Never forgotten, or a stale one could pass."""

from lockstate import budget, limits
from lockstate.commands import AdvanceFence
from lockstate.holds import check_count
from lockstate.results import FenceAdvanced, Reason, Refused, Result
from lockstate.state import State


def advance(state: State, command: AdvanceFence) -> Result:
    """Raise the highest token of a resource, or refuse one that is below it."""
    refused = limits.check_name(command.resource)
    if refused is not None:
        return refused
    if not 0 <= command.token <= limits.TOKEN_MAX:
        return limits.out_of_range("token", command.token, limits.TOKEN_MAX)
    highest = state.fences.get(command.resource)
    if highest is None:
        refused = check_count(len(state.fences), limits.FENCES_COUNT_MAX, "fences") or budget.check_room(
            state
        )
        if refused is not None:
            return refused
    elif command.token < highest:
        detail = f"a newer holder was here: {highest} is the highest token"
        return Refused(Reason.STALE_TOKEN, detail, facts={"highest_token": highest})
    state.set_fence(command.resource, command.token)
    return FenceAdvanced(command.token)
