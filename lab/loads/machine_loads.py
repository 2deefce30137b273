"""What clients can do to the state machine, one load for each kind of command. How it is fed is elsewhere."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from lab.loads.machine_feed import Feed, Load
from lockstate.words.cell_operations import CellCompare, CellField, GetOperation, PutOperation, Relation
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.commands.entries import Cancel, Command, OfSomebody, OnBehalf, Tick
from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    Acquisition,
    Campaign,
    Convert,
    Release,
    ReleaseByValue,
    Renew,
)
from lockstate.words.commands.primitives import AdvanceFence, TakeRate
from lockstate.words.commands.sessions import CloseSession, KeepAlive, OpenSession
from lockstate.words.commands.streams import Numbered, NumberedCommand, ResumeStream
from lockstate.words.ids import NO_SESSION, SessionId
from lockstate.words.kinds import Algorithm
from lockstate.words.limits import LOCKS_COUNT_MAX, REQUEST_AGE_MS, TTL_MS_MAX, WAIT_MS_MAX
from lockstate.words.modes import Mode, Scope
from lockstate.words.refusals import Refused
from lockstate.words.results import (
    CellWritten,
    Done,
    FenceAdvanced,
    Granted,
    Queued,
    RateTaken,
    Released,
    Renewed,
    SessionKept,
    Transacted,
)
from lockstate.words.wanted import Uncommon, Wanted

FLAT_SESSION: Final = "exclusive, in a session"
FLAT_LEASE: Final = "exclusive, own lease"
"""The loads that have to meet bars."""
STREAM: Final = "exclusive, on a stream"
STREAM_OF_PRINCIPAL: Final = "exclusive, on a stream, of a principal"
DEEP_PARTS: Final = 30
DEEP_CLIENTS: Final = 16
"""Parts of each name of the heaviest request, and how many clients take turns with such."""
DEEP: Final = f"{LOCKS_COUNT_MAX} deep locks at once, each"
CELLS: Final = "cell, put and get"
TRANSACTION: Final = "cell, put after two compares"
"""The loads of cells. A get is a transaction that only reads, in the log as the others are."""
CELLS_COUNT: Final = 1000
"""Cells that are written again and again."""
SHARERS: Final = 10
"""Holders of one shared lock, and of one semaphore."""


class TickLoad(Load):
    """Time that passes while nobody asks for anything: one command in each entry."""

    per_entry = 1

    def __init__(self) -> None:
        super().__init__("tick, an entry for each", (Done,), lambda _: (Tick(),))


class HeldLoad(Load):
    """Work on holds that exist all the time, each with a lease of its own."""

    def __init__(
        self, name: str, expects: type, command: Callable[[Feed, Acquire], Command], held_count: int = 1000
    ) -> None:
        super().__init__(name, (expects,), lambda feed: (command(feed, self._next()),))
        self._held: deque[Acquire] = deque()
        self._held_count = held_count

    def _next(self) -> Acquire:
        self._held.rotate(-1)
        return self._held[0]

    def begin(self, feed: Feed) -> Iterable[Command]:
        """Acquire the holds."""
        self._held.extend(
            _acquire(feed, f"held-{number}", ttl_ms=TTL_MS_MAX) for number in range(self._held_count)
        )
        return self._held

    def end(self) -> Iterable[Command]:
        """Release them."""
        released = [Release(acquire.hold_id) for acquire in self._held]
        self._held.clear()
        return released


class CellLoad(Load):
    """Work on cells that exist all the time."""

    def begin(self, feed: Feed) -> Iterable[Command]:  # noqa: ARG002 - others need it
        """Write them."""
        return [PutCell(_key(number), b"v") for number in range(CELLS_COUNT)]

    def end(self) -> Iterable[Command]:
        """Delete them."""
        return [DeleteCells(b"app/", is_prefix=True)]


class FrameLoad(Load):
    """Locks of one client, the same again and again, in frames of a stream.

    A frame says that the one before it was answered, and releases what that acquired.
    """

    def __init__(self, principal: str = "") -> None:
        """With a `principal` that asks, as where nodes have tokens."""
        super().__init__(STREAM_OF_PRINCIPAL if principal else STREAM, (Granted, Released), lambda _: ())
        self._principal = principal
        self._session_id = NO_SESSION
        self._first = 1

    def begin(self, feed: Feed) -> Iterable[Command]:
        """Open a session with a stream."""
        self._session_id, self._first = SessionId(feed.new_id()), 1
        begun = (OpenSession(self._session_id, TTL_MS_MAX), ResumeStream(self._session_id))
        return [self._asked(command) for command in begun]

    def end(self) -> Iterable[Command]:
        """Close it."""
        return [self._asked(CloseSession(self._session_id))]

    def _asked(self, command: OfSomebody) -> Command:
        return OnBehalf(self._principal, command) if self._principal else command

    def round(self, feed: Feed, commands_count: int) -> tuple[list[bytes], list[type], int]:
        """Return the entries of a round, each with one frame, their results, and how many cycles they are."""
        left = cycles = max(commands_count // 2, 1)
        held: list[Acquire] = []
        entries: list[bytes] = []
        expected: list[type] = []
        while left or held:
            releases = [Release(acquire.hold_id) for acquire in held]
            held = [
                Acquire(f"jobs/{number}", Mode.EXCLUSIVE, *feed.new_hold_ids(), session_id=self._session_id)
                for number in range(min(self.per_entry // 2, left))
            ]
            left -= len(held)
            entries.append(feed.entry([self._frame((*releases, *held))]))
            expected += [Released] * len(releases) + [Granted] * len(held)
        return entries, expected, cycles

    def _frame(self, commands: tuple[NumberedCommand, ...]) -> Command:
        first, self._first = self._first, self._first + len(commands)
        acked = ((1, first - 1),) if first > 1 else ()
        return self._asked(Numbered(len(commands), self._session_id, 1, first, acked, commands))


def _key(number: int) -> bytes:
    return b"app/%d" % (number % CELLS_COUNT)


def _put_and_get(feed: Feed) -> tuple[Command, ...]:
    number = feed.next_number()
    key = _key(number)
    return PutCell(key, b"v%d" % number), TransactCells((), (GetOperation(key),))


def _put_after_compares(feed: Feed) -> tuple[Command, ...]:
    number = feed.next_number()
    key = _key(number)
    compares = (
        CellCompare(key, CellField.VERSION, Relation.GREATER),
        CellCompare(_key(number + 1), CellField.VALUE, Relation.NOT_EQUAL, value=b""),
    )
    return (TransactCells(compares, (PutOperation(key, b"v%d" % number),)),)


class QueueLoad(Load):
    """A name that many want all the time: the holder leaves, the next one gets it, a new one comes."""

    def __init__(self, length: int = 100) -> None:
        super().__init__(f"handover, {length} wait for one name", (Released, Queued), self._hand_over)
        self._length = length
        self._queue: deque[Acquire] = deque()

    def _newcomer(self, feed: Feed) -> Acquire:
        self._queue.append(_acquire(feed, "hot", wait_ms=WAIT_MS_MAX))
        return self._queue[-1]

    def _hand_over(self, feed: Feed) -> tuple[Command, ...]:
        return Release(self._queue.popleft().hold_id), self._newcomer(feed)

    def begin(self, feed: Feed) -> Iterable[Command]:
        """Let them all come."""
        return [self._newcomer(feed) for _ in range(self._length + 1)]

    def end(self) -> Iterable[Command]:
        """End all of them, the last ones first, so that nobody else gets the lock."""
        gone = [Cancel(acquire.hold_id, acquire.attempt_id) for acquire in reversed(self._queue)]
        self._queue.clear()
        return gone

    def round(self, feed: Feed, commands_count: int) -> tuple[list[bytes], list[type], int]:
        """Return the entries of a round. The release and the newcomer share one: they are two clients."""
        cycles = max(commands_count // 2, 1)
        commands = [command for _ in range(cycles) for command in self._hand_over(feed)]
        return list(feed.entries(commands)), [Released, Queued] * cycles, cycles


class DeepLoad(Load):
    """Many locks at once whose names have many parts, counted lock by lock: the heaviest of all requests."""

    per_entry = 2
    """An entry of a cluster has room for one such acquire, and a release is as heavy."""
    weight = LOCKS_COUNT_MAX

    def __init__(self) -> None:
        super().__init__(DEEP, (Granted, Released), self._deep_pair)

    def _deep_pair(self, feed: Feed) -> tuple[Command, ...]:
        name, below = f"deep/{feed.next_number() % DEEP_CLIENTS}", "/p" * (DEEP_PARTS - 3)
        locks = tuple(Wanted(f"{name}/{lock}{below}") for lock in range(LOCKS_COUNT_MAX))
        return _pair(_acquire(feed, "", ttl_ms=10_000, locks=locks))


def _acquire(feed: Feed, name: str, **options: Any) -> Acquire:
    """Return an acquire for one of the sessions, unless it has a lease of its own."""
    if "ttl_ms" not in options:
        options["session_id"] = feed.session(feed.next_number())
    mode = options.pop("mode", Mode.EXCLUSIVE)
    return Acquire(name, mode, *feed.new_hold_ids(), **options)


def _pair(acquire: Command, request_id: str = "") -> tuple[Command, ...]:
    """Return an acquire of any kind with its release."""
    assert isinstance(acquire, Acquisition), "it has a hold"
    return acquire, Release(acquire.hold_id, request_id)


def _session_pair(feed: Feed) -> tuple[Command, ...]:
    return _pair(_acquire(feed, f"job-{feed.next_number()}"))


def _lease_pair(feed: Feed) -> tuple[Command, ...]:
    return _pair(_acquire(feed, f"job-{feed.next_number()}", ttl_ms=10_000))


def _value_pair(feed: Feed) -> tuple[Command, ...]:
    """As clients of Redis do it: with a value that nobody else has, by which the lock is released."""
    name, value = f"job-{feed.next_number()}", feed.new_id()
    acquire = _acquire(feed, name, ttl_ms=10_000, uncommon=Uncommon(value=value))
    return acquire, ReleaseByValue(name, value)


def _path_pair(feed: Feed) -> tuple[Command, ...]:
    return _pair(_acquire(feed, f"db/row-{feed.next_number()}"))


def _shared_pair(feed: Feed) -> tuple[Command, ...]:
    return _pair(_acquire(feed, f"page-{feed.next_number() // SHARERS}", mode=Mode.SHARED))


def _request_pair(feed: Feed) -> tuple[Command, ...]:
    acquire = _acquire(feed, f"job-{feed.next_number()}", request_id=feed.new_id())
    return _pair(acquire, request_id=feed.new_id())


def _several_pair(feed: Feed) -> tuple[Command, ...]:
    number = feed.next_number()
    return _pair(_acquire(feed, "", locks=tuple(Wanted(f"job-{number}-{part}") for part in range(3))))


def _subtree_pair(feed: Feed) -> tuple[Command, ...]:
    return _pair(_acquire(feed, f"tree/branch-{feed.next_number()}", scope=Scope.SUBTREE))


def _handover(feed: Feed) -> tuple[Command, ...]:
    name = f"job-{feed.next_number()}"
    first, second = _acquire(feed, name), _acquire(feed, name, wait_ms=60_000)
    return first, second, Release(first.hold_id), Release(second.hold_id)


def _conversions(feed: Feed) -> tuple[Command, ...]:
    acquire = _acquire(feed, f"job-{feed.next_number()}")
    down, up = (
        Convert(acquire.hold_id, mode, *feed.new_hold_ids()) for mode in (Mode.SHARED, Mode.EXCLUSIVE)
    )
    return acquire, down, up, Release(acquire.hold_id)


def _permits_pair(feed: Feed) -> tuple[Command, ...]:
    number = feed.next_number()
    session_id = feed.session(number)
    name = f"pool-{number // SHARERS}"
    return _pair(AcquirePermits(name, SHARERS, 1, *feed.new_hold_ids(), session_id=session_id))


def _election_pair(feed: Feed) -> tuple[Command, ...]:
    number = feed.next_number()
    return _pair(Campaign(f"boss-{number}", feed.session(number), "10.0.0.1:80", *feed.new_hold_ids()))


def _rate(algorithm: Algorithm) -> Load:
    """Return a load on a thousand rate limits, of which half the requests are more than is allowed."""

    def take(feed: Feed) -> tuple[Command, ...]:
        return (TakeRate(f"user-{feed.next_number() % 1000}", 10, 1000, algorithm),)

    return Load(f"rate limit, {algorithm}", (RateTaken,), take, pause_ms=5_000)


def _fence(feed: Feed) -> tuple[Command, ...]:
    # Any other token than 0 would have to be granted first.
    return (AdvanceFence(f"disk-{feed.next_number() % 1000}", 0),)


def _keep_alive(feed: Feed) -> tuple[Command, ...]:
    return (KeepAlive(feed.session(feed.next_number())),)


def all_loads() -> list[Load]:
    """Return every load, each fresh."""
    pair = (Granted, Released)
    return [
        Load(FLAT_SESSION, pair, _session_pair),
        Load(FLAT_LEASE, pair, _lease_pair),
        Load("exclusive, own lease, released by its value", pair, _value_pair),
        Load("exclusive, name db/x", pair, _path_pair),
        FrameLoad(),
        FrameLoad("ci"),
        Load("shared, 10 at a time", pair, _shared_pair),
        Load("exclusive, with request_id", pair, _request_pair, pause_ms=REQUEST_AGE_MS + 1),
        Load("three locks at once", pair, _several_pair),
        DeepLoad(),
        Load("subtree, name tree/x", pair, _subtree_pair),
        Load("handover, one waits", (Granted, Queued, Released, Released), _handover),
        QueueLoad(),
        Load("convert down and up", (Granted, Granted, Granted, Released), _conversions),
        Load("semaphore, 10 permits", (Granted, Released), _permits_pair),
        Load("election", pair, _election_pair),
        HeldLoad("refused, lock held", Refused, lambda feed, held: _acquire(feed, held.name)),
        HeldLoad("renew", Renewed, lambda _, held: Renew(held.hold_id)),
        *map(_rate, Algorithm),
        Load("fence", (FenceAdvanced,), _fence),
        CellLoad(CELLS, (CellWritten, Transacted), _put_and_get),
        CellLoad(TRANSACTION, (Transacted,), _put_after_compares),
        Load("keepalive", (SessionKept,), _keep_alive),
        TickLoad(),
    ]
