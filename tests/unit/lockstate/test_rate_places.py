"""Places of rate limits: what was taken for a moment to come, given back by a client that went away."""

from unittest.mock import patch

import pytest

from lockstate.machine import LockMachine
from lockstate.reads import listings
from lockstate.stored import snapshot
from lockstate.stored.snapshot import SnapshotError
from lockstate.tables.rates import RateLimits
from lockstate.words import limits
from lockstate.words.commands.admin import SetNamespace, SetQuota
from lockstate.words.commands.entries import Cancel
from lockstate.words.commands.holds import AcquireSeveral, Release
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.commands.sessions import CloseSession
from lockstate.words.commands.streams import ResumeStream
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.kinds import Algorithm
from lockstate.words.refusals import QuotaExceeded, Reason, Refused, RefusedInNamespace
from lockstate.words.results import Cancelled, Granted, GrantedSeveral, Queued, RateTaken, Released, Result
from lockstate.words.settings import NamespaceSettings as Settings
from lockstate.words.settings import Quota
from lockstate.words.wanted import WantedRate
from tests.unit.lockstate.machine_driver import EXCLUSIVE, expect, wanted
from tests.unit.lockstate.test_principals import Driver as PrincipalDriver
from tests.unit.lockstate.test_several import Driver as SeveralDriver

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
settle = RateLimits.settle


class Driver(PrincipalDriver, SeveralDriver):
    """A machine, and clients that take from rate limits of one a minute."""

    def take(
        self,
        attempt: str = "",
        *,
        who: str = "",
        at_ms: int = 0,
        wait_ms: int = 2 * HOUR_MS,
        name: str = "mail",
        algorithm: Algorithm = Algorithm.FIXED_WINDOW,
        request_id: str = "",
        cost: int = 1,
        limit: int = 1,
    ) -> Result:
        """Take one, for somebody if there is a principal."""
        command = TakeRate(name, limit, MINUTE_MS, algorithm, cost, wait_ms, request_id, AttemptId(attempt))
        return self.by(who, command, at_ms) if who else self.run(command, at_ms)

    def place(self, attempt: str = "", **more: object) -> int:
        """Take one, and return the moment for which it is."""
        taken = expect(RateTaken, self.take(attempt, **more))  # type: ignore[arg-type]
        assert taken.allowed
        return taken.at_ms

    def hangs_up(self, attempt: str, at_ms: int = 0) -> bool:
        """Take back an attempt; return whether that gave anything back."""
        command = Cancel(HoldId(attempt), AttemptId(attempt))
        return expect(Cancelled, self.run(command, at_ms)).undone

    def waits_of(self, principal: str) -> tuple[int, int]:
        """Return how many waits and rate limits count for a principal."""
        used = self.machine.state.principals.used_by(principal)
        return used.waits, used.rate_limits

    def in_space(self, prefix: str) -> tuple[int, int]:
        """Return how many waits and rate limits there are in a namespace."""
        used = self.machine.state.namespaces.usage[prefix]
        return used.waits, used.rate_limits


@pytest.fixture
def driver() -> Driver:
    """Return a machine without anything."""
    return Driver()


# -- what is given back --------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", Algorithm)
def test_clients_that_hang_up_do_not_close_a_limit(driver: Driver, algorithm: Algorithm) -> None:
    """Forty clients ask for one a minute and go: the next one has the first place."""
    driver.take(algorithm=algorithm)
    places = [driver.place(f"a{number}", algorithm=algorithm) for number in range(40)]
    assert places == [MINUTE_MS * number for number in range(1, 41)]
    assert all(driver.hangs_up(f"a{number}", at_ms=1000) for number in range(40))
    driver.restart()
    assert driver.place("b", algorithm=algorithm) == MINUTE_MS
    driver.pass_to(2 * MINUTE_MS + 1)
    assert driver.machine.counts()["rate_limits"] == 0


@pytest.mark.parametrize("algorithm", Algorithm)
def test_the_places_of_others_stay(driver: Driver, algorithm: Algorithm) -> None:
    """A client that was told its moment keeps it, and nobody comes before it."""
    driver.take(algorithm=algorithm)
    places = [driver.place(one, algorithm=algorithm) for one in "abcd"]
    assert driver.hangs_up("b")
    assert driver.place("e", algorithm=algorithm) == places[-1] + MINUTE_MS
    assert driver.hangs_up("d")
    assert driver.hangs_up("e")
    assert driver.place("f", algorithm=algorithm) == places[2] + MINUTE_MS


@pytest.mark.parametrize("algorithm", Algorithm)
def test_a_place_whose_moment_has_come_is_used_up(driver: Driver, algorithm: Algorithm) -> None:
    """Its client may have gone on with it; the moment itself belongs to the client already."""
    driver.take(algorithm=algorithm)
    for number, late_ms in enumerate((0, 1, 1000), 1):
        name = f"mail-{late_ms}"
        driver.take(name=name, algorithm=algorithm, at_ms=(number * 10) * MINUTE_MS)
        at_ms = driver.place("a", name=name, algorithm=algorithm, at_ms=(number * 10) * MINUTE_MS)
        assert not driver.hangs_up("a", at_ms + late_ms)
        taken = expect(RateTaken, driver.take(name=name, algorithm=algorithm, wait_ms=0))
        assert not taken.allowed


def test_what_is_given_back_is_free_for_a_smaller_cost(driver: Driver) -> None:
    """A limit answers as if the place had never been asked for."""
    driver.take(limit=5, cost=4)
    assert driver.place("a", limit=5, cost=3) == MINUTE_MS
    assert not expect(RateTaken, driver.take(limit=5, wait_ms=0)).allowed
    assert driver.hangs_up("a")
    assert expect(RateTaken, driver.take(limit=5, wait_ms=0)).remaining == 0


def test_only_the_last_attempt_gives_back(driver: Driver) -> None:
    """A client that asked again, on another node, has the same place: it stays until both have gone."""
    driver.take()
    at_ms = driver.place("a", request_id="r1")
    assert driver.place("b", request_id="r1", at_ms=1000) == at_ms
    assert not driver.hangs_up("a", 2000)
    driver.restart()
    assert driver.place("c", request_id="r1", at_ms=3000) == at_ms
    assert not driver.hangs_up("c", 4000)
    assert driver.hangs_up("b", 5000)
    assert not driver.hangs_up("b", 6000)
    assert driver.place("d", request_id="r1", at_ms=7000) == at_ms, "it is asked for anew"
    assert driver.hangs_up("d", 8000)


def test_an_attempt_that_nobody_can_take_back_keeps_the_place(driver: Driver) -> None:
    """One without an id, or one of so many that it was forgotten, may have been told of the place."""
    driver.take()
    driver.place("", request_id="r1")
    driver.place("a", request_id="r1")
    assert not driver.hangs_up("a")
    driver.place("b", request_id="r2")
    driver.place("", request_id="r2")
    assert not driver.hangs_up("b")
    attempts = [f"c{number}" for number in range(limits.ATTEMPTS_COUNT_MAX + 1)]
    for attempt in attempts:
        driver.place(attempt, request_id="r3")
    assert not any(driver.hangs_up(attempt) for attempt in attempts)
    assert len(driver.machine.state.rates.places) == 3


def test_a_request_that_waits_for_its_place_is_remembered(driver: Driver) -> None:
    """A client that asks in slices for longer than outcomes are remembered takes once."""
    driver.take()
    for name in range(9):
        at_ms = driver.place(str(name))
    assert driver.place("a", request_id="r1") == at_ms + MINUTE_MS
    for asked_ms in range(0, at_ms, limits.REQUEST_AGE_MS - 1000):
        taken = expect(RateTaken, driver.take("a", request_id="r1", at_ms=asked_ms))
        assert taken.at_ms == at_ms + MINUTE_MS
        assert taken.reset_in_ms == at_ms + 2 * MINUTE_MS - asked_ms
    driver.run(TakeRate("other", 1, 1000), limits.REQUEST_AGE_MS + 1)
    driver.pass_to(3 * limits.REQUEST_AGE_MS)
    assert driver.machine.counts()["requests"] == 0


def test_a_hold_that_ends_before_its_moment_gives_its_places_back(driver: Driver) -> None:
    """Whoever ends it: nobody has used it yet."""
    for name in ("mail", "post"):
        driver.run(TakeRate(name, 2, 1000, cost=2))
    got = driver.got("a", "", "mail post", wait_ms=5000)
    assert got.at_ms == 1000
    driver.run(Release(got.hold_id), 500)
    again = driver.got("b", "", "mail post", wait_ms=5000)
    assert [one.remaining for one in again.rates] == [0, 0]
    later = driver.got("c", "", "mail", wait_ms=5000)
    assert later.at_ms == 1000, "of two places one is left"
    driver.pass_to(1001)
    driver.run(Release(later.hold_id), 1001)
    assert not expect(RateTaken, driver.run(TakeRate("mail", 2, 1000), 1001)).allowed
    assert isinstance(again, GrantedSeveral)


def test_a_hold_that_ends_at_its_moment_has_used_its_places(driver: Driver) -> None:
    """The moment itself belongs to the client already."""
    driver.run(TakeRate("mail", 2, 1000, cost=2))
    got = driver.got("a", "", "mail", wait_ms=5000)
    driver.run(Release(got.hold_id), got.at_ms)
    assert not expect(RateTaken, driver.run(TakeRate("mail", 2, 1000, cost=2), got.at_ms)).allowed


def test_a_session_that_ends_counts_each_limit_anew_once(driver: Driver) -> None:
    """However many places its holds had: to do it for each would keep all nodes busy for seconds."""
    driver.open("ann", "bob", ttl_ms=HOUR_MS)
    for _ in range(2):
        driver.run(TakeRate("mail", 2, 1000))
    for number in range(100):
        driver.got(f"a-{number}", "", "mail", session_id="ann", wait_ms=HOUR_MS)
        driver.got(f"b-{number}", "", "mail", session_id="bob", wait_ms=HOUR_MS)
    rates = driver.machine.state.rates
    counted: list[int] = []

    def noted(rates: RateLimits, now_ms: int) -> int:
        counted.append(settle(rates, now_ms))
        return counted[-1]

    with patch.object(RateLimits, "settle", noted):
        driver.run(CloseSession(SessionId("ann")))
    assert counted == [100]
    assert [place.expires_at_ms for place in rates.places.values()][:2] == [1000, 2000]
    driver.restart()
    assert driver.got("c", "", "mail", wait_ms=HOUR_MS).at_ms == 100_000


def test_what_a_session_takes_for_later_are_claims_of_it(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it ends in one step when the session does, so there is a most of it."""
    driver.open("ann", ttl_ms=HOUR_MS)
    monkeypatch.setattr(limits, "SESSION_CLAIMS_MAX", 5)
    driver.got("a", "", "mail post", session_id="ann")
    refused = expect(Refused, driver.several("b", "", "mail post", session_id="ann"))
    assert refused.reason is Reason.OVERLOADED
    driver.got("b", "", "mail", session_id="ann")


def test_a_frame_that_gives_much_back_stops(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each place that is counted anew is a part of what a frame may bring about."""
    monkeypatch.setattr(limits, "FRAME_EFFORT_MAX", 10)
    driver.open("ann", ttl_ms=HOUR_MS)
    for _ in range(2):
        driver.run(TakeRate("mail", 2, 1000))
    holds = [driver.got(f"a-{number}", "", "mail", session_id="ann", wait_ms=HOUR_MS) for number in range(50)]
    driver.run(ResumeStream(SessionId("ann")))
    releases = [Release(hold.hold_id) for hold in holds[:3]]
    results = driver.in_frame(SessionId("ann"), 1, *releases)
    assert [type(result) for result in results] == [Released]
    assert len(driver.machine.state.rates.places) == 49


def test_a_place_late_in_a_fixed_window_may_be_passed_within_it(driver: Driver) -> None:
    """Another limit made it late. All moments of the window are as good, and no more go through it."""
    slow = TakeRate("slow", 1, 90_000, Algorithm.SLIDING_WINDOW)
    rates = (WantedRate("mail", 2, MINUTE_MS), WantedRate(slow.name, 1, slow.window_ms, slow.algorithm))
    several = AcquireSeveral(
        *("", EXCLUSIVE, HoldId("h"), AttemptId("h")),
        ttl_ms=1000,
        wait_ms=HOUR_MS,
        locks=wanted("a"),
        rates=rates,
    )
    driver.run(slow, MINUTE_MS)
    late = expect(GrantedSeveral, driver.run(several, MINUTE_MS))
    assert late.at_ms == MINUTE_MS + 90_000
    places = [driver.place(limit=2, at_ms=MINUTE_MS) for _ in range(2)]
    assert places == [2 * MINUTE_MS, 3 * MINUTE_MS]
    driver.restart()
    driver.pass_to(5 * MINUTE_MS)
    assert len(driver.machine.state.rates) == 0


# -- bounds --------------------------------------------------------------------------------------------------


def test_a_limit_counts_for_who_began_it_until_it_is_whole(driver: Driver) -> None:
    """Others may take from it as well, and have nothing on their account."""
    driver.run(SetQuota("ann", Quota(rate_limits=1)))
    driver.take(who="ann")
    driver.take(who="bob")
    assert (driver.waits_of("ann"), driver.waits_of("bob")) == ((0, 1), (1, 0))
    refused = expect(QuotaExceeded, driver.take(who="ann", name="post"))
    assert (refused.quota, refused.facts) == ("rate_limits", {"limit": 1, "used": 1})
    assert expect(RateTaken, driver.take(who="ann", wait_ms=0)).allowed is False
    driver.restart()
    driver.pass_to(2 * MINUTE_MS + 1)
    assert driver.machine.state.principals.usage == {}
    assert expect(RateTaken, driver.take(who="ann", name="post")).allowed


def test_a_wait_that_is_let_through_takes_on_the_account_of_who_waited(driver: Driver) -> None:
    """Not of who released what it waited for: that one is told nothing of another one's quota."""
    rates = (WantedRate("mail", 2, MINUTE_MS),)
    for number, bounded in enumerate(("ann", "bob")):
        driver.run(SetQuota(bounded, Quota(rate_limits=0)))
        held, waits = HoldId(f"held-{number}"), HoldId(f"waits-{number}")
        expect(Granted, driver.took("ann", held, bounded))
        several = AcquireSeveral(
            "",
            EXCLUSIVE,
            waits,
            AttemptId(waits),
            ttl_ms=1000,
            wait_ms=500,
            locks=wanted(bounded),
            rates=rates,
        )
        expect(Queued, driver.by("bob", several))
        driver.by("ann", Release(held))
        if bounded == "ann":
            assert driver.served() == [waits]
            driver.pass_to(2 * MINUTE_MS)
        else:
            assert expect(QuotaExceeded, driver.settled[waits]).quota == "rate_limits"


def test_a_listing_tells_who_has_taken(driver: Driver) -> None:
    """The first, for which it counts, and the last; and how many wait."""
    driver.take(who="ann")
    driver.take(who="bob")
    ((row,), _) = listings.rate_limits(driver.machine.state, "", "", 9)
    assert (row.principal, row.last_principal, row.waiting) == ("ann", "bob", 1)


def test_a_place_counts_as_a_wait_until_its_moment(driver: Driver) -> None:
    """Only one that is to come: what goes at once needs no room."""
    driver.run(SetQuota("ann", Quota(waits=1)))
    driver.take(who="ann")
    assert driver.place("a", who="ann") == MINUTE_MS
    refused = expect(QuotaExceeded, driver.take("b", who="ann"))
    assert (refused.quota, refused.facts) == ("waits", {"limit": 1, "used": 1})
    driver.restart()
    assert driver.waits_of("ann") == (1, 1)
    driver.hangs_up("a")
    assert driver.waits_of("ann") == (0, 1)
    assert driver.place("c", who="ann") == MINUTE_MS
    driver.pass_to(MINUTE_MS + 1)
    assert driver.waits_of("ann") == (0, 1)


def test_a_namespace_bounds_limits_and_places(driver: Driver) -> None:
    """What was there when it was set is not counted."""
    for name in ("jobs/old", "jobs/older"):
        driver.take(name=name)
        driver.take(name=name)
    driver.run(SetNamespace("jobs", Settings(rate_limits=2, waits=1)))
    assert driver.in_space("jobs") == (0, 0)
    driver.place("a", name="jobs/old")
    refused = expect(RefusedInNamespace, driver.take(name="jobs/old"))
    assert (refused.namespace, refused.quota) == ("jobs", "waits")
    driver.take(name="jobs/1")
    driver.take(name="jobs/2")
    refused = expect(RefusedInNamespace, driver.take(name="jobs/3"))
    assert (refused.namespace, refused.quota, refused.facts) == (
        "jobs",
        "rate_limits",
        {"limit": 2, "used": 2},
    )
    driver.restart()
    assert driver.in_space("jobs") == (1, 2)
    driver.pass_to(10 * MINUTE_MS)
    assert driver.in_space("jobs") == (0, 0)


def test_limits_of_several_kinds_are_bounded_together(driver: Driver) -> None:
    """All that are new need room at once, or none is taken from."""
    driver.run(SetNamespace("jobs", Settings(rate_limits=1)))
    refused = expect(RefusedInNamespace, driver.several("a", "", "jobs/1 jobs/2"))
    assert refused.detail.endswith("there is no room for 2 more") or refused.facts == {"limit": 1, "used": 0}
    assert driver.machine.counts()["rate_limits"] == 0
    driver.got("a", "", "jobs/1 other")


def test_there_is_a_most_of_places(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that would be one too many is refused, whatever it is for."""
    monkeypatch.setattr(limits, "RATE_PLACES_MAX", 2)
    driver.take()
    for attempt in "ab":
        driver.place(attempt)
    refused = expect(Refused, driver.take("c"))
    assert (refused.reason, refused.queue_length) == (Reason.QUEUE_FULL, 2)
    assert driver.hangs_up("a")
    driver.place("d")


def test_a_snapshot_whose_places_lack_their_limit_is_refused(driver: Driver) -> None:
    """It is broken."""
    driver.take()
    driver.place("a")
    state = driver.machine.state
    state.rates.dump = list  # type: ignore[method-assign]
    with pytest.raises(SnapshotError, match="is referred to and not there"):
        snapshot.decode(snapshot.encode(state))
    assert isinstance(driver.machine, LockMachine)
