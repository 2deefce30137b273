"""A cluster of three that does everything right, told by hand: what tests of checkers spoil in one place."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from lockstate.machine import LockMachine
from lockstate.words.codec import decode_entry, encode_command, encode_entry
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import Acquire
from lockstate.words.modes import Mode
from lockstate.words.results import Result
from lockstate.words.wanted import Uncommon
from tests.simulation.checks.all_checkers import Checkers, Violation
from tests.simulation.checks.logs import LogEntry
from tests.simulation.workload.history import History

NODES: Final = ("a", "b", "c")
STEP_US: Final = 10_000
"""From one fact to the next."""


class ListLog(list[LogEntry]):
    """A log in memory. The entry at index 1 is the library's own."""

    def __init__(self, entries: list[LogEntry] | None = None) -> None:
        super().__init__([(b"\x01", 1, 0)] if entries is None else entries)

    @property
    def first_index(self) -> int:
        """Return the index of the first entry."""
        return self[0][1]


class ScriptedCluster:
    """Node a leads in term 1; what is committed is promised and applied by all nodes, one after the other."""

    def __init__(self, *, digest_every: int = 4) -> None:
        self.now_us = 1_000_000
        self.history = History()
        self.checkers = Checkers(NODES, self.history, lambda: self.now_us, digest_every=digest_every)
        self.log = ListLog()
        self.term = 1
        self.machines = {node_id: LockMachine() for node_id in NODES}
        self.results: dict[int, Result] = {}
        self.wait_ends: dict[str, tuple[int, Result]] = {}
        self.last_seq = 0
        self.checkers.stored("a", 1, "a")
        self.checkers.leads("a", 1, self.log)

    @property
    def machine(self) -> LockMachine:
        """Return the leader's state."""
        return self.machines["a"]

    def pass_ms(self, milliseconds: float) -> None:
        """Let time pass, and cluster time with it."""
        self.now_us += round(milliseconds * 1000)

    def call(self, command: Command, client: str = "one", node_id: str = "a") -> int:
        """Tell of a call; return its number."""
        self.now_us += STEP_US
        return self.history.call(client, node_id, command, self.now_us)

    def entry(self, *commands: Command, node_id: str = "a") -> bytes:
        """Return the next entry, stamped now."""
        seqs = list(range(self.last_seq + 1, self.last_seq + 1 + len(commands)))
        self.last_seq += len(commands)
        encoded = [encode_command(command) for command in commands]
        return encode_entry(self.now_us // 1000, [(f"{node_id}.1", seqs, encoded)])

    def commit(self, *commands: Command, node_id: str = "a") -> int:
        """Append, promise and apply an entry on all nodes; return its revision."""
        data = self.entry(*commands, node_id=node_id)
        self.append(data)
        for each in NODES:
            self.promise(each)
        for each in NODES:
            self.apply(each, data)
        return self.machine.revision

    def append(self, data: bytes) -> int:
        """Put an entry into the log, which all share; return its index."""
        self.now_us += STEP_US
        index = self.log[-1][1] + 1
        self.log.append((b"\x00" + data, index, self.term))
        return index

    def promise(self, node_id: str) -> None:
        """Tell that a node has the whole log on its disk."""
        self.now_us += STEP_US
        self.checkers.acknowledged(node_id, self.log[-1][1], self.term)

    def apply(self, node_id: str, data: bytes) -> None:
        """Apply an entry, the newest, on a node, and tell it."""
        machine = self.machines[node_id]
        outcome = machine.apply(decode_entry(data))
        for settled in outcome.settled:
            self.wait_ends[settled.hold_id] = (outcome.revision, settled.result)
        for batch in outcome.batches:
            self.results.update(zip(batch.seqs, batch.results, strict=True))
        self.checkers.applied(node_id, self.log[-1][1], self.term, data, machine, tuple(outcome.all_events))

    def ask(self, command: Command, client: str = "one", node_id: str = "a") -> Result:
        """Call, commit and reply at once; return the result."""
        number = self.call(command, client, node_id)
        revision = self.commit(command, node_id=node_id)
        return self.reply(number, self.results[self.last_seq], revision)

    def reply(self, number: int, result: Result, revision: int) -> Result:
        """Tell of a reply."""
        self.now_us += STEP_US
        self.history.reply(number, self.now_us, result, revision)
        return result


def acquire(hold: str, name: str = "x", **fields: object) -> Acquire:
    """Return an acquire of an exclusive lock with a lease of one second."""
    rare = {field: fields.pop(field) for field in Uncommon.__struct_fields__ if field in fields}
    uncommon = Uncommon(**rare) if rare else None  # type: ignore[arg-type] # a test's own fields
    given: dict[str, object] = {"mode": Mode.EXCLUSIVE, "attempt_id": f"try-{hold}", "ttl_ms": 1000, **fields}
    given["uncommon"] = uncommon
    return Acquire(name=name, hold_id=hold, **given)  # type: ignore[arg-type] # a test's own fields


@contextmanager
def objects(checker: str) -> Iterator[None]:
    """Return a context in which `checker` has to object, and no other."""
    with pytest.raises(Violation) as caught:
        yield
    assert caught.value.checker == checker, caught.value
