"""A state has a bound on the memory it takes: what makes it larger is refused there, what frees never is."""

import sys
import tracemalloc
from collections.abc import Callable

import msgspec
import pytest

from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables import fingerprint
from lockstate.words import codec, limits
from lockstate.words.cell_operations import DeleteOperation
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.commands.entries import AdvanceVersion, Command, Entry
from lockstate.words.commands.holds import Acquire, PutOff, Release, Renew
from lockstate.words.commands.overrides import ForceRelease, Revoke, WithdrawRevocation
from lockstate.words.commands.primitives import AdvanceFence, TakeRate
from lockstate.words.commands.sessions import CloseSession, KeepAlive, OpenSession
from lockstate.words.commands.streams import Numbered, ResumeStream
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.kinds import Algorithm
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import (
    CellsDeleted,
    Done,
    ForceReleased,
    Granted,
    NumberedDone,
    PutOffTo,
    Released,
    Renewed,
    Result,
    RevocationsWithdrawn,
    Revoked,
    SessionClosed,
    SessionKept,
    SessionOpened,
    StreamResumed,
    Transacted,
)
from lockstate.words.versions import UnknownVersionError
from lockstate.words.wanted import Uncommon
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, MachineDriver, expect

BOUND = limits.STATE_BYTES_LEAST
LABELS = {f"{number:02}" + "k" * 254: "v" * 256 for number in range(limits.LABELS_COUNT_MAX)}


def bounded() -> MachineDriver:
    """Return a machine with the lowest bound."""
    driver = MachineDriver()
    driver.apply(Entry(0, bytes_max=BOUND))
    return driver


def fill(driver: MachineDriver) -> int:
    """Open sessions with full labels until one is refused; return how many there are."""
    for number in range(10_000):
        command = OpenSession(SessionId(f"full-{number}"), 60_000, LABELS)
        result = driver.machine.apply(entry_of(driver, command)).batches[0].results[0]
        if isinstance(result, Refused):
            assert result.reason is Reason.OVERLOADED
            assert result.retry_after_ms == 1000
            assert str(BOUND) in result.detail
            return number
    raise AssertionError("never refused")


def entry_of(driver: MachineDriver, *commands: Command) -> Entry:
    """Return an entry as it comes out of the log."""
    seqs = list(range(driver.seq + 1, driver.seq + 1 + len(commands)))
    driver.seq += len(commands)
    encoded = [codec.encode_command(command) for command in commands]
    return codec.decode_entry(codec.encode_entry(0, [("n1", seqs, encoded)]))


def is_overloaded(result: Result) -> bool:
    """Whether there was no room."""
    return isinstance(result, Refused) and result.reason is Reason.OVERLOADED


def test_what_makes_a_full_state_larger_is_refused() -> None:
    """Sessions, holds of every kind, waits, conversions that wait, fences, rate limits."""
    driver = bounded()
    driver.run(OpenSession(SessionId("s"), 60_000))
    driver.granted("held", session_id="s", mode=SHARED)
    driver.granted("held", mode=SHARED)
    assert 800 < fill(driver) < 1000
    driver.draw(2000)
    assert driver.machine.bytes_count >= BOUND
    refused: list[Callable[[], Result]] = [
        lambda: driver.run(OpenSession(SessionId("t"), 60_000)),
        lambda: driver.acquire("free"),
        lambda: driver.acquire("free", session_id="s"),
        lambda: driver.acquire("held", wait_ms=1000),
        lambda: driver.acquire("free", request_id="r"),
        lambda: driver.permits("sem", 5),
        lambda: driver.campaign("election", "s"),
        lambda: driver.convert("h1", EXCLUSIVE, wait_ms=1000),
        lambda: driver.run(AdvanceFence("resource", 5)),
        lambda: driver.run(TakeRate("rate", 5, 1000)),
        lambda: driver.run(TakeRate("rate", 5, 1000, Algorithm.SLIDING_WINDOW)),
    ]
    for command in refused:
        before = driver.machine.bytes_count
        assert is_overloaded(command())
        assert driver.machine.bytes_count == before


def test_what_frees_or_renews_is_never_refused() -> None:
    """Whoever holds something can keep it, end it, or be ended; also with a request id."""
    driver = bounded()
    for name in ("s", "t", "u"):
        driver.run(OpenSession(SessionId(name), 60_000))
    for number in range(6):
        driver.granted(f"held-{number}", session_id="s" if number < 3 else "t")
    driver.granted("leased", ttl_ms=60_000)
    driver.draw(9)
    driver.run(AdvanceFence("resource", 5))
    driver.run(TakeRate("rate", 5, 60_000))
    fill(driver)
    expect(SessionKept, driver.run(KeepAlive(SessionId("s"))))
    expect(Renewed, driver.run(Renew(HoldId("h7"), 60_000, "r1")))
    expect(Granted, driver.acquire("held-0", session_id="s"))
    expect(Released, driver.run(Release(HoldId("h1"))))
    expect(Released, driver.run(Release(HoldId("h2"), "r2")))
    expect(ForceReleased, driver.run(ForceRelease("held-2", "because", 1000, "r3")))
    expect(SessionClosed, driver.run(CloseSession(SessionId("t"), "r4")))
    expect(SessionClosed, driver.run(CloseSession(SessionId("u"))))
    assert not is_overloaded(driver.run(AdvanceFence("resource", 6)))
    assert not is_overloaded(driver.run(TakeRate("rate", 5, 60_000)))


def test_a_state_that_was_full_takes_more_when_something_was_freed() -> None:
    """Closed or expired, what is gone has its room given back."""
    driver = bounded()
    count = fill(driver)
    expect(SessionClosed, driver.run(CloseSession(SessionId("full-0"))))
    expect(SessionOpened, driver.run(OpenSession(SessionId("again"), 60_000, LABELS)))
    assert fill(driver) == 0
    driver.pass_to(60_001)
    assert driver.machine.counts()["sessions"] == 0
    assert driver.machine.bytes_count == 0
    assert fill(driver) == count


def test_what_freed_something_is_remembered_even_without_room() -> None:
    """A release that is repeated was done once; what freed nothing, or renews, is not remembered."""
    driver = bounded()
    driver.run(OpenSession(SessionId("s"), 60_000))
    driver.granted("a", session_id="s")
    driver.granted("leased", ttl_ms=60_000)
    fill(driver)
    release = Release(HoldId("h1"), "once")
    expect(Released, driver.run(release))
    expect(Released, driver.run(release))
    assert driver.machine.counts()["requests"] == 1
    nothing = Release(HoldId("h1"), "twice")
    assert expect(Refused, driver.run(nothing)).reason is Reason.LEASE_EXPIRED
    expect(Renewed, driver.run(Renew(HoldId("h2"), 60_000, "renewal")))
    assert driver.machine.counts()["requests"] == 1


def test_a_full_memory_of_requests_keeps_nobody_from_freeing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is treated as a full state."""
    monkeypatch.setattr(limits, "REQUESTS_COUNT_MAX", 1)
    driver = bounded()
    driver.granted("a", request_id="r1")
    assert is_overloaded(driver.acquire("b", request_id="r2"))
    assert not is_overloaded(driver.run(Release(HoldId("h1"), "r3")))
    assert driver.machine.counts()["requests"] == 2


def test_who_is_to_give_up_is_told_and_may_put_it_off_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder has one "not yet", which is remembered, as is whom a revocation has asked."""
    driver = MachineDriver()
    driver.granted("a")
    monkeypatch.setattr(limits, "REQUESTS_COUNT_MAX", 0)
    assert driver.run(Revoke("b", "because", 1000, request_id="r0")) == Revoked(())
    assert driver.machine.counts()["requests"] == 0
    revoke = Revoke("a", "because", 1000, request_id="r1")
    assert driver.run(revoke) == driver.run(revoke)
    assert driver.machine.counts()["requests"] == 1
    put_off = PutOff(HoldId("h1"), request_id="r2")
    assert expect(PutOffTo, driver.run(put_off)) == driver.run(put_off)
    assert driver.machine.counts()["requests"] == 2


def test_a_withdrawn_revocation_is_remembered_without_room_if_there_was_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So its repetition does not take back what was asked again meanwhile; what took back nothing is not."""
    driver = MachineDriver()
    driver.granted("a")
    monkeypatch.setattr(limits, "REQUESTS_COUNT_MAX", 0)
    withdrawal = WithdrawRevocation("a", "not now", request_id="r1")
    assert driver.run(withdrawal) == RevocationsWithdrawn(0)
    assert driver.machine.counts()["requests"] == 0
    driver.run(Revoke("a", "because", 1000))
    assert driver.run(withdrawal) == RevocationsWithdrawn(1)
    driver.run(Revoke("a", "because", 1000))
    assert driver.run(withdrawal) == RevocationsWithdrawn(1)
    assert len(driver.machine.state.pleas) == 1


def test_a_repeated_revocation_does_not_ask_the_next_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room either: whoever repeats it has lost the answer, and means who held it then."""
    driver = MachineDriver()
    driver.granted("a")
    monkeypatch.setattr(limits, "REQUESTS_COUNT_MAX", 0)
    revoke = Revoke("a", "because", 1000, request_id="r1")
    asked = driver.run(revoke)
    driver.run(Release(HoldId("h1")))
    driver.granted("a")
    assert driver.run(revoke) == asked
    assert driver.happened() == []


def test_a_stream_frees_what_it_can_without_room() -> None:
    """As commands do that come one by one: cells are deleted, and written again only where there is room."""
    driver = bounded()
    session_id = SessionId("s")
    driver.run(OpenSession(session_id, 60_000))
    driver.run(PutCell(b"a", b"v"))
    epoch = expect(StreamResumed, driver.run(ResumeStream(session_id))).epoch
    fill(driver)
    commands = DeleteCells(b"a"), PutCell(b"b", b"v")
    done = expect(NumberedDone, driver.run(Numbered(2, session_id, epoch, 1, (), commands)))
    assert [expect(CellsDeleted, result).count for result in done.results] == [1]
    assert is_overloaded(done.refused or Done())


def test_a_transaction_whose_outcome_is_kept_counts_as_a_write() -> None:
    """It has an outcome for each part, which may take more than what one part deleted; alone it is done."""
    driver = bounded()
    session_id = SessionId("s")
    driver.run(OpenSession(session_id, 60_000))
    driver.run(PutCell(b"a", b"v"))
    epoch = expect(StreamResumed, driver.run(ResumeStream(session_id))).epoch
    fill(driver)
    deletion = TransactCells((), tuple([DeleteOperation(b"a" * length) for length in range(1, 65)]))
    assert is_overloaded(driver.run(msgspec.structs.replace(deletion, request_id="r")))
    frame = Numbered(1, session_id, epoch, 1, (), (deletion,))
    assert is_overloaded(expect(NumberedDone, driver.run(frame)).refused or Done())
    done = expect(Transacted, driver.run(deletion))
    assert [result.count for result in done.results if isinstance(result, CellsDeleted)] == [1] + 63 * [0]


def test_a_bound_that_nobody_could_work_with_is_ignored() -> None:
    """So is none: an entry without one leaves what was set."""
    driver = bounded()
    driver.apply(Entry(0, bytes_max=BOUND - 1))
    driver.apply(Entry(0))
    assert driver.machine.bytes_max == BOUND


def test_a_bound_travels_in_an_entry_and_a_snapshot() -> None:
    """It is part of the state, and of its fingerprint; a state with the default one is stored as before."""
    entry = codec.decode_entry(codec.encode_entry(7, [], bytes_max=BOUND))
    assert entry == Entry(7, bytes_max=BOUND)
    both = codec.encode_entry(7, [], advance_to=1, bytes_max=BOUND)
    assert codec.decode_entry(both) == Entry(7, (), AdvanceVersion(1), BOUND)
    with pytest.raises(UnknownVersionError):
        codec.decode_entry(both.replace(bytes((codec.FIELD_BYTES_MAX, 0xCE)), bytes((99, 0xCE))))
    driver = bounded()
    driver.granted("a", request_id="r")
    restored = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    assert restored.bytes_max == BOUND
    assert restored.bytes_count == driver.machine.bytes_count > 0
    assert fingerprint.of(restored.state) == fingerprint.of(driver.machine.state)
    before = fingerprint.of(restored.state)
    restored.state.bytes_max += 1
    assert fingerprint.of(restored.state) != before


@pytest.mark.parametrize(
    "commands",
    [
        pytest.param(lambda n: OpenSession(SessionId(f"session-{n:026}"), 60_000), id="sessions"),
        pytest.param(lambda n: OpenSession(SessionId(f"{n:032}"), 60_000, LABELS), id="labels"),
        pytest.param(
            lambda n: OpenSession(SessionId(f"{n:032}"), 60_000, {f"k{i}-{n}": f"v{i}" for i in range(16)}),
            id="short labels",
        ),
        pytest.param(
            lambda n: Acquire(
                f"lock-{n}", EXCLUSIVE, HoldId(f"{n:032}"), AttemptId(f"{-n:032}"), ttl_ms=1000
            ),
            id="holds",
        ),
        pytest.param(
            lambda n: Acquire(
                f"{n}/b/c",
                EXCLUSIVE,
                HoldId(f"{n:032}"),
                AttemptId(f"{-n:032}"),
                ttl_ms=1000,
                request_id=f"{n:032}",
            ),
            id="requests",
        ),
        pytest.param(
            lambda n: Acquire(
                f"l{n // 4}", EXCLUSIVE, HoldId(f"{n:032}"), AttemptId(f"{-n:032}"), ttl_ms=1000, wait_ms=1000
            ),
            id="waits",
        ),
        pytest.param(lambda n: AdvanceFence(f"resource-{n}", n), id="fences"),
        pytest.param(lambda n: TakeRate(f"rate-{n}", 5, 60_000), id="rates"),
    ],
)
def test_the_count_is_near_the_truth(commands: Callable[[int], Command]) -> None:
    """What is counted for many records is about what Python takes: at least two thirds of it.

    And at most twice as much; CPython 3.13 takes a little less than 3.11.
    """
    driver = bounded()
    driver.apply(Entry(0, bytes_max=limits.STATE_BYTES_MAX))
    driver.draw(2000)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for start in range(0, 2000, 100):
            driver.machine.apply(entry_of(driver, *[commands(start + number) for number in range(100)]))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    most = 2 if sys.version_info < (3, 13) else 2.2
    assert taken / 1.5 < driver.machine.bytes_count < most * taken


@pytest.mark.parametrize(
    ("names", "records_count"),
    [
        (("a-b-c", "d-e-f"), 2),
        (("d/e/f", "a-b-c"), 4),
        (("d/e/f", "d/e/g"), 4),
        (("d/e/f", "x-y", "d/e"), 4),
        (("d/e", "x-y", "d/e/f"), 4),
    ],
)
def test_each_ancestor_counts_once(names: tuple[str, ...], records_count: int) -> None:
    """A name counts with its ancestors, and an ancestor counts once, whether it is held itself or not."""
    driver, flat = MachineDriver(), MachineDriver()
    for name in names:
        driver.granted(name)
        flat.granted(name.replace("/", "+"))
    record_bytes = 220
    flat_count = len({name.replace("/", "+") for name in names})
    assert driver.machine.counts()["locks"] == records_count
    more_bytes = driver.machine.bytes_count - flat.machine.bytes_count
    assert more_bytes // record_bytes == records_count - flat_count
    assert more_bytes % record_bytes < 2 * len(names), "what the rest says is as long, but for a digit or so"


@pytest.mark.parametrize("session_id", ["", "s"])
def test_long_texts_count_as_short_ones_do(session_id: str) -> None:
    """The note of a hold counts twice, with a lease of its own or in a session, as long as it is held."""
    driver = bounded()
    driver.run(OpenSession(SessionId("s"), 60_000))
    taken: list[int] = []
    for length in (1, limits.NOTE_BYTES_MAX):
        before = driver.machine.bytes_count
        ttl_ms = 0 if session_id else 60_000
        hold_id = HoldId(f"h-{length}")
        command = Acquire("a", EXCLUSIVE, hold_id, AttemptId("a"), SessionId(session_id), ttl_ms)
        expect(Granted, driver.run(msgspec.structs.replace(command, uncommon=Uncommon(note="n" * length))))
        taken.append(driver.machine.bytes_count - before)
        expect(Released, driver.run(Release(hold_id)))
        assert driver.machine.bytes_count == before
    assert 0 <= taken[1] - taken[0] - 2 * (limits.NOTE_BYTES_MAX - 1) < 20
