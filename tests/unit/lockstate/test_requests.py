"""The memory of requests: the same request id, the same outcome."""

import msgspec
import pytest

from lockstate.catalogue import request_key
from lockstate.machine import LockMachine
from lockstate.reads import views
from lockstate.tables.requests import RequestMemory
from lockstate.words import limits
from lockstate.words.commands.entries import Batch, Command, Entry, Tick
from lockstate.words.commands.holds import Acquire, Proclaim, Release, Renew
from lockstate.words.commands.overrides import ForceRelease
from lockstate.words.commands.primitives import AdvanceFence, ResizeSemaphore, TakeRate
from lockstate.words.commands.sessions import CloseSession, KeepAlive, OpenSession
from lockstate.words.ids import NO_SESSION, AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.kinds import Algorithm
from lockstate.words.modes import Mode
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Cancelled, Granted, Queued, RateTaken, Released, SessionOpened
from tests.unit.lockstate.machine_driver import MachineDriver, expect, reason

MINUTES_5_MS = 5 * 60 * 1000


def test_scopes_keep_clients_apart() -> None:
    """A request id counts within a session, a hold, an owner or a name; without one nothing is remembered."""
    acquire = Acquire(
        "a", Mode.SHARED, HoldId("h"), AttemptId("t"), SessionId("s"), 0, OwnerName("ann"), request_id="r"
    )
    assert request_key(acquire) == ("s", "r")
    assert request_key(
        Acquire(
            "a", Mode.SHARED, HoldId("h"), AttemptId("t"), NO_SESSION, 50, OwnerName("ann"), request_id="r"
        )
    ) == ("ann", "r")
    assert request_key(CloseSession(SessionId("s"), "r")) == ("s", "r")
    assert request_key(Renew(HoldId("h"), 0, "r")) == request_key(Release(HoldId("h"), "r")) == ("h", "r")
    assert request_key(ForceRelease("a", "", 0, "r")) == ("a", "r")
    assert request_key(OpenSession(SessionId("s"), 50, {}, "r")) == ("", "r")
    assert request_key(OpenSession(SessionId("s"), 50)) is None
    assert request_key(KeepAlive(SessionId("s"))) is None


def test_it_is_known_when_an_outcome_may_be_forgotten() -> None:
    """The host of a cluster without commands lets time pass then: five minutes behind the oldest outcome."""
    driver = MachineDriver()
    assert driver.machine.next_forgetting_ms() is None
    for at_ms in (1000, 2000):
        driver.granted("a", ttl_ms=100, request_id=f"r{at_ms}", at_ms=at_ms)
    assert driver.machine.next_forgetting_ms() == 1000 + MINUTES_5_MS
    driver.pass_to(1000 + MINUTES_5_MS)
    assert driver.machine.counts()["requests"] == 2
    driver.pass_to(1001 + MINUTES_5_MS)
    assert driver.machine.next_forgetting_ms() == 2000 + MINUTES_5_MS


def test_a_wait_is_not_forgotten() -> None:
    """The age of a request that waits counts from the end of its wait."""
    driver = MachineDriver()
    driver.granted("a", ttl_ms=limits.TTL_MS_MAX)
    wait_ms = 2 * MINUTES_5_MS
    driver.acquire("a", wait_ms=wait_ms, request_id="r")
    driver.pass_to(MINUTES_5_MS + 1)
    assert expect(Queued, driver.acquire("a", wait_ms=wait_ms, request_id="r")).hold_id == "h2"
    driver.pass_to(wait_ms + 1)
    driver.pass_to(wait_ms + 1 + MINUTES_5_MS)
    assert reason(driver.acquire("a", wait_ms=wait_ms, request_id="r")) is Reason.LOCK_HELD


def test_a_full_memory_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """While every remembered request is young, a new one is refused; those without an id are not."""
    monkeypatch.setattr(limits, "REQUESTS_COUNT_MAX", 1)
    driver = MachineDriver()
    driver.granted("a", request_id="r1")
    assert reason(driver.acquire("b", request_id="r2")) is Reason.OVERLOADED
    driver.granted("a", request_id="r1")
    driver.granted("b")
    assert driver.granted("c", request_id="r2", at_ms=MINUTES_5_MS + 1).token == 3


@pytest.mark.parametrize(
    "command",
    [
        Release(HoldId("h" * 100_000), "r"),
        Renew(HoldId("h" * 100_000), 0, "r"),
        CloseSession(SessionId("s" * 100_000), "r"),
        ForceRelease("n" * 100_000, "", 0, "r"),
        Acquire(
            "a",
            Mode.SHARED,
            HoldId("h1"),
            AttemptId("a1"),
            ttl_ms=50,
            owner=OwnerName("o" * 100_000),
            request_id="r",
        ),
        Acquire(
            "a",
            Mode.SHARED,
            HoldId("h1"),
            AttemptId("a1"),
            session_id=SessionId("s" * 100_000),
            request_id="r",
        ),
    ],
    ids=lambda command: type(command).__name__,
)
def test_what_is_remembered_is_bounded(
    command: Release | Renew | CloseSession | ForceRelease | Acquire,
) -> None:
    """A command that breaks a bound leaves nothing behind: memory is bounded by what is remembered."""
    driver = MachineDriver()
    reason(driver.run(command))
    assert driver.machine.counts()["requests"] == 0


def test_settling_what_is_forgotten_does_nothing() -> None:
    """A wait without a remembered request ends without one."""
    memory = RequestMemory()
    memory.settle(None, 5, Released())
    memory.settle(("s", "r"), 5, Released())
    memory.forget(None, HoldId("h1"))
    memory.forget(("s", "r"), HoldId("h1"))

    assert len(memory) == 0


def test_an_undone_attempt_forgets_only_its_own_request() -> None:
    """Undoing a hold leaves a request under the same key alone that led to another hold."""
    memory = RequestMemory()
    memory.remember(("s", "r"), b"", 0, Queued(HoldId("h2"), 1))
    memory.forget(("s", "r"), HoldId("h1"))
    assert memory.get(("s", "r")) is not None
    memory.forget(("s", "r"), HoldId("h2"))
    assert memory.get(("s", "r")) is None


def test_a_repeated_open_does_not_look_at_what_the_session_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cost does not grow with holds and waits: every node applies it, and none can refuse."""
    driver = MachineDriver()
    opened = driver.run(OpenSession(SessionId("s1"), 500, {}, "r"), at_ms=100)
    driver.granted("a", session_id="s1", at_ms=100)

    def not_needed(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(views, "session_view", not_needed)
    repeated = driver.run(OpenSession(SessionId("s2"), 500, {}, "r"), at_ms=300)
    assert opened == SessionOpened(SessionId("s1"), 500, 500)
    assert repeated == SessionOpened(SessionId("s1"), 500, 300)


def test_a_remembered_refusal_forgets_the_holders() -> None:
    """A repeated refusal has the same code and detail, and none of the holders: they could take megabytes."""
    driver = MachineDriver()
    driver.granted("a", owner="ann")
    waits = driver.queued("a", mode=Mode.SHARED, wait_ms=100, request_id="r")
    driver.pass_to(101)
    first = driver.refused(waits.hold_id)
    again = expect(Refused, driver.acquire("a", mode=Mode.SHARED, wait_ms=100, request_id="r"))
    assert [holder.owner for holder in first.holders] == ["ann"]
    assert (again.reason, again.detail, again.holders) == (first.reason, first.detail, ())


def test_a_repeated_conversion_takes_the_wait_over() -> None:
    """While it waits the repetition waits with it, under the first ticket; then both know how it ended."""
    driver = MachineDriver()
    for _ in range(2):
        driver.granted("a", mode=Mode.SHARED)
    first = driver.converting("h1", Mode.EXCLUSIVE, request_id="r")
    assert driver.converting("h1", Mode.EXCLUSIVE, request_id="r") == first
    assert driver.cancel(first.hold_id, "a3") == Cancelled(undone=False)
    driver.release("h2")
    settled = expect(Granted, driver.settled[first.hold_id])
    assert driver.convert("h1", Mode.EXCLUSIVE, wait_ms=10_000, request_id="r") == settled


@pytest.mark.parametrize(
    ("command", "scope"),
    [
        (Proclaim(HoldId("h2"), "y", "r"), "h2"),
        (ResizeSemaphore("q", 5, "r"), "q"),
        (TakeRate("mail", 1, 1000, request_id="r"), "mail"),
        (AdvanceFence("disk", 7, "r"), "disk"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_other_commands_have_one_outcome_too(command: Command, scope: str) -> None:
    """Repeated within the scope of what they name, they answer as the first time and change nothing."""
    driver = MachineDriver()
    driver.open("s1")
    driver.permitted("q", 2, ttl_ms=9000)
    driver.campaign("e", "s1", "x")
    driver.draw(8)
    assert request_key(command) == (scope, "r")
    first = driver.run(command)
    assert not isinstance(first, Refused)
    driver.run_all([Proclaim(HoldId("h2"), "z"), ResizeSemaphore("q", 9), AdvanceFence("disk", 8)])
    again = driver.run(command, at_ms=5)
    if isinstance(first, RateTaken) and isinstance(again, RateTaken):
        again = msgspec.structs.replace(again, reset_in_ms=again.reset_in_ms + 5)
    assert again == first
    assert driver.machine.semaphore("q").limit == 9
    assert driver.machine.counts()["requests"] == 1


def test_a_repeated_take_tells_the_times_that_are_left() -> None:
    """The place stays the same; how long to wait, and until the limit is whole, is counted from now."""
    driver = MachineDriver()
    take = TakeRate("api", 2, 3000, Algorithm.GCRA, 1, 5000, "r1")
    driver.run(TakeRate("api", 2, 3000, Algorithm.GCRA, 2))
    for at_ms, reset_in_ms in ((0, 4500), (2000, 2500), (9000, 0)):
        taken = expect(RateTaken, driver.run(take, at_ms=at_ms))
        assert (taken.allowed, taken.at_ms, taken.reset_in_ms) == (True, 1500, reset_in_ms)


def test_a_repetition_takes_over_only_what_its_own_request_got() -> None:
    """An id used again belongs to the later request: repeating the first one changes nothing of it."""
    driver = MachineDriver()
    first = Acquire(
        "f",
        Mode.EXCLUSIVE,
        HoldId("h1"),
        AttemptId("t1"),
        ttl_ms=5000,
        owner=OwnerName("ann"),
        request_id="r1",
    )
    expect(Granted, driver.run(first))
    driver.release("h1")
    expect(Granted, driver.run(Acquire("e", Mode.EXCLUSIVE, HoldId("h0"), AttemptId("t0"), ttl_ms=5000)))
    second = Acquire(
        "e",
        Mode.EXCLUSIVE,
        HoldId("h1"),
        AttemptId("t2"),
        ttl_ms=5000,
        owner=OwnerName("bob"),
        wait_ms=3000,
        request_id="r2",
    )
    expect(Queued, driver.run(second))
    assert expect(Granted, driver.run(first)).name == "f"
    driver.release("h0")
    assert driver.served() == ["h1"]
    assert expect(Granted, driver.run(second)).name == "e"


def test_old_outcomes_go_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many that become old in one moment are forgotten over several entries."""
    monkeypatch.setattr(limits, "REQUESTS_PER_ENTRY_MAX", 2)
    driver = MachineDriver()
    for number in range(5):
        driver.run(OpenSession(SessionId(f"s{number}"), 50, {}, f"r{number}"))
    for left in (3, 1, 0, 0):
        driver.pass_to(limits.REQUEST_AGE_MS + 1000)
        assert driver.machine.counts()["requests"] == left


# -- rules 5 ------------------------------------------------------------------------------------------------


def newest() -> MachineDriver:
    """Return a driver of a machine that follows rules 5."""
    return MachineDriver()


def test_a_place_that_was_not_given_is_asked_for_again() -> None:
    """A rate limit that was used up is asked anew; a place that was given stays given."""
    driver = newest()
    driver.run(TakeRate("mail", 1, 1000))
    refused = expect(RateTaken, driver.run(TakeRate("mail", 1, 1000, request_id="r")))
    assert not refused.allowed
    driver.pass_to(1001)
    for _ in range(2):
        assert expect(RateTaken, driver.run(TakeRate("mail", 1, 1000, request_id="r"))).allowed


def test_who_repeats_is_told_so() -> None:
    """An outcome says which of its commands had been answered before, also while it waits."""
    first = Acquire("a", Mode.EXCLUSIVE, HoldId("x1"), AttemptId("t1"), ttl_ms=1000, request_id="r")
    again = msgspec.structs.replace(first, hold_id=HoldId("x2"), attempt_id=AttemptId("t2"))
    other = msgspec.structs.replace(again, name="b")
    wait = msgspec.structs.replace(first, hold_id=HoldId("x3"), request_id="w", wait_ms=500)
    commands = (first, again, other, wait, wait)
    machine = LockMachine()
    (outcome,) = machine.apply(Entry(5, (Batch("n1", (1, 2, 3, 4, 5), commands),))).batches
    assert outcome.repeated == (2, 5), "the third is a mistake: other content under the same id"
    (outcome,) = machine.apply(Entry(5, (Batch("n1", (6,), (Tick(),)),))).batches
    assert outcome.repeated == ()
