"""Rate limits that an operator has forgotten: they are as new, and nobody who waits for a place is harmed."""

import pytest

from lockstate.words import limits
from lockstate.words.commands.admin import SetNamespace, SetQuota
from lockstate.words.commands.holds import Release
from lockstate.words.commands.overrides import ForgetRates
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.events import EventKind
from lockstate.words.kinds import Algorithm
from lockstate.words.refusals import QuotaExceeded, Reason, Refused, RefusedInNamespace
from lockstate.words.results import NamespaceSet, QuotaSet, RatesForgotten, RateTaken
from lockstate.words.settings import NamespaceSettings as Settings
from lockstate.words.settings import Quota
from tests.unit.lockstate.machine_driver import expect, reason
from tests.unit.lockstate.test_rate_places import HOUR_MS, MINUTE_MS
from tests.unit.lockstate.test_rate_places import Driver as PlacesDriver


class Driver(PlacesDriver):
    """A machine, clients that take from rate limits, and an operator."""

    def forget(self, name: str, *, below: bool = False, who: str = "") -> tuple[int, bool]:
        """Forget rate limits; return how many there were, and whether more are left."""
        command = ForgetRates(name, "it is full", below)
        done = expect(RatesForgotten, self.by(who, command) if who else self.run(command))
        return done.count, done.is_more

    def names(self) -> list[str]:
        """Return the names of the rate limits that there are, in order."""
        return [limiter.name for limiter in self.machine.state.rates.named("", is_prefix=True)]


@pytest.fixture
def driver() -> Driver:
    """Return a machine without anything."""
    return Driver()


@pytest.mark.parametrize("algorithm", Algorithm)
def test_a_forgotten_limit_is_as_new(driver: Driver, algorithm: Algorithm) -> None:
    """All of it may be taken at once, and it is gone as if nothing had ever been taken."""
    empty = driver.machine.bytes_count
    driver.take(algorithm=algorithm, limit=5, cost=5)
    assert not expect(RateTaken, driver.take(algorithm=algorithm, limit=5, wait_ms=0)).allowed
    assert driver.forget("mail") == (1, False)
    assert driver.machine.counts()["rate_limits"] == 0
    assert driver.machine.bytes_count == empty
    driver.restart()
    taken = expect(RateTaken, driver.take(algorithm=algorithm, limit=5, cost=5, wait_ms=0))
    assert (taken.allowed, taken.remaining) == (True, 0)


def test_all_limits_of_a_name_are_forgotten_and_no_other(driver: Driver) -> None:
    """Whatever their algorithms; a name above, below or behind it is another one."""
    for algorithm in Algorithm:
        driver.take(algorithm=algorithm)
    for other in ("mai", "mail/ann", "mails"):
        driver.take(name=other)
    assert driver.forget("mail") == (3, False)
    assert driver.names() == ["mai", "mail/ann", "mails"]
    assert driver.forget("mail") == (0, False)
    assert driver.events == ()


def test_a_prefix_means_all_names_that_begin_with_it(driver: Driver) -> None:
    """It is a text, as in listings; an empty one means all."""
    for name in ("mai", "mail", "mail/ann", "mails", "n"):
        driver.take(name=name)
    assert driver.forget("mail/", below=True) == (1, False)
    assert driver.forget("mail", below=True) == (2, False)
    assert driver.names() == ["mai", "n"]
    assert driver.forget("", below=True) == (2, False)


def test_one_command_forgets_only_so_many(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order of their names; each counts with its places, and the last of them may be too many."""
    monkeypatch.setattr(limits, "RATES_FORGOTTEN_MAX", 4)
    for name in "abcdefg":
        driver.take(name=name)
    assert [driver.place(name="b"), driver.place(name="b")] == [MINUTE_MS, 2 * MINUTE_MS]
    assert driver.forget("", below=True) == (2, True)
    assert driver.names() == list("cdefg")
    assert driver.forget("", below=True) == (4, True)
    assert driver.forget("", below=True) == (1, False)


def test_who_waits_for_a_place_keeps_its_moment(driver: Driver) -> None:
    """It goes on when it was told to, and counts no more; if it hangs up, nothing comes back."""
    driver.take()
    asked = {"request_id": "r1", "attempt": "a"}
    at_ms = driver.place(**asked)
    assert driver.forget("mail") == (1, False)
    assert driver.place(**asked) == at_ms
    assert expect(RateTaken, driver.take(wait_ms=0)).allowed, "the limit is as new"
    assert driver.place("b") == MINUTE_MS
    driver.restart()
    assert not driver.hangs_up("a")
    assert driver.place("c") == 2 * MINUTE_MS
    assert driver.hangs_up("b")
    driver.pass_to(HOUR_MS)
    assert driver.machine.counts()["rate_limits"] == 0


def test_a_hold_whose_moment_is_to_come_stays(driver: Driver) -> None:
    """A hold of several kinds is there; its end gives nothing back of what others took since."""
    take = TakeRate("mail", 2, 1000, cost=2)
    driver.run(take)
    held = driver.got("a", "", "mail", wait_ms=5000)
    assert held.at_ms == 1000
    assert driver.forget("mail") == (1, False)
    assert expect(RateTaken, driver.run(take)).allowed
    driver.run(Release(held.hold_id), 500)
    assert not expect(RateTaken, driver.run(take, 500)).allowed
    assert driver.machine.counts()["holds"] == 0


def test_what_counted_for_principals_and_namespaces_is_given_back(driver: Driver) -> None:
    """Limits and places: there is room for others in quotas from then on."""
    expect(QuotaSet, driver.run(SetQuota("ann", Quota(rate_limits=1, waits=1))))
    expect(NamespaceSet, driver.run(SetNamespace("mail", Settings(rate_limits=1))))
    driver.take(who="ann")
    driver.take("a", who="ann")
    assert (driver.waits_of("ann"), driver.in_space("mail")) == ((1, 1), (1, 1))
    expect(RefusedInNamespace, driver.take(name="mail/2"))
    expect(QuotaExceeded, driver.take(name="post", who="ann"))
    assert driver.forget("mail") == (1, False)
    assert (driver.waits_of("ann"), driver.in_space("mail")) == ((0, 0), (0, 0))
    assert expect(RateTaken, driver.take(name="mail/2", who="ann")).allowed


def test_a_full_state_is_emptied(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no room for anything more, an operator makes some."""
    monkeypatch.setattr(limits, "RATE_LIMITERS_COUNT_MAX", 2)
    monkeypatch.setattr(limits, "REQUESTS_COUNT_MAX", 0)
    for name in ("a/1", "a/2"):
        driver.take(name=name)
    assert reason(driver.take(name="b")) is Reason.OVERLOADED
    command = ForgetRates("a/", "it fills the state", is_prefix=True, request_id="r1")
    assert driver.run(command) == RatesForgotten(2)
    assert expect(RateTaken, driver.take(name="b")).allowed
    assert driver.run(command) == RatesForgotten(2), "what freed something is remembered"
    assert driver.run(ForgetRates("a/", "again", is_prefix=True, request_id="r2")) == RatesForgotten(0)
    assert len(driver.machine.state.requests) == 1


def test_the_audit_says_who_forgot_what_and_why(driver: Driver) -> None:
    """One record for each rate limit, with the principal that it counted for."""
    driver.take(name="mail/1", who="ann")
    driver.take(name="mail/2")
    driver.forget("mail/", below=True, who="ops")
    told = driver.machine.audit(limit=2)
    assert told == list(reversed(driver.events))
    assert [(one.kind, one.name, one.reason, one.principal, one.by) for one in driver.events] == [
        (EventKind.RATE_LIMIT_FORGOTTEN, "mail/1", "it is full", "ann", "ops"),
        (EventKind.RATE_LIMIT_FORGOTTEN, "mail/2", "it is full", "", "ops"),
    ]
    assert all(one.concerns_others for one in told)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (ForgetRates("", "x"), Reason.INVALID_REQUEST),
        (ForgetRates("mail//a", "x"), Reason.INVALID_REQUEST),
        (ForgetRates("m" * 513, "x"), Reason.NAME_TOO_LONG),
        (ForgetRates("m" * 513, "x", is_prefix=True), Reason.INVALID_REQUEST),
        (ForgetRates("\n", "x", is_prefix=True), Reason.INVALID_REQUEST),
        (ForgetRates("mail", "w" * 1025), Reason.INVALID_REQUEST),
    ],
)
def test_a_malformed_one_is_refused(driver: Driver, command: ForgetRates, expected: Reason) -> None:
    """It has no effect."""
    driver.take()
    assert expect(Refused, driver.run(command)).reason is expected
    assert driver.names() == ["mail"]
