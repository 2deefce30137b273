"""Watches, rate limits, sessions and figures: planted mistakes are found, what may be right is not."""

from typing import Any

from lab.chaos.checkers.catalogue import check_all
from lab.chaos.checkers.rates import rate_windows
from lab.chaos.checkers.sessions import sessions
from lab.chaos.checkers.watches import watches
from lab.chaos.history import FaultBegin, FaultEnd, History, Operation
from lab.chaos.late_leases import LateLeases, late_leases, late_leases_ns
from tests.unit.lab.chaos.histories import MS, Script


def heard(
    script: Script,
    index: int,
    revision: int,
    token: int,
    event: str = "granted",
    *,
    segment: int = 0,
    mode: str = "exclusive",
) -> Operation:
    """Add an event that a watcher of everything heard; unless told otherwise, each of a name of its own."""
    name = "a" if event != "granted" or mode == "shared" else f"a{token}"
    result = {"index": index, "revision": revision, "event": event, "name": name, "token": token}
    result["mode"] = mode
    return script.add("watch-event", "", 100 + index, 100 + index, result=result, segment=segment)


def watched() -> Script:
    """Return a watcher that is connected from 5 on, and a grant at revision 8."""
    script = Script()
    script.add("watch-connect", "", 0, 5, segment=0)
    script.grant("h1", 3, 6, 9).result["revision"] = 8
    return script


def test_a_watch_in_order() -> None:
    """Each event once, the grant that clients know of among them."""
    script = watched()
    heard(script, 1, 7, 2)
    heard(script, 2, 8, 3)
    heard(script, 3, 9, 4)
    assert check_all(script.history) == []


def test_a_watch_that_repeats_and_goes_back() -> None:
    """An event that comes again after a reconnect, and one of an earlier revision."""
    script = watched()
    heard(script, 1, 8, 3)
    heard(script, 2, 9, 4)
    heard(script, 3, 9, 4)
    assert len(watches(script.history)) == 1
    heard(script, 4, 7, 2)
    assert len(watches(script.history)) == 2


def test_a_watch_that_leaves_out_a_grant() -> None:
    """Somebody was granted a lock in the watched time, and later events were heard, but not this one."""
    script = watched()
    heard(script, 1, 7, 2)
    assert watches(script.history) == []  # it may still come
    heard(script, 2, 9, 4)
    assert "did not hear" in watches(script.history)[0].text


def test_a_watch_of_modes_and_ends() -> None:
    """Those of one name alternate if they exclude each other; what was there before may end at any time."""
    script = Script()
    heard(script, 1, 5, 1, "released")
    heard(script, 2, 6, 3, mode="shared")
    heard(script, 3, 7, 4, mode="shared")
    heard(script, 4, 8, 3, "forced")
    heard(script, 5, 9, 2, "expired")
    assert watches(script.history) == []
    heard(script, 6, 9, 3, "expired")
    [found] = watches(script.history)
    assert "which nobody had" in found.text


def test_a_watch_that_tells_of_an_end_that_was_none() -> None:
    """A hold ends early, nobody gave it back, or another end was acknowledged."""

    def told(event: str, *, is_released: bool = False, index: int = 2) -> bool:
        script = watched()
        heard(script, 1, 8, 3, mode="shared")
        if is_released:
            script.release("h1", 20, 30)
        heard(script, index, 9, 3, event)
        return bool(watches(script.history))

    assert told("released")
    assert not told("released", is_released=True)
    assert told("expired", is_released=True)
    assert not told("expired", index=20)
    assert told("expired", index=-40)
    assert not told("forced")


def test_a_watch_that_begins_anew() -> None:
    """After a compaction a watcher may hear of anything again."""
    script = watched()
    heard(script, 1, 8, 3)
    heard(script, 2, 8, 3, segment=1)
    assert watches(script.history) == []


def take(script: Script, call: int, until: int, *, algorithm: str, cost: int = 1) -> None:
    """Add a request that a limit of 3 in 100 ms has admitted."""
    fields: dict[str, Any] = {"limit": 3, "window_ms": 100, "algorithm": algorithm, "cost": cost}
    script.add("take", algorithm, call, until, result={"allowed": True}, **fields)


def test_rates_within_their_promise() -> None:
    """Bursts at a seam, in any window and after a pause, as each algorithm allows them."""
    script = Script()
    for start in (0, 105, 210):
        for _ in range(3):
            take(script, start, start + 3, algorithm="sliding-window")
    for start in (90, 103):
        for _ in range(3):
            take(script, start, start + 3, algorithm="fixed-window")
    for _ in range(3):
        take(script, 0, 2, algorithm="gcra")
    take(script, 35, 37, algorithm="gcra")
    assert check_all(script.history) == []


def test_rates_beyond_their_promise() -> None:
    """One more than each algorithm allows; an answer that came late proves nothing."""
    for algorithm, burst in (("sliding-window", 3), ("fixed-window", 6), ("gcra", 3)):
        script = Script()
        take(script, 0, 200, algorithm=algorithm, cost=3)
        for _ in range(burst):
            take(script, 10, 12, algorithm=algorithm)
        assert rate_windows(script.history) == []
        take(script, 20, 22, algorithm=algorithm)
        assert len(rate_windows(script.history)) == 1, algorithm


def test_a_rate_limit_that_refuses_for_nothing() -> None:
    """What may still count is counted, with a moment for slow clocks; nothing else."""

    def refused(call: int) -> bool:
        script = Script()
        for until in (10, 20, 150):
            take(script, 0, until, algorithm="gcra")
        fields: dict[str, Any] = {"limit": 3, "window_ms": 100, "algorithm": "gcra", "cost": 1}
        script.add("take", "gcra", call, call + 5, result={"allowed": False}, **fields)
        return rate_windows(script.history) == []

    assert refused(50)
    assert refused(300)
    assert not refused(330)


def test_a_window_begins_late_by_a_silence() -> None:
    """A take that waits has a place in a window to come. Its node counts on while there is no leader."""

    def refused(call: int) -> bool:
        script = Script()
        for at in (*range(0, 100, 10), *range(500, 2000, 10)):
            script.add("read", "x", at - 1, at)
        take(script, 90, 510, algorithm="fixed-window", cost=3)
        fields: dict[str, Any] = {"limit": 3, "window_ms": 100, "algorithm": "fixed-window", "cost": 1}
        script.add("take", "fixed-window", call, call + 5, result={"allowed": False}, **fields)
        begin = FaultBegin(id=1, what="pause-leader", where=["n1"], at_ns=100 * MS)
        end = FaultEnd(id=1, at_ns=600 * MS)
        return rate_windows(History([begin, end, *script.lines])) == []

    assert refused(900)
    assert not refused(1300)


def session(script: Script, call: int, until: int, kind: str, outcome: str = "ok") -> None:
    """Add an operation on the session "s", of 100 ms."""
    result = {"session": "s", "expires_in_ms": 100, "sent_ns": call * MS}
    is_ok = outcome == "ok"
    script.add(
        f"session-{kind}",
        "c",
        call,
        until,
        "ok" if is_ok else "refused",
        code="" if is_ok else outcome,
        result=result if is_ok else {},
        **({} if kind == "open" else {"session": "s"}),  # type: ignore[arg-type]  # only a name
    )


def test_a_session_from_open_to_close() -> None:
    """Kept alive, closed, gone; or over by itself."""
    script = Script()
    session(script, 0, 5, "open")
    session(script, 50, 55, "keepalive")
    session(script, 60, 65, "close")
    session(script, 70, 75, "keepalive", "session-expired")
    assert check_all(script.history) == []


def test_a_session_that_ends_early_or_never() -> None:
    """It is over before its time, or lives on after its close was acknowledged."""
    script = Script()
    session(script, 0, 5, "open")
    session(script, 90, 95, "keepalive", "session-expired")
    assert len(sessions(script.history)) == 1
    script = Script()
    session(script, 0, 5, "open")
    session(script, 60, 65, "close")
    session(script, 70, 75, "keepalive")
    assert len(sessions(script.history)) == 1


def test_late_leases() -> None:
    """A waiter is late by what passed since the lease that it waited for was surely over."""
    script = Script()
    script.grant("h1", 1, 0, 5)
    script.grant("h2", 2, 10, 125, wait_ms=1000)
    script.grant("h3", 3, 500, 505)
    script.grant("h4", 4, 510, 900).bound = "n1"
    assert late_leases_ns(script.history) == [20 * MS]
    assert late_leases(script.history) == LateLeases(count=1, median_s=0.02, worst_s=0.02)


def test_without_waiters_no_lease_is_late() -> None:
    """Zeros say that nothing was measured."""
    assert late_leases(Script().history) == LateLeases(count=0, median_s=0.0, worst_s=0.0)
