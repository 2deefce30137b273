"""Quotas: how much one principal may have at a time, and that all of it is counted."""

import pytest

from lockstate.machine import LockMachine
from lockstate.reads import listings
from lockstate.stored import snapshot
from lockstate.tables.principals import EVERYBODY, Usage
from lockstate.words import limits
from lockstate.words.commands.admin import SetQuota
from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    AcquireSeveral,
    AddLocks,
    Campaign,
    Release,
)
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.refusals import QuotaExceeded, Reason
from lockstate.words.results import Granted, Queued, QuotaSet, Released, Result
from lockstate.words.settings import Quota
from lockstate.words.views import PrincipalRow
from lockstate.words.wanted import WantedPermits
from tests.unit.lockstate.machine_driver import SHARED, expect, reason, wanted
from tests.unit.lockstate.test_principals import Driver


def quota(driver: Driver, principal: str = "ann", **numbers: int) -> None:
    """Set a quota."""
    expect(QuotaSet, driver.by("ops", SetQuota(principal, Quota(**numbers))))


def usage(driver: Driver, principal: str = "ann") -> tuple[int, int, int]:
    """Return how many sessions, holds and waits a principal has."""
    used: Usage = driver.machine.state.principals.used_by(principal)
    return used.sessions, used.holds, used.waits


def refusal(result: Result) -> tuple[str, dict[str, int]]:
    """Return which quota was used up, and the numbers that are told."""
    refused = expect(QuotaExceeded, result)
    assert refused.reason is Reason.QUOTA_EXCEEDED
    assert refused.retry_after_ms > 0
    return refused.quota, refused.facts


def test_holds_of_every_kind_count() -> None:
    """In a session or not: locks, permits, a lead; what has several names counts each of them."""
    driver = Driver()
    s1 = SessionId("s1")
    driver.by("ann", OpenSession(s1, 1000))
    expect(Granted, driver.took("ann", "h1"))
    expect(Granted, driver.by("ann", Acquire("b", SHARED, HoldId("h2"), AttemptId("h2"), s1)))
    permits = AcquirePermits("q", 5, 2, HoldId("h3"), AttemptId("h3"), ttl_ms=1000)
    expect(Granted, driver.by("ann", permits))
    expect(Granted, driver.by("ann", Campaign("e", s1, "", HoldId("h4"), AttemptId("h4"))))
    several = AcquireSeveral(
        "",
        SHARED,
        HoldId("h5"),
        AttemptId("h5"),
        ttl_ms=1000,
        locks=wanted("c"),
        permits=(WantedPermits("q"),),
    )
    expect(Granted, driver.by("ann", several))
    assert usage(driver) == (1, 6, 0)
    quota(driver, holds=6)
    another = HoldId("h6"), AttemptId("h6")
    assert refusal(driver.took("ann", "h6", "z"))[0] == "holds"
    assert refusal(driver.by("ann", AcquirePermits("q", 5, 1, *another, ttl_ms=1000)))[0] == "holds"
    assert refusal(driver.by("ann", Campaign("e2", s1, "", *another)))[0] == "holds"
    again = AcquireSeveral(
        "", SHARED, *another, ttl_ms=1000, locks=wanted("d"), permits=(WantedPermits("q"),)
    )
    assert refusal(driver.by("ann", again))[0] == "holds"
    assert driver.machine.counts()["holds"] == 5
    expect(Released, driver.by("ann", Release(HoldId("h3"))))
    expect(Granted, driver.took("ann", "h6", "z"))


def test_waits_up_to_the_quota() -> None:
    """Waits for changes count; a refused one leaves nothing behind."""
    driver = Driver()
    expect(Granted, driver.took("bob", "h1"))
    expect(Granted, driver.took("ann", "h2", "b"))
    quota(driver, waits=1)
    adding = AddLocks(HoldId("h2"), wanted("a"), HoldId("t1"), AttemptId("t1"), 1000)
    expect(Queued, driver.by("ann", adding))
    assert usage(driver) == (0, 2, 1)
    assert refusal(driver.took("ann", "h3", wait_ms=1000)) == ("waits", {"limit": 1, "used": 1})
    assert "h3" not in driver.machine.state.principals.rows
    assert reason(driver.took("ann", "h3")) is Reason.LOCK_HELD


def test_everybody_without_a_quota_has_that_of_all() -> None:
    """One's own replaces it as a whole; who asks through a node without principals has none."""
    driver = Driver()
    quota(driver, EVERYBODY, holds=0)
    quota(driver, "ann", sessions=5)
    expect(Granted, driver.took("ann", "h1"))
    assert refusal(driver.took("bob", "h2", "b"))[0] == "holds"
    driver.ids_made = 10
    driver.granted("c")
    expect(QuotaSet, driver.by("ops", SetQuota(EVERYBODY)))
    expect(Granted, driver.took("bob", "h2", "b"))


@pytest.mark.parametrize("number", [-1, limits.QUOTA_MAX + 1])
@pytest.mark.parametrize("what", Quota.__struct_fields__)
def test_numbers_that_mean_nothing(what: str, number: int) -> None:
    """They are refused, and no quota is set."""
    driver = Driver()
    assert reason(driver.by("ops", SetQuota("ann", Quota(**{what: number})))) is Reason.INVALID_REQUEST
    assert driver.machine.state.principals.quotas == {}


@pytest.mark.parametrize("principal", ["", "x" * 65, "\x00"])
def test_a_quota_of_who_cannot_be(principal: str) -> None:
    """A name that no principal has is refused."""
    assert reason(Driver().by("ops", SetQuota(principal, Quota(1)))) is Reason.INVALID_REQUEST


def test_so_many_quotas_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is there can still be changed and taken away."""
    monkeypatch.setattr(limits, "QUOTAS_COUNT_MAX", 1)
    driver = Driver()
    quota(driver, "ann", holds=1)
    assert reason(driver.by("ops", SetQuota("bob", Quota(1)))) is Reason.OVERLOADED
    quota(driver, "ann", holds=2)
    expect(QuotaSet, driver.by("ops", SetQuota("bob")))
    expect(QuotaSet, driver.by("ops", SetQuota("ann")))
    quota(driver, "bob", holds=1)


def test_quotas_survive_a_restart() -> None:
    """They are part of the state."""
    driver = Driver()
    quota(driver, "ann", holds=1, sessions=2)
    quota(driver, EVERYBODY, waits=3)
    again = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    assert again.state.principals.quotas == {"ann": Quota(2, 1), EVERYBODY: Quota(waits=3)}
    assert again.fingerprint == driver.machine.fingerprint
    assert again.is_sound
    assert driver.machine.is_sound


def test_pages_of_principals() -> None:
    """Who has anything, or a quota of its own, by name; a page goes on after the last of the one before."""
    driver = Driver()
    state = driver.machine.state
    assert listings.principals(state, "", 10) == ([], None)
    driver.took("cid", "h1")
    quota(driver, "bob", holds=1)
    driver.took("ann", "h2", "b")
    quota(driver, "ann", waits=2)
    ann = PrincipalRow("ann", Quota(waits=2), 0, 1, 0, 0, 0, 0, 1)
    bob = PrincipalRow("bob", Quota(holds=1), 0, 0, 0, 0, 0, 0, 0)
    cid = PrincipalRow("cid", None, 0, 1, 0, 0, 0, 0, 1)
    assert listings.principals(state, "", 10) == ([ann, bob, cid], None)
    assert listings.principals(state, "", 2) == ([ann, bob], "bob")
    assert listings.principals(state, "bob", 2) == ([cid], None)
