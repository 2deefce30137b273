"""Namespaces that say how long one hold may be held: the holder is told before, and the hold expires."""

from typing import Final

import pytest

from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words import limits
from lockstate.words.commands.admin import SetNamespace
from lockstate.words.commands.holds import Acquire, AcquireSeveral, PutOff, Release, Renew
from lockstate.words.commands.overrides import Revoke, WithdrawRevocation
from lockstate.words.commands.sessions import KeepAlive
from lockstate.words.events import HELD_TOO_LONG, EventKind
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import (
    Granted,
    GrantedSeveral,
    PutOffTo,
    Renewed,
    RevocationsWithdrawn,
    Revoked,
    SessionKept,
)
from lockstate.words.settings import NamespaceSettings
from lockstate.words.wanted import Uncommon, WantedPermits
from tests.unit.lockstate.cell_driver import CellDriver
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, expect, reason, wanted

ANN: Final = SessionId("ann")
BOUND_MS: Final = 10_000


@pytest.fixture
def driver() -> CellDriver:
    """Return a machine in which what lies in `a` is held for ten seconds at most, with a session."""
    driver = CellDriver()
    driver.open("ann", ttl_ms=50_000)
    driver.run(SetNamespace("a", NamespaceSettings(no_deadline=True, held_ms_max=BOUND_MS)))
    return driver


def held(driver: CellDriver, kind: str) -> HoldId:
    """Hold `a/x` in one of the ways in which something may be held."""
    match kind:
        case "lease":
            return driver.granted("a/x", ttl_ms=50_000).hold_id
        case "session":
            return driver.granted("a/x", session_id="ann").hold_id
        case "endless":
            endless = Uncommon(is_endless=True)
            asked = Acquire("a/x", EXCLUSIVE, HoldId("endless"), AttemptId("x"), uncommon=endless)
            return expect(Granted, driver.run(asked)).hold_id
        case "shared":
            return driver.granted("a/x", ttl_ms=50_000, mode=SHARED).hold_id
        case "permits":
            return driver.permitted("a/x", 2, session_id="ann").hold_id
        case "several":
            return driver.granted(locks=wanted("b", "a/x"), ttl_ms=50_000).hold_id
        case _:
            return expect(Granted, driver.campaign("a/x", "ann")).hold_id


KINDS: Final = ("lease", "session", "endless", "shared", "permits", "several", "election")


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_held_ends_in_time(kind: str, driver: CellDriver) -> None:
    """At half of the time the holder is told, and however often it renews, the hold expires at the end."""
    hold_id = held(driver, kind)
    driver.run_all([Renew(hold_id), KeepAlive(ANN)], at_ms=4_999)
    assert driver.pass_to(5_000) == []
    assert driver.pass_to(5_001) == [EventKind.REVOKED]
    (told,) = driver.events
    assert (told.reason, told.ends_in_ms, told.name, told.by) == (HELD_TOO_LONG, 4_999, "a/x", "")
    renewed = expect(Renewed, driver.run(Renew(hold_id), at_ms=6_000))
    (revocation,) = renewed.revocations
    assert (revocation.name, revocation.reason, revocation.ends_in_ms) == ("a/x", HELD_TOO_LONG, 4_000)
    driver.run(KeepAlive(ANN), at_ms=9_999)
    assert driver.pass_to(10_000) == []
    driver.pass_to(10_001)
    assert {event.kind for event in driver.events} <= {EventKind.EXPIRED, EventKind.RESIGNED}
    assert {event.reason for event in driver.events} == {HELD_TOO_LONG}
    assert reason(driver.run(Renew(hold_id))) is Reason.LEASE_EXPIRED
    invariants.check(driver.machine.state)


@pytest.mark.parametrize(
    ("kind", "left_ms"), [("lease", 10_000), ("session", 10_000), ("several", 10_000), ("endless", None)]
)
def test_no_lease_is_told_beyond_the_end(kind: str, left_ms: int | None, driver: CellDriver) -> None:
    """The answers say what is left up to there; a hold without a deadline has no lease to be told of."""
    hold_id = held(driver, kind)
    (grant,) = driver.machine.lock("a/x").holders
    assert grant.expires_in_ms == left_ms
    renewed = expect(Renewed, driver.run(Renew(hold_id), at_ms=3_000))
    assert renewed.expires_in_ms == (None if left_ms is None else left_ms - 3_000)
    renewed = expect(Renewed, driver.run(Renew(hold_id), at_ms=8_000))
    assert renewed.expires_in_ms == (None if left_ms is None else left_ms - 8_000)


def test_a_session_hears_of_every_end_within_its_lease(driver: CellDriver) -> None:
    """Its lease is of all its holds: a hold that ends before is told of with it, the first first."""
    late = driver.granted("a/late", session_id="ann")
    kept = expect(SessionKept, driver.run(KeepAlive(ANN), at_ms=3_000))
    (told,) = kept.revoked
    assert (told.token, told.revocation.name, told.revocation.ends_in_ms) == (late.token, "a/late", 7_000)
    assert (told.revocation.reason, told.revocation.is_put_off) == (HELD_TOO_LONG, True)
    assert reason(driver.run(PutOff(late.hold_id))) is Reason.NOT_REVOKED
    driver.open("ben", ttl_ms=BOUND_MS)
    driver.granted("a/ben", session_id="ben")
    assert expect(SessionKept, driver.run(KeepAlive(SessionId("ben")))).revoked == ()
    driver.run(SetNamespace("a", NamespaceSettings(held_ms_max=1000)))
    driver.granted("a/soon", session_id="ann")
    kept = expect(SessionKept, driver.run(KeepAlive(ANN)))
    assert [one.revocation.name for one in kept.revoked] == ["a/soon", "a/late"]


def test_a_session_is_believed_no_longer_than_it_is_told_of(driver: CellDriver) -> None:
    """Of more ends than a keepalive shows, the first that is not shown bounds the lease of all."""
    for number in range(limits.HOLDERS_SHOWN_MAX):
        driver.granted(f"a/{number}", session_id="ann")
    kept = expect(SessionKept, driver.run(KeepAlive(ANN), at_ms=2_000))
    assert (len(kept.revoked), kept.expires_in_ms) == (limits.HOLDERS_SHOWN_MAX, 50_000)
    driver.granted("a/more", session_id="ann")
    kept = expect(SessionKept, driver.run(KeepAlive(ANN), at_ms=4_000))
    assert "a/more" not in [one.revocation.name for one in kept.revoked]
    assert (len(kept.revoked), kept.expires_in_ms) == (limits.HOLDERS_SHOWN_MAX, 8_000)
    kept = expect(SessionKept, driver.run(KeepAlive(ANN), at_ms=10_001))
    assert [one.revocation.name for one in kept.revoked] == ["a/more"]
    assert kept.expires_in_ms == 50_000


def test_a_shorter_lease_ends_as_it_would(driver: CellDriver) -> None:
    """A bound lengthens nothing."""
    grant = driver.granted("a/x", ttl_ms=1000)
    assert grant.expires_in_ms == 1000
    assert driver.pass_to(1001) == [EventKind.EXPIRED]
    assert driver.events[0].reason == ""
    assert len(driver.machine.state.pleas) == 0


def test_the_notice_is_a_minute_at_most(driver: CellDriver) -> None:
    """A day is not told of at noon."""
    day_ms = 24 * 3600 * 1000
    driver.run(SetNamespace("a", NamespaceSettings(held_ms_max=day_ms)))
    driver.close("ann")
    driver.granted("a/x", ttl_ms=limits.TTL_MS_MAX)
    assert driver.pass_to(day_ms - limits.HELD_NOTICE_MS_MAX) == []
    assert driver.pass_to(day_ms - limits.HELD_NOTICE_MS_MAX + 1) == [EventKind.REVOKED]


def test_an_entry_that_comes_late_does_both(driver: CellDriver) -> None:
    """Without a leader nobody is told, and cluster time is over when there is one again."""
    held(driver, "endless")
    assert driver.pass_to(60_000)[:2] == [EventKind.REVOKED, EventKind.EXPIRED]


def test_the_next_one_has_its_own_time(driver: CellDriver) -> None:
    """Whoever waited counts from its own grant, behind the lock-delay."""
    driver.granted("a/x", session_id="ann", lock_delay_ms=500)
    waiting = driver.queued("a/x", ttl_ms=50_000, wait_ms=40_000)
    driver.run(KeepAlive(ANN), at_ms=9_000)
    assert driver.pass_to(10_001) == [EventKind.EXPIRED]
    assert driver.pass_to(10_502) == [EventKind.GRANTED]
    assert driver.served() == [waiting.hold_id]
    assert driver.pass_to(20_502) == [EventKind.REVOKED]
    assert EventKind.EXPIRED in driver.pass_to(20_503)


def test_what_is_granted_before_a_change_keeps_its_time(driver: CellDriver) -> None:
    """A setting counts for what is granted after it: earlier ends and missing ones stay."""
    bounded = driver.granted("a/x", session_id="ann")
    free = driver.granted("b/x", session_id="ann")
    driver.run(SetNamespace("a"))
    driver.run(SetNamespace("b", NamespaceSettings(held_ms_max=1000)))
    driver.granted("a/y", session_id="ann")
    driver.run(KeepAlive(ANN), at_ms=9_000)
    assert driver.pass_to(10_001) == [EventKind.EXPIRED]
    assert reason(driver.run(Renew(bounded.hold_id))) is Reason.LEASE_EXPIRED
    assert expect(Renewed, driver.run(Renew(free.hold_id))).revocations == ()
    assert driver.machine.lock("a/y").state == "held"


def test_the_longest_namespace_decides(driver: CellDriver) -> None:
    """One below that says nothing leaves it open."""
    driver.run(SetNamespace("a/free", NamespaceSettings(holds=5)))
    driver.granted("a/free/x", session_id="ann")
    assert len(driver.machine.state.pleas) == 0


def test_a_part_is_given_up_in_time(driver: CellDriver) -> None:
    """The hold keeps what has no bound."""
    grant = driver.granted(locks=wanted("a/x", "b"), session_id="ann")
    driver.run(Release(grant.hold_id, names=("a/x",)), at_ms=6_000)
    driver.run(KeepAlive(ANN), at_ms=9_000)
    assert driver.pass_to(20_000) == []
    assert driver.machine.lock("b").state == "held"


def test_added_locks_count_from_their_own_grant(driver: CellDriver) -> None:
    """And the first of a hold's bounds ends it as a whole."""
    grant = driver.granted("b", session_id="ann")
    driver.run(KeepAlive(ANN), at_ms=4_000)
    driver.added(grant.hold_id, "a/x", at_ms=4_000)
    driver.added(grant.hold_id, "a/y", at_ms=6_000)
    assert driver.machine.lock("b").holders[0].expires_in_ms == 8_000
    driver.run(KeepAlive(ANN), at_ms=13_000)
    assert driver.pass_to(14_001) == [EventKind.EXPIRED] * 3


def test_what_is_held_already_is_no_new_grant(driver: CellDriver) -> None:
    """Neither an acquire that renews nor a conversion begins the time anew."""
    grant = driver.granted("a/x", session_id="ann", mode=SHARED)
    assert driver.granted("a/x", session_id="ann", mode=SHARED, at_ms=2_000).hold_id == grant.hold_id
    driver.convert(grant.hold_id, EXCLUSIVE, at_ms=3_000)
    driver.run(KeepAlive(ANN), at_ms=9_000)
    assert driver.pass_to(10_001) == [EventKind.EXPIRED]


def test_nobody_puts_it_off(driver: CellDriver) -> None:
    """Before it is told there is nothing to put off; then it says why it cannot be."""
    hold = driver.granted("a/x", session_id="ann")
    assert reason(driver.run(PutOff(hold.hold_id))) is Reason.NOT_REVOKED
    refused = expect(Refused, driver.run(PutOff(hold.hold_id), at_ms=6_000))
    assert (refused.reason, "held longer" in refused.detail) == (Reason.NOT_REVOKED, True)


def test_an_operator_asks_beside_it(driver: CellDriver) -> None:
    """Each counts by itself: a plea can be put off, and the hold ends with the first of both."""
    hold = driver.granted("a/x", session_id="ann")
    revoked = expect(Revoked, driver.run(Revoke("a/x", "maintenance", 2_000), at_ms=6_000))
    assert [one.revocation.reason for one in revoked.holders] == ["maintenance"]
    assert expect(PutOffTo, driver.run(PutOff(hold.hold_id), at_ms=7_000)).ends_in_ms == 3_000
    kept = expect(SessionKept, driver.run(KeepAlive(ANN), at_ms=9_000))
    assert [(one.revocation.reason, one.revocation.ends_in_ms) for one in kept.revoked] == [
        (HELD_TOO_LONG, 1_000),
        ("maintenance", 1_000),
    ]
    refused = expect(Refused, driver.run(PutOff(hold.hold_id)))
    assert "only once" in refused.detail
    invariants.check(driver.machine.state)


def test_a_bound_is_not_withdrawn(driver: CellDriver) -> None:
    """What an operator takes back is what somebody asked."""
    driver.granted("a/x", session_id="ann")
    driver.run(Revoke("a/x", "maintenance", 2_000), at_ms=6_000)
    assert driver.run(WithdrawRevocation("a/x", "never mind")) == RevocationsWithdrawn(1)
    kept = expect(SessionKept, driver.run(KeepAlive(ANN), at_ms=9_000))
    assert [one.revocation.reason for one in kept.revoked] == [HELD_TOO_LONG]


def test_a_plea_for_another_hold_is_not_told_as_a_bound(driver: CellDriver) -> None:
    """A keepalive names what was told, and nothing of what ends only after its lease."""
    driver.open("ben", ttl_ms=BOUND_MS)
    driver.granted("a/x", session_id="ben")
    driver.granted("a/y", session_id="ben")
    driver.run(Revoke("a/y", "maintenance", 2_000))
    kept = expect(SessionKept, driver.run(KeepAlive(SessionId("ben"))))
    assert [one.name for one in kept.revoked] == ["a/y"]


def test_no_operator_says_it(driver: CellDriver) -> None:
    """The audit keeps acts of operators apart from what time does."""
    driver.granted("a/x", session_id="ann")
    assert reason(driver.run(Revoke("a/x", HELD_TOO_LONG, 5))) is Reason.INVALID_REQUEST
    driver.pass_to(5_001)
    (told,) = driver.events
    assert not told.concerns_others


@pytest.mark.parametrize("told_ms", [1_000, 6_000])
def test_a_snapshot_keeps_it(told_ms: int, driver: CellDriver) -> None:
    """Before and after the holder is told."""
    driver.permitted("a/q", 2, session_id="ann")
    driver.granted("a/x", session_id="ann", lock_delay_ms=5)
    driver.run(KeepAlive(ANN), at_ms=told_ms)
    data = snapshot.encode(driver.machine.state)
    driver.machine = LockMachine(snapshot.decode(data))
    assert snapshot.encode(driver.machine.state) == data
    invariants.check(driver.machine.state)
    driver.pass_to(10_001)
    assert [event.reason for event in driver.events if event.kind is EventKind.EXPIRED] == [HELD_TOO_LONG] * 2


@pytest.mark.parametrize("held_ms_max", [0, limits.TTL_MS_MIN - 1, limits.HELD_MS_MAX + 1])
def test_a_bound_that_means_nothing_is_refused(held_ms_max: int, driver: CellDriver) -> None:
    """As any number that is out of range."""
    refused = expect(Refused, driver.run(SetNamespace("b", NamespaceSettings(held_ms_max=held_ms_max))))
    assert refused.detail.startswith(f"held_ms_max: {held_ms_max}; must be 50 to")


def test_several_kinds_have_each_their_own(driver: CellDriver) -> None:
    """Permits beside locks are bounded by the namespace of the semaphore."""
    asked = AcquireSeveral(
        "",
        EXCLUSIVE,
        HoldId("several"),
        AttemptId("x"),
        ANN,
        locks=wanted("b"),
        permits=(WantedPermits("a/q", 2, 1),),
    )
    expect(GrantedSeveral, driver.run(asked))
    driver.run(KeepAlive(ANN), at_ms=9_000)
    assert driver.pass_to(10_001) == [EventKind.EXPIRED] * 2
    kinds = {event.of for event in driver.events}
    assert kinds == {HoldKind.LOCK, HoldKind.SEMAPHORE}
