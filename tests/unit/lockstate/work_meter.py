"""How much work the machine does, without a clock: the calls and lines of Python that one entry executes.

A loop shows as the lines of its body, one inside a comprehension as well. What the interpreter does in C (to
copy a dictionary, to sort) does not show: see `test_effort`.
"""

import gc
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

from lockstate.machine import LockMachine
from lockstate.words.commands.entries import Batch, Command, Entry
from lockstate.words.outcomes import Outcome
from lockstate.words.results import Result


class Meter:
    """A machine whose work is counted. The state is not checked on the way: it may be large."""

    def __init__(self) -> None:
        self.machine = LockMachine()
        self.seq = 0
        self.now_ms = 0
        self.outcome = Outcome(0, 0, (), ())

    def run(self, *commands: Command) -> tuple[Result, ...]:
        """Apply commands in one entry."""
        return self._apply(self._entry(commands))

    def cost(self, *commands: Command) -> int:
        """Apply commands in one entry; return how many calls and lines that took.

        What was told before is linked first: each entry links as much of that as it may.
        """
        entry = self._entry(commands)
        audit = self.machine.state.audit
        while audit.linked_count < len(audit.events):
            audit.link()
        audit.catch_up()
        counts: Counter[str] = Counter()

        def trace(_frame: FrameType, event: str, _arg: Any) -> Any:
            counts[event] += 1
            return trace

        def apply() -> None:
            # Others may have callbacks of the collector that are Python, too.
            gc.disable()
            sys.settrace(trace)
            try:
                self._apply(entry)
            finally:
                sys.settrace(None)
                gc.enable()

        # In a thread of its own, so that whoever traces the tests is not disturbed.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(apply).result()
        return counts["call"] + counts["line"]

    def _entry(self, commands: tuple[Command, ...]) -> Entry:
        first = self.seq + 1
        self.seq += len(commands)
        return Entry(self.now_ms, (Batch("n1", tuple(range(first, self.seq + 1)), commands),))

    def _apply(self, entry: Entry) -> tuple[Result, ...]:
        self.outcome = self.machine.apply(entry)
        assert self.machine.fingerprint >= 0, "a node asks for it after each entry"
        return self.outcome.batches[0].results
