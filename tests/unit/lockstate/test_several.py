"""Several kinds at once: all or none, one hold, its turn in every queue, and rates that are taken with it."""

from typing import Any
from unittest.mock import patch

import pytest

from lockstate.machine import LockMachine
from lockstate.reads import listings
from lockstate.stored import snapshot
from lockstate.words import limits
from lockstate.words.commands import (
    AcquireAs,
    AcquireSeveral,
    Algorithm,
    ForceEnd,
    PutOff,
    Release,
    ReleaseOf,
    Revoke,
    TakeRate,
    WantedPermits,
    WantedRate,
)
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.results import (
    CycleView,
    EventKind,
    FenceView,
    ForceReleased,
    Granted,
    GrantedAgain,
    GrantedSeveral,
    PermitsHeld,
    PutOffTo,
    Queued,
    RateTaken,
    RateUsed,
    Reason,
    Refused,
    Released,
    Result,
    Revoked,
    SessionClosed,
)
from tests.unit.lockstate.cell_driver import CellDriver
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, expect, reason, wanted

LOCK, SEMAPHORE = HoldKind.LOCK, HoldKind.SEMAPHORE
WINDOW_MS = 1000


class Driver(CellDriver):
    """A machine of the newest rules, which is asked for several kinds."""

    def several(
        self,
        locks: str = "",
        permits: str = "",
        rates: str = "",
        *,
        limit: int = 2,
        session_id: str = "",
        ttl_ms: int = 10_000,
        wait_ms: int = 0,
        at_ms: int = 0,
        algorithm: Algorithm = Algorithm.FIXED_WINDOW,
        **more: Any,
    ) -> Result:
        """Ask for what is named, each name a word, with the next free ids; of a rate 2 each second."""
        number = self._next_id()
        command = AcquireSeveral(
            "",
            EXCLUSIVE,
            HoldId(f"h{number}"),
            AttemptId(f"a{number}"),
            SessionId(session_id),
            0 if session_id else ttl_ms,
            wait_ms=wait_ms,
            locks=wanted(*locks.split(), mode=more.pop("mode", EXCLUSIVE)),
            permits=tuple(WantedPermits(name, limit, more.get("count", 1)) for name in permits.split()),
            rates=tuple(WantedRate(name, 2, WINDOW_MS, algorithm) for name in rates.split()),
            **{field: value for field, value in more.items() if field != "count"},
        )
        return self.run(command, at_ms)

    def got(self, *things: str, **options: Any) -> GrantedSeveral:
        """Ask, and expect a grant."""
        return expect(GrantedSeveral, self.several(*things, **options))

    def waits(self, *things: str, **options: Any) -> Queued:
        """Ask, and expect to wait."""
        return expect(Queued, self.several(*things, **{"wait_ms": 5000, **options}))

    def restart(self) -> None:
        """Go on with the state that a snapshot of this one gives, which is the same."""
        data = snapshot.encode(self.machine.state)
        restored = LockMachine(snapshot.decode(data))
        assert snapshot.encode(restored.state) == data
        assert restored.fingerprint == self.machine.fingerprint
        self.machine = restored


@pytest.fixture
def driver() -> Driver:
    """Return a machine with two sessions."""
    driver = Driver()
    driver.open("ann", "bob", ttl_ms=50_000)
    return driver


def holders(driver: Driver, kind: HoldKind, name: str) -> list[tuple[int, HoldKind, int]]:
    """Return token, kind and permits of the holders of a name."""
    view = driver.machine.lock(name) if kind is LOCK else driver.machine.semaphore(name)
    return [(one.token, one.kind, one.permits) for one in view.holders]


def queue(driver: Driver, kind: HoldKind, name: str) -> list[tuple[int, HoldKind, int]]:
    """Return place, kind and permits of those that wait for a name."""
    view = driver.machine.lock(name) if kind is LOCK else driver.machine.semaphore(name)
    return [(one.position, one.kind, one.permits) for one in view.queue]


def test_all_of_it_is_one_hold(driver: Driver) -> None:
    """With one id and one token, which every part shows in its place."""
    got = driver.got("a b", "q p", "mail", session_id="ann", count=2, limit=3)
    assert (got.hold_id, got.token, got.name) == ("h1", 1, "")
    assert [lock.name for lock in got.locks] == ["a", "b"]
    assert got.held == (PermitsHeld("q", 2, 1, 3), PermitsHeld("p", 2, 1, 3))
    assert (got.rates, got.at_ms) == ((RateUsed("mail", 1, WINDOW_MS),), 0)
    assert driver.happened() == [("granted", "a"), ("granted", "b"), ("granted", "q"), ("granted", "p")]
    assert [(one.of, one.permits, one.token) for one in driver.events] == [
        (LOCK, 0, 1), (LOCK, 0, 1), (SEMAPHORE, 2, 1), (SEMAPHORE, 2, 1),
    ]  # fmt: skip
    assert holders(driver, LOCK, "a") == [(1, LOCK, 0)]
    assert holders(driver, SEMAPHORE, "q") == [(1, SEMAPHORE, 2)]
    for kind, name in ((LOCK, "a"), (LOCK, "b"), (SEMAPHORE, "q"), (SEMAPHORE, "p")):
        assert driver.machine.check_fence(name, 1, kind).valid
    assert not driver.machine.check_fence("q", 1, LOCK).valid
    view = driver.machine.session(SessionId("ann"))
    assert view is not None
    assert [(one.name, one.kind) for one in view.holds] == [
        ("a", LOCK), ("b", LOCK), ("q", SEMAPHORE), ("p", SEMAPHORE),
    ]  # fmt: skip
    assert driver.machine.attempt(HoldId("h1")) == GrantedSeveral(
        "h1", 1, "", EXCLUSIVE, 50_000, locks=got.locks, held=got.held  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_token_counts_for_all_kinds_of_a_name(driver: Driver) -> None:
    """If no kind is named, the highest token is that of all kinds which the hold has of this name."""
    driver.got("a", "a")
    driver.permitted("a", 2)
    assert driver.machine.check_fence("a", 1) == FenceView(valid=True, current_token=2)
    assert driver.machine.check_fence("a", 1, LOCK) == FenceView(valid=True, current_token=1)


def test_it_may_have_no_lock(driver: Driver) -> None:
    """But permits of two semaphores, or of one and a place of a rate limit."""
    driver.got("", "q p")
    driver.got("", "q", "mail")
    assert holders(driver, SEMAPHORE, "q") == [(1, SEMAPHORE, 1), (2, SEMAPHORE, 1)]
    driver.restart()
    assert driver.release("h1") == Released()
    assert driver.happened() == [("released", "q"), ("released", "p")]
    assert reason(driver.convert("h2", SHARED)) is Reason.INVALID_REQUEST


@pytest.mark.parametrize("taken", ["a", "q"])
def test_if_one_is_missing_nothing_is_had(driver: Driver, taken: str) -> None:
    """And the refusal tells of what is missing: of a lock before a semaphore."""
    driver.permitted("p", 2, 2) if taken == "q" else driver.granted("a")
    refused = expect(Refused, driver.several("a", "q p", "mail"))
    assert refused.reason is (Reason.LOCK_HELD if taken == "a" else Reason.NO_PERMITS)
    assert len(refused.holders) == 1
    assert driver.machine.semaphore("q").limit == 0
    assert driver.machine.lock("a").state == ("held" if taken == "a" else "free")
    assert driver.machine.counts()["rate_limits"] == 0


def test_it_passes_who_waits_with_a_lower_priority(driver: Driver) -> None:
    """Several kinds have the default priority: a lock that only such a one waits for is had at once."""
    driver.granted("a", mode=SHARED, ttl_ms=60_000)
    low = AcquireAs("a", EXCLUSIVE, HoldId("low"), AttemptId("t"), ttl_ms=60_000, wait_ms=60_000, priority=1)
    expect(Queued, driver.run(low))
    driver.got("a", "p", mode=SHARED)


def test_who_waits_holds_nothing_and_is_overtaken_nowhere(driver: Driver) -> None:
    """In all its queues, of locks and semaphores; not even by who finds all that it wants free."""
    driver.granted("a", ttl_ms=50_000)
    assert driver.waits("a b", "q").position == 1
    assert driver.happened() == [("queued", "a"), ("queued", "b"), ("queued", "q")]
    assert (queue(driver, LOCK, "b"), queue(driver, SEMAPHORE, "q")) == ([(1, LOCK, 0)], [(1, SEMAPHORE, 1)])
    assert reason(driver.acquire("b")) is Reason.LOCK_HELD
    assert reason(driver.permits("q", 2)) is Reason.NO_PERMITS
    assert driver.wanting("q", 2).position == 2
    driver.restart()
    driver.release("h1")
    assert driver.served() == ["h2", "h5"]
    assert holders(driver, SEMAPHORE, "q") == [(2, SEMAPHORE, 1), (3, SEMAPHORE, 1)]


def test_it_is_found_when_permits_come_back(driver: Driver) -> None:
    """Though its lock was free all the time, and then those behind it for the lock go in turn."""
    driver.permitted("q", 2, 2)
    driver.waits("a", "q")
    driver.queued("a")
    driver.restart()
    driver.release("h1")
    assert driver.served() == ["h2"]
    driver.release("h2")
    assert driver.served() == ["h3"]


def test_who_goes_lets_those_behind_it_go(driver: Driver) -> None:
    """Before those that came later, although only its lock became free."""
    driver.granted("a", ttl_ms=50_000)
    driver.waits("a", "q", mode=SHARED)
    driver.wanting("q", 2)
    driver.queued("a", mode=SHARED)
    driver.release("h1")
    assert driver.served() == ["h2", "h3", "h4"]
    assert [one.token for one in driver.events if one.kind is EventKind.GRANTED] == [2, 2, 3, 4]


def test_one_that_cannot_go_keeps_those_behind_it(driver: Driver) -> None:
    """Also if there are permits for them, and its own are there: it waits for another semaphore."""
    driver.permitted("p", 2, 2, ttl_ms=50_000)
    driver.permitted("q", 2, 2)
    driver.waits("", "q p")
    driver.wanting("q", 2)
    driver.release("h2")
    assert driver.served() == []
    driver.release("h1")
    assert driver.served() == ["h3", "h4"]


def test_its_wait_ends_in_all_queues(driver: Driver) -> None:
    """By time, with what is in the way, and those behind it go."""
    driver.granted("a", ttl_ms=50_000)
    driver.waits("a", "q", wait_ms=100)
    driver.wanting("q", 2)
    driver.pass_to(101)
    assert driver.refused("h2").reason is Reason.LOCK_HELD
    assert driver.served() == ["h3"]
    driver.waits("", "q p", count=2, wait_ms=100, at_ms=101)
    driver.pass_to(202)
    assert driver.refused("h4").reason is Reason.NO_PERMITS
    assert driver.machine.semaphore("p").limit == 0, "nobody wants it any more"


def test_a_resize_refuses_who_wants_more(driver: Driver) -> None:
    """Of that semaphore; the others of the same wait are free again."""
    driver.granted("a", ttl_ms=50_000)
    driver.waits("a", "q p", count=2)
    driver.wanting("p", 2)
    driver.resize("q", 1)
    assert driver.refused("h2").reason is Reason.LIMIT_MISMATCH
    assert driver.served() == ["h3"]


@pytest.mark.parametrize("kind", [LOCK, SEMAPHORE])
def test_force_by_any_of_its_names_ends_all_of_it(driver: Driver, kind: HoldKind) -> None:
    """And its delay keeps everybody from all of it."""
    driver.got("a", "q", count=2, lock_delay_ms=100)
    name = "a" if kind is LOCK else "q"
    forced = expect(ForceReleased, driver.run(ForceEnd(name, "why", 0, "", kind)))
    assert [(one.name, one.kind, one.permits) for one in forced.released] == [
        (name, kind, 0 if kind is LOCK else 2)
    ]
    assert driver.happened() == [("forced", "a"), ("forced", "q")]
    assert driver.machine.lock("a").state == "delayed"
    assert driver.machine.semaphore("q").available == 0
    driver.pass_to(101)
    driver.got("a", "q", count=2, at_ms=101)


def test_it_can_be_asked_for_by_any_of_its_names(driver: Driver) -> None:
    """Also for one that waits for it; it is put off as a lock is."""
    driver.got("a", "q", session_id="ann", count=2)
    driver.waits("", "q p")
    ticket = driver.machine.semaphore("q").queue[0].ticket
    revoked = expect(Revoked, driver.run(Revoke("q", "why", 100, SEMAPHORE, ticket=ticket)))
    assert [(one.name, one.kind, one.permits) for one in revoked.holders] == [("q", SEMAPHORE, 2)]
    assert driver.happened() == [("revoked", "a"), ("revoked", "q")]
    assert reason(driver.run(Revoke("a", "why", 100, LOCK, ticket=ticket))) is Reason.INVALID_REQUEST
    expect(PutOffTo, driver.run(PutOff(HoldId("h1"))))
    driver.pass_to(201)
    assert driver.served() == ["h2"]


def test_it_is_of_the_kind_of_locks(driver: Driver) -> None:
    """Whoever takes it for permits is told so; nor can it be given back in part, or converted."""
    driver.got("", "q p")
    driver.got("a", "q")
    for hold_id in ("h1", "h2"):
        refused = expect(Refused, driver.run(ReleaseOf(HoldId(hold_id), kind=SEMAPHORE)))
        assert (refused.reason, refused.holders[0].kind) == (Reason.WRONG_KIND, LOCK)
    assert reason(driver.run(Release(HoldId("h2"), "", ("a",)))) is Reason.INVALID_REQUEST
    assert reason(driver.convert("h2", SHARED)) is Reason.INVALID_REQUEST
    assert driver.run(ReleaseOf(HoldId("h2"))) == Released()


def test_it_ends_with_its_session(driver: Driver) -> None:
    """Which tells the names of all parts."""
    driver.got("a", "q", session_id="ann")
    driver.waits("a", "q p", session_id="bob")
    view = driver.machine.session(SessionId("bob"))
    assert view is not None
    assert [(one.name, one.kind, one.position) for one in view.tickets] == [
        ("a", LOCK, 1), ("q", SEMAPHORE, 1), ("p", SEMAPHORE, 1),
    ]  # fmt: skip
    shown = listings.ticket(driver.machine.state, view.tickets[0].ticket)
    assert shown is not None
    assert (shown.kind, shown.names, shown.position) == (LOCK, ("a", "q", "p"), 1)
    assert driver.close("ann") == SessionClosed(("a", "q"))
    assert driver.served() == ["h2"]


def test_it_is_never_what_a_session_has_already(driver: Driver) -> None:
    """Neither for who asks again, nor for who asks for its locks alone."""
    driver.got("a", "q", session_id="ann", mode=SHARED)
    driver.got("a", "q", session_id="ann", mode=SHARED)
    alone = driver.granted(locks=wanted("a", mode=SHARED), session_id="ann")
    assert not isinstance(alone, GrantedAgain)
    assert [token for token, _, _ in holders(driver, LOCK, "a")] == [1, 2, 3]


def test_a_deadlock_goes_through_locks_and_semaphores(driver: Driver) -> None:
    """Ann has the permits and waits for a lock of Bob, who asks for both kinds."""
    driver.permitted("q", 2, 2, session_id="ann")
    driver.granted("a", session_id="bob")
    driver.queued("a", session_id="ann")
    refused = expect(Refused, driver.several("b", "q", session_id="bob", wait_ms=5000))
    assert refused.reason is Reason.DEADLOCK
    assert refused.cycle == (
        CycleView(OwnerName("bob"), "q", SEMAPHORE),
        CycleView(OwnerName("ann"), "a", LOCK),
    )
    assert driver.machine.semaphore("q").limit == 2
    assert driver.machine.counts()["tickets"] == 1


def test_a_deadlock_goes_through_a_queue(driver: Driver) -> None:
    """Bob would wait for permits behind somebody who waits for a lock of his."""
    driver.granted("a", session_id="bob")
    driver.waits("a", "q")
    assert reason(driver.permits("q", 2, session_id="bob", wait_ms=5000)) is Reason.DEADLOCK
    assert reason(driver.several("", "q p", session_id="bob", wait_ms=5000)) is Reason.DEADLOCK
    driver.release("h1")
    assert driver.served() == ["h2"]


def test_a_session_does_not_wait_for_itself(driver: Driver) -> None:
    """Neither for its permits, nor for its lock, nor behind its own wait; but both may get permits."""
    driver.got("a", "q", session_id="ann", count=2)
    assert reason(driver.several("", "q p", session_id="ann", wait_ms=5000)) is Reason.DEADLOCK
    assert reason(driver.several("a", "p", session_id="ann", wait_ms=5000)) is Reason.DEADLOCK
    driver.waits("b", "q", session_id="bob")
    assert reason(driver.several("b", "p", session_id="bob", wait_ms=5000)) is Reason.DEADLOCK
    driver.wanting("q", 2, session_id="bob")
    assert reason(driver.permits("q", 2, 2, session_id="bob", wait_ms=5000)) is Reason.DEADLOCK


def test_a_moment_is_reserved_for_all(driver: Driver) -> None:
    """The one at which the last of the rates has a place; its lease counts from then on."""
    driver.run(TakeRate("mail", 2, WINDOW_MS, cost=2))
    got = driver.got("a", "q", "mail post", wait_ms=5000, ttl_ms=200)
    assert (got.at_ms, got.expires_in_ms) == (1000, 1200)
    assert got.rates == (RateUsed("mail", 0, 2000), RateUsed("post", 0, 2000))
    again = driver.machine.attempt(HoldId(got.hold_id))
    assert isinstance(again, GrantedSeveral)
    assert again.at_ms == 1000
    driver.restart()
    driver.pass_to(1200)
    assert driver.machine.lock("a").state == "held"
    driver.pass_to(1201)
    assert driver.happened() == [("expired", "a"), ("expired", "q")]
    left = expect(RateTaken, driver.run(TakeRate("post", 2, WINDOW_MS), 1201))
    assert (left.allowed, left.remaining) == (True, 0)


def test_a_rate_without_a_place_refuses_all(driver: Driver) -> None:
    """And takes nothing from the others, nor of anything."""
    driver.run(TakeRate("mail", 2, WINDOW_MS, cost=2))
    refused = expect(Refused, driver.several("a", "q", "post mail", wait_ms=400))
    assert (refused.reason, refused.retry_after_ms) == (Reason.RATE_LIMITED, 600)
    assert refused.facts == {"limit": 2, "remaining": 0}
    assert driver.machine.lock("a").state == "free"
    assert driver.machine.semaphore("q").limit == 0
    assert driver.machine.counts()["rate_limits"] == 1
    driver.got("a", "q", "post mail", wait_ms=1000)


def test_a_wait_ends_if_there_is_no_rate_when_it_is_its_turn(driver: Driver) -> None:
    """What is left of its wait counts; nothing was taken before, and those behind it go."""
    driver.granted("a", ttl_ms=50_000)
    driver.waits("a", "q", "mail", wait_ms=1500)
    driver.wanting("q", 2)
    driver.queued("a")
    assert driver.machine.counts()["rate_limits"] == 0
    driver.run(TakeRate("mail", 2, WINDOW_MS, cost=2), 1100)
    driver.release("h1", at_ms=1101)
    refused = driver.refused("h2")
    assert (refused.reason, refused.retry_after_ms) == (Reason.RATE_LIMITED, 500)
    assert [(one.kind, one.name, one.reason) for one in driver.events if one.kind is EventKind.LEFT] == [
        (EventKind.LEFT, "a", "rate-limited"),
        (EventKind.LEFT, "q", "rate-limited"),
    ]
    assert driver.served() == ["h3", "h4"]


def test_a_wait_is_granted_with_a_moment_in_what_is_left_of_it(driver: Driver) -> None:
    """The client is told the moment, and waits for it itself."""
    driver.granted("a", ttl_ms=50_000)
    driver.waits("a", "q", "mail", wait_ms=2000)
    driver.run(TakeRate("mail", 2, WINDOW_MS, cost=2), 1100)
    driver.release("h1", at_ms=1101)
    got = expect(GrantedSeveral, driver.settled["h2"])
    assert (got.at_ms, got.expires_in_ms, got.rates[0].remaining) == (2000, 10_899, 0)


def test_a_repetition_gets_the_first_outcome(driver: Driver) -> None:
    """Also of a wait; and takes nothing again."""
    first = driver.got("a", "q", "mail", request_id="r1")
    again = driver.got("a", "q", "mail", request_id="r1", at_ms=5)
    assert again.hold_id == first.hold_id
    assert (again.rates, again.expires_in_ms) == (first.rates, (first.expires_in_ms or 0) - 5)
    waiting = driver.waits("a", "p", request_id="r2")
    assert driver.waits("a", "p", request_id="r2").hold_id == waiting.hold_id
    driver.release(first.hold_id, at_ms=5)
    assert expect(Granted, driver.several("a", "p", request_id="r2", wait_ms=5000)).hold_id == "h3"


def test_the_limit_of_a_semaphore_may_be_left_out(driver: Driver) -> None:
    """If somebody uses it; nobody can ask for more permits than it has."""
    assert reason(driver.several("a", "q", limit=0)) is Reason.LIMIT_MISMATCH
    driver.permitted("q", 2)
    assert driver.got("a", "q", limit=0).held == (PermitsHeld("q", 1, 0, 2),)
    refused = expect(Refused, driver.several("b", "q", limit=5, count=3))
    assert (refused.reason, refused.facts) == (Reason.LIMIT_MISMATCH, {"limit": 2})


def test_a_session_that_is_gone_gets_nothing(driver: Driver) -> None:
    """As of any kind; nor can an id be used twice."""
    assert reason(driver.several("a", "q", session_id="eve")) is Reason.SESSION_EXPIRED
    asked: dict[str, Any] = {"ttl_ms": 1000, "locks": wanted("a"), "permits": (WantedPermits("q", 1),)}
    used = AcquireSeveral("", EXCLUSIVE, HoldId("ann"), AttemptId("a"), **asked)
    assert reason(driver.run(used)) is Reason.INVALID_REQUEST


@pytest.mark.parametrize(
    ("things", "detail"),
    [
        ({}, "permits, rates:"),
        ({"locks": wanted("a", "b")}, "permits, rates:"),
        ({"rates": (WantedRate("r", 1, 10), WantedRate("s", 1, 10))}, "locks, permits:"),
        ({"permits": (WantedPermits("q", 1),)}, "permits: a request"),
        ({"name": "a", "permits": (WantedPermits("q", 1),) * 2}, "name:"),
        ({"locks": wanted("a", "a"), "permits": (WantedPermits("q", 1),)}, "locks: a name is given twice"),
        ({"permits": (WantedPermits("q", 1), WantedPermits("q", 1))}, "permits: a name is given twice"),
        ({"permits": tuple(WantedPermits(f"q{n}", 1) for n in range(17))}, "permits: 17;"),
        ({"permits": (WantedPermits("q", 1), WantedPermits("p", 1, 2))}, "permits: 2;"),
        ({"permits": (WantedPermits("q", 1), WantedPermits("p", -1))}, "limit: -1;"),
        ({"permits": (WantedPermits("q", 1), WantedPermits("", 1))}, "name:"),
        ({"locks": wanted("a"), "rates": tuple(WantedRate(f"r{n}", 1, 10) for n in range(17))}, "rates: 17;"),
        ({"locks": wanted("a"), "rates": (WantedRate("r", 1, 10),) * 2}, "rates: a name is given twice"),
        ({"locks": wanted("a"), "rates": (WantedRate("r", 1, 10, cost=2),)}, "cost: 2;"),
        ({"locks": wanted("a"), "rates": (WantedRate("r", 1, 10),), "ttl_ms": 1}, "ttl_ms: 1;"),
        ({"locks": wanted("a"), "rates": (WantedRate("r", 1, 10),), "wait_ms": -1}, "wait_ms: -1;"),
    ],
)
def test_what_is_malformed_is_refused(driver: Driver, things: dict[str, Any], detail: str) -> None:
    """And says which field it is."""
    fields: dict[str, Any] = {"name": "", "ttl_ms": 1000} | things
    command = AcquireSeveral(mode=EXCLUSIVE, hold_id=HoldId("h"), attempt_id=AttemptId("a"), **fields)
    refused = expect(Refused, driver.run(command))
    assert refused.reason in {Reason.INVALID_REQUEST, Reason.TTL_OUT_OF_RANGE}
    assert refused.detail.startswith(detail)


@pytest.mark.parametrize(
    ("bound", "most"),
    [
        ("SESSION_CLAIMS_MAX", 3),
        ("SEMAPHORES_COUNT_MAX", 1),
        ("HOLDS_COUNT_MAX", 1),
        ("RATE_LIMITERS_COUNT_MAX", 2),
        ("RATE_ROWS_COUNT_MAX", 1),
    ],
)
def test_what_there_is_no_room_for_is_refused(driver: Driver, bound: str, most: int) -> None:
    """As a whole: a session's claims count each lock and each semaphore."""
    driver.got("", "o", "log", session_id="ann")
    driver.run(TakeRate("x", 1, WINDOW_MS, Algorithm.SLIDING_WINDOW))
    with patch.object(limits, bound, most):
        refused = expect(
            Refused, driver.several("a b", "q", "s", session_id="ann", algorithm=Algorithm.SLIDING_WINDOW)
        )
    assert refused.reason is Reason.OVERLOADED
    assert driver.machine.lock("a").state == "free"


def test_each_new_semaphore_needs_room(driver: Driver) -> None:
    """Several that come with one request count as several."""
    driver.got("", "o", "log")
    with patch.object(limits, "SEMAPHORES_COUNT_MAX", 3):
        assert reason(driver.several("a", "q p s")) is Reason.OVERLOADED
        driver.got("a", "q p")


@pytest.mark.parametrize("queue_length", [0, 1])
def test_a_wait_that_there_is_no_room_for_leaves_nothing(driver: Driver, queue_length: int) -> None:
    """Whichever of its queues is full."""
    driver.granted("a", ttl_ms=50_000)
    driver.waits("a", "q")
    with patch.object(limits, "QUEUE_LENGTH_MAX", queue_length):
        assert reason(driver.several("b", "q p", wait_ms=100)) is Reason.QUEUE_FULL
    assert driver.machine.semaphore("p").limit == 0


def test_a_full_state_refuses_new_rates(driver: Driver) -> None:
    """When its bound is reached, also for what waited before; rates that are known go on."""
    driver.got("a", "q", "mail", session_id="ann")
    driver.waits("a", "q", "mail", count=2)
    driver.waits("b", "q", "post", count=2)
    driver.machine.state.is_tight = True
    with (
        patch("lockstate.tables.budget.is_full", return_value=True),
        patch("lockstate.tables.budget.begin_entry"),
    ):
        assert reason(driver.several("c", "o", "new")) is Reason.OVERLOADED
        driver.release("h1")
        assert driver.served() == ["h2"]
        driver.release("h2")
        assert driver.refused("h3").reason is Reason.OVERLOADED


def test_a_cancelled_attempt_gives_all_back(driver: Driver) -> None:
    """Whether it waited or was granted; but nothing of a rate."""
    driver.got("a", "q", "mail", count=2)
    driver.waits("", "q p", count=2)
    driver.cancel("h2", "a2")
    driver.cancel("h1", "a1")
    assert driver.happened() == [("released", "a"), ("released", "q")]
    assert driver.machine.counts()["semaphores"] == 0
    assert driver.machine.counts()["rate_limits"] == 1
