"""What the search relies on: which two operations may swap, what is a read, and what never comes back."""

from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from lab.chaos.checkers.models import Ghost, Holders, Vanish
from lab.chaos.checkers.search import Model
from tests.unit.lab.chaos.test_search import LOCK_KINDS, MODELS, MODES, actions_of


def any_action(kind: str) -> st.SearchStrategy[Any]:
    """Return what may happen to a kind of thing, also by itself."""
    if kind not in LOCK_KINDS:
        return actions_of(kind)
    by_itself = (st.builds(each, MODES, st.integers(1, 2)) for each in (Ghost, Vanish))
    return st.one_of(actions_of(kind), *by_itself)


def state_after(model: Model[Any], actions: list[Any]) -> Any:
    """Return a state that may be: what is not possible of the actions is left out."""
    state = model.initial
    for action in actions:
        after = model.step(state, action)
        state = state if after is None else after
    return state


@pytest.mark.parametrize("kind", MODELS)
@given(data=st.data())
def test_what_does_not_matter_may_swap(kind: str, data: st.DataObject) -> None:
    """Two operations of which the first does not matter to the second swap, or undo each other."""
    model = MODELS[kind]
    state = state_after(model, data.draw(st.lists(any_action(kind), max_size=5)))
    first, second = data.draw(any_action(kind)), data.draw(any_action(kind))
    between = model.step(state, first)
    after = None if between is None else model.step(between, second)
    if after is None or model.matters(first, second):
        return
    event("the first does not matter")
    if isinstance(first, Ghost) and isinstance(second, Vanish) and after == state:
        return
    swapped = model.step(state, second)
    assert swapped is not None
    assert model.step(swapped, first) == after


@pytest.mark.parametrize("kind", MODELS)
@given(data=st.data())
def test_what_is_lost_never_is_possible_again(kind: str, data: st.DataObject) -> None:
    """No operations lead to a state in which it is."""
    model = MODELS[kind]
    state = state_after(model, data.draw(st.lists(any_action(kind), max_size=5)))
    action = data.draw(any_action(kind))
    if not model.is_lost(state, action):
        return
    event("lost")
    assert model.step(state, action) is None
    for other in data.draw(st.lists(any_action(kind), max_size=6)):
        after = model.step(state, other)
        state = state if after is None else after
        assert model.step(state, action) is None


@pytest.mark.parametrize("kind", MODELS)
@given(data=st.data())
def test_reads_change_nothing(kind: str, data: st.DataObject) -> None:
    """A read that is possible leaves the state as it was."""
    model = MODELS[kind]
    state = state_after(model, data.draw(st.lists(any_action(kind), max_size=5)))
    action = data.draw(any_action(kind))
    if model.is_read(action):
        assert model.step(state, action) in (None, state)


def test_a_ghost_that_vanishes_is_one_of_its_kind() -> None:
    """Ghosts of one mode cannot be told apart; those of another mode stay."""
    model = MODELS["lock"]
    state = state_after(model, [Ghost("shared"), Ghost("update"), Ghost("shared"), Vanish("shared")])
    assert state == Holders(ghosts=(Ghost("shared"), Ghost("update")))
    assert model.step(state, Vanish("exclusive")) is None
