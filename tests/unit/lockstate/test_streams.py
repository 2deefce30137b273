"""Streams: what a session has numbered is applied once, in order, and is remembered until it was seen."""

import msgspec
import pytest

from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables import budget
from lockstate.tables.ledger import NO_ROOM
from lockstate.words import limits
from lockstate.words.cell_operations import GetOperation, PutOperation
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.commands.entries import Batch, Entry
from lockstate.words.commands.holds import Acquire, AcquirePermits, Release, Renew
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.commands.sessions import CloseSession
from lockstate.words.commands.streams import EndWait, Numbered, NumberedCommand, ResumeStream
from lockstate.words.ids import NO_SESSION, AttemptId, HoldId, SessionId
from lockstate.words.kinds import Algorithm
from lockstate.words.modes import Mode
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import (
    CellWritten,
    Done,
    FrameRefused,
    Granted,
    NumberedDone,
    Queued,
    RateTaken,
    Released,
    Renewed,
    Result,
    StreamFault,
    StreamResumed,
    Transacted,
)
from lockstate.words.views import StreamView
from lockstate.words.wanted import Wanted
from tests.unit.lockstate.machine_driver import MachineDriver, expect, reason

S1 = SessionId("s1")


class StreamDriver(MachineDriver):
    """A machine of the newest rules, with a session that numbers its commands on connection 1."""

    def __init__(self) -> None:
        super().__init__()
        self.open("s1", ttl_ms=60_000)
        self.run(ResumeStream(S1))

    def send(
        self, first: int, *commands: NumberedCommand, epoch: int = 1, acked: tuple[tuple[int, int], ...] = ()
    ) -> Result:
        """Send a frame in an entry of its own."""
        return self.run(Numbered(len(commands), S1, epoch, first, acked, commands))

    def done(
        self, first: int, *commands: NumberedCommand, acked: tuple[tuple[int, int], ...] = ()
    ) -> tuple[Result, ...]:
        """Send a frame that must be applied as a whole; return its results."""
        outcome = expect(NumberedDone, self.send(first, *commands, acked=acked))
        assert outcome.refused is None
        return outcome.results

    def unread(self, first: int, *commands: NumberedCommand, acked: tuple[tuple[int, int], ...] = ()) -> None:
        """Send a frame, and look at nothing that it changes."""
        self.seq += 1
        frame = Numbered(len(commands), S1, 1, first, acked, commands)
        self.machine.apply(Entry(0, (Batch("n1", (self.seq,), (frame,)),)))

    @property
    def view(self) -> StreamView:
        """What is known of the stream."""
        view = self.machine.stream(S1)
        assert view is not None
        return view


@pytest.fixture
def driver() -> StreamDriver:
    """Return a machine with a stream."""
    return StreamDriver()


def lock(name: str, hold_id: str, wait_ms: int = 0) -> Acquire:
    """Ask for a lock for the session."""
    return Acquire(name, Mode.EXCLUSIVE, HoldId(hold_id), AttemptId(hold_id), S1, wait_ms=wait_ms)


def test_a_frame_is_applied_in_order_and_once(driver: StreamDriver) -> None:
    """Results come in order of the numbers; the same frame again has no effect, and tells of what is over."""
    frame = (lock("a", "h1"), Renew(HoldId("h1")), Release(HoldId("h1")), lock("a", "h2"))
    first = driver.done(1, *frame)
    assert [type(result) for result in first] == [Granted, Renewed, Released, Granted]
    again = driver.done(1, *frame)
    assert [type(result) for result in again] == [Granted, Refused, Released, Granted]
    assert reason(again[1]) is Reason.LEASE_EXPIRED
    assert expect(Granted, again[0]).expires_in_ms == 0, "that hold has ended"
    assert [expect(Granted, result).token for result in (again[0], again[3])] == [1, 2]
    assert driver.view == StreamView(1, 4, 4)


def test_a_frame_may_begin_with_numbers_that_came_before(driver: StreamDriver) -> None:
    """Who does not know what was applied sends everything that was not answered, and more."""
    driver.done(1, lock("a", "h1"))
    results = driver.done(1, lock("a", "hx"), lock("b", "h2"))
    assert [expect(Granted, result).hold_id for result in results] == ["h1", "h2"]


@pytest.mark.parametrize(
    "frame",
    [
        Numbered(1, S1, 1, 1, (), ()),
        Numbered(0, S1, 1, 0, (), ()),
        Numbered(0, S1, 1, 1, ((0, 1),), ()),
        Numbered(0, S1, 1, 1, ((2, 1),), ()),
        Numbered(0, S1, 1, 1, ((1, 1), (1, 1)), ()),
        Numbered(0, S1, 1, 1, ((1, 3), (3, 4)), ()),
        Numbered(0, S1, 1, 1, ((3, 4), (1, 2)), ()),
        Numbered(0, S1, 1, 1, tuple((n, n) for n in range(1, limits.STREAM_RANGES_MAX + 2)), ()),
    ],
)
def test_a_frame_that_contradicts_itself_is_refused(driver: StreamDriver, frame: Numbered) -> None:
    """No correct node lets it through; it has no effect."""
    assert driver.run(frame) == FrameRefused(StreamFault.MALFORMED)


def test_a_session_without_a_stream_has_to_begin_one(driver: StreamDriver) -> None:
    """A frame without a connection that was begun has no effect."""
    driver.open("s2", ttl_ms=60_000)
    frame = Numbered(0, SessionId("s2"), 0, 1, (), ())
    assert driver.run(frame) == FrameRefused(StreamFault.REPLACED)


def test_a_stream_ends_with_its_session(driver: StreamDriver) -> None:
    """Nothing is left of it, and frames that come later are told so."""
    driver.done(1, lock("a", "h1"), lock("b", "h2"))
    driver.run(CloseSession(S1))
    assert driver.send(3, lock("a", "h3")) == FrameRefused(StreamFault.GONE)
    assert reason(driver.run(ResumeStream(S1))) is Reason.SESSION_EXPIRED
    assert driver.machine.counts()["streams"] == 0


def test_a_session_without_a_stream_ends_beside_one(driver: StreamDriver) -> None:
    """What the other one has numbered is kept."""
    driver.done(1, lock("a", "h1"))
    driver.open("s2")
    driver.close("s2")
    assert driver.view == StreamView(1, 1, 1)


@pytest.mark.parametrize("ends", ["closed", "expired", "without it"])
def test_the_waits_of_a_stream_end_with_its_session(driver: StreamDriver, ends: str) -> None:
    """Also those for another session, or with a lease of their own: nobody would hear of the grant."""
    driver.open("s2", ttl_ms=200_000)
    driver.acquire("a", ttl_ms=200_000)
    for_another = msgspec.structs.replace(lock("a", "w1", wait_ms=100_000), session_id=SessionId("s2"))
    own_lease = msgspec.structs.replace(
        lock("a", "w2", wait_ms=100_000), session_id=NO_SESSION, ttl_ms=100_000
    )
    driver.done(1, for_another, own_lease, lock("a", "w3", wait_ms=100_000))
    if ends == "closed":
        driver.run(CloseSession(S1))
    elif ends == "expired":
        driver.pass_to(60_001)
    else:
        driver.done(4, EndWait(1), EndWait(2))
        driver.run(CloseSession(S1))
    assert not driver.machine.state.tickets
    if ends != "without it":
        refused = [driver.refused(hold_id).reason for hold_id in ("w1", "w2", "w3")]
        assert refused == [Reason.SESSION_EXPIRED] * 3
    driver.run(Release(HoldId("h1")))
    assert driver.machine.lock("a").state == "free"


def test_one_entry_ends_only_so_many_of_them(driver: StreamDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream may have numbered a thousand waits of thousands of names; the others end with their time."""
    driver.open("s2", ttl_ms=200_000)
    driver.acquire("a", ttl_ms=200_000)
    waits = [
        msgspec.structs.replace(lock("a", hold_id, wait_ms=10_000), session_id=SessionId("s2"))
        for hold_id in ("w1", "w2")
    ]
    driver.done(1, *waits)
    monkeypatch.setattr(limits, "EXPIRIES_PER_ENTRY_MAX", 1)
    driver.run(CloseSession(S1))
    assert list(driver.machine.state.tickets) == ["w2"]
    driver.pass_to(10_001)
    assert not driver.machine.state.tickets


def test_a_frame_keeps_its_session_alive(driver: StreamDriver) -> None:
    """Frames count as keepalives, also empty ones."""
    driver.run(Numbered(0, S1, 1, 1, (), ()), at_ms=50_000)
    driver.pass_to(100_000)
    assert driver.machine.session(S1) is not None


def test_a_wait_is_settled_under_its_number(driver: StreamDriver) -> None:
    """Who comes back later finds what became of the wait; what was queued moves to nobody's process."""
    driver.acquire("a", ttl_ms=100_000)
    (queued,) = driver.done(1, lock("a", "w1", wait_ms=10_000))
    assert isinstance(queued, Queued)
    assert driver.machine.waiting_origins() == [], "no node process answers for it"
    assert isinstance(driver.done(1, lock("a", "w2", wait_ms=10_000))[0], Queued)
    driver.run(Release(HoldId("h1")))
    assert driver.served() == ["w1"]
    assert expect(Granted, driver.done(1, lock("a", "w3", wait_ms=10_000))[0]).hold_id == "w1"


def test_a_number_that_waits_cannot_be_acknowledged(driver: StreamDriver) -> None:
    """Its outcome is yet to come: to forget it would lose it."""
    driver.acquire("a", ttl_ms=100_000)
    driver.done(1, lock("a", "w1", wait_ms=10_000), lock("b", "h2"))
    driver.done(3, acked=((1, 2),))
    assert driver.view.kept_count == 1
    driver.run(Release(HoldId("h1")))
    driver.done(3, acked=((1, limits.TOKEN_MAX),))
    assert driver.view.kept_count == 0


def test_acknowledging_forgets_what_was_seen_and_nothing_else(driver: StreamDriver) -> None:
    """Whichever ranges say it: few numbers of many, most of them, or more than there are."""
    driver.acquire("a", ttl_ms=100_000)
    driver.done(
        1, lock("a", "w1", wait_ms=10_000), *(lock(f"b{number}", f"h{number}") for number in range(2, 9))
    )
    driver.done(9, acked=((1, 2), (5, 5)))
    assert kept_numbers(driver) == [1, 3, 4, 6, 7, 8]
    driver.done(9, acked=((2, 7),))
    assert kept_numbers(driver) == [1, 8]
    driver.done(9, acked=((1, 8),))
    assert kept_numbers(driver) == [1], "a wait is not over because its place was told"
    driver.run(Release(HoldId("h1")))
    driver.done(9, acked=((1, 1),))
    assert kept_numbers(driver) == []
    assert driver.machine.is_sound


def test_acknowledging_stays_within_its_ranges(driver: StreamDriver) -> None:
    """Also if few outcomes are kept, with long gaps between them."""
    driver.done(1, *(lock(f"b{number}", f"h{number}") for number in range(1, 61)))
    driver.done(61, acked=((2, 29), (31, 59)))
    assert kept_numbers(driver) == [1, 30, 60]
    driver.done(61, acked=((20, 40),))
    assert kept_numbers(driver) == [1, 60]
    driver.done(61, acked=((2, 59), (61, 90)))
    assert kept_numbers(driver) == [1, 60]


@pytest.mark.parametrize(
    ("acked", "left"),
    [
        (((1, 2),), [3, 4, 5, 6]),
        (((1, 3),), [4, 5, 6]),
        (((1, 4),), [5, 6]),
        (((1, 6),), []),
        (((3, 4),), [1, 2, 5, 6]),
        (((1, 1), (3, 6)), [2]),
        (((1, 4), (6, 9)), [5]),
        (((7, 9),), [1, 2, 3, 4, 5, 6]),
    ],
)
@pytest.mark.parametrize("is_read", [False, True])
def test_runs_are_forgotten_as_they_are_seen(
    driver: StreamDriver, acked: tuple[tuple[int, int], ...], left: list[int], *, is_read: bool
) -> None:
    """Whole or in part, and whether or not anybody has looked at them before."""
    for first in (1, 3, 5):
        driver.unread(first, lock("a", f"h{first}"), Release(HoldId(f"h{first}")))
        if is_read:
            assert driver.machine.is_sound
    driver.unread(7, acked=acked)
    invariants.tables.streams_are_right(driver.machine.state)
    assert driver.view.kept_count == len(left)
    assert kept_numbers(driver) == left
    assert driver.machine.is_sound


def test_every_outcome_counts_as_long_as_it_is(driver: StreamDriver) -> None:
    """A release that leaves a part is longer than one of a whole hold."""
    wanted = (Wanted("a", Mode.EXCLUSIVE), Wanted("b", Mode.EXCLUSIVE))
    several = msgspec.structs.replace(lock("", "h1"), locks=wanted)
    driver.done(1, several, Release(HoldId("h1"), names=("a",)), Release(HoldId("h1")), Renew(HoldId("h1")))
    kept = [kept for *_, kept in driver.machine.state.streams.dump_kept()]
    assert [one.size_bytes for one in kept] == [len(msgspec.msgpack.encode(one.result)) for one in kept]
    assert kept[1].size_bytes > kept[2].size_bytes


def kept_numbers(driver: StreamDriver) -> list[int]:
    """Return the numbers whose outcomes are kept."""
    return [number for _, number, _ in driver.machine.state.streams.dump_kept()]


def test_of_a_refusal_no_holders_are_kept(driver: StreamDriver) -> None:
    """Who held the lock is out of date when the client asks again, and may be long."""
    driver.acquire("a", ttl_ms=100_000)
    (refused,) = driver.done(1, lock("a", "h2"))
    assert expect(Refused, refused).holders
    assert not expect(Refused, driver.done(1, lock("a", "h2"))[0]).holders


def test_a_wait_can_be_ended(driver: StreamDriver) -> None:
    """It ends as if its time were over; who has been served meanwhile keeps what it has."""
    driver.acquire("a", ttl_ms=100_000)
    driver.done(1, lock("a", "w1", wait_ms=10_000), lock("b", "h2"))
    assert driver.done(3, EndWait(1), EndWait(2), EndWait(9)) == (Done(), Done(), Done())
    assert reason(driver.refused("w1")) is Reason.LOCK_HELD
    assert reason(driver.done(1, lock("a", "w1"))[0]) is Reason.LOCK_HELD
    assert driver.machine.lock("b").state == "held"


def test_what_was_acknowledged_is_forgotten(driver: StreamDriver) -> None:
    """A client that asks for it again contradicts itself, and is told so."""
    driver.done(1, lock("a", "h1"))
    driver.done(2, acked=((1, 1),))
    assert reason(driver.done(1, lock("a", "h9"))[0]) is Reason.INVALID_REQUEST


def test_a_number_is_not_given_twice(driver: StreamDriver) -> None:
    """What another command with the same number asks for is not done, whatever it is."""
    read = GetOperation(b"c")
    driver.done(1, TransactCells((), (PutOperation(b"c", b"v"), read)), lock("a", "h1"))
    (transacted,) = driver.done(1, TransactCells((), (PutOperation(b"c", b"v"), read)))
    assert isinstance(transacted, Transacted)
    assert isinstance(transacted.results[0], CellWritten)
    assert transacted.results[0].version == 1
    for other in (TransactCells((), (read,)), lock("b", "h2")):
        assert reason(driver.done(1, other)[0]) is Reason.INVALID_REQUEST
    assert isinstance(driver.done(2, Release(HoldId("h1")))[0], Granted)
    assert driver.machine.lock("a").state == "held"


def test_a_repeated_refusal_of_a_rate_tells_the_times_that_are_left(driver: StreamDriver) -> None:
    """Once the time is over it says 1 ms, not 0, which would mean that no waiting helps."""
    take = TakeRate("api", 1, 1000, Algorithm.GCRA)
    driver.done(1, take, take)
    for passed_ms, retry_after_ms in ((0, 1000), (400, 600), (600, 1), (4000, 1)):
        driver.pass_to(driver.machine.now_ms + passed_ms)
        (taken,) = driver.done(2, take)
        assert isinstance(taken, RateTaken)
        assert (taken.allowed, taken.retry_after_ms) == (False, retry_after_ms)


def test_the_number_of_a_wait_is_not_given_to_what_cannot_wait(driver: StreamDriver) -> None:
    """Its client contradicts itself, and the wait goes on."""
    driver.done(1, lock("a", "h1"))
    driver.open("s2")
    ask = Acquire("a", Mode.EXCLUSIVE, HoldId("w1"), AttemptId("w1"), SessionId("s2"), wait_ms=500)
    assert isinstance(driver.done(2, ask)[0], Queued)
    assert reason(driver.done(2, Release(HoldId("h1")))[0]) is Reason.INVALID_REQUEST
    assert isinstance(driver.done(2, ask)[0], Queued)
    assert driver.machine.lock("a").state == "held"


def test_no_more_is_taken_than_can_be_kept(driver: StreamDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of a frame is refused, and its numbers can be given again; acknowledging makes room."""
    monkeypatch.setattr(limits, "STREAM_KEPT_MAX", 2)
    frame = [lock(name, f"h-{name}") for name in "abc"]
    done = expect(NumberedDone, driver.send(1, *frame))
    assert (len(done.results), reason(done.refused or Done())) == (2, Reason.OVERLOADED)
    assert driver.view == StreamView(1, 2, 2)
    assert isinstance(driver.done(3, lock("c", "h3"), acked=((1, 1),))[0], Granted)
    monkeypatch.setattr(limits, "STREAM_KEPT_MAX", 100)
    monkeypatch.setattr(limits, "STREAM_KEPT_BYTES_MAX", 20)
    assert expect(NumberedDone, driver.send(4, lock("d", "h4"))).results == ()


@pytest.mark.parametrize("what", ["grants", "cells", "searches"])
def test_a_frame_brings_about_a_limited_number_of_things(
    driver: StreamDriver, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It is applied as a whole, while which a node does nothing else: the rest can be given again."""
    commands: list[NumberedCommand] = [Release(HoldId("h0")), Release(HoldId("h1"))]
    driver.run_all([lock("l0", "h0"), lock("l1", "h1"), *[PutCell(b"%d" % n, b"v") for n in range(9)]])
    for _ in range(9):
        driver.acquire("l0", mode=Mode.SHARED, wait_ms=9000)
        driver.acquire("read", mode=Mode.SHARED)
    if what == "cells":
        commands = [DeleteCells(b"", is_prefix=True), PutCell(b"c", b"v")]
    elif what == "searches":
        commands = [lock("read", "x0", wait_ms=9000), lock("read", "x1", wait_ms=9000)]
    monkeypatch.setattr(limits, "FRAME_EFFORT_MAX", 7)
    done = expect(NumberedDone, driver.send(1, *commands))
    assert (len(done.results), reason(done.refused or Done())) == (1, Reason.OVERLOADED)
    assert expect(NumberedDone, driver.send(2, *commands[1:])).refused is None


def test_a_full_state_takes_what_frees(driver: StreamDriver) -> None:
    """A frame is applied up to the first command that would make a full state larger."""
    driver.done(1, lock("a", "h1"))
    fill(driver, 1)
    done = expect(
        NumberedDone, driver.send(2, Release(HoldId("h1")), PutCell(b"c", b"v"), Renew(HoldId("h1")))
    )
    assert done.results == (Released(),)
    assert reason(done.refused or Done()) is Reason.OVERLOADED
    assert driver.view.last == 2, "what was refused can be given again"
    fill(driver, limits.STATE_BYTES_MAX)
    assert isinstance(driver.done(3, PutCell(b"c", b"v"))[0], CellWritten)


def test_a_state_that_is_nearly_full_counts_every_outcome(driver: StreamDriver) -> None:
    """Its bytes are counted amid a frame: what changes after that is counted, too."""
    fill(driver, limits.STATE_GROWTH_MAX)
    driver.done(1, *(lock(f"a{number}", f"h{number}") for number in range(9)))
    assert driver.machine.state.is_tight
    assert driver.machine.is_sound
    driver.done(10, Release(HoldId("h1")), lock("b", "h10"), acked=((1, 5),))
    assert driver.machine.is_sound
    assert driver.view == StreamView(1, 11, 6)


def fill(driver: StreamDriver, bytes_max: int) -> None:
    """Let the state have room for so many bytes."""
    driver.machine.state.bytes_max = bytes_max
    driver.machine.state.ledger.room = NO_ROOM


def test_no_stream_begins_in_a_full_state(driver: StreamDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """But one that is there goes on."""
    driver.open("s2", ttl_ms=60_000)
    monkeypatch.setattr(budget, "check_room", lambda _: Refused(Reason.OVERLOADED, "full"))
    assert reason(driver.run(ResumeStream(SessionId("s2")))) is Reason.OVERLOADED
    assert driver.run(ResumeStream(S1)) == StreamResumed(2, 0)


def test_what_is_kept_counts_as_memory(driver: StreamDriver) -> None:
    """The bytes of the state grow with every outcome that is kept, and shrink when it was seen."""
    before = driver.machine.bytes_count
    driver.done(1, *(lock("a" * 100, f"h{number}") for number in range(9)))
    grown = driver.machine.bytes_count - before
    driver.done(10, acked=((1, 9),))
    assert grown > 9 * 300
    assert driver.machine.bytes_count - before < grown / 2


def test_a_snapshot_has_the_streams(driver: StreamDriver) -> None:
    """A machine that is loaded knows every number, and goes on."""
    driver.acquire("a", ttl_ms=100_000)
    driver.done(1, lock("a", "w1", wait_ms=10_000), lock("b", "h2"))
    fingerprint = driver.machine.fingerprint
    driver.machine = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    assert driver.machine.fingerprint == fingerprint
    assert driver.view == StreamView(1, 2, 2)
    driver.run(Release(HoldId("h1")))
    assert isinstance(driver.done(1, lock("a", "w1"))[0], Granted)


def test_a_shared_wait_settles_every_number(driver: StreamDriver) -> None:
    """Two numbers of a session that wait for one lock have one hold, and both hear of it."""
    driver.acquire("a", ttl_ms=100_000)
    driver.done(1, lock("a", "w1", wait_ms=10_000), lock("a", "w2", wait_ms=10_000))
    driver.run(Release(HoldId("h1")))
    first, second = driver.done(1, lock("a", "w3"), lock("a", "w4"))
    assert expect(Granted, first).hold_id == expect(Granted, second).hold_id == "w1"


def test_permits_wait_under_numbers_too(driver: StreamDriver) -> None:
    """Everything that may wait may be numbered."""

    def permits(made: str) -> AcquirePermits:
        return AcquirePermits("q", 1, 1, HoldId(made), AttemptId(made), S1, wait_ms=10_000)

    driver.run(AcquirePermits("q", 1, 1, HoldId("p1"), AttemptId("a1"), ttl_ms=100_000))
    assert isinstance(driver.done(1, permits("p2"))[0], Queued)
    driver.done(2, Release(HoldId("p1")))
    assert expect(Granted, driver.done(1, permits("p3"))[0]).hold_id == "p2"
