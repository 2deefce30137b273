"""Listings and what one asks about a waiter: the right things, in order, in pages, at a bounded cost."""

import msgspec
import pytest

from lockstate.reads import listings
from lockstate.reads.listings import Whose
from lockstate.tables.delays import set_delay
from lockstate.words import limits
from lockstate.words.claims import record_name
from lockstate.words.commands.entries import OnBehalf
from lockstate.words.commands.holds import Acquire
from lockstate.words.commands.primitives import AdvanceFence, TakeRate
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.kinds import Algorithm, HoldKind
from lockstate.words.modes import Mode, Scope
from lockstate.words.results import RateTaken
from lockstate.words.views import HighestToken, Holdings, TicketView
from tests.unit.lockstate.machine_driver import MachineDriver, wanted


def _driver() -> MachineDriver:
    """Return a machine in which two hosts hold and want things of all kinds."""
    driver = MachineDriver()
    for session_id, host in (("one", "n1"), ("two", "n2")):
        driver.run(OpenSession(SessionId(session_id), 60_000, {"owner": session_id, "host": host}))
    driver.granted("db/a", session_id="one")
    driver.granted("db/b", ttl_ms=60_000, owner="ann", at_ms=100)
    driver.queued("db/b", session_id="one", at_ms=200)
    driver.permitted("pool", 2, 2, session_id="one", at_ms=300)
    driver.wanting("pool", 2, 1, session_id="two", at_ms=300)
    driver.campaign("boss", "two", "v", at_ms=400)
    return driver


def _found(page: Holdings) -> tuple[list[str], list[str]]:
    return (
        [f"{hold.kind} {hold.name}" for hold in page.holds],
        [f"{ticket.kind} {ticket.name}" for ticket in page.tickets],
    )


def test_what_a_host_has_is_found_by_the_label_of_its_sessions() -> None:
    """All kinds are found at once: what the sessions with a label hold, and what they wait for."""
    state = _driver().machine.state
    page = listings.holdings(state, Whose(label=("host", "n1")), "", "", 100)
    assert _found(page) == (["lock db/a", "semaphore pool"], ["lock db/b"])
    assert page.next is None
    page = listings.holdings(state, Whose(label=("host", "n2")), "", "", 100)
    assert _found(page) == (["election boss"], ["semaphore pool"])
    assert listings.holdings(state, Whose(label=("host", "n3")), "", "", 100) == Holdings((), ())
    assert listings.holdings(state, Whose(label=("port", "n1")), "", "", 100) == Holdings((), ())


def test_what_an_owner_has_is_found_without_a_session_too() -> None:
    """An owner is looked for among all holds; one that was given no name has the one that others see."""
    driver = _driver()
    page = listings.holdings(driver.machine.state, Whose(owner="ann"), "", "", 100)
    assert _found(page) == (["lock db/b"], [])
    driver.granted("nameless", at_ms=400)
    shown = driver.machine.lock("nameless").holders[0].owner
    page = listings.holdings(driver.machine.state, Whose(owner=shown), "", "", 100)
    assert _found(page) == (["lock nameless"], [])


def test_what_is_held_for_long_is_found() -> None:
    """Only what has been held, or waited for, longer than asked is listed; locks likewise."""
    driver = _driver()
    page = listings.holdings(driver.machine.state, Whose(longer_than_ms=200), "", "", 100)
    assert _found(page) == (["lock db/a", "lock db/b"], [])
    views, more = driver.machine.locks("", "", 100, 300)
    assert ([view.name for view in views], more) == (["db/a"], None)


def test_a_prefix_is_kept_to_in_each_kind() -> None:
    """Names of all kinds must begin with the prefix."""
    state = _driver().machine.state
    assert _found(listings.holdings(state, Whose(), "db/", "", 100)) == (
        ["lock db/a", "lock db/b"],
        ["lock db/b"],
    )
    assert _found(listings.holdings(state, Whose(), "po", "", 100)) == (
        ["semaphore pool"],
        ["semaphore pool"],
    )


def test_holdings_come_in_pages_of_whole_names() -> None:
    """A page ends with the name that fills it; the next one goes on behind that, in the same kind."""
    state = _driver().machine.state
    after: str | None = ""
    pages = []
    while after is not None:
        page = listings.holdings(state, Whose(), "", after, 1)
        pages.append(_found(page))
        after = page.next
    assert pages == [
        (["election boss"], []),
        (["lock db/a"], []),
        (["lock db/b"], ["lock db/b"]),
        (["semaphore pool"], ["semaphore pool"]),
    ]
    assert listings.holdings(state, Whose(), "", "nonsense", 1).holds[0].name == "boss"


def test_a_page_looks_at_a_limited_number_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a filter leaves out counts as work: a page may be empty and yet have a next one."""
    monkeypatch.setattr(limits, "LIST_ROWS_MAX", 2)
    driver = _driver()
    state = driver.machine.state
    page = listings.holdings(state, Whose(owner="nobody"), "", "", 100)
    assert page == Holdings((), (), "election boss")
    assert listings.sessions(state, Whose(owner="nobody"), "", 100) == ([], None)
    driver.open("three")
    assert listings.sessions(state, Whose(owner="nobody"), "", 100) == ([], "s-2")
    views, more = driver.machine.locks("", "", 100, 1_000_000)
    assert (views, more) == ([], "db/a")


def test_sessions_are_listed_by_public_names() -> None:
    """Sessions come in order of creation, with counts, and without their secrets; filters leave some out."""
    state = _driver().machine.state
    rows, more = listings.sessions(state, Whose(), "", 100)
    assert [(row.session_name, row.owner, row.holds_count, row.tickets_count) for row in rows] == [
        ("s-1", "one", 2, 1),
        ("s-2", "two", 1, 1),
    ]
    assert more is None
    assert (rows[0].ttl_ms, rows[0].expires_in_ms) == (60_000, 59_600)
    assert [row.session_name for row in listings.sessions(state, Whose(), "s-1", 100)[0]] == ["s-2"]
    assert [row.owner for row in listings.sessions(state, Whose(owner="two"), "", 100)[0]] == ["two"]
    assert [row.owner for row in listings.sessions(state, Whose(label=("host", "n1")), "", 9)[0]] == ["one"]
    assert listings.sessions(state, Whose(), "", 1)[1] == "s-1"
    assert '"one"' not in msgspec.json.encode([row.session_name for row in rows]).decode()


@pytest.mark.parametrize("name", ["s-9", "s-", "s-x", "1", "", "s-1" + "0" * 30, "s-²"])
def test_what_is_not_the_name_of_a_session_finds_nothing(name: str) -> None:
    """A public name is found only as it was given out."""
    machine = _driver().machine
    assert machine.holdings_of(name) is None
    assert listings.is_session_name(name) is (name == "s-9")
    found = machine.holdings_of("s-1")
    assert found is not None
    assert _found(found) == (["lock db/a", "semaphore pool"], ["lock db/b"])


def test_semaphores_elections_and_fences_are_listed_by_name() -> None:
    """Each kind has its list, in order of name; big semaphores show the first of their holders."""
    driver = _driver()
    for _ in range(20):
        driver.permitted("many", 30, at_ms=400)
    driver.draw(99)
    driver.run(AdvanceFence("disk/2", 7))
    driver.run(AdvanceFence("disk/1", 0))
    driver.run(AdvanceFence("tape", 3))
    state = driver.machine.state
    rows, more = listings.semaphores(state, "", "", 100)
    assert [(row.name, row.limit, row.available, row.holders_count, row.queue_length) for row in rows] == [
        ("many", 30, 10, 20, 0),
        ("pool", 2, 0, 1, 1),
    ]
    assert (len(rows[0].holders), more) == (limits.HOLDERS_SHOWN_MAX, None)
    assert [row.name for row in listings.semaphores(state, "p", "", 100)[0]] == ["pool"]
    assert [row.name for row in listings.semaphores(state, "", "many", 100)[0]] == ["pool"]
    (boss,), _ = listings.elections(state, "", "", 100)
    assert boss.leader is not None
    assert (boss.name, boss.leader.owner, boss.value, boss.queue_length) == ("boss", "two", "v", 0)
    assert listings.elections(state, "c", "", 100) == ([], None)
    assert listings.fences(state, "disk/", "", 100)[0] == [
        HighestToken("disk/1", 0),
        HighestToken("disk/2", 7),
    ]
    assert listings.fences(state, "", "disk/2", 100)[0] == [HighestToken("tape", 3)]
    assert driver.machine.fence("tape") == HighestToken("tape", 3)
    assert driver.machine.fence("none") == HighestToken("none", None)


def test_an_election_that_is_only_wanted_has_no_leader_in_the_list() -> None:
    """After a force or an expiry with a delay there may be candidates and no leader."""
    driver = _driver()
    set_delay(driver.machine.state, record_name(HoldKind.ELECTION, "later"), Scope.NODE, 5000, "")
    driver.campaign("later", "one", wait_ms=1000, at_ms=400)
    rows, _ = listings.elections(driver.machine.state, "l", "", 100)
    assert [(row.name, row.leader, row.queue_length) for row in rows] == [("later", None, 1)]


def test_rate_limits_are_listed_by_name_algorithm_and_window() -> None:
    """One name may have several; a whole one is gone. A place that stands for none begins anew."""
    driver = MachineDriver()
    for name, algorithm, window_ms in (
        ("mail/b", Algorithm.GCRA, 1000),
        ("mail/a", Algorithm.SLIDING_WINDOW, 1000),
        ("mail/a", Algorithm.FIXED_WINDOW, 2000),
        ("mail/a", Algorithm.FIXED_WINDOW, 1000),
        ("zoo", Algorithm.GCRA, 60_000),
    ):
        driver.run(TakeRate(name, 5, window_ms, algorithm), at_ms=4000)
    state = driver.machine.state

    def pages(prefix: str) -> list[tuple[str, str, int]]:
        found, after = [], ""
        while True:
            rows, more = listings.rate_limits(state, prefix, after, 1)
            found += [(row.name, row.algorithm.value, row.window_ms) for row in rows]
            if more is None:
                return found
            after = more

    of_mail = [
        ("mail/a", "fixed-window", 1000),
        ("mail/a", "fixed-window", 2000),
        ("mail/a", "sliding-window", 1000),
        ("mail/b", "gcra", 1000),
    ]
    assert pages("mail/") == of_mail
    assert pages("") == [*of_mail, ("zoo", "gcra", 60_000)]
    for nonsense in ("x", "gcra x mail", "gcra 1", f"gcra {10**20} a", "round 5 a"):
        assert len(listings.rate_limits(state, "zoo", nonsense, 9)[0]) == 1
    driver.pass_to(10_000)
    assert pages("") == [("zoo", "gcra", 60_000)]


def test_a_peek_takes_nothing() -> None:
    """A rate limit tells what it would answer, again and again, and is forgotten no later for it."""
    driver = MachineDriver()
    command = TakeRate("mail", 3, 1000, Algorithm.SLIDING_WINDOW, 2)
    before = driver.machine.fingerprint
    assert driver.machine.peek_rate(command) == RateTaken(True, 3, 3, 0, 0, 0, 1000)
    assert driver.machine.fingerprint == before
    driver.run(command, at_ms=100)
    for _ in range(2):
        assert driver.machine.peek_rate(command) == RateTaken(False, 3, 1, 1000, 1000, 0, 1000)
    later = msgspec.structs.replace(command, wait_ms=1000)
    assert driver.machine.peek_rate(later) == RateTaken(True, 3, 1, 0, 1000, 1100, 1000)
    assert driver.run(later) == RateTaken(True, 3, 0, 0, 2000, 1100, 1000)
    assert not isinstance(driver.machine.peek_rate(TakeRate("", 3, 1000)), RateTaken)


# -- one waiter ----------------------------------------------------------------------------------------------


def _ticket(driver: MachineDriver, hold_id: str) -> TicketView:
    state = driver.machine.state
    view = listings.ticket(state, state.tickets[HoldId(hold_id)].order)
    assert view is not None
    return view


def test_a_waiter_can_ask_how_far_it_is() -> None:
    """By its number: what it waits for, its place, since when, until when, and in which session."""
    driver = _driver()
    view = _ticket(driver, "h3")
    assert (view.kind, view.names, view.owner, view.position) == (HoldKind.LOCK, ("db/b",), "one", 1)
    assert (view.waited_ms, view.ends_in_ms, view.session_name) == (200, 9_800, "s-1")
    assert view.estimate_ms is None
    assert listings.ticket(driver.machine.state, 10_000) is None


def test_an_estimate_is_the_median_of_the_last_hold_times() -> None:
    """One hold time for everybody before, less what the holder has had already."""
    driver = MachineDriver()
    for began_ms, lasted_ms in ((0, 100), (1000, 900), (3000, 300)):
        hold = driver.granted("a", at_ms=began_ms)
        driver.release(hold.hold_id, at_ms=began_ms + lasted_ms)
    driver.granted("a", ttl_ms=60_000, at_ms=4000)
    first, second = (driver.queued("a", wait_ms=50_000, at_ms=4000) for _ in range(2))
    driver.pass_to(4100)
    assert _ticket(driver, first.hold_id).estimate_ms == 200
    assert _ticket(driver, second.hold_id).estimate_ms == 500
    driver.pass_to(9000)
    assert _ticket(driver, first.hold_id).estimate_ms == 0


def test_an_estimate_counts_those_that_hold_side_by_side() -> None:
    """Where three hold at a time, three waiters go in one round. Of several locks the slowest counts."""
    driver = MachineDriver()
    hold = driver.permitted("pool", 3)
    driver.release(hold.hold_id, at_ms=400)
    for _ in range(3):
        driver.permitted("pool", 3, ttl_ms=60_000, at_ms=1000)
    waits = [driver.wanting("pool", 3, at_ms=1000) for _ in range(4)]
    assert [_ticket(driver, wait.hold_id).estimate_ms for wait in waits] == [0 + 400, 400, 400, 800]
    for name, lasted_ms in (("a", 100), ("b", 500)):
        began_ms = driver.machine.now_ms
        hold = driver.granted(name)
        driver.release(hold.hold_id, at_ms=began_ms + lasted_ms)
    driver.granted("a", ttl_ms=60_000, mode=Mode.SHARED)
    driver.granted("b", ttl_ms=60_000)
    both = driver.queued(locks=wanted("a", "b"))
    assert _ticket(driver, both.hold_id).estimate_ms == 500


# -- of one principal ----------------------------------------------------------------------------------------


def test_what_a_principal_has_is_found_and_shown() -> None:
    """Sessions, holds in them and without one, and waits, each with its principal; nobody's has none."""
    driver = MachineDriver()
    open_session = OpenSession(SessionId("a1"), 1000, {})
    driver.run(OnBehalf("ann", open_session))
    for hold_id, name, session_id in (("h1", "x", "a1"), ("h2", "y", "")):
        driver.run(OnBehalf("ann", _asking(name, hold_id, session_id)))
    driver.run(OnBehalf("bob", _asking("x", "h3", "")))
    driver.run(_asking("y", "h4", ""))
    state = driver.machine.state
    found = listings.holdings(state, Whose(principal="ann"), "", "", 100)
    assert [(hold.name, hold.principal) for hold in found.holds] == [("x", "ann"), ("y", "ann")]
    assert found.tickets == ()
    found = listings.holdings(state, Whose(principal="bob"), "", "", 100)
    assert [(wait.name, wait.principal) for wait in found.tickets] == [("x", "bob")]
    rows, _ = listings.sessions(state, Whose(principal="ann"), "", 100)
    assert [row.principal for row in rows] == ["ann"]
    assert listings.sessions(state, Whose(principal="bob"), "", 100) == ([], None)
    every = listings.holdings(state, Whose(), "", "", 100)
    assert [wait.principal for wait in every.tickets] == ["bob", ""]
    shown = [listings.ticket(state, wait.ticket) for wait in every.tickets]
    assert [view.principal for view in shown if view is not None] == ["bob", ""]


def test_the_waits_of_a_principal_come_in_pieces() -> None:
    """Each piece says behind which number the next begins; it looks at a limited number of waits."""
    driver = MachineDriver()
    driver.run(_asking("x", "h0", ""))
    for number in range(1, 5):
        driver.run(OnBehalf("ann" if number != 2 else "bob", _asking("x", f"h{number}", "")))
    state = driver.machine.state
    numbers = [ticket.order for ticket in state.tickets.values()]
    first, last = listings.waits_of(state, "ann", 0, 2)
    assert [(wait.kind, wait.name) for wait in first] == [(HoldKind.LOCK, "x")] * 2
    assert [wait.number for wait in first] == [numbers[0], numbers[2]]
    assert last == numbers[2]
    rest, last = listings.waits_of(state, "ann", last, 2)
    assert ([wait.number for wait in rest], last) == ([numbers[3]], None)
    assert listings.waits_of(state, "eve", 0, 2) == ([], None)


def test_a_search_for_waits_ends_where_enough_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if none of it was meant: it goes on behind what was looked at."""
    driver = MachineDriver()
    monkeypatch.setattr(limits, "LIST_ROWS_MAX", 2)
    driver.run(_asking("x", "h0", ""))
    for number in range(1, 4):
        driver.run(OnBehalf("bob" if number < 3 else "ann", _asking("x", f"h{number}", "")))
    numbers = [ticket.order for ticket in driver.machine.state.tickets.values()]
    assert listings.waits_of(driver.machine.state, "ann", 0, 5) == ([], numbers[1])
    found, last = listings.waits_of(driver.machine.state, "ann", numbers[1], 5)
    assert ([wait.number for wait in found], last) == ([numbers[2]], None)


def _asking(name: str, hold_id: str, session_id: str) -> Acquire:
    return Acquire(
        name,
        Mode.EXCLUSIVE,
        HoldId(hold_id),
        AttemptId("a"),
        SessionId(session_id),
        0 if session_id else 1000,
        wait_ms=1000,
    )
