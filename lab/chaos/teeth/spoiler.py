"""One way to spoil a history."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from lab.chaos.history import AnyLine, Operation

Lines = list[AnyLine]


class Spoiler(NamedTuple):
    """One way to spoil a history. `spoil` raises StopIteration when the history has no place for it."""

    name: str
    sentence: str
    checker: str
    spoil: Callable[[Lines], None]


def every(lines: Lines, *kinds: str, outcome: str = "ok", **fields: Any) -> Iterator[Operation]:
    """Yield the operations of these kinds in order of their calls, `fields` being what they have."""
    found = [line for line in lines if isinstance(line, Operation) and line.kind in kinds]
    for operation in sorted(found, key=lambda item: item.call_ns):
        if operation.outcome == outcome and all(getattr(operation, key) == fields[key] for key in fields):
            yield operation
