"""What a fence and a register may answer, one operation at a time."""

from typing import Any, Final, NamedTuple

ABSENT: Final = ""
"""The value of a cell that is not there."""


class Advance(NamedTuple):
    """A fence is given a token; `highest` is what a refusal names."""

    token: int
    is_accepted: bool
    highest: int | None = None


class _NoSwaps:
    """A model of which no order is left out: it is cheap enough."""

    def matters(self, first: Any, second: Any) -> bool:
        """Whether `first` may be needed just before `second`."""
        del first, second
        return True


class FenceModel(_NoSwaps):
    """Remembers the highest token."""

    initial: Final = 0

    def step(self, state: int, action: Any) -> int | None:
        """Return the state after `action`, None if it cannot be."""
        if action.is_accepted:
            return action.token if action.token >= state else None
        return state if action.token < state and action.highest in (None, state) else None

    def is_read(self, action: Any) -> bool:
        """Whether `action` never changes anything."""
        return not action.is_accepted

    def is_lost(self, state: int, action: Any) -> bool:
        """Whether `action` never can be any more: the highest token only grows."""
        if action.is_accepted:
            return bool(action.token < state)
        return action.highest is not None and bool(action.highest < state)


class Read(NamedTuple):
    """A register is read."""

    value: Any


class Write(NamedTuple):
    """A register is written."""

    value: Any


class Exchange(NamedTuple):
    """A register is written if it has the value `expected`."""

    expected: Any
    value: Any


class Differs(NamedTuple):
    """An exchange is refused: the register has another value than `expected`."""

    expected: Any


class RegisterModel(_NoSwaps):
    """One value."""

    def __init__(self, initial: Any = 0) -> None:
        self.initial = initial

    def step(self, state: Any, action: Any) -> Any | None:
        """Return the state after `action`, None if it cannot be."""
        match action:
            case Read(value):
                return state if value == state else None
            case Write(value):
                return value
            case Exchange(expected, value):
                return value if expected == state else None
            case Differs(expected):
                return state if expected != state else None
            case _:
                raise TypeError(f"a register knows no {action}")

    def is_read(self, action: Any) -> bool:
        """Whether `action` never changes anything."""
        return isinstance(action, Read | Differs)

    def is_lost(self, state: Any, action: Any) -> bool:
        """Whether `action` never can be any more: any value may come again."""
        del state, action
        return False
