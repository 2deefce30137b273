"""The invariants find what they are for: each sentence is broken once."""

from collections.abc import Callable

import pytest

from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.modes import Mode, counted
from lockstate.state import State
from lockstate.tables import Lock
from tests.unit.lockstate.world import World


def _state() -> State:
    """Return a sound state: two readers hold `a`, a writer of session s1 waits for it."""
    world = World()
    world.open("s1", 5000)
    world.granted("a", mode=Mode.SHARED)
    world.granted("a", mode=Mode.SHARED)
    world.queued("a", session_id="s1")
    return world.machine.state


def _conflict(state: State) -> None:
    state.holds["h1"].mode = Mode.EXCLUSIVE


def _double_token(state: State) -> None:
    state.holds["h2"].token = state.holds["h1"].token


def _invented_token(state: State) -> None:
    state.next_token = 2


def _vain_wait(state: State) -> None:
    state.tickets["h3"].mode = Mode.SHARED


def _lost_holder(state: State) -> None:
    del state.locks["a"].holders["h1"]


def _lost_waiter(state: State) -> None:
    del state.locks["a"].queue["h3"]


def _lost_hold_of_session(state: State) -> None:
    state.sessions["h1"].holds = {}


def _lost_ticket_of_session(state: State) -> None:
    state.sessions["s1"].tickets = {}


def _lost_name(state: State) -> None:
    state.names.remove("a")


def _idle_name(state: State) -> None:
    state.locks["b"] = Lock(name="b")
    state.names.add("b")


def _miscounted_holder(state: State) -> None:
    state.locks["a"].held_modes = counted(state.locks["a"].held_modes, Mode.SHARED, 1)


def _miscounted_waiter(state: State) -> None:
    state.locks["a"].waiting_modes = counted(state.locks["a"].waiting_modes, Mode.SHARED, 1)


def _overdue(state: State) -> None:
    state.now_ms = 90_000


def _unscheduled(state: State) -> None:
    state.deadlines.discard(state.sessions["s1"])


BREAKS = [
    (_conflict, "conflict"),
    (_double_token, "tokens do not rise"),
    (_invented_token, "not drawn"),
    (_vain_wait, "could be granted"),
    (_lost_holder, "holds and locks"),
    (_lost_waiter, "tickets and locks"),
    (_lost_hold_of_session, "holds and sessions"),
    (_lost_ticket_of_session, "tickets and sessions"),
    (_lost_name, "index of names"),
    (_idle_name, "idle and remembered"),
    (_miscounted_holder, "counted"),
    (_miscounted_waiter, "counted"),
    (_overdue, "overdue"),
    (_unscheduled, "deadlines and tables"),
]


@pytest.mark.parametrize(("damage", "message"), BREAKS, ids=lambda value: getattr(value, "__name__", ""))
def test_damage_is_found(damage: Callable[[State], None], message: str) -> None:
    """A state with one thing wrong is found out, with the right words."""
    state = _state()
    damage(state)
    with pytest.raises(AssertionError, match=message):
        invariants.check(LockMachine(state))


def test_a_sound_machine_passes() -> None:
    """A machine that only ever applied entries is sound."""
    world = World()
    world.granted("a")
    invariants.check(world.machine)
    assert world.machine.revision == 1
