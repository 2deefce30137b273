"""Every Python call of one thread between two moments, as a tree, and what can be counted in it."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

PACKAGES: Final = ("cluster", "holdfast", "http_api", "lockapi", "lockstate", "redis_api")
"""The folders whose functions are the product's own."""
NO_CALLER: Final = -1
"""The caller of a function that the event loop called."""


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One call of a Python function, or one resumption of a coroutine or generator."""

    caller: int
    code: CodeType


class CallRecorder:
    """Records the calls of this thread while it runs."""

    def __init__(
        self, ignored: frozenset[str], watched: str, on_watched: Callable[[int, FrameType], None]
    ) -> None:
        """Prepare to record.

        Args:
            ignored: files whose functions are left out; what those functions call is not.
            watched: the qualified name of a function that `on_watched` wants to know of.
            on_watched: called with the index of a call and its frame whenever `watched` begins.
        """
        self.calls: list[TracedCall] = []
        self._ignored = ignored
        self._watched = watched
        self._on_watched = on_watched
        self._stack: list[int] = []

    def start(self) -> None:
        """Begin to record."""
        sys.setprofile(self._on_event)

    def stop(self) -> None:
        """Stop recording."""
        sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            caller = self._stack[-1] if self._stack else NO_CALLER
            code = frame.f_code
            if code.co_filename in self._ignored:
                self._stack.append(caller)
                return
            self._stack.append(len(self.calls))
            self.calls.append(TracedCall(caller, code))
            if code.co_qualname == self._watched:
                self._on_watched(len(self.calls) - 1, frame)
        elif event == "return" and self._stack:
            # What began before the recording returns to an empty stack.
            self._stack.pop()


class CallTrace:
    """A finished recording. `root` is the folder that holds the product's packages."""

    def __init__(self, calls: list[TracedCall], root: Path) -> None:
        self.calls = calls
        self._root = root
        self._prefixes = tuple(f"{root / package}{os.sep}" for package in PACKAGES)

    def first(self, count: int) -> "CallTrace":
        """Return the trace of the first `count` calls."""
        return CallTrace(self.calls[:count], self._root)

    def is_ours(self, code: CodeType) -> bool:
        """Whether a function belongs to the product."""
        return code.co_filename.startswith(self._prefixes)

    def ours_count(self) -> int:
        """Count the calls of the product's own functions."""
        return sum(self.is_ours(call.code) for call in self.calls)

    def callbacks_count(self) -> int:
        """Count how often the event loop called a Python function."""
        return sum(call.caller == NO_CALLER for call in self.calls)

    def files(self) -> set[str]:
        """Return the files whose functions were called."""
        return {call.code.co_filename for call in self.calls}

    def our_files(self) -> set[str]:
        """Return those of the files that are the product's."""
        return {name for name in self.files() if name.startswith(self._prefixes)}

    def stack(self, index: int) -> list[CodeType]:
        """Return the functions from the one that the event loop called down to that of call `index`."""
        codes = []
        while index != NO_CALLER:
            codes.append(self.calls[index].code)
            index = self.calls[index].caller
        return codes[::-1]

    def functions(self) -> Counter[CodeType]:
        """Count the calls of each function."""
        return Counter(call.code for call in self.calls)

    def describe(self, code: CodeType) -> str:
        """Return the name and the place of a function."""
        path = Path(code.co_filename)
        place = path.relative_to(self._root) if self.is_ours(code) else Path(*path.parts[-2:])
        return f"{code.co_qualname}  {place}:{code.co_firstlineno}"

    def tree(self) -> Iterator[str]:
        """Yield a line for each call, in order, indented by its depth."""
        depths: list[int] = []
        for call in self.calls:
            depth = 0 if call.caller == NO_CALLER else depths[call.caller] + 1
            depths.append(depth)
            yield f"{'  ' * depth}{self.describe(call.code)}"
