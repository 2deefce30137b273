"""How far is looked for what is in the way of a subtree: so many names below, their ancestors counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstate.tables.blockers import names_below
from lockstate.words import limits
from lockstate.words.modes import Mode, Scope
from tests.unit.lockstate.machine_driver import MachineDriver

NAMES = st.lists(st.sampled_from(["a", "b", "a-b", "a!", "-", "c0"]), min_size=1, max_size=4).map("/".join)


@given(st.lists(NAMES, unique=True, max_size=12), st.lists(NAMES, max_size=3), st.integers(1, 12))
def test_the_first_active_names_are_looked_at(held: list[str], wanted: list[str], rows_max: int) -> None:
    """Of the active names below, ancestors included, the first ones count; those with records are found."""
    driver = MachineDriver()
    for name in held:
        driver.acquire(f"top/{name}", mode=Mode.SHARED)
    for name in wanted:
        driver.acquire(f"top/{name}", scope=Scope.SUBTREE, wait_ms=1000)
    state = driver.machine.state
    below = sorted([name for name in state.locks.keys() | state.intents.keys() if name.startswith("top/")])
    expected = [name for name in below[:rows_max] if name in state.locks]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "LIST_ROWS_MAX", rows_max)
        assert list(names_below(state, "top")) == expected


def test_a_name_before_the_slash_has_ancestors_ahead() -> None:
    """What comes between an ancestor and all that is below it is behind that ancestor."""
    driver = MachineDriver()
    for name in ("top/a-b", "top/a/b"):
        driver.granted(name, mode=Mode.SHARED)
    state = driver.machine.state
    with pytest.MonkeyPatch.context() as patch:
        for rows_max, expected in ((1, []), (2, ["top/a-b"]), (3, ["top/a-b", "top/a/b"])):
            patch.setattr(limits, "LIST_ROWS_MAX", rows_max)
            assert list(names_below(state, "top")) == expected
