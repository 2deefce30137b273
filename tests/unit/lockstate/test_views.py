"""What readers see: no secret, the right order, the right times."""

import msgspec
import pytest

from lockstate.reads import views
from lockstate.tables.records import Lock
from lockstate.words import limits
from lockstate.words.commands.entries import Tick
from lockstate.words.commands.holds import Acquire
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.modes import Mode, Scope
from lockstate.words.views import HoldView, LockView, WaiterView
from lockstate.words.wanted import Uncommon, Wanted
from tests.unit.lockstate.machine_driver import MachineDriver


def _busy_driver() -> MachineDriver:
    driver = MachineDriver()
    driver.run(OpenSession(SessionId("s1"), 5000, {"owner": "ann", "host": "h"}), at_ms=100)
    driver.granted("db/a", session_id="s1", mode=Mode.SHARED, at_ms=200)
    driver.granted("db/b", ttl_ms=1000, owner="bob", at_ms=300)
    driver.queued("db/b", session_id="s1", at_ms=400)
    driver.queued("db/b", owner="eve", at_ms=450)
    driver.granted("zoo", ttl_ms=9000, owner="eve", at_ms=500)
    return driver


def test_a_lock_shows_holders_and_queue() -> None:
    """Holders with what is left to them, waiters with how long they have waited."""
    assert _busy_driver().machine.lock("db/b") == LockView(
        "db/b",
        "held",
        (HoldView(OwnerName("bob"), Mode.EXCLUSIVE, 2, 800, "", "db/b", since_ms=200),),
        (
            WaiterView(OwnerName("ann"), Mode.EXCLUSIVE, 1, 100, "db/b", ticket=3, session_name="s-1"),
            WaiterView(OwnerName("eve"), Mode.EXCLUSIVE, 2, 50, "db/b", ticket=4),
        ),
    )


def test_holders_are_shown_without_a_look_at_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be ten thousand of those, and a client of Redis that looks at a key asks for none."""
    machine = _busy_driver().machine
    shown = machine.lock("db/b").holders
    monkeypatch.setattr(Lock, "queue", None)
    monkeypatch.setattr(views, "waiter_view", None)
    assert machine.holders("db/b") == shown


def test_a_lock_that_a_delay_keeps_is_told() -> None:
    """A delay of its name or of a subtree above it."""
    driver = MachineDriver()
    machine = driver.machine
    several = (Wanted("a"), Wanted("t", scope=Scope.SUBTREE))
    asked = Acquire("", Mode.EXCLUSIVE, HoldId("h"), AttemptId("h"), ttl_ms=100, locks=several)
    driver.run(msgspec.structs.replace(asked, uncommon=Uncommon(lock_delay_ms=1000)))
    names = ("a", "a/b", "t", "t/u")
    assert not any(machine.is_delayed(name) for name in names), "it is held"
    assert machine.leaves_delay(HoldId("h"))
    driver.run(Tick(), at_ms=200)
    assert [name for name in names if machine.is_delayed(name)] == ["a", "t", "t/u"]
    assert not machine.leaves_delay(HoldId("h"))


def test_an_unknown_lock_is_free() -> None:
    """There is nothing to know about a name that nobody uses."""
    assert MachineDriver().machine.lock("a") == LockView("a", "free")
    assert MachineDriver().machine.hold_ids("a") == ()
    assert len(_busy_driver().machine.hold_ids("db/b")) == 1, "those that wait are none"


def test_an_unknown_session_is_none() -> None:
    """Unknown and expired sessions, and holds with leases of their own, have no session view."""
    machine = _busy_driver().machine
    assert machine.session(SessionId("nobody")) is None
    assert machine.session(SessionId("h2")) is None


def test_views_show_no_secret() -> None:
    """No id that gives a right appears in what others see."""
    machine = _busy_driver().machine
    shown = msgspec.json.encode(machine.locks("", "", 9)).decode()
    for secret in ("s1", "h1", "h2", "h3", "h4", "h5", "a1", "a3"):
        assert f'"{secret}"' not in shown


def test_locks_come_in_pages() -> None:
    """A page has at most `limit` locks in order of name, and says after which name to go on."""
    machine = _busy_driver().machine
    pages = []
    after: str | None = ""
    while after is not None:
        views, after = machine.locks("", after, 1)
        pages.append([view.name for view in views])
    assert pages == [["db/a"], ["db/b"], ["zoo"]]


def test_a_page_that_ends_the_listing_has_no_next() -> None:
    """When exactly `limit` locks are left, there is nothing to go on after."""
    machine = _busy_driver().machine
    assert machine.locks("db/", "", 2)[1] is None
    assert machine.locks("", "", 2)[1] == "db/b"


def test_positions_of_a_session_that_waits_twice_for_a_lock() -> None:
    """Each ticket shows its own place."""
    driver = _busy_driver()
    driver.queued("db/b", session_id="s1", at_ms=500)
    driver.queued("zoo", session_id="s1", at_ms=500)
    view = driver.machine.session(SessionId("s1"))
    assert view is not None
    places = [(ticket.name, ticket.position) for ticket in view.tickets]
    assert places == [("db/b", 1), ("db/b", 3), ("zoo", 1)]


def test_a_page_has_so_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holders and waiters count too: a page ends with the lock that fills it, and the next one goes on."""
    monkeypatch.setattr(limits, "LIST_ROWS_MAX", 4)
    driver = MachineDriver()
    for name in ("a", "b", "c"):
        driver.granted(name)
        driver.queued(name)
    views, more = driver.machine.locks("", "", 10)
    assert ([view.name for view in views], more) == (["a", "b"], "b")
    views, more = driver.machine.locks("", "b", 10)
    assert ([view.name for view in views], more) == (["c"], None)
