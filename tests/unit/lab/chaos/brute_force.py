"""All orders of a few operations, one after the other: slow, and simple enough to be believed."""

from collections.abc import Sequence
from typing import Any

from lab.chaos.checkers.search import Call, Model


def has_order(model: Model[Any], calls: Sequence[Call]) -> bool:
    """Whether some order explains every answer; those without a return may be left out."""
    return _goes_on(model, model.initial, list(calls))


def _goes_on(model: Model[Any], state: Any, left: list[Call]) -> bool:
    if all(call.return_ns is None for call in left):
        return True
    for call in left:
        if any(other.return_ns is not None and other.return_ns < call.call_ns for other in left):
            continue  # another one was over before this one was called
        after = model.step(state, call.action)
        if after is not None and _goes_on(model, after, [other for other in left if other is not call]):
            return True
    return False
