"""What commands cost, counted in executed lines and calls: it depends on what they change, not on the rest.

One entry is applied by every node, and nothing else happens meanwhile. What the interpreter does in C is not
counted here; the tables are chosen so that it is no more than a copy of what is shown, or of one run of
names.
"""

from collections.abc import Callable

import pytest

from lockstate.stored import snapshot
from lockstate.tables.audit import Audit
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.commands.entries import Cancel, Command, Tick
from lockstate.words.commands.holds import Acquire, AcquirePermits, Campaign, Convert, Release
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.commands.streams import Numbered, ResumeStream
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.modes import Mode, Scope
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, Queued
from lockstate.words.wanted import Uncommon
from tests.unit.lockstate.machine_driver import EXCLUSIVE, NODE, SHARED, SUBTREE, UPDATE, wanted
from tests.unit.lockstate.work_meter import Meter

FEW, MANY = 10, 9_990
LONG_MS = 10_000_000
SLACK = 60
"""Lines that may come and go with the first or last of something."""


def _ask(
    name: str,
    hold_id: str,
    mode: Mode = EXCLUSIVE,
    scope: Scope = NODE,
    *,
    session_id: str = "",
    owner: str = "",
    wait_ms: int = 0,
    ttl_ms: int = LONG_MS,
    lock_delay_ms: int = 0,
) -> Acquire:
    return Acquire(
        name,
        mode,
        HoldId(hold_id),
        AttemptId("a1"),
        session_id=SessionId(session_id),
        ttl_ms=0 if session_id else ttl_ms,
        owner=OwnerName(owner),
        wait_ms=wait_ms,
        scope=scope,
        uncommon=Uncommon(lock_delay_ms=lock_delay_ms),
    )


def _crowd(name: str, count: int, mode: Mode = EXCLUSIVE, scope: Scope = NODE) -> list[Command]:
    """Return requests that wait."""
    return [_ask(name, f"w{number}", mode, scope, wait_ms=LONG_MS) for number in range(count)]


def _served(meter: Meter) -> int:
    return sum(isinstance(end.result, Granted) for end in meter.outcome.settled)


def _release_of_a_name(count: int) -> int:
    """A lock that many wait for is released."""
    meter = Meter()
    meter.run(_ask("a", "h"), *_crowd("a", count))
    cost = meter.cost(Release(HoldId("h")))
    assert _served(meter) == 1
    return cost


def _release_of_a_subtree(count: int) -> int:
    """A subtree is released, and many wait for one name in it."""
    meter = Meter()
    meter.run(_ask("t", "h", scope=SUBTREE), *_crowd("t/a/b", count))
    cost = meter.cost(Release(HoldId("h")))
    assert _served(meter) == 1
    return cost


def _release_below_a_waiting_subtree(count: int) -> int:
    """A name is released for which many readers wait, all behind one that waits for the subtree above."""
    meter = Meter()
    meter.run(_ask("t/a", "h"), _ask("t", "s", scope=SUBTREE, wait_ms=LONG_MS))
    meter.run(*_crowd("t/a", count, SHARED))
    cost = meter.cost(Release(HoldId("h")))
    assert _served(meter) == 1
    return cost


def _end_of_a_wait_below_a_subtree(count: int) -> int:
    """The last of many waiters gives up, and the others still wait for the subtree above."""
    meter = Meter()
    meter.run(_ask("t", "h", scope=SUBTREE), *_crowd("t/a", count, SHARED))
    meter.run(_ask("t/a", "last", wait_ms=LONG_MS))
    return meter.cost(Cancel(HoldId("last"), AttemptId("a1")))


def _end_of_a_wait_for_a_subtree(count: int) -> int:
    """One that waits for a subtree gives up, and many wait for names below that others read."""
    meter = Meter()
    meter.run(_ask("t", "h", SHARED, SUBTREE))
    meter.run(*[_ask(f"t/{number}", f"w{number}", wait_ms=LONG_MS) for number in range(count)])
    meter.run(_ask("t", "last", scope=SUBTREE, wait_ms=LONG_MS))
    return meter.cost(Cancel(HoldId("last"), AttemptId("a1")))


def _release_of_a_permit(count: int) -> int:
    """A permit comes back that many wait for."""
    meter = Meter()
    permits = [
        AcquirePermits("q", 1, 1, HoldId(f"h{number}"), AttemptId("a1"), ttl_ms=LONG_MS, wait_ms=LONG_MS)
        for number in range(count + 1)
    ]
    meter.run(*permits)
    cost = meter.cost(Release(HoldId("h0")))
    assert _served(meter) == 1
    return cost


def _conversion_before_a_queue(count: int) -> int:
    """A holder converts to exclusive, and waits ahead of many."""
    meter = Meter()
    meter.run(_ask("a", "h", SHARED), _ask("a", "i", SHARED), *_crowd("a", count))
    cost = meter.cost(Convert(HoldId("h"), EXCLUSIVE, HoldId("t"), AttemptId("a1"), LONG_MS))
    assert isinstance(meter.outcome.batches[0].results[0], Queued)
    return cost


def _one_more_waiter(count: int) -> int:
    """One more joins a queue."""
    meter = Meter()
    meter.run(_ask("a", "h"), *_crowd("a", count - 1))
    return meter.cost(_ask("a", "last", wait_ms=LONG_MS))


def _refusal_beside_delays(count: int) -> int:
    """A subtree is refused while many other names are delayed."""
    meter = Meter()
    meter.run(*[_ask(f"d{number}", f"h{number}", ttl_ms=50, lock_delay_ms=60_000) for number in range(count)])
    meter.now_ms = 51
    while meter.machine.counts()["holds"]:
        meter.run(Tick())
    meter.run(_ask("t/a", "h"))
    meter.machine.locks("", "", 1)
    return meter.cost(_ask("t", "s", scope=SUBTREE))


def _permit_for_another_thread(count: int) -> int:
    """A session whose threads have many permits asks for one more."""
    meter = Meter()
    meter.run(OpenSession(SessionId("s1"), LONG_MS))
    asked = [
        AcquirePermits(
            "q",
            2 * MANY,
            1,
            HoldId(f"h{number}"),
            AttemptId("a1"),
            SessionId("s1"),
            owner=OwnerName(f"o{number}"),
        )
        for number in range(count + 1)
    ]
    meter.run(*asked[:-1])
    return meter.cost(asked[-1])


def _reader_for_another_thread(count: int) -> int:
    """A session whose threads read a lock asks for one more reader."""
    meter = Meter()
    meter.run(OpenSession(SessionId("s1"), LONG_MS))
    asked = [_ask("a", f"h{number}", SHARED, session_id="s1", owner=f"o{number}") for number in range(count)]
    meter.run(*asked[:-1])
    return meter.cost(asked[-1])


def _campaign_beside_others(count: int) -> int:
    """A leader is elected while many others lead elections, and a lock is refused."""
    meter = Meter()
    meter.run(OpenSession(SessionId("s1"), LONG_MS), _ask("a", "h"))
    meter.run(
        *[
            Campaign(f"e{number}", SessionId("s1"), "", HoldId(f"h{number}"), AttemptId("a1"))
            for number in range(count)
        ]
    )
    return meter.cost(Campaign("last", SessionId("s1"), "", HoldId("last"), AttemptId("a1")), _ask("a", "i"))


SITUATIONS = [
    _release_of_a_name,
    _release_of_a_subtree,
    _release_below_a_waiting_subtree,
    _end_of_a_wait_below_a_subtree,
    _end_of_a_wait_for_a_subtree,
    _release_of_a_permit,
    _conversion_before_a_queue,
    _one_more_waiter,
    _refusal_beside_delays,
    _permit_for_another_thread,
    _reader_for_another_thread,
    _campaign_beside_others,
]


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.__name__.strip("_"))
def test_ten_thousand_cost_as_much_as_ten(situation: Callable[[int], int]) -> None:
    """A command costs what it changes: those it leaves waiting or holding do not count."""
    few, many = situation(FEW), situation(MANY)
    assert many <= few + SLACK, f"{few} lines with {FEW}, {many} with {MANY}"


def test_a_lock_costs_the_same_whatever_else_is_held() -> None:
    """Acquire and release with a hundred thousand active locks cost at most twice of that with none."""
    meter = Meter()
    alone = [meter.cost(_ask(f"n{n}", f"n{n}"), Release(HoldId(f"n{n}"))) for n in range(50)]
    for first in range(0, 100_000, 10_000):
        meter.run(*[_ask(f"a/{n}", f"h{n}") for n in range(first, first + 10_000)])
    among_many = [meter.cost(_ask(f"n{n}", f"n{n}"), Release(HoldId(f"n{n}"))) for n in range(50)]
    assert meter.machine.counts()["holds"] == 100_000
    assert sum(among_many) <= 2 * sum(alone)


def test_a_subtree_costs_by_its_depth() -> None:
    """To take a subtree costs a little more for each level above it, and nothing for the names below."""

    def cost(name: str, below_count: int) -> int:
        meter = Meter()
        meter.run(*[_ask(f"{name}/{n}", f"h{n}", SHARED) for n in range(below_count)])
        taken = meter.cost(_ask(name, "s", SHARED, SUBTREE))
        assert isinstance(meter.outcome.batches[0].results[0], Granted)
        return taken + meter.cost(Release(HoldId("s")))

    assert cost("a/b/c", MANY) <= cost("a/b/c", FEW) + SLACK
    by_depth = [cost("/".join("x" * depth), FEW) for depth in (1, 11, 21)]
    assert by_depth[2] - by_depth[1] <= by_depth[1] - by_depth[0] + SLACK
    assert by_depth[2] > by_depth[1] > by_depth[0]


def test_a_search_for_a_deadlock_in_a_long_queue_is_bounded() -> None:
    """A holder that others wait for and that joins a queue of thousands costs a bounded amount for each."""
    meter = Meter()
    meter.run(OpenSession(SessionId("s1"), LONG_MS), OpenSession(SessionId("s2"), LONG_MS))
    meter.run(_ask("a", "h", session_id="s2"), _ask("b", "i", session_id="s1"), *_crowd("a", 5000))
    meter.run(_ask("b", "j", wait_ms=LONG_MS))
    cost = meter.cost(_ask("a", "k", session_id="s1", wait_ms=LONG_MS))
    assert isinstance(meter.outcome.batches[0].results[0], Queued)
    assert cost < 5000 * 40


def test_a_search_through_many_parties_is_bounded() -> None:
    """However thousands of waits depend on each other, a search ends, and the wait is allowed."""
    meter = Meter()
    count = 5000
    meter.run(*[OpenSession(SessionId(f"s{n}"), LONG_MS) for n in range(count)])
    meter.run(*[_ask(f"a{n}", f"h{n}", session_id=f"s{n}") for n in range(count)])
    meter.run(
        *[_ask(f"a{n + 1}", f"w{n}", session_id=f"s{n}", wait_ms=LONG_MS) for n in reversed(range(count - 1))]
    )
    cost = meter.cost(_ask("a0", "last", session_id=f"s{count - 1}", wait_ms=LONG_MS))
    result = meter.outcome.batches[0].results[0]
    assert isinstance(result, Queued) or result.reason is Reason.DEADLOCK  # type: ignore[union-attr]
    assert cost < 1_000_000


def test_refusals_among_readers_are_bounded() -> None:
    """A refusal because of one of ten thousand holders looks at no more of them than it must."""

    def cost(count: int) -> int:
        meter = Meter()
        meter.run(_ask("a", "u", UPDATE), *[_ask("a", f"h{n}", SHARED) for n in range(count)])
        taken = meter.cost(_ask("a", "x", UPDATE))
        refused = meter.outcome.batches[0].results[0]
        assert isinstance(refused, Refused)
        assert [holder.mode for holder in refused.holders] == [UPDATE]
        return taken

    assert cost(5000) <= 100_000


def _tables(state: State) -> list[object]:
    """Return the tables that must be empty when nothing is held, wanted or remembered."""
    return [
        state.sessions,
        state.holds,
        state.tickets,
        state.locks,
        list(state.names.after("", inclusive=True)),
        state.semaphores,
        state.delays,
        state.permit_delays,
        state.party_tickets,
        state.wishes,
        state.rates.dump(),
    ]


def test_nothing_is_left_when_all_is_over() -> None:
    """After locks, deadlocks, conversions, permits, elections, delays and rates, the state is empty again."""
    meter = Meter()
    begin = snapshot.encode(meter.machine.state)
    meter.run(*[OpenSession(SessionId(session_id), 60_000) for session_id in ("s1", "s2", "s3")])
    meter.run(
        _ask("a", "h1", SHARED, session_id="s1"),
        _ask("a", "h2", SHARED, session_id="s2"),
        Convert(HoldId("h1"), EXCLUSIVE, HoldId("t1"), AttemptId("a1"), 900),
        Convert(HoldId("h2"), EXCLUSIVE, HoldId("t2"), AttemptId("a1"), 900),
        _ask("b", "h3", session_id="s1"),
        _ask("c", "h4", session_id="s2"),
        _ask("c", "h5", session_id="s1", wait_ms=900),
        _ask("b", "h6", session_id="s2", wait_ms=900),
        Acquire(
            "",
            EXCLUSIVE,
            HoldId("h7"),
            AttemptId("a1"),
            ttl_ms=100,
            locks=wanted("t/x", "t/y"),
            uncommon=Uncommon(lock_delay_ms=500),
        ),
        _ask("t", "h8", scope=SUBTREE, wait_ms=5000, ttl_ms=1000, owner="eve"),
        AcquirePermits(
            "q",
            3,
            2,
            HoldId("h9"),
            AttemptId("a1"),
            ttl_ms=100,
            owner=OwnerName("ann"),
            uncommon=Uncommon(lock_delay_ms=500),
        ),
        AcquirePermits("q", 3, 2, HoldId("h10"), AttemptId("a1"), SessionId("s1"), wait_ms=5000),
        Campaign("e/f", SessionId("s1"), "x", HoldId("h11"), AttemptId("a1")),
        Campaign("e/f", SessionId("s3"), "y", HoldId("h12"), AttemptId("a1"), wait_ms=5000),
        TakeRate("mail", 5, 1000),
        _ask("z", "h13", owner="tim", ttl_ms=60_000),
    )
    reasons = [result.reason for result in meter.outcome.batches[0].results if isinstance(result, Refused)]
    assert reasons == [Reason.CONVERSION_DEADLOCK, Reason.DEADLOCK]
    meter.now_ms = 101
    meter.run(Tick())
    assert all(_tables(meter.machine.state)), "every table is used"
    for now_ms in (1000, 2000, 3000, 100_000, 200_000, 300_000):
        meter.now_ms = now_ms
        meter.run(Tick())
    assert not any(_tables(meter.machine.state))
    assert len(meter.machine.state.deadlines) == 0
    meter.machine.state.audit = Audit()
    meter.machine.state.origins.clear()
    assert len(snapshot.encode(meter.machine.state)) <= len(begin) + 4 * 8


def test_what_is_in_the_way_of_a_subtree_is_found_whatever_the_names() -> None:
    """To go through names with hundreds of ancestors, or of such as come before them, takes a few lines."""
    costs = []
    for above in ("", "a/" * 200, "!/" * 200, "!" * 400):
        meter = Meter()
        meter.run(*[_ask(f"t/{above}{number:03}", f"h{number}", SHARED) for number in range(FEW * FEW)])
        meter.run(_ask("t/z", "z"))
        costs.append(meter.cost(_ask("t", "x", SHARED, SUBTREE)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "LIST_ROWS_MAX", FEW * FEW + FEW)
        costs.append(meter.cost(_ask("t", "y", SHARED, SUBTREE)))
    assert max(costs[:-1]) < 1.5 * costs[0]
    assert costs[-1] < 4 * costs[0], "where it counts what comes first"


def test_acknowledged_ranges_cost_what_is_kept() -> None:
    """However many ranges a frame has, it looks at each kept outcome once."""
    meter, session_id = Meter(), SessionId("s1")
    meter.run(OpenSession(session_id, LONG_MS), ResumeStream(session_id), _ask("a", "h"))
    waits = [_ask("a", f"w{number}", session_id="s1", wait_ms=LONG_MS) for number in range(640)]
    meter.run(Numbered(len(waits), session_id, 1, 1, (), tuple(waits)))
    tens = tuple((first, first + 9) for first in range(1, 641, 10))
    one, many = (
        meter.cost(Numbered(0, session_id, 1, 641, acked, ())) for acked in (((1, limits.TOKEN_MAX),), tens)
    )
    assert many <= one + 8 * len(tens), "a few lines for each range, and none for what the others cover"
