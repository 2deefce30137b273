"""What happened, line by line; and one hash over all of it, by which two runs are known to be the same."""

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TextIO

from lockstate.words.ids import HoldId
from lockstate.words.results import Result
from tests.simulation.workload.history import Belief, Call, FailureOutcome, Read, View

LAST_LINES: Final = 400
"""So much is kept for a report."""
HASH_BYTES: Final = 16


class Trace:
    """The lines of one run. `file` gets all of them."""

    def __init__(self, file: TextIO | None = None) -> None:
        self.last: deque[str] = deque(maxlen=LAST_LINES)
        self._file = file
        self._hash = hashlib.blake2b(digest_size=HASH_BYTES)

    def add(self, now_us: int, who: str, event: str, *facts: Any) -> None:
        """Add a line. Facts must look the same in every run: no addresses, no sets."""
        line = f"{now_us} {who} {event} {' '.join(map(str, facts))}"
        self._hash.update(line.encode("utf-8", "surrogatepass"))
        self.last.append(line)
        if self._file is not None:
            self._file.write(line + "\n")

    @property
    def hash(self) -> str:
        """Return the hash over all lines so far."""
        return self._hash.hexdigest()


class ClientLines:
    """Writes down what clients ask, hear and believe (history.Watcher)."""

    def __init__(self, trace: Trace, now_us: Callable[[], int]) -> None:
        self._trace = trace
        self._now_us = now_us

    def called(self, call: Call) -> None:
        """Write down a command."""
        self._trace.add(self._now_us(), call.client, "asks", call.number, call.node_id, call.command)

    def replied(self, call: Call, result: Result, revision: int, now_us: int) -> None:
        """Write down a result."""
        self._trace.add(now_us, call.client, "hears", call.number, revision, result)

    def ended(self, call: Call, number: int, result: Result, revision: int, now_us: int) -> None:
        """Write down the end of a wait."""
        self._trace.add(now_us, call.client, "hears-end", call.number, number, revision, result)

    def failed(self, call: Call, outcome: FailureOutcome, now_us: int) -> None:
        """Write down an error."""
        self._trace.add(now_us, call.client, "fails", call.number, outcome)

    def read_called(self, read: Read) -> None:
        """Write down a question."""
        self._trace.add(self._now_us(), read.client, "reads", read.number, read.node_id, read.query)

    def read_replied(self, read: Read, value: View, revision: int) -> None:
        """Write down what was seen, in short."""
        del value
        self._trace.add(self._now_us(), read.client, "sees", read.number, revision)

    def read_ended(self, read: Read) -> None:
        """Write down that nothing was seen."""
        self._trace.add(self._now_us(), read.client, "sees-nothing", read.number)

    def believes(self, belief: Belief) -> None:
        """Write down a belief."""
        self._trace.add(
            belief.from_us,
            belief.client,
            "believes",
            belief.hold_id,
            belief.token,
            [*[lock.name for lock in belief.locks], *belief.permits_of][0],
            belief.until_us,
        )

    def stopped_believing(self, hold_id: HoldId, now_us: int) -> None:
        """Write down its end."""
        self._trace.add(now_us, "-", "gives-up", hold_id)
