"""Rate limits that a namespace sets: clients leave out what they are, and a change of it keeps the count."""

import pytest

from lockstate.words.commands.admin import SetNamespace
from lockstate.words.commands.entries import Cancel
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.events import EventKind
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.kinds import Algorithm
from lockstate.words.refusals import Reason, Refused, RefusedInNamespace
from lockstate.words.results import NamespaceSet, RateTaken, Result
from lockstate.words.settings import NamespaceSettings as Settings
from lockstate.words.settings import RateSettings
from tests.unit.lockstate.machine_driver import expect
from tests.unit.lockstate.test_several import Driver as SeveralDriver

FIXED, SLIDING, GCRA = Algorithm
MINUTE_MS = 60_000


class Driver(SeveralDriver):
    """A machine, and an operator who says what rate limits are."""

    def set(
        self, limit: int, window_ms: int = MINUTE_MS, algorithm: Algorithm = FIXED, prefix: str = "mail"
    ) -> None:
        """Set what the rate limits of a namespace are."""
        settings = Settings(rate=RateSettings(limit, window_ms, algorithm))
        expect(NamespaceSet, self.run(SetNamespace(prefix, settings)))

    def take(self, name: str = "mail", *, at_ms: int = 0, **fields: object) -> Result:
        """Take from a rate limit; what it is may be left out."""
        return self.run(TakeRate(name, **fields), at_ms)  # type: ignore[arg-type]

    def left(self, name: str = "mail", **fields: object) -> int:
        """Take from a rate limit that allows it, and return what remains."""
        taken = expect(RateTaken, self.take(name, **fields))  # type: ignore[arg-type]
        assert taken.allowed
        return taken.remaining


@pytest.fixture
def driver() -> Driver:
    """Return a machine at a time at which no window ends soon."""
    driver = Driver()
    driver.pass_to(100 * MINUTE_MS)
    return driver


def test_what_a_namespace_sets_may_be_left_out(driver: Driver) -> None:
    """Each name below its prefix is a rate limit of its own; the answer says what it is."""
    driver.set(3)
    taken = expect(RateTaken, driver.take("mail/ann"))
    assert (taken.limit, taken.window_ms, taken.remaining) == (3, MINUTE_MS, 2)
    assert driver.left("mail/ann", limit=3, window_ms=MINUTE_MS, algorithm=FIXED) == 1
    assert driver.left("mail/bob", limit=3) == 2
    assert driver.machine.peek_rate(TakeRate("mail/bob")).remaining == 2  # type: ignore[union-attr]
    refused = expect(Refused, driver.take("post"))
    assert (refused.reason, refused.detail) == (
        Reason.LIMIT_MISMATCH,
        "limit, window_ms: are required, because no namespace sets the rate of 'post'",
    )
    assert expect(Refused, driver.take("post", limit=3)).reason is Reason.LIMIT_MISMATCH


@pytest.mark.parametrize(
    ("said", "detail"),
    [
        ({"limit": 9}, "limit: 9; the namespace 'mail' sets 3: 3 in 60000 ms (gcra); it may be left out"),
        (
            {"limit": 3, "window_ms": 1000},
            "window_ms: 1000; the namespace 'mail' sets 60000: 3 in 60000 ms (gcra); it may be left out",
        ),
        (
            {"algorithm": FIXED},
            (
                "algorithm: fixed-window; the namespace 'mail' sets gcra: 3 in 60000 ms (gcra);"
                " it may be left out"
            ),
        ),
    ],
)
def test_a_different_one_is_refused(driver: Driver, said: dict[str, object], detail: str) -> None:
    """It says what is set, by which namespace, and changes nothing."""
    driver.set(3, algorithm=GCRA)
    refused = expect(RefusedInNamespace, driver.take(**said))  # type: ignore[arg-type]
    assert (refused.reason, refused.namespace, refused.detail) == (Reason.LIMIT_MISMATCH, "mail", detail)
    assert refused.facts == {"limit": 3, "window_ms": MINUTE_MS}
    assert driver.machine.peek_rate(TakeRate("mail", **said)) == refused  # type: ignore[arg-type]
    assert driver.machine.counts()["rate_limits"] == 0
    too_much = expect(Refused, driver.take(cost=4))
    assert (too_much.reason, too_much.detail) == (Reason.INVALID_REQUEST, "cost: 4; must be 1 to 3")


def test_the_longest_namespace_says_what_a_rate_limit_is(driver: Driver) -> None:
    """One that sets none leaves it to the callers, whatever those around it set."""
    driver.set(3)
    driver.run(SetNamespace("mail/free", Settings(holds=1)))
    driver.set(9, prefix="mail/big")
    assert driver.left("mail/big/1") == 8
    assert driver.left("mail/free", limit=5, window_ms=1000) == 4
    assert expect(Refused, driver.take("mail/free")).reason is Reason.LIMIT_MISMATCH


def test_another_limit_counts_what_was_taken(driver: Driver) -> None:
    """More or less: what was taken before the change stays taken."""
    driver.set(3)
    assert driver.left(cost=2) == 1
    driver.set(10)
    assert driver.left() == 7
    driver.set(2)
    assert not expect(RateTaken, driver.take()).allowed


@pytest.mark.parametrize("new", Algorithm)
@pytest.mark.parametrize("old", Algorithm)
def test_another_way_of_counting_goes_on_with_the_count(
    driver: Driver, old: Algorithm, new: Algorithm
) -> None:
    """Whatever was taken in the present window counts as taken now, at the latest; a peek says the same."""
    now_ms = driver.machine.now_ms
    driver.set(10, algorithm=old)
    assert driver.left(cost=4) == 6
    driver.set(20, 10 * MINUTE_MS, new)
    asked = TakeRate("mail", cost=17, wait_ms=10 * MINUTE_MS)
    seen = driver.machine.peek_rate(asked)
    taken = expect(RateTaken, driver.run(asked))
    assert isinstance(seen, RateTaken)
    assert (seen.at_ms, seen.reset_in_ms > 0) == (taken.at_ms, True)
    assert taken.at_ms > now_ms
    assert driver.machine.counts()["rate_limits"] == 1
    driver.restart()
    driver.pass_to(now_ms + 30 * MINUTE_MS)
    assert driver.machine.counts()["rate_limits"] == 0


@pytest.mark.parametrize("new", Algorithm)
def test_places_keep_their_moments(driver: Driver, new: Algorithm) -> None:
    """A client that waits goes when it was told to; what it took counts, and can still be given back."""
    driver.set(1)
    driver.take()
    waits = [TakeRate("mail", wait_ms=5 * MINUTE_MS, attempt_id=AttemptId(one)) for one in "ab"]
    moments = [expect(RateTaken, driver.run(one)).at_ms for one in waits]
    driver.set(1, MINUTE_MS // 2, new)
    seen = driver.machine.peek_rate(TakeRate("mail", wait_ms=5 * MINUTE_MS))
    third = expect(RateTaken, driver.take(wait_ms=5 * MINUTE_MS, attempt_id=AttemptId("c")))
    assert isinstance(seen, RateTaken)
    assert seen.at_ms == third.at_ms
    assert third.at_ms == moments[-1] + MINUTE_MS // 2
    driver.restart()
    for one in "cb":
        driver.run(Cancel(HoldId(one), AttemptId(one)))
    assert expect(RateTaken, driver.take(wait_ms=5 * MINUTE_MS)).at_ms == moments[0] + MINUTE_MS // 2


def test_what_callers_said_before_goes_on_as_what_is_set(driver: Driver) -> None:
    """Of several rate limits of one name it is the one that would be whole last."""
    driver.take(limit=5, window_ms=1000, cost=4)
    driver.take(limit=9, window_ms=10 * MINUTE_MS, cost=2)
    driver.take("mail2", limit=5, window_ms=1000)
    driver.set(7)
    assert driver.left() == 4
    assert driver.machine.counts()["rate_limits"] == 3


def test_several_kinds_take_what_is_set(driver: Driver) -> None:
    """And are refused at once, before they wait, if they say something else."""
    driver.set(2, 1000)
    assert driver.got("a", "", "mail").rates[0].remaining == 1
    driver.set(3, 1000)
    assert expect(Refused, driver.several("b", "", "mail", wait_ms=5000)).reason is Reason.LIMIT_MISMATCH
    assert not driver.machine.state.tickets


def test_a_wait_for_several_kinds_ends_if_what_is_set_has_changed(driver: Driver) -> None:
    """When it is its turn, it may ask for what there is no more."""
    driver.granted("a", ttl_ms=50_000)
    driver.waits("a", "", "mail")
    driver.set(5)
    driver.release("h1")
    (refused,) = driver.settled.values()
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.LIMIT_MISMATCH
    assert (EventKind.LEFT, "limit-mismatch") in [(event.kind, event.reason) for event in driver.events]


@pytest.mark.parametrize(
    ("rate", "field"), [(RateSettings(0, 1000), "rate.limit"), (RateSettings(1, 9), "rate.window_ms")]
)
def test_a_rate_that_cannot_be_is_not_set(driver: Driver, rate: RateSettings, field: str) -> None:
    """The refusal names the field."""
    refused = expect(Refused, driver.run(SetNamespace("mail", Settings(rate=rate))))
    assert refused.detail.startswith(f"{field}: ")
