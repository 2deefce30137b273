"""The ledger of events objects to what holds, permits, leaders and tokens must not be."""

import msgspec
import pytest

from lockstate.words.commands.holds import AcquirePermits, Release
from lockstate.words.commands.overrides import ForceRelease
from lockstate.words.commands.primitives import ResizeSemaphore
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.events import Event, EventKind
from lockstate.words.ids import NO_OWNER, AttemptId, HoldId, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode
from lockstate.words.refusals import Refused
from lockstate.words.results import Granted, Resized
from tests.simulation.checks.ledger import Ledger
from tests.simulation.checks.model_replay import Answer, Step
from tests.simulation.checks.report import Report
from tests.simulation.checks.scripted_cluster import ScriptedCluster, acquire, objects

S, U, X = Mode.SHARED, Mode.UPDATE, Mode.EXCLUSIVE
GRANTED, CONVERTED, EXPIRED = EventKind.GRANTED, EventKind.CONVERTED, EventKind.EXPIRED


class Told:
    """Tells a ledger of events, one entry for each."""

    def __init__(self) -> None:
        self.ledger = Ledger(Report())
        self._revision = 0

    def event(  # noqa: PLR0917 - a test's own short hand
        self,
        kind: EventKind,
        token: int,
        name: str = "x",
        mode: Mode = X,
        of: HoldKind = HoldKind.LOCK,
        count: int = 0,
    ) -> Event:
        """Return an event of a hold whose lease is its own."""
        return Event(
            self._revision + 1, self._revision * 100, kind, name, mode, NO_OWNER, token,
            HoldId(f"of {name}"), 0, "", of, permits=count,
        )  # fmt: skip

    def apply(self, *events: Event, answers: tuple[Answer, ...] = ()) -> None:
        """Tell of an entry."""
        self._revision += 1
        self.ledger.applied(Step(self._revision, (self._revision - 1) * 100, list(answers)), events)


def test_two_hold_what_one_may_have() -> None:
    """A grant that conflicts with a hold is found, and one behind its end passes."""
    told = Told()
    told.apply(told.event(GRANTED, 1))
    with objects("holds-exclude"):
        told.apply(told.event(GRANTED, 2, mode=S))
    told = Told()
    told.apply(told.event(GRANTED, 1))
    told.apply(told.event(EventKind.RELEASED, 1), told.event(GRANTED, 2))
    assert len(told.ledger) == 1


def test_a_conversion_over_others() -> None:
    """A hold that becomes exclusive beside another one is found."""
    told = Told()
    first = told.event(GRANTED, 1, mode=S)
    told.apply(first, msgspec.structs.replace(told.event(GRANTED, 2, mode=S), session_id="another"))
    with objects("holds-exclude"):
        told.apply(told.event(CONVERTED, 3))


@pytest.mark.parametrize(("mode", "token"), [(X, 1), (S, 2)])
def test_tokens_of_conversions(mode: Mode, token: int) -> None:
    """A conversion to exclusive without a new token is found, and so is any other one with one."""
    told = Told()
    told.apply(told.event(GRANTED, 1, mode=U))
    with objects("token-drawn"):
        told.apply(told.event(CONVERTED, token, mode=mode))


def test_a_hold_that_is_converted_twice_in_one_entry() -> None:
    """Up and down again: two conversions that both show the token which the first one drew."""
    told = Told()
    told.apply(told.event(GRANTED, 1, mode=Mode.UPDATE))
    told.apply(told.event(CONVERTED, 2), told.event(CONVERTED, 2, mode=Mode.UPDATE))
    with objects("token-drawn"):
        told.apply(told.event(CONVERTED, 3, mode=Mode.SHARED))


def test_a_conversion_that_is_asked_for_twice_in_one_entry() -> None:
    """Both attempts are told the new token: of two holds of the name it is that of the one with the older."""
    told, ask = Told(), acquire("h1")
    for number in (1, 2):
        granted = Granted(HoldId(f"h{number}"), number, "x", Mode.CONCURRENT_READ, 1)
        event = told.event(GRANTED, number, mode=Mode.CONCURRENT_READ)
        told.apply(event, answers=(Answer("a", ask, granted),))
    again = Answer("a", ask, Granted(HoldId("h1"), 3, "x", S, 1))
    told.apply(told.event(CONVERTED, 3, mode=S), answers=(again, again))
    told.apply(told.event(EventKind.RELEASED, 2, mode=Mode.CONCURRENT_READ))
    with objects("holds-exclude"):
        told.apply(told.event(GRANTED, 4))


def test_a_conversion_is_not_that_of_a_semaphore_with_the_name_of_the_lock() -> None:
    """A session that holds a lock and permits of one name converts the lock."""
    told = Told()
    resized = Answer("a", ResizeSemaphore("x", 1), Resized(1, 1))
    told.apply(told.event(GRANTED, 1, of=HoldKind.SEMAPHORE, count=1), answers=(resized,))
    told.apply(told.event(GRANTED, 2, mode=Mode.SHARED))
    told.apply(told.event(CONVERTED, 3))
    with objects("holds-exclude"):
        told.apply(told.event(GRANTED, 4))


def test_tokens_of_different_kinds() -> None:
    """A token below one of another kind of hold is found: all draw from one sequence."""
    told = Told()
    told.apply(told.event(GRANTED, 5))
    with objects("token-drawn"):
        told.apply(told.event(EventKind.ELECTED, 4, "boss", of=HoldKind.ELECTION))


def test_more_permits_than_there_are() -> None:
    """A grant beyond the limit is found; a smaller limit takes nothing away, and a larger one lets in."""
    told, of = Told(), HoldKind.SEMAPHORE
    wish = AcquirePermits("s", 2, 2, hold_id=HoldId("h1"), attempt_id=AttemptId("t"), ttl_ms=60_000)
    first = Answer("a", wish, Granted(HoldId("h1"), 1, "s", X, 1, permits=2, limit=2))
    told.apply(told.event(GRANTED, 1, "s", of=of, count=2), answers=(first,))
    for limit in (1, 3):
        told.apply(answers=(Answer("a", ResizeSemaphore("s", limit), Resized(limit, limit - 2)),))
    told.apply(told.event(GRANTED, 2, "s", of=of, count=1))
    with objects("permits-limit"):
        told.apply(told.event(GRANTED, 3, "s", of=of, count=1))


def test_a_resize_that_is_repeated_changes_nothing() -> None:
    """It is told what it was told, however the limit has changed since."""
    told, of = Told(), HoldKind.SEMAPHORE
    first, second = ResizeSemaphore("s", 1, request_id="a"), ResizeSemaphore("s", 2, request_id="b")
    told.apply(answers=(Answer("a", first, Resized(1, 1)),))
    told.apply(answers=(Answer("a", second, Resized(2, 2)),))
    told.apply(answers=(Answer("a", first, Resized(1, 1), is_repeated=True),))
    told.apply(told.event(GRANTED, 1, "s", of=of, count=2))
    with objects("permits-limit"):
        told.apply(told.event(GRANTED, 2, "s", of=of, count=1))


def test_two_leaders() -> None:
    """A second leader is found; what the first one says later is not an election."""
    told = Told()
    told.apply(told.event(EventKind.ELECTED, 1, "boss", of=HoldKind.ELECTION))
    told.apply(told.event(EventKind.ELECTED, 1, "boss", of=HoldKind.ELECTION))
    with objects("one-leader"):
        told.apply(told.event(EventKind.ELECTED, 2, "boss", of=HoldKind.ELECTION))


def test_a_delay_that_is_not_kept() -> None:
    """A grant within the lock-delay of an expired hold, or of a force, is found."""
    command = acquire("h1", lock_delay_ms=500)
    told = Told()
    told.apply(told.event(GRANTED, 1), answers=(Answer("a", command, Granted(HoldId("h1"), 1, "x", X, 1)),))
    told.apply(told.event(EXPIRED, 1))
    with objects("delay-kept"):
        told.apply(told.event(GRANTED, 2))
    cluster = ScriptedCluster()
    cluster.ask(acquire("h1"))
    cluster.ask(ForceRelease("x", "", 1000))
    assert [kept.lock.name for kept in cluster.checkers.ledger.kept] == ["x"]


def test_the_end_of_what_nobody_had() -> None:
    """An event about a hold that nobody was told of is found."""
    told = Told()
    with objects("events-true"):
        told.apply(told.event(EXPIRED, 1))


def test_events_that_are_not_the_models() -> None:
    """An entry that is told with one event too few is found."""
    cluster = ScriptedCluster()
    data = cluster.entry(acquire("h1"))
    cluster.append(data)
    cluster.promise("a")
    cluster.promise("b")
    machine = cluster.machines["a"]
    cluster.call(acquire("h1"))
    cluster.apply("a", data)
    with objects("model-events"):
        cluster.checkers.states.events_as_expected("b", (), [*machine.audit()])


def test_the_delay_of_a_hold_is_that_of_its_newest_acquire() -> None:
    """Asking again for what the session just got, with another lock-delay, changes it."""
    for granted_ms, again_ms, is_kept in ((0, 9000, True), (9000, 0, True), (9000, 10, False)):
        cluster = ScriptedCluster()
        cluster.ask(OpenSession(SessionId("s1"), 60_000, {}))
        cluster.ask(acquire("h1", ttl_ms=60_000))
        first = acquire("h2", session_id="s1", ttl_ms=0, wait_ms=50_000, lock_delay_ms=granted_ms)
        again = acquire("h3", session_id="s1", ttl_ms=0, lock_delay_ms=again_ms)
        cluster.call(first)
        cluster.commit(first)
        for each in (Release(HoldId("h1")), again):
            cluster.call(each)
        cluster.commit(Release(HoldId("h1")), again)
        cluster.ask(ForceRelease("x", "", 0))
        cluster.pass_ms(20)
        told = cluster.ask(acquire("h4"))
        assert isinstance(told, Refused if is_kept else Granted)
    assert cluster.checkers.violation is None


def test_an_acquire_that_is_repeated_brings_its_delay_once() -> None:
    """It is told what it was told; what the session has asked for since then counts."""
    cluster = ScriptedCluster()
    cluster.ask(OpenSession(SessionId("s1"), 60_000, {}))
    cluster.ask(acquire("h1", session_id="s1", ttl_ms=0))
    long = acquire("h2", session_id="s1", ttl_ms=0, lock_delay_ms=9000, request_id="long")
    short = acquire("h3", session_id="s1", ttl_ms=0, lock_delay_ms=10, request_id="short")
    for each in (long, short, long):
        cluster.ask(each)
    cluster.ask(ForceRelease("x", "", 0))
    cluster.pass_ms(20)
    assert isinstance(cluster.ask(acquire("h4")), Granted)
    assert cluster.checkers.violation is None
