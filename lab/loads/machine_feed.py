"""Loads for the state machine alone: commands of many clients as encoded entries, like those in the log.

A cycle is what one client does, one command after the other. Cycles overlap: an entry has the first commands
of some cycles and the later ones of cycles that began in entries before it, for clients wait for answers.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from lockstate.machine import LockMachine
from lockstate.words import codec
from lockstate.words.commands.entries import Command, Entry
from lockstate.words.commands.holds import Acquire
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.limits import TTL_MS_MAX
from lockstate.words.modes import Mode
from lockstate.words.outcomes import BatchOutcome
from lockstate.words.results import NumberedDone, Result

COMMANDS_PER_ENTRY: Final = 500
SESSIONS: Final = 200
ORIGIN: Final = "bench"


class Feed:
    """A machine, and what is needed to write entries for it: time, sequence numbers, ids."""

    def __init__(self) -> None:
        self.machine = LockMachine()
        self.now_ms = 1_000_000
        self._seq = 0
        self._number = 0
        self._random = random.Random(1)
        self.sessions = [SessionId(self.new_id()) for _ in range(SESSIONS)]
        self.apply_all([OpenSession(session_id, TTL_MS_MAX) for session_id in self.sessions])

    def new_id(self) -> str:
        """Return what a node would choose: 32 hexadecimal digits."""
        return f"{self._random.getrandbits(128):032x}"

    def new_hold_id(self) -> HoldId:
        """Return the id of a new hold, or of the ticket of a conversion."""
        return HoldId(self.new_id())

    def new_hold_ids(self) -> tuple[HoldId, AttemptId]:
        """Return the ids of a new hold and of the attempt to get it, as nodes choose them: the same text."""
        hold_id = self.new_hold_id()
        return hold_id, AttemptId(hold_id)

    def next_number(self) -> int:
        """Count what needs a name that was never used."""
        self._number += 1
        return self._number

    def session(self, number: int) -> SessionId:
        """Return one of the sessions."""
        return self.sessions[number % SESSIONS]

    def entry(self, commands: Sequence[Command], later_ms: int = 1) -> bytes:
        """Return the next entry, encoded. It has to be applied before the one after it."""
        self.now_ms += later_ms
        first = self._seq + 1
        self._seq += len(commands)
        encoded = [codec.encode_command(command) for command in commands]
        batch = (ORIGIN, list(range(first, self._seq + 1)), encoded)
        return codec.encode_entry(self.now_ms, [batch])

    def entries(self, commands: Iterable[Command]) -> Iterator[bytes]:
        """Yield entries of the usual size."""
        waiting: list[Command] = []
        for command in commands:
            waiting.append(command)
            if len(waiting) == COMMANDS_PER_ENTRY:
                yield self.entry(waiting)
                waiting = []
        if waiting:
            yield self.entry(waiting)

    def apply_all(self, commands: Iterable[Command]) -> None:
        """Apply commands that are not part of the measurement."""
        for entry in self.entries(commands):
            self.machine.apply(codec.decode_entry(entry))

    def hold(self, count: int, expires_at_ms: int = 0) -> Iterator[Command]:
        """Yield acquires of ever new names, each with a lease of its own: a day, or up to `expires_at_ms`."""
        for _ in range(count):
            number = self.next_number()
            # The entry that it goes to comes one millisecond after the present one.
            ttl_ms = expires_at_ms - self.now_ms - 1 if expires_at_ms else TTL_MS_MAX
            yield Acquire(
                f"orders/{number % 1000}/item-{number}",
                Mode.EXCLUSIVE,
                *self.new_hold_ids(),
                ttl_ms=ttl_ms,
                owner=OwnerName(f"worker-{number}"),
            )

    def pass_time(self, later_ms: int) -> None:
        """Let time pass, and everything end that is due then, and all old outcomes be forgotten."""
        self.now_ms += later_ms
        is_over = False
        while not is_over:
            before = self.machine.counts()["requests"]
            self.machine.apply(Entry(self.now_ms))
            next_ms = self.machine.next_deadline_ms()
            is_due = next_ms is not None and next_ms < self.now_ms
            is_over = not is_due and self.machine.counts()["requests"] == before


class Load:
    """Something that clients do again and again. `expects` are the results of one cycle, command by command.

    `pause_ms` has to pass after a round until it has left nothing behind.
    """

    per_entry = COMMANDS_PER_ENTRY
    weight = 1
    """As how many cycles one counts, and as how many commands each of its commands."""

    def __init__(
        self,
        name: str,
        expects: tuple[type, ...],
        cycle: Callable[[Feed], tuple[Command, ...]],
        pause_ms: int = 0,
    ) -> None:
        self.name = name
        self.expects = expects
        self.pause_ms = pause_ms
        self._cycle = cycle

    def begin(self, feed: Feed) -> Iterable[Command]:  # noqa: ARG002 - others need it
        """Return what has to be there before a round."""
        return ()

    def end(self) -> Iterable[Command]:
        """Return what takes it away again."""
        return ()

    def round(self, feed: Feed, commands_count: int) -> tuple[list[bytes], list[type], int]:
        """Return the entries of a round, the results that they must have, and how many cycles they are.

        An entry has the last commands of the oldest cycles first.
        """
        steps = len(self.expects)
        size = max(self.per_entry // steps, 1)
        left = cycles = max(commands_count // steps // self.weight, 1)
        under_way: deque[list[tuple[Command, ...]]] = deque(maxlen=steps)
        entries, expected = [], []
        while left or any(under_way):
            begun = [self._cycle(feed) for _ in range(min(size, left))]
            left -= len(begun)
            under_way.appendleft(begun)
            commands: list[Command] = []
            for step in reversed(range(len(under_way))):
                commands += [cycle[step] for cycle in under_way[step]]
                expected += [self.expects[step]] * len(under_way[step])
            if commands:
                entries.append(feed.entry(commands))
        return entries, expected, cycles * self.weight


def check_results(name: str, expected: Sequence[type], batches: Iterable[BatchOutcome]) -> None:
    """Raise if a load did something else than it is for: its figures would mean nothing."""
    found: list[Result] = []
    for result in [result for batch in batches for result in batch.results]:
        found += result.results if isinstance(result, NumberedDone) else [result]
    if len(found) != len(expected):
        raise RuntimeError(f"{name}: {len(found)} results of {len(expected)} commands")
    for result, kind in zip(found, expected, strict=True):
        if type(result) is not kind:
            raise RuntimeError(f"{name}: a command came to {result}, and not to {kind.__name__}")
