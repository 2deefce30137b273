"""The tables together: what the moves of the state keep consistent."""

import pytest

from lockstate import limits
from lockstate.state import State, public_name


def test_a_public_name_is_stable_and_short() -> None:
    """The same secret gives the same name on every node; another secret, another name."""
    assert public_name("session", "s1") == public_name("session", "s1")
    assert public_name("session", "s1") != public_name("session", "s2")
    assert len(public_name("hold", "x" * 64)) == len("hold-") + 8


def test_a_public_name_exists_for_any_text() -> None:
    """Text that is no valid Unicode has a public name as well."""
    assert public_name("hold", "\ud800").startswith("hold-")


def test_orders_rise() -> None:
    """Each creation has the next number."""
    state = State()
    assert [state.take_order() for _ in range(3)] == [1, 2, 3]


def test_a_lock_is_made_once() -> None:
    """A name has one record while it is active, and none when it is idle."""
    state = State()
    lock = state.lock_for("a")
    assert state.lock_for("a") is lock
    state.drop_if_idle(lock)
    state.drop_if_idle(lock)
    assert state.locks == {}


def test_a_delayed_lock_is_not_idle() -> None:
    """A delay keeps the record of its lock; the longest counts."""
    state = State()
    lock = state.lock_for("a")
    for delay_ms in (100, 300, 200):
        state.set_delay(lock, delay_ms)
    state.drop_if_idle(lock)
    assert "a" in state.locks
    assert state.deadlines.next_ms() == 300


def test_the_longest_silent_origin_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of origins that were silent equally long, the first by name goes."""
    monkeypatch.setattr(limits, "ORIGINS_COUNT_MAX", 2)
    state = State()
    for name in ("n2", "n1", "n3"):
        state.origin(name)
    assert set(state.origins) == {"n2", "n3"}
