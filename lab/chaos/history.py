"""The recorded history of a run, as JSON lines: what clients asked and were told, and what was broken when.

All times are nanoseconds of CLOCK_MONOTONIC of the one machine that all clients ran on. No line has a secret:
a hold is known by a digest of its id (`public_id`).
"""

import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal, Self

import msgspec

FORMAT = 1
"""The version of the format: another one is refused."""

Outcome = Literal["ok", "refused", "unknown"]
"""`refused` surely had no effect; `unknown` may have had it, may still have it, or never will."""


class Line(msgspec.Struct, kw_only=True, tag_field="line"):
    """A line of the history; the field `line` says which kind."""


class Header(Line, tag="header"):
    """The first line: what was run. `nodes` are URLs by id."""

    seed: int
    target: str
    nodes: dict[str, str]
    format: int = FORMAT
    version: str = ""
    started_ns: int = 0
    details: dict[str, Any] = {}


class Operation(Line, tag="operation"):
    """One request of one client, all its repetitions included, from before it was first sent.

    `return_ns` is when the client had its outcome or gave up; an effect of an `unknown` one may come later.
    `node` is the one asked last, `bound` the only one that the client ever asks, if it is so. `code` says why
    there is no `ok`. Of the `attempts`, `lost` ones had an unknown outcome.
    """

    id: int
    client: str
    workload: str
    kind: str
    name: str
    call_ns: int
    return_ns: int
    outcome: Outcome
    node: str = ""
    code: str = ""
    bound: str = ""
    attempts: int = 1
    lost: int = 0
    arguments: dict[str, Any] = {}
    result: dict[str, Any] = {}


class FaultBegin(Line, tag="fault-begin"):
    """From here on `what` is broken at `where` (nodes, links, clients)."""

    id: int
    what: str
    where: list[str]
    at_ns: int
    details: dict[str, Any] = {}


class FaultEnd(Line, tag="fault-end"):
    """The fault of this id is over, and what it hit is whole again."""

    id: int
    at_ns: int


class NodeState(Line, tag="node-state"):
    """What a node was in the end: equal revisions must have equal digests, and all nodes one revision.

    `role` is what it says of itself at that time, for people.
    """

    node: str
    revision: int
    digest: str
    at_ns: int
    role: str = ""


class Holder(msgspec.Struct, kw_only=True):
    """Who has something in the final listing."""

    name: str
    owner: str
    token: int
    permits: int = 1


class FinalHolds(Line, tag="final-holds"):
    """All that is held under `prefix` in the end, read (linearizably) between `call_ns` and `return_ns`."""

    kind: Literal["lock", "semaphore"]
    prefix: str
    call_ns: int
    return_ns: int
    holders: list[Holder]


class Witnessed(Line, tag="witnessed"):
    """What a fault has seen itself, and no cluster may do."""

    at_ns: int
    text: str


class Note(Line, tag="note"):
    """A sentence for people, such as what the lab could not do here."""

    at_ns: int
    text: str


AnyLine = Header | Operation | FaultBegin | FaultEnd | NodeState | FinalHolds | Witnessed | Note


class Fault(msgspec.Struct, kw_only=True, frozen=True):
    """A fault from its begin to its end; without an end it lasted to the end of the history."""

    id: int
    what: str
    where: list[str]
    begin_ns: int
    end_ns: int


class HistoryFailure(Exception):
    """The file has something else than a history. The message says where."""


class History:
    """A whole history in memory: the lines, sorted by kind. Operations are in order of their calls."""

    def __init__(self, lines: Iterable[AnyLine]) -> None:
        self.lines = list(lines)
        self.operations = sorted(
            (line for line in self.lines if isinstance(line, Operation)), key=lambda item: item.call_ns
        )
        self.node_states = [line for line in self.lines if isinstance(line, NodeState)]
        self.final_holds = [line for line in self.lines if isinstance(line, FinalHolds)]
        self.witnessed = [line for line in self.lines if isinstance(line, Witnessed)]
        self.notes = [line for line in self.lines if isinstance(line, Note)]

    @property
    def header(self) -> Header:
        """The first line. Raises HistoryFailure when it is missing."""
        for line in self.lines:
            if isinstance(line, Header):
                return line
        raise HistoryFailure("the history has no header")

    @property
    def begin_ns(self) -> int:
        """The first moment that the history speaks of."""
        return min(_moments(self.lines), default=0)

    @property
    def end_ns(self) -> int:
        """The last moment that the history speaks of."""
        return max(_moments(self.lines), default=0)

    @property
    def faults(self) -> list[Fault]:
        """The faults, in the order in which they began."""
        ends = {line.id: line.at_ns for line in self.lines if isinstance(line, FaultEnd)}
        last_ns = self.end_ns
        return [
            Fault(
                id=line.id,
                what=line.what,
                where=line.where,
                begin_ns=line.at_ns,
                end_ns=ends.get(line.id, last_ns),
            )
            for line in self.lines
            if isinstance(line, FaultBegin)
        ]

    def of(self, *workloads: str) -> list[Operation]:
        """Return the operations of these workloads."""
        return [item for item in self.operations if item.workload in workloads]


class HistoryWriter:
    """Appends lines to a file; each is handed to the kernel at once, so that a killed lab loses none.

    Threads of one process may share it: each line is one write. Several processes may append to one file if
    each has an `id_base` of its own.
    """

    def __init__(self, path: Path, *, id_base: int = 0) -> None:
        self.path = path
        self._file: BinaryIO = path.open("ab", buffering=0)
        self._encoder = msgspec.json.Encoder()
        self._ids = itertools.count(id_base + 1)
        self.counts: Counter[str] = Counter()
        """How many operations were written, by outcome."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def next_id(self) -> int:
        """Return an id for an operation or a fault."""
        return next(self._ids)

    def write(self, line: AnyLine) -> None:
        """Append a line. Raises OSError when the disk does not take it."""
        data = self._encoder.encode(line) + b"\n"
        if self._file.write(data) != len(data):
            raise OSError(f"{self.path} took only a part of a line")
        if isinstance(line, Operation):
            self.counts[line.outcome] += 1

    def fault_begin(self, what: str, where: Iterable[str], at_ns: int, **details: Any) -> int:
        """Append the begin of a fault; return its id for `fault_end`."""
        fault_id = self.next_id()
        self.write(FaultBegin(id=fault_id, what=what, where=list(where), at_ns=at_ns, details=details))
        return fault_id

    def fault_end(self, fault_id: int, at_ns: int) -> None:
        """Append the end of a fault."""
        self.write(FaultEnd(id=fault_id, at_ns=at_ns))

    def sync(self) -> None:
        """Return when all lines are on disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_lines(path: Path) -> Iterator[AnyLine]:
    """Yield the lines of a history. A torn last line, of a lab that was killed, is left out.

    Raises HistoryFailure for any other line that cannot be read, and for another version of the format.
    """
    decoder = msgspec.json.Decoder(AnyLine)
    *whole, torn = path.read_bytes().split(b"\n")
    del torn  # what follows the last newline: nothing, or half a line
    for number, text in enumerate(whole, 1):
        try:
            line = decoder.decode(text)
        except msgspec.DecodeError as error:
            raise HistoryFailure(f"{path}:{number}: {error}") from error
        if isinstance(line, Header) and line.format != FORMAT:
            raise HistoryFailure(f"{path}:{number}: the format is {line.format}, this program reads {FORMAT}")
        yield line


def read_history(path: Path) -> History:
    """Return the history of a file. Raises HistoryFailure, OSError."""
    return History(read_lines(path))


def public_id(secret: str) -> str:
    """Return a name for a hold or session that does not give its secret away."""
    return hashlib.sha256(secret.encode()).hexdigest()[:12]


def _moments(lines: Iterable[AnyLine]) -> Iterator[int]:
    """Yield the times in `lines`."""
    for line in lines:
        match line:
            case Operation() | FinalHolds():
                yield line.call_ns
                yield line.return_ns
            case FaultBegin() | FaultEnd() | NodeState() | Witnessed() | Note():
                yield line.at_ns
            case Header():
                pass
