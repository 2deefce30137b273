"""Lock-delays in quotas: what a hold counted goes on counting while its delay keeps others away."""

from typing import Any

import msgspec
import pytest

from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words.commands.admin import SetNamespace
from lockstate.words.commands.holds import Acquire, AcquirePermits, AcquireSeveral, AddLocks, Release
from lockstate.words.commands.overrides import ForceCloseSession, ForceRelease, LiftDelay
from lockstate.words.commands.sessions import CloseSession, OpenSession
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode, Scope
from lockstate.words.refusals import QuotaExceeded, Refused, RefusedInNamespace
from lockstate.words.results import (
    DelaysLifted,
    ForceReleased,
    Granted,
    NamespaceSet,
    Queued,
    Released,
    Result,
    SessionClosed,
    SessionForced,
    SessionOpened,
)
from lockstate.words.settings import NamespaceSettings
from lockstate.words.wanted import Uncommon, WantedPermits
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, expect, wanted
from tests.unit.lockstate.test_principals import Driver
from tests.unit.lockstate.test_quotas import quota, refusal

HOUR_MS = 3_600_000
S1 = SessionId("s1")


def used(driver: Driver, principal: str = "ann") -> tuple[int, int]:
    """Return how many holds and bytes count for a principal."""
    usage = driver.machine.state.principals.used_by(principal)
    return usage.holds, usage.bytes


def used_in(driver: Driver, prefix: str) -> tuple[int, int]:
    """Return how many holds and bytes count in a namespace."""
    usage = driver.machine.state.namespaces.usage[prefix]
    return usage.holds, usage.bytes


def delayed(
    hold_id: str, *names: str, mode: Mode = EXCLUSIVE, delay_ms: int = HOUR_MS, **more: Any
) -> Acquire:
    """Return an acquire of locks, one or several, that a delay follows."""
    fields: dict[str, Any] = {"ttl_ms": 0 if "session_id" in more else 50} | more
    if len(names) > 1:
        fields["locks"] = wanted(*names)
    name = names[0] if len(names) == 1 else ""
    ids = HoldId(hold_id), AttemptId(hold_id)
    return Acquire(name, mode, *ids, uncommon=Uncommon(lock_delay_ms=delay_ms), **fields)


def space(driver: Driver, prefix: str, **settings: Any) -> None:
    """Set a namespace."""
    command = SetNamespace(prefix, msgspec.structs.replace(NamespaceSettings(), **settings))
    expect(NamespaceSet, driver.run(command, driver.machine.now_ms))


def test_a_tenant_cannot_fill_the_state_with_delays() -> None:
    """However often it lets leases expire, it gets no more names than its quota has; others go on."""
    driver = Driver()
    quota(driver, holds=20, sessions=1, bytes=1000)
    results: list[Result] = []
    for number in range(30):
        names = [f"a/{number}/{place}" for place in range(8)]
        results.append(driver.by("ann", delayed(f"h{number}", *names), at_ms=number * 100))
    assert [type(result) for result in results[:3]] == [Granted, Granted, QuotaExceeded]
    assert all(refusal(result) == ("holds", {"limit": 20, "used": 16}) for result in results[2:])
    assert len(driver.machine.state.delays) == 16
    expect(Granted, driver.by("bob", delayed("b1", "b"), at_ms=3000))
    lifted = driver.by("ops", LiftDelay("a/0/0", "enough", HoldKind.LOCK), at_ms=3000)
    assert expect(DelaysLifted, lifted).count == 1
    assert used(driver)[0] == 15


def test_a_hold_counts_each_of_its_names() -> None:
    """One of more names than are left is refused as a whole, whoever is told before it is in the log."""
    driver = Driver()
    quota(driver, holds=5)
    expect(Granted, driver.by("ann", delayed("h1", "a", "b", "c")))
    three = delayed("h2", "d", "e", "f")
    refused = expect(QuotaExceeded, driver.by("ann", three))
    assert (refused.detail, refused.facts) == (
        "the quota of 5 holds has room for 2 more, not for 3",
        {"limit": 5, "used": 3},
    )
    assert driver.machine.no_room_for(three, "ann") == refused
    expect(Granted, driver.by("ann", delayed("h2", "d", "e")))
    assert used(driver) == (5, 5)
    expect(Released, driver.by("ann", Release(HoldId("h1"), names=("a",))))
    assert used(driver) == (4, 4)


def test_a_wait_counts_each_of_its_names() -> None:
    """As the hold will that it waits for; it ends, and they are free."""
    driver = Driver()
    expect(Granted, driver.by("bob", delayed("b1", "a", ttl_ms=5000)))
    quota(driver, holds=2)
    assert refusal(driver.by("ann", delayed("h1", "a", "b", "c", wait_ms=90))) == (
        "holds",
        {"limit": 2, "used": 0},
    )
    expect(Queued, driver.by("ann", delayed("h1", "a", "b", wait_ms=90)))
    assert used(driver) == (2, 2)
    driver.pass_to(91)
    assert used(driver) == (0, 0)


def test_locks_that_are_added_count() -> None:
    """At once, while they are waited for, and no more when that is over; none is added beyond the quota."""
    driver = Driver()
    expect(Granted, driver.by("bob", delayed("b1", "x", ttl_ms=5000)))
    expect(Granted, driver.by("ann", delayed("h1", "a", ttl_ms=5000)))
    quota(driver, holds=3, bytes=40)
    many = AddLocks(HoldId("h1"), wanted("b", "c", "d"), HoldId("t1"), AttemptId("t1"))
    assert refusal(driver.by("ann", many)) == ("holds", {"limit": 3, "used": 1})
    assert driver.machine.no_room_for(many, "ann") == driver.by("ann", many)
    long = AddLocks(HoldId("h1"), wanted("b" * 40), HoldId("t1"), AttemptId("t1"))
    assert refusal(driver.by("ann", long)) == ("bytes", {"limit": 40, "used": 1})
    waiting = AddLocks(HoldId("h1"), wanted("x", "y"), HoldId("t1"), AttemptId("t1"), 100)
    assert driver.machine.no_room_for(waiting, "ann") is None
    expect(Queued, driver.by("ann", waiting))
    assert used(driver) == (3, 3)
    driver.pass_to(101)
    assert used(driver) == (1, 1)
    expect(
        Granted,
        driver.by("ann", AddLocks(HoldId("h1"), wanted("a", "y"), HoldId("t1"), AttemptId("t1")), 101),
    )
    assert used(driver) == (2, 2)
    full = AddLocks(HoldId("h1"), wanted("a", "y"), HoldId("t2"), AttemptId("t2"))
    quota(driver, holds=0)
    assert driver.machine.no_room_for(full, "ann") is None, "it has them"
    assert driver.machine.no_room_for(msgspec.structs.replace(many, hold_id=HoldId("gone")), "ann") is None
    assert driver.machine.no_room_for(many, "bob") is None, "it is another's"


def test_an_expiry_leaves_what_it_counted() -> None:
    """Without a delay nothing; when that is over, nothing either."""
    driver = Driver()
    expect(Granted, driver.by("ann", delayed("h1", "a", "bc")))
    expect(Granted, driver.by("ann", delayed("h2", "d", delay_ms=0)))
    assert used(driver) == (3, 4)
    driver.pass_to(51)
    assert used(driver) == (2, 3)
    driver.pass_to(51 + HOUR_MS)
    assert used(driver) == (2, 3)
    driver.pass_to(52 + HOUR_MS)
    assert driver.machine.state.principals.usage == {}


def test_a_release_leaves_nothing() -> None:
    """Whatever delay would have followed the end of the lease."""
    driver = Driver()
    expect(Granted, driver.by("ann", delayed("h1", "a", "b")))
    expect(Released, driver.by("ann", Release(HoldId("h1"))))
    assert driver.machine.state.principals.usage == {}


def test_the_delay_of_a_force_counts_for_whose_hold_it_was() -> None:
    """And not for the operator; lifted, it counts for nobody."""
    driver = Driver()
    expect(Granted, driver.by("ann", delayed("h1", "a", "b", delay_ms=0)))
    expect(ForceReleased, driver.by("ops", ForceRelease("b", "late", 500)))
    assert (used(driver), used(driver, "ops")) == ((2, 2), (0, 0))
    quota(driver, holds=2)
    assert refusal(driver.by("ann", delayed("h2", "c")))[0] == "holds"
    expect(DelaysLifted, driver.by("ops", LiftDelay("a", "", HoldKind.LOCK)))
    expect(Granted, driver.by("ann", delayed("h2", "c")))
    driver.pass_to(501)
    assert used(driver) == (1, 1)


def test_permits_that_are_withheld_count() -> None:
    """Each delay is one, of as many permits as it may be; so are those of several kinds."""
    driver = Driver()
    ids = HoldId("h1"), AttemptId("h1")
    asked = Uncommon(lock_delay_ms=500)
    permits = AcquirePermits("pool", 5, 3, *ids, ttl_ms=50, uncommon=asked)
    expect(Granted, driver.by("ann", permits))
    ids = HoldId("h2"), AttemptId("h2")
    several = AcquireSeveral(
        "", EXCLUSIVE, *ids, ttl_ms=50, locks=wanted("a"), permits=(WantedPermits("pool"),), uncommon=asked
    )
    expect(Granted, driver.by("ann", several))
    assert used(driver) == (3, 9)
    driver.pass_to(51)
    assert used(driver) == (3, 9)
    expect(DelaysLifted, driver.by("ops", LiftDelay("pool", "", HoldKind.SEMAPHORE), 51))
    assert used(driver) == (1, 1)
    driver.pass_to(552)
    assert driver.machine.state.principals.usage == {}


@pytest.mark.parametrize("how", ["by time", "by force"])
def test_a_session_that_ends_leaves_delays(how: str) -> None:
    """By time or by force, with all of its holds; closed, it leaves none."""
    driver = Driver()
    opened = driver.by("ann", OpenSession(S1, 1000, {"owner": "x"}))
    expect(SessionOpened, opened)
    expect(Granted, driver.by("ann", delayed("h1", "a", "b", session_id=S1)))
    expect(Granted, driver.by("ann", delayed("h2", "c", session_id=S1)))
    if how == "by force":
        (name,) = [session.order for session in driver.machine.state.sessions.values()]
        expect(SessionForced, driver.by("ops", ForceCloseSession(f"s-{name}", "late")))
    else:
        driver.pass_to(1001)
    assert used(driver) == (3, 3)
    assert driver.machine.state.principals.used_by("ann").sessions == 0
    driver.pass_to(1002 + HOUR_MS)
    assert driver.machine.state.principals.usage == {}
    expect(SessionOpened, driver.by("ann", OpenSession(S1, 1000), 1002 + HOUR_MS))
    expect(Granted, driver.by("ann", delayed("h1", "a", session_id=S1), 1002 + HOUR_MS))
    expect(SessionClosed, driver.by("ann", CloseSession(S1), 1002 + HOUR_MS))
    assert driver.machine.state.principals.usage == {}


def test_a_delay_that_another_hold_makes_longer_is_that_ones() -> None:
    """A shorter one adds nothing; each counts for one principal at a time, and for none in the end."""
    driver = Driver()
    expect(Granted, driver.by("ann", delayed("h1", "a", mode=SHARED, delay_ms=1000)))
    expect(Granted, driver.by("bob", delayed("h2", "a", mode=SHARED, delay_ms=1000, ttl_ms=60)))
    expect(Granted, driver.by("cid", delayed("h3", "a", mode=SHARED, delay_ms=500, ttl_ms=70)))
    expect(Granted, driver.run(delayed("h4", "a", mode=SHARED, delay_ms=5000, ttl_ms=80)))
    seen = []
    for at_ms in (51, 61, 71, 81, 5082):
        driver.pass_to(at_ms)
        seen.append(tuple(used(driver, who)[0] for who in ("ann", "bob", "cid")))
    assert seen == [(1, 1, 1), (0, 1, 1), (0, 1, 0), (0, 0, 0), (0, 0, 0)]
    assert driver.machine.state.principals.usage == {}


def test_delays_of_both_scopes_count() -> None:
    """Those of a name and of its subtree are two."""
    driver = Driver()
    for hold_id, scope in (("h1", Scope.NODE), ("h2", Scope.SUBTREE)):
        expect(Granted, driver.by("ann", delayed(hold_id, "a", mode=SHARED, scope=scope)))
    driver.pass_to(51)
    assert used(driver) == (2, 2)


def test_delays_lie_in_namespaces() -> None:
    """Each where its name does, from the hold on to its end; one that was there before does not count."""
    driver = Driver()
    expect(Granted, driver.run(delayed("h0", "jobs/old")))
    driver.pass_to(51)
    space(driver, "jobs", holds=3)
    space(driver, "jobs/night", bytes=100)
    asked = delayed("h1", "jobs/a", "jobs/night/b", "other", delay_ms=500)
    expect(Granted, driver.by("ann", asked, 51))
    assert (used_in(driver, "jobs"), used_in(driver, "jobs/night")) == ((2, 18), (1, 12))
    driver.pass_to(102)
    assert (used_in(driver, "jobs"), used_in(driver, "jobs/night")) == ((2, 18), (1, 12))
    refused = expect(RefusedInNamespace, driver.by("bob", delayed("h2", "jobs/c", "jobs/d"), 102))
    assert (refused.quota, refused.facts) == ("holds", {"limit": 3, "used": 2})
    expect(DelaysLifted, driver.by("ops", LiftDelay("jobs/old", "", HoldKind.LOCK), 102))
    assert used_in(driver, "jobs") == (2, 18)
    driver.pass_to(603)
    assert (used_in(driver, "jobs"), used_in(driver, "jobs/night")) == ((0, 0), (0, 0))


def test_a_delay_behind_a_hold_from_before_the_namespace_counts() -> None:
    """It is made later; so does one after the namespace was removed and set again."""
    driver = Driver()
    expect(Granted, driver.run(delayed("h0", "jobs/a", delay_ms=5000)))
    space(driver, "jobs", waits=9)
    assert used_in(driver, "jobs") == (0, 0)
    driver.pass_to(51)
    assert used_in(driver, "jobs") == (1, 6)
    expect(NamespaceSet, driver.run(SetNamespace("jobs"), 51))
    space(driver, "jobs", waits=9)
    assert used_in(driver, "jobs") == (0, 0)
    driver.pass_to(5052)
    assert used_in(driver, "jobs") == (0, 0)


def test_counts_survive_a_restart() -> None:
    """A machine that is restored from a snapshot counts the same, and counts them down."""
    driver = Driver()
    space(driver, "jobs", holds=9)
    expect(Granted, driver.by("ann", delayed("h1", "jobs/a", "jobs/b", "c")))
    ids = HoldId("h2"), AttemptId("h2")
    asked = Uncommon(lock_delay_ms=700)
    expect(Granted, driver.by("bob", AcquirePermits("pool", 5, 3, *ids, ttl_ms=50, uncommon=asked)))
    driver.pass_to(51)
    state = driver.machine.state
    again = LockMachine(snapshot.decode(snapshot.encode(state)))
    assert snapshot.encode(again.state) == snapshot.encode(state)
    assert again.state.principals.usage == state.principals.usage
    assert again.state.namespaces.usage == state.namespaces.usage
    assert (again.fingerprint, again.bytes_count) == (driver.machine.fingerprint, driver.machine.bytes_count)
    driver.machine = again
    driver.pass_to(52 + HOUR_MS)
    assert again.state.principals.usage == {}
    assert used_in(driver, "jobs") == (0, 0)


def test_an_owner_is_not_a_principal() -> None:
    """What a node without principals makes counts for nobody, whatever owner it names, delay or not."""
    driver = Driver()
    expect(Granted, driver.by("ann", delayed("h1", "a")))
    expect(Granted, driver.run(delayed("h2", "b", owner=OwnerName("ann"))))
    driver.pass_to(51)
    assert used(driver) == (1, 1)
    assert expect(Refused, driver.by("ann", delayed("h3", "b"), 51)).retry_after_ms > 0
