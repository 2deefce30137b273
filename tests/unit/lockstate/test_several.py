"""Several kinds at once: all or none, one hold, its turn in every queue, and rates that are taken with it."""

from typing import Any
from unittest.mock import patch

import pytest

from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words import limits
from lockstate.words.commands.holds import AcquireSeveral
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.events import EventKind
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.kinds import Algorithm, HoldKind
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, GrantedSeveral, PermitsHeld, Queued, RateTaken, RateUsed, Result
from lockstate.words.wanted import Asking, WantedPermits, WantedRate
from tests.unit.lockstate.cell_driver import CellDriver
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, expect, reason, wanted, with_uncommon

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
            **with_uncommon({field: value for field, value in more.items() if field != "count"}),
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


def test_it_is_never_what_a_session_has_already(driver: Driver) -> None:
    """Neither for who asks again, nor for who asks for its locks alone."""
    driver.got("a", "q", session_id="ann", mode=SHARED)
    driver.got("a", "q", session_id="ann", mode=SHARED)
    alone = driver.granted(locks=wanted("a", mode=SHARED), session_id="ann")
    assert not alone.depth
    assert [token for token, _, _ in holders(driver, LOCK, "a")] == [1, 2, 3]


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


def test_a_repetition_is_told_how_long_its_rate_limits_take_from_now(driver: Driver) -> None:
    """As it is told what is left of the lease: what the first answer said is out of date."""
    first = driver.got("a", "", "mail", request_id="r1")
    again = driver.got("a", "", "mail", request_id="r1", at_ms=300)
    assert (first.rates[0].reset_in_ms, again.rates[0].reset_in_ms) == (WINDOW_MS, WINDOW_MS - 300)
    assert again.rates[0].remaining == first.rates[0].remaining
    late = driver.got("a", "", "mail", request_id="r1", at_ms=9 * WINDOW_MS)
    assert late.rates[0].reset_in_ms == 0


def test_a_repetition_gets_the_first_outcome(driver: Driver) -> None:
    """Also of a wait; and takes nothing again."""
    first = driver.got("a", "q", "mail", request_id="r1")
    again = driver.got("a", "q", "mail", request_id="r1", at_ms=5)
    assert again.hold_id == first.hold_id
    assert again.rates[0].remaining == first.rates[0].remaining
    assert again.expires_in_ms == (first.expires_in_ms or 0) - 5
    waiting = driver.waits("a", "p", request_id="r2")
    assert driver.waits("a", "p", request_id="r2").hold_id == waiting.hold_id
    driver.release(first.hold_id, at_ms=5)
    assert expect(Granted, driver.several("a", "p", request_id="r2", wait_ms=5000)).hold_id == "h3"


def test_a_session_that_is_gone_gets_nothing(driver: Driver) -> None:
    """As of any kind; nor can an id be used twice."""
    assert reason(driver.several("a", "q", session_id="eve")) is Reason.SESSION_EXPIRED
    asked: dict[str, Any] = {"ttl_ms": 1000, "locks": wanted("a"), "permits": (WantedPermits("q", 1),)}
    used = AcquireSeveral("", EXCLUSIVE, HoldId("ann"), AttemptId("a"), **asked)
    assert reason(driver.run(used)) is Reason.INVALID_REQUEST


@pytest.mark.parametrize(
    ("things", "detail"),
    [
        ({}, "permits, rate_limits:"),
        ({"locks": wanted("a", "b")}, "permits, rate_limits:"),
        ({"rates": (WantedRate("r", 1, 10), WantedRate("s", 1, 10))}, "locks, permits:"),
        ({"permits": (WantedPermits("q", 1),)}, "permits: a request"),
        ({"name": "a", "permits": (WantedPermits("q", 1),) * 2}, "name:"),
        ({"locks": wanted("a", "a"), "permits": (WantedPermits("q", 1),)}, "locks: a name is given twice"),
        ({"permits": (WantedPermits("q", 1), WantedPermits("q", 1))}, "permits: a name is given twice"),
        ({"permits": tuple(WantedPermits(f"q{n}", 1) for n in range(17))}, "permits: 17;"),
        ({"permits": (WantedPermits("q", 1), WantedPermits("p", 1, 2))}, "permits: 2;"),
        ({"permits": (WantedPermits("q", 1), WantedPermits("p", -1))}, "limit: -1;"),
        ({"permits": (WantedPermits("q", 1), WantedPermits("", 1))}, "name:"),
        (
            {"locks": wanted("a"), "rates": tuple(WantedRate(f"r{n}", 1, 10) for n in range(17))},
            "rate_limits: 17;",
        ),
        ({"locks": wanted("a"), "rates": (WantedRate("r", 1, 10),) * 2}, "rate_limits: a name is given"),
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


@pytest.mark.parametrize(
    "rare", [{"value": "v"}, {"priority": 7}, {"is_endless": True, "ttl_ms": 0}, {"asks": Asking(1, 2)}]
)
def test_it_has_no_more_than_a_note_and_a_delay(driver: Driver, rare: dict[str, Any]) -> None:
    """What else only few acquires say is for one lock, for several, or for permits."""
    driver.got("a", "q", note="n", lock_delay_ms=100)
    refused = expect(Refused, driver.several("b", "p", **rare))
    assert (refused.reason, refused.detail.split(":")[0]) == (
        Reason.INVALID_REQUEST,
        "value, priority, no_deadline, ask_after_ms",
    )
