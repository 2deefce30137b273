"""The checkers of the whole vocabulary object: to wrong holds, permits, leaders, deadlocks, rates, fences."""

import msgspec
import pytest

from lockstate.rules.refusals import LEASE_EXPIRED
from lockstate.words.commands.cells import PutCell
from lockstate.words.commands.entries import Command, Tick
from lockstate.words.commands.holds import Acquire, AcquirePermits, Campaign, Convert, Proclaim, Release
from lockstate.words.commands.primitives import AdvanceFence, ResizeSemaphore, TakeRate
from lockstate.words.commands.sessions import KeepAlive, OpenSession
from lockstate.words.events import EventKind
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.kinds import Algorithm, HoldKind
from lockstate.words.modes import Mode, Scope
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import (
    CellWritten,
    FenceAdvanced,
    Granted,
    Queued,
    RateTaken,
    Released,
    Result,
    SessionKept,
    SessionOpened,
)
from lockstate.words.wanted import Uncommon, Wanted
from tests.simulation.checks.cells import Cells
from tests.simulation.checks.conflicts import are_compatible, conflict, draws_token, is_stronger
from tests.simulation.checks.fences import Fences
from tests.simulation.checks.model_replay import Answer, Step
from tests.simulation.checks.order import Order
from tests.simulation.checks.owners import Owners
from tests.simulation.checks.rates import Rates
from tests.simulation.checks.report import Report
from tests.simulation.checks.scripted_cluster import ScriptedCluster, acquire, objects
from tests.simulation.workload.history import Belief, Call
from tests.simulation.workload.owned import Owned

S, U, X = Mode.SHARED, Mode.UPDATE, Mode.EXCLUSIVE
CR, CW = Mode.CONCURRENT_READ, Mode.CONCURRENT_WRITE
GRANTED, CONVERTED, EXPIRED = EventKind.GRANTED, EventKind.CONVERTED, EventKind.EXPIRED


def permits(hold: str, count: int = 1, limit: int = 2, **fields: object) -> AcquirePermits:
    """Return an acquire of permits with a lease of a minute."""
    given: dict[str, object] = {"attempt_id": f"try-{hold}", "ttl_ms": 60_000, **fields}
    return AcquirePermits("s", limit, count, hold_id=hold, **given)  # type: ignore[arg-type] # a test's own


def called(command: Command, number: int = 1, called_us: int = 0, principal: str = "") -> Call:
    """Return a call."""
    return Call(
        number=number,
        client="one",
        node_id="a",
        command=command,
        called_us=called_us,
        known_revision=0,
        known_token=0,
        principal=principal,
    )


# -- all of it, as it should be ---------------------------------------------------------------------------


def test_the_whole_vocabulary_passes() -> None:
    """Conversions, several locks, permits, elections, rates and fences pass when told as they are."""
    cluster = ScriptedCluster(digest_every=1)
    cluster.ask(OpenSession(SessionId("s1"), 60_000, {}))
    several = (Wanted("a/b", S, Scope.SUBTREE), Wanted("x", U))
    cluster.ask(Acquire("", X, HoldId("h1"), AttemptId("t1"), ttl_ms=60_000, locks=several))
    cluster.ask(Convert(HoldId("h1"), X, HoldId("c1"), AttemptId("t2")))
    cluster.ask(Convert(HoldId("h1"), S, HoldId("c2"), AttemptId("t3")))
    cluster.ask(Release(HoldId("h1"), names=("x",)))
    cluster.ask(permits("p1", 2, 3))
    assert cluster.ask(permits("p2", 2, 3)).reason is Reason.NO_PERMITS  # type: ignore[union-attr]
    cluster.ask(ResizeSemaphore("s", 5))
    cluster.ask(permits("p3", 2, 5, session_id="s1", ttl_ms=0))
    cluster.ask(Campaign("boss", SessionId("s1"), "here", HoldId("e1"), AttemptId("t4")))
    cluster.ask(Proclaim(HoldId("e1"), "there"))
    for algorithm in Algorithm:
        cluster.ask(TakeRate("r", 1, 1000, algorithm))
        taken = cluster.ask(TakeRate("r", 1, 1000, algorithm))
        assert isinstance(taken, RateTaken)
        assert not taken.allowed
    cluster.ask(AdvanceFence("f", 4))
    assert cluster.ask(AdvanceFence("f", 3)).reason is Reason.STALE_TOKEN  # type: ignore[union-attr]
    cluster.pass_ms(61_000)
    cluster.commit(Tick())
    assert len(cluster.checkers.ledger) == 0
    assert cluster.checkers.rates.checked_count == 3


def test_the_table_of_modes() -> None:
    """Readers go together, one writer to be may join them, and nobody joins a writer that is exclusive."""
    with_each = {mode: {other for other in Mode if are_compatible(mode, other)} for mode in Mode}
    assert with_each == {X: set(), S: {S, U, CR}, U: {S, CR}, CR: {S, U, CR, CW}, CW: {CR, CW}}
    assert is_stronger(S, CW)
    assert is_stronger(CW, S)
    assert not is_stronger(CR, S)
    assert [(one, other) for one in (U, S, CW) for other in (U, S, CW) if draws_token(one, other)] == [
        *[(U, CW), (S, CW), (CW, U), (CW, S)],
    ]
    assert is_stronger(X, U)
    assert is_stronger(U, S)
    assert not is_stronger(S, S)


def test_what_locks_cover() -> None:
    """A node meets itself and the subtrees above it; a subtree meets all that lies in it."""
    node, tree, above = Wanted("a/b", X), Wanted("a/b", X, Scope.SUBTREE), Wanted("a", X)
    assert not conflict([node], [above])
    assert not conflict([tree], [above, Wanted("a/bc", X)])
    assert conflict([tree], [Wanted("x", X), Wanted("a/b/c", S)])
    assert conflict([node], [Wanted("a", S, Scope.SUBTREE)])
    assert not conflict([Wanted("a/b", S)], [Wanted("a", S, Scope.SUBTREE)])


# -- rates and fences -------------------------------------------------------------------------------------


def take(
    rates: Rates, at_ms: int, *, told_us: int = 0, algorithm: Algorithm = Algorithm.SLIDING_WINDOW
) -> None:
    """Tell of a request that was admitted, two of which may be within a second."""
    call = called(TakeRate("r", 2, 1000, algorithm), called_us=at_ms * 1000)
    told_us = told_us or at_ms * 1000
    rates.replied(call, RateTaken(True, 2, 0, 0, 0, at_ms), told_us)


@pytest.mark.parametrize("algorithm", Algorithm)
def test_windows_with_too_much(algorithm: Algorithm) -> None:
    """One more than a window may have is found, wherever it lies; in the next window it passes."""
    rates = Rates(Report(), 0.002)
    for at_ms in (1000, 1990, 3010, 3020, 4990, 5000):
        take(rates, at_ms, algorithm=algorithm)
    for at_ms in (3015, 3011, 3020):
        with objects("rate-promise"):
            take(rates, at_ms, algorithm=algorithm)


def test_a_window_across_the_seam() -> None:
    """A fixed window may have its limit on both sides of a seam, a sliding one may not."""
    for algorithm in (Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW):
        rates = Rates(Report(), 0.002)
        take(rates, 1990, algorithm=algorithm)
        take(rates, 1995, algorithm=algorithm)
        if algorithm is Algorithm.FIXED_WINDOW:
            take(rates, 2000, algorithm=algorithm)
        else:
            with objects("rate-promise"):
                take(rates, 2000, algorithm=algorithm)


def test_repeated_requests_count_once() -> None:
    """An answer that is told again for the same request takes nothing from the limit."""
    rates = Rates(Report(), 0.002)
    for number in range(5):
        call = called(TakeRate("r", 1, 1000, Algorithm.FIXED_WINDOW, request_id="r1"), number)
        rates.called(call)
        rates.replied(call, RateTaken(True, 1, 0, 0, 0, 100), 100_000 + number)
    assert rates.checked_count == 1


def test_too_much_by_the_clocks_of_clients() -> None:
    """Answers whose moments lie apart are found when all were given within a window of true time."""
    rates = Rates(Report(), 0.002)
    command = TakeRate("r", 1, 1000, Algorithm.SLIDING_WINDOW)
    rates.replied(called(command, called_us=0), RateTaken(True, 1, 0, 0, 0, 5000), 10_000)
    rates.replied(called(command, called_us=1_900_000), RateTaken(True, 1, 0, 0, 0, 7000), 1_950_000)
    with objects("rate-outside"):
        rates.replied(called(command, called_us=2_100_000), RateTaken(True, 1, 0, 0, 0, 9000), 2_200_000)


def test_a_fence_that_goes_back() -> None:
    """A token below one that was told before the question must not be accepted; above it may be lost."""
    fences = Fences(Report())
    first, stale, late = (called(AdvanceFence("f", token), token) for token in (7, 6, 5))
    fences.called(late)
    fences.called(first)
    fences.replied(first, FenceAdvanced(7))
    fences.replied(late, FenceAdvanced(5))
    fences.called(stale)
    with objects("fence-rises"):
        fences.replied(stale, FenceAdvanced(6))


def test_changes_of_cells_have_revisions_of_their_own() -> None:
    """Of two changes none has the revision of the other, and a later one has the higher."""
    cells = Cells(Report())
    first, second, again, late = (called(PutCell(b"c", b"", request_id=f"r{n}"), n) for n in (1, 2, 1, 3))
    for call in (first, second, again):
        cells.called(call)
    cells.replied(first, CellWritten(1, 5, 1))
    cells.replied(again, CellWritten(1, 5, 1))
    with objects("cells-rise"):
        cells.replied(second, CellWritten(1, 5, 2))
    cells.called(late)
    with objects("cells-rise"):
        cells.replied(late, CellWritten(1, 5, 2))


# -- order, deadlocks, beliefs ----------------------------------------------------------------------------


def test_a_conversion_that_was_overtaken() -> None:
    """A mere waiter that is served before a conversion that came before its grant is found."""
    order = Order(Report())
    conversion, wish = Convert(HoldId("h1"), X, HoldId("c1"), AttemptId("t1"), wait_ms=10), acquire("h2")
    order.applied(Step(3, 0, [Answer("a", wish, Queued(HoldId("h2"), 1))]))
    order.applied(Step(5, 0, [Answer("a", conversion, Queued(HoldId("c1"), 1))]))
    granted = {"h2": Granted(HoldId("h2"), 4, "x", X, 1), "h1": Granted(HoldId("h1"), 6, "x", X, 1)}
    order.applied(Step(7, 0, wait_ends=[(HoldId("h2"), granted["h2"])]))
    order.applied(Step(9, 0, wait_ends=[(HoldId("c1"), granted["h1"])]))
    order.replied(called(wish), granted["h2"])
    with objects("first-come"):
        order.replied(called(conversion), granted["h1"])


def test_permits_out_of_order() -> None:
    """Permits of one semaphore are given in the order of arrival, whatever their weights."""
    order = Order(Report())
    heavy, light = permits("h1", 2), permits("h2")
    order.applied(Step(1, 0, [Answer("a", heavy, Queued(HoldId("h1"), 1))]))
    order.applied(Step(2, 0, [Answer("a", light, Queued(HoldId("h2"), 2))]))
    first = Granted(HoldId("h2"), 3, "s", X, 1, permits=1)
    second = Granted(HoldId("h1"), 4, "s", X, 1, permits=2)
    order.applied(Step(4, 0, wait_ends=[(HoldId("h2"), first)]))
    order.applied(Step(5, 0, wait_ends=[(HoldId("h1"), second)]))
    order.replied(called(light), first)
    with objects("first-come"):
        order.replied(called(heavy), second)


def _asked(hold_id: str, priority: int) -> Acquire:
    return msgspec.structs.replace(acquire(hold_id), uncommon=Uncommon(priority=priority))


def _served(order: Order, first: Acquire, second: Acquire) -> None:
    """Let two be served one after the other, and tell both."""
    for token, command in enumerate((first, second), 4):
        granted = Granted(command.hold_id, token, "x", X, 1)
        order.applied(Step(6 + token, 0, wait_ends=[(command.hold_id, granted)]))
        order.replied(called(command), granted)


@pytest.mark.parametrize(("later_ms", "high_goes_first"), [(0, True), (40_000, False)])
def test_a_priority_that_counts_for_nothing(later_ms: int, high_goes_first: bool) -> None:  # noqa: FBT001
    """Of two that wait, the one with the higher priority goes first, unless the other has waited for it."""
    for is_right in (True, False):
        order = Order(Report())
        low, high = _asked("h1", 5), _asked("h2", 9)
        order.applied(Step(1, 0, [Answer("a", low, Queued(HoldId("h1"), 1))]))
        order.applied(Step(2, later_ms, [Answer("a", high, Queued(HoldId("h2"), 1))]))
        in_order = (high, low) if high_goes_first else (low, high)
        if is_right:
            _served(order, *in_order)
        else:
            with objects("first-come"):
                _served(order, *in_order[::-1])


def test_who_was_served_is_not_overtaken() -> None:
    """A higher priority that comes when the other one has the lock is right to come second."""
    order = Order(Report())
    low, high = _asked("h1", 5), _asked("h2", 9)
    granted = [Granted(HoldId("h1"), 4, "x", X, 1), Granted(HoldId("h2"), 5, "x", X, 1)]
    order.applied(Step(1, 0, [Answer("a", low, granted[0])]))
    order.applied(Step(2, 0, [Answer("a", high, Queued(HoldId("h2"), 1))]))
    order.applied(Step(3, 0, wait_ends=[(HoldId("h2"), granted[1])]))
    order.replied(called(low), granted[0])
    order.replied(called(high), granted[1])


def test_a_deadlock_that_is_none() -> None:
    """A cycle that names another lock than the one that is waited for is found; the real one passes."""
    for is_real in (True, False):
        cluster = ScriptedCluster()
        for name, session_id in (("x", "me"), ("y", "you")):
            cluster.ask(OpenSession(SessionId(session_id), 60_000, {"owner": session_id}))
            cluster.ask(acquire(f"h{name}", name, session_id=session_id, ttl_ms=0))
        waits = acquire("hw", "y", session_id="me", ttl_ms=0, wait_ms=5000)
        cluster.call(waits)
        cluster.commit(waits)
        closes = acquire("hz", "x", session_id="you", ttl_ms=0, wait_ms=5000)
        number = cluster.call(closes)
        revision = cluster.commit(closes)
        refused = cluster.results[cluster.last_seq]
        assert isinstance(refused, Refused)
        assert refused.reason is Reason.DEADLOCK
        if is_real:
            cluster.reply(number, refused, revision)
        else:
            wrong = tuple(msgspec.structs.replace(step, name="z") for step in refused.cycle)
            with objects("deadlock-real"):
                cluster.reply(number, msgspec.structs.replace(refused, cycle=wrong), revision)


def test_more_permits_believed_in_than_there_are() -> None:
    """Beliefs in permits beyond every limit since the first was asked for are found."""
    cluster = ScriptedCluster()

    def believe(hold: str, count: int) -> None:
        cluster.history.believes(
            Belief(
                client=hold,
                locks=(Wanted("s"),),
                hold_id=HoldId(hold),
                token=1,
                from_us=cluster.now_us,
                until_us=cluster.now_us + 10**6,
                kind=HoldKind.SEMAPHORE,
                permits=count,
                since_us=cluster.now_us,
            )
        )

    cluster.ask(permits("h1", 2, 2))
    believe("h1", 2)
    cluster.ask(ResizeSemaphore("s", 3))
    believe("h2", 1)
    with objects("exclusion"):
        believe("h3", 1)


@pytest.mark.parametrize(
    ("command", "done"),
    [(Release(HoldId("h")), Released()), (KeepAlive(SessionId("s")), SessionKept(SessionId("s"), 9000))],
)
def test_what_belongs_to_another_principal_is_not_used(command: Command, done: Result) -> None:
    """Its owner may use it, and who is nobody to the nodes; to all others it is as if it never was."""
    owned = Owned()
    owned.note("ann", OpenSession(SessionId("s"), 9000), SessionOpened(SessionId("s"), 9000, 9000))
    owned.note("ann", acquire("h"), Granted(HoldId("h"), 1, "x", Mode.EXCLUSIVE, 1000))
    owners = Owners(Report(), owned)
    for principal in ("ann", ""):
        owners.replied(called(command, principal=principal), done)
    owners.replied(called(command, principal="bob"), LEASE_EXPIRED)
    with objects("foreign-refused"):
        owners.replied(called(command, principal="bob"), done)


def test_a_conversion_says_nothing_of_whose_a_hold_is() -> None:
    """It names no session: the hold may be in one that was opened when nodes were told of nobody."""
    owned = Owned()
    convert = Convert(HoldId("h"), Mode.SHARED, HoldId("t"), AttemptId("a"))
    owned.note("ann", convert, Granted(HoldId("h"), 1, "x", Mode.SHARED, 1000))
    assert owned.holds_of_others("bob") == []
    owned.note("ann", acquire("own"), Granted(HoldId("own"), 2, "x", Mode.SHARED, 1000))
    assert owned.holds_of_others("bob") == ["own"]


def test_what_nobody_is_known_to_own_may_be_anybodys() -> None:
    """Who made it may have been told by nobody, or long ago."""
    owners = Owners(Report(), Owned())
    owners.replied(called(Release(HoldId("h")), principal="bob"), Released())
