"""Rate limits: what is taken from one now, or from a time to come. How they count is in tables."""

from lockstate.tables import budget
from lockstate.tables.state import State
from lockstate.words.commands import TakeRate
from lockstate.words.results import Result


def take(state: State, command: TakeRate) -> Result:
    """Take from a rate limit, which needs room if it is new to the state."""
    no_room = budget.check_room(state) if state.is_tight else None
    return state.rates.take(command, state.now_ms, no_room)
