"""What lasts too long is found; what a silence of the cluster explains is not."""

import pytest

from lab.chaos.checkers.late import late
from lab.chaos.history import AnyLine, FaultBegin, FaultEnd, History
from tests.unit.lab.chaos.histories import MS, Script


def objections(
    script: Script, *, broken: tuple[int, int] | None = None, what: str = "f", where: str = ""
) -> int:
    """Return how much is late, if something was broken from then to then."""
    lines: list[AnyLine] = list(script.lines)
    if broken is not None:
        begin_ns, end_ns = broken[0] * MS, broken[1] * MS
        lines += [FaultBegin(id=99, what=what, where=[where], at_ns=begin_ns), FaultEnd(id=99, at_ns=end_ns)]
    return len(late(History(lines)))


@pytest.mark.parametrize(("call", "is_late"), [(2_000, False), (2_150, True)])
def test_a_lease_ends_within_two_seconds(call: int, *, is_late: bool) -> None:
    """Others may be refused so long, and no longer; an hour later the same."""
    script = Script()
    script.grant("h1", 1, 0, 5)
    script.refused("x", call, call + 5)
    assert objections(script) == is_late


@pytest.mark.parametrize(("broken", "is_late"), [(None, True), ((200, 300), False), ((8_000, 9_000), True)])
def test_a_silence_makes_everything_later(broken: tuple[int, int] | None, *, is_late: bool) -> None:
    """Only one of a fault: otherwise nobody asked, and time passed."""
    script = Script()
    script.grant("h1", 1, 0, 5)
    script.grant("other", 2, 4_900, 5_000, name="b", ttl=60_000)
    script.refused("x", 5_100, 5_105)
    script.grant("another", 3, 8_000, 8_005, name="c")
    assert objections(script, broken=broken) == is_late


def test_an_acknowledged_end_is_one_at_once() -> None:
    """Nobody is refused because of what was given back."""
    script = Script()
    script.grant("h1", 1, 0, 5, ttl=60_000)
    script.release("h1", 6, 9)
    script.refused("x", 10, 12)
    assert objections(script) == 1


def test_a_lost_request_excuses_while_it_may_be_granted() -> None:
    """It may wait, be granted, and end with its lease; behind a fault it may come when that is over."""
    script = Script()
    script.add("acquire", "a", 0, 1_000, "unknown", owner="x", ttl_ms=500, wait_ms=700)
    script.refused("y", 4_190, 4_200)
    assert objections(script) == 0
    script.refused("y", 4_210, 4_220)
    assert objections(script) == 1
    assert objections(script, broken=(500, 1_200)) == 0


@pytest.mark.parametrize(("what", "is_late"), [("", True), ("pause-leader", True), ("kill-leader", False)])
def test_a_node_that_lives_gives_back_what_nobody_knows_of(what: str, *, is_late: bool) -> None:
    """Where a request says how soon; a process that ended has forgotten it."""
    script = Script()
    script.add("acquire", "a", 0, 1_000, "unknown", owner="x", ttl_ms=60_000, given_back_ms=500)
    for call in range(0, 3_600, 100):
        script.grant(f"o{call}", 3 + call, call, call + 5, name=f"o/{call}")
    script.refused("y", 3_490, 3_495)
    assert objections(script, broken=(500, 600) if what else None, what=what) == 0
    script.refused("y", 3_520, 3_525)
    assert objections(script, broken=(500, 600) if what else None, what=what) == is_late


def test_a_lost_renewal_may_have_been_one() -> None:
    """The lease counts from when the renewal had its effect at the latest."""
    script = Script()
    script.grant("h1", 1, 0, 5, ttl=1_000)
    script.renew("h1", 900, 2_000, outcome="unknown")
    script.refused("x", 4_900, 4_905)
    assert objections(script) == 0
    script.refused("x", 5_100, 5_105)
    assert objections(script) == 1


def test_a_wait_is_refused_at_its_end() -> None:
    """Not when it began, unless it was asked again: then nobody knows which one was refused."""
    script = Script()
    script.grant("h1", 1, 0, 5)
    wait = script.refused("x", 1_500, 4_500, wait_ms=3_000)
    assert objections(script) == 1
    wait.attempts = 2
    assert objections(script) == 0


@pytest.mark.parametrize(("where", "is_late"), [("n1, leading", False), ("n2", True)])
def test_a_grant_is_heard_of_late_at_a_node_that_was_broken(where: str, *, is_late: bool) -> None:
    """That says nothing of when it was granted; at another node it does."""
    script = Script()
    script.grant("h1", 1, 0, 5)
    script.grant("h2", 2, 50, 3_500, wait_ms=3_000).node = "n1"
    for call in range(0, 3_600, 100):
        script.grant(f"o{call}", 3 + call, call, call + 5, name=f"o/{call}")
    assert objections(script, broken=(60, 3_400), where=where) == is_late


@pytest.mark.parametrize(("what", "is_late"), [("slow-clock", False), ("drifting-clock", True)])
def test_while_a_slow_clock_leads_everything_takes_twice_as_long(what: str, *, is_late: bool) -> None:
    """A lease of three seconds, and the two of patience; later it excuses nothing."""
    script = Script()
    script.grant("h1", 1, 0, 5, ttl=3_000)
    for call in range(10, 10_500, 100):
        script.grant(f"o{call}", call, call, call + 5, name=f"o/{call}")
    script.refused("x", 9_900, 9_905)
    assert objections(script, broken=(0, 10_000), what=what, where="n1") == is_late
    script.refused("x", 10_200, 10_205)
    assert objections(script, broken=(0, 10_000), what=what, where="n1") == 1 + is_late


def test_a_session_keeps_its_holds() -> None:
    """What was granted lasts as long as its session is kept alive."""
    script = Script()
    script.grant("h1", 1, 0, 5, session="s")
    for call in (0, 2_000, 4_000):
        kind = "session-keepalive" if call else "session-open"
        result = {"session": "s", "expires_in_ms": 500, "sent_ns": call * MS}
        script.add(kind, "s", call, call + 5, result=result, session="s")
    script.refused("x", 6_400, 6_450)
    assert objections(script) == 0
    script.refused("x", 6_600, 6_605)
    assert objections(script) == 1
