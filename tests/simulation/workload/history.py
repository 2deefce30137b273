"""What clients asked and were told, told by the clients themselves as it happens.

`now_us` is true simulated time, which no client and no node knows. Facts are told in the order in which they
happen. The history keeps only what has no outcome yet and hands every fact on to its watchers.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

import msgspec

from lockstate.words.commands.admin import SetNamespace
from lockstate.words.commands.entries import Command
from lockstate.words.ids import HoldId, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Refused
from lockstate.words.results import Granted, LockTaken, NumberedDone, Result, Transacted
from lockstate.words.settings import NamespaceSettings
from lockstate.words.views import CellView, ElectionView, FenceView, LockView, SemaphoreView, SessionView
from lockstate.words.wanted import Wanted
from tests.simulation.workload.owned import Owned

NOT_APPLIED: Final = "not-applied"
UNKNOWN: Final = "unknown"
FailureOutcome = Literal["not-applied", "unknown"]


class Readable(Protocol):
    """A state that can be read: the machine of a node, or the model."""

    def lock(self, name: str) -> LockView:
        """Return one lock."""

    def locks(self, prefix: str, after: str, limit: int) -> tuple[list[LockView], str | None]:
        """Return a page of active locks."""

    def session(self, session_id: SessionId) -> SessionView | None:
        """Return one session."""

    def semaphore(self, name: str) -> SemaphoreView:
        """Return one semaphore."""

    def election(self, name: str) -> ElectionView:
        """Return one election."""

    def check_fence(self, name: str, token: int) -> FenceView:
        """Return whether a token is a present holder's."""

    def cell(self, key: bytes) -> CellView | None:
        """Return one cell."""

    def cells(self, prefix: bytes, after: bytes, limit: int) -> tuple[list[CellView], bytes | None]:
        """Return a page of cells."""


_Page = tuple[list[LockView], str | None]
_CellPage = tuple[list[CellView], bytes | None]
View = CellView | _CellPage | LockView | _Page | SessionView | SemaphoreView | ElectionView | FenceView | None


class ReadLock(msgspec.Struct, frozen=True):
    """Look at one lock."""

    name: str

    def ask(self, state: Readable) -> View:
        """Return what `state` answers."""
        return state.lock(self.name)


class ReadLocks(msgspec.Struct, frozen=True):
    """Look at a page of locks."""

    prefix: str = ""
    after: str = ""
    limit: int = 100

    def ask(self, state: Readable) -> View:
        """Return what `state` answers."""
        return state.locks(self.prefix, self.after, self.limit)


class ReadSession(msgspec.Struct, frozen=True):
    """Look at one session."""

    session_id: SessionId

    def ask(self, state: Readable) -> View:
        """Return what `state` answers."""
        return state.session(self.session_id)


class ReadSemaphore(msgspec.Struct, frozen=True):
    """Look at one semaphore."""

    name: str

    def ask(self, state: Readable) -> View:
        """Return what `state` answers."""
        return state.semaphore(self.name)


class ReadElection(msgspec.Struct, frozen=True):
    """Look at one election."""

    name: str

    def ask(self, state: Readable) -> View:
        """Return what `state` answers."""
        return state.election(self.name)


class CheckToken(msgspec.Struct, frozen=True):
    """Ask whether a token is a present holder's."""

    name: str
    token: int

    def ask(self, state: Readable) -> View:
        """Return what `state` answers."""
        return state.check_fence(self.name, self.token)


class ReadCell(msgspec.Struct, frozen=True):
    """Look at one cell."""

    key: bytes

    def ask(self, state: Readable) -> View:
        """Return what `state` answers."""
        return state.cell(self.key)


class ReadCells(msgspec.Struct, frozen=True):
    """Look at a page of cells."""

    prefix: bytes
    after: bytes = b""
    limit: int = 100

    def ask(self, state: Readable) -> View:
        """Return what `state` answers."""
        return state.cells(self.prefix, self.after, self.limit)


Query = ReadCell | ReadCells | ReadLock | ReadLocks | ReadSession | ReadSemaphore | ReadElection | CheckToken


@dataclass(slots=True, frozen=True, kw_only=True)
class Call:
    """One command given to one node. `known_*` is the newest that any client had been told by then."""

    number: int
    client: str
    node_id: str
    command: Command
    called_us: int
    known_revision: int
    known_token: int
    principal: str = ""


@dataclass(slots=True, frozen=True, kw_only=True)
class Read:
    """One linearizable read given to one node."""

    number: int
    client: str
    node_id: str
    query: Query
    called_us: int
    known_revision: int


@dataclass(slots=True, frozen=True, kw_only=True)
class Belief:
    """From `from_us` until `until_us` the client believes that it holds all of `locks`. True times.

    Told again when prolonged or changed. A semaphore or election is one lock, asked for at `since_us`. Of
    several kinds, `beside` are the permits of each semaphore.
    """

    client: str
    locks: tuple[Wanted, ...]
    hold_id: HoldId
    token: int
    from_us: int
    until_us: int
    kind: HoldKind = HoldKind.LOCK
    permits: int = 0
    since_us: int = 0
    beside: tuple[tuple[str, int], ...] = ()

    @property
    def permits_of(self) -> dict[str, int]:
        """Return how many permits it has of each semaphore."""
        return {self.locks[0].name: self.permits} if self.kind is HoldKind.SEMAPHORE else dict(self.beside)


class Watcher(Protocol):
    """A listener that is told of every fact."""

    def called(self, call: Call) -> None:
        """Record a command, before its node has it."""

    def replied(self, call: Call, result: Result, revision: int, now_us: int) -> None:
        """Record a result."""

    def ended(self, call: Call, number: int, result: Result, revision: int, now_us: int) -> None:
        """Record the end of a wait that a stream was told of."""

    def failed(self, call: Call, outcome: FailureOutcome, now_us: int) -> None:
        """Record an error, or of a client that gave up."""

    def read_called(self, read: Read) -> None:
        """Record a read, before its node has it."""

    def read_replied(self, read: Read, value: View, revision: int) -> None:
        """Record what a read saw."""

    def read_ended(self, read: Read) -> None:
        """Record a read without an answer."""

    def believes(self, belief: Belief) -> None:
        """Record a belief, new or prolonged."""

    def stopped_believing(self, hold_id: HoldId, now_us: int) -> None:
        """Record that a client gives a hold up, or knows that it lost it."""


@dataclass
class History:
    """The open calls and reads, and what has become of the others, counted."""

    watchers: list[Watcher] = field(default_factory=list)
    calls: dict[int, Call] = field(default_factory=dict)
    reads: dict[int, Read] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    """By kind of result, public code of the refusal or failure, "gone" and "read"."""
    known_revision: int = 0
    known_token: int = 0
    owned: Owned = field(default_factory=Owned)
    """What belongs to whom."""
    namespaces: dict[str, NamespaceSettings] = field(default_factory=dict)
    """What was last heard of each namespace that there is."""
    _numbers: int = 0

    # -- commands -------------------------------------------------------------------------------------------

    def call(self, client: str, node_id: str, command: Command, now_us: int, principal: str = "") -> int:
        """Tell of a command that `client` is about to give to `node_id`; return its number.

        Each call is given to its node once. A repetition is another call, on whatever node. `principal` is
        who the client is, "" if the nodes do not know.
        """
        self._numbers += 1
        call = Call(
            number=self._numbers,
            client=client,
            node_id=node_id,
            command=command,
            called_us=now_us,
            known_revision=self.known_revision,
            known_token=self.known_token,
            principal=principal,
        )
        self.calls[call.number] = call
        for watcher in self.watchers:
            watcher.called(call)
        return call.number

    def reply(self, number: int, now_us: int, result: Result, revision: int) -> None:
        """Tell of the answer to a call: its result and the revision at which it came about."""
        call = self.calls.pop(number)
        self.outcomes[_label(result)] += 1
        for watcher in self.watchers:
            watcher.replied(call, result, revision, now_us)
        if isinstance(call.command, SetNamespace) and not isinstance(result, Refused):
            self.namespaces.pop(call.command.prefix, None)
            if call.command.settings is not None:
                self.namespaces[call.command.prefix] = call.command.settings
        self._learn(result, revision)

    def ended(self, call: Call, number: int, result: Result, revision: int, now_us: int) -> None:
        """Tell of the end of the wait of a number, which a frame was told to be queued."""
        self.outcomes["wait-ended"] += 1
        for watcher in self.watchers:
            watcher.ended(call, number, result, revision, now_us)
        self._learn(result, revision)

    def _learn(self, result: Result, revision: int) -> None:
        self.known_revision = max(self.known_revision, revision)
        for each in result.results if isinstance(result, NumberedDone) else (result,):
            if isinstance(each, Granted):
                self.known_token = max(self.known_token, each.token)
            for part in each.results if isinstance(each, Transacted) else ():
                if isinstance(part, LockTaken):
                    self.known_token = max(self.known_token, part.token)

    def failed(self, number: int, now_us: int, code: str, outcome: FailureOutcome) -> None:
        """Tell that the node gave an error with this public code and outcome."""
        self._end(number, now_us, code, outcome)

    def gone(self, number: int, now_us: int) -> None:
        """Tell that the client does not wait any more: it left, gave up, or its node is dead."""
        self._end(number, now_us, "gone", UNKNOWN)

    def _end(self, number: int, now_us: int, code: str, outcome: FailureOutcome) -> None:
        call = self.calls.pop(number)
        self.outcomes[code] += 1
        for watcher in self.watchers:
            watcher.failed(call, outcome, now_us)

    # -- reads ----------------------------------------------------------------------------------------------

    def call_read(self, client: str, node_id: str, query: Query, now_us: int) -> int:
        """Tell of a linearizable read; the node is to be asked for `query.ask` and the revision with it."""
        self._numbers += 1
        read = Read(
            number=self._numbers,
            client=client,
            node_id=node_id,
            query=query,
            called_us=now_us,
            known_revision=self.known_revision,
        )
        self.reads[read.number] = read
        for watcher in self.watchers:
            watcher.read_called(read)
        return read.number

    def reply_read(self, number: int, now_us: int, value: View, revision: int) -> None:  # noqa: ARG002 - as the others
        """Tell what a read saw, and at which revision."""
        read = self.reads.pop(number)
        self.outcomes["read"] += 1
        for watcher in self.watchers:
            watcher.read_replied(read, value, revision)
        self.known_revision = max(self.known_revision, revision)

    def end_read(self, number: int, now_us: int, code: str = "gone") -> None:  # noqa: ARG002 - as the others
        """Tell that a read has no answer: an error, or a client that left."""
        read = self.reads.pop(number)
        self.outcomes[code] += 1
        for watcher in self.watchers:
            watcher.read_ended(read)

    # -- beliefs --------------------------------------------------------------------------------------------

    def believes(self, belief: Belief) -> None:
        """Tell what a client believes from now on."""
        for watcher in self.watchers:
            watcher.believes(belief)

    def stopped_believing(self, hold_id: HoldId, now_us: int) -> None:
        """Tell that the client stops at once: it is about to release it, or was told that it is lost."""
        for watcher in self.watchers:
            watcher.stopped_believing(hold_id, now_us)


def _label(result: Result) -> str:
    return result.reason.value if isinstance(result, Refused) else type(result).__name__.lower()
