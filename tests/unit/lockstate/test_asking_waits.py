"""Waits that ask by themselves: whom, when, with what grace, and where a namespace lets them."""

from typing import Any

import msgspec
import pytest

from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.tables import budget
from lockstate.words import limits
from lockstate.words.commands.admin import SetNamespace
from lockstate.words.commands.entries import OnBehalf
from lockstate.words.commands.holds import Acquire, AcquirePermits, AcquireSeveral, PutOff
from lockstate.words.events import EventKind
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.modes import Mode
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, PutOffTo, Queued, Result
from lockstate.words.settings import NamespaceSettings
from lockstate.words.wanted import Asking, Uncommon, Wanted, WantedPermits
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, expect, reason
from tests.unit.lockstate.test_principals import Driver

ASKS = Asking(100, 1000)
LETS = NamespaceSettings(ask_after_ms_min=0, priority=True)


@pytest.fixture
def driver() -> Driver:
    """Return a machine in which waits for "a" and "q" may ask by themselves."""
    driver = Driver()
    for prefix in ("a", "b", "q"):
        driver.run(SetNamespace(prefix, LETS))
    return driver


def ask(
    driver: Driver,
    name: str = "",
    who: str = "",
    *,
    asks: Asking | None = ASKS,
    priority: int = 5,
    mode: Mode = EXCLUSIVE,
    locks: tuple[Wanted, ...] = (),
    permits: int = 0,
    wait_ms: int = 10_000,
    request_id: str = "",
    at_ms: int = 0,
) -> Result:
    """Ask for a lock, or for permits out of two, as somebody; by default with a wait that asks."""
    number = driver._next_id()
    ids = HoldId(f"h{number}"), AttemptId(f"a{number}")
    more: dict[str, Any] = {
        "ttl_ms": 50_000,
        "wait_ms": wait_ms,
        "request_id": request_id,
        "uncommon": Uncommon(priority=priority, asks=asks),
    }
    command: Acquire | AcquirePermits = Acquire(name, mode, *ids, locks=locks, **more)
    if permits:
        command = AcquirePermits(name, 2, permits, *ids, **more)
    return driver.run(OnBehalf(who, command) if who else command, at_ms)


def waits(driver: Driver, name: str = "", who: str = "", **fields: Any) -> HoldId:
    """Do the same, and expect to wait; return the id."""
    return expect(Queued, ask(driver, name, who, **fields)).hold_id


def holds(driver: Driver, name: str, who: str = "", **fields: Any) -> HoldId:
    """Ask for something with a priority, and expect a grant; return the id."""
    return expect(Granted, ask(driver, name, who, asks=None, **fields)).hold_id


def pleas(driver: Driver) -> list[tuple[HoldId, int]]:
    """Return which holds are to be given up, and for which waits."""
    return [(plea.hold_id, plea.ticket) for plea in driver.machine.state.pleas.rows.values()]


def test_it_asks_once_it_has_waited_for_so_long(driver: Driver) -> None:
    """Not before; then the grace counts, which the holder may put off, and the wait has what it needs."""
    hold = driver.granted("a", ttl_ms=50_000)
    waiting = waits(driver, "a")
    assert driver.pass_to(100) == []
    assert driver.pass_to(101) == [EventKind.REVOKED]
    (told,) = driver.events
    assert (told.reason, told.by, told.ends_in_ms) == ("a wait needs it", "", 1000)
    assert told.ticket == driver.machine.state.tickets[waiting].order
    assert expect(PutOffTo, driver.run(PutOff(hold.hold_id), 500)).ends_in_ms == 1601
    assert driver.pass_to(2101) == []
    assert driver.pass_to(2102) == [EventKind.FORCED, EventKind.GRANTED]


def test_whom_it_asks(driver: Driver) -> None:
    """Those of its own principal, whatever their priority, and others of a lower one."""
    asked = {}
    for who, priority in (("ann", 0), ("ann", 9), ("bob", 3), ("bob", 4), ("bob", 9), ("", 3), ("", 4)):
        asked[who, priority] = holds(driver, "a", who, priority=priority, mode=SHARED)
    waits(driver, "a", "ann", priority=4)
    driver.pass_to(101)
    expected = {("ann", 0), ("ann", 9), ("bob", 3), ("", 3)}
    assert {hold_id for hold_id, _ in pleas(driver)} == {asked[one] for one in expected}


def test_where_nobody_is_known_all_are_one_principal(driver: Driver) -> None:
    """So the priority does not matter."""
    holds(driver, "a", priority=9)
    waits(driver, "a", priority=0)
    driver.pass_to(101)
    assert len(pleas(driver)) == 1


def test_who_is_not_in_its_way_is_not_asked(driver: Driver) -> None:
    """A reader by a reader, which waits for something else."""
    both = (Wanted("a", SHARED), Wanted("b", SHARED))
    driver.granted("a", mode=SHARED, ttl_ms=50_000)
    writer = driver.granted("b", ttl_ms=50_000)
    waits(driver, locks=both)
    driver.pass_to(101)
    assert [hold_id for hold_id, _ in pleas(driver)] == [writer.hold_id]


def test_permits_are_asked_for(driver: Driver) -> None:
    """Of all that have some, if they may be asked."""
    lower = holds(driver, "q", priority=1, permits=1)
    holds(driver, "q", "bob", priority=8, permits=1)
    waits(driver, "q", "ann", priority=6, permits=1)
    driver.pass_to(101)
    assert [hold_id for hold_id, _ in pleas(driver)] == [lower]


def test_what_ends_the_wait_ends_the_asking(driver: Driver) -> None:
    """Before it has asked, and after."""
    driver.granted("a", ttl_ms=50_000)
    early, late = (waits(driver, "a", asks=Asking(after_ms, 1000)) for after_ms in (100, 5000))
    driver.pass_to(101)
    assert len(pleas(driver)) == 1
    assert list(driver.machine.state.pleas.asks) == [late]
    for waiting in (early, late):
        driver.cancel(waiting, driver.machine.state.tickets[waiting].attempt_id)
    assert pleas(driver) == []
    assert not driver.machine.state.pleas.asks
    assert driver.pass_to(9000) == []


def test_a_grant_needs_no_asking(driver: Driver) -> None:
    """It keeps the priority, by which others may ask for it, and nothing else of it."""
    hold_id = expect(Granted, ask(driver, "a", priority=7)).hold_id
    assert driver.machine.state.holds[hold_id].details.priority == 7
    assert driver.machine.state.holds[hold_id].details.asks is None
    assert not driver.machine.state.pleas.asks


def test_it_is_kept_in_snapshots(driver: Driver) -> None:
    """A node that restarts asks at the same moment."""
    driver.granted("a", ttl_ms=50_000)
    waits(driver, "a")
    machine = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    assert machine.fingerprint == driver.machine.fingerprint
    (ask,) = machine.state.pleas.asks.values()
    assert (ask.expires_at_ms, machine.next_deadline_ms()) == (100, 100)


def test_without_room_nobody_is_asked(driver: Driver) -> None:
    """And the wait goes on."""
    driver.granted("a", ttl_ms=50_000)
    waiting = waits(driver, "a")
    driver.machine.state.bytes_max = 1
    driver.pass_to(101)
    assert budget.bytes_of(driver.machine.state) > 1
    assert pleas(driver) == []
    assert waiting in driver.machine.state.tickets
    assert not driver.machine.state.pleas.asks


def test_one_that_asks_very_many_is_alone_in_its_entry(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts who it looks at; the next one has its turn in the next entry."""
    monkeypatch.setattr(limits, "EXPIRIES_PER_ENTRY_MAX", 3)
    for _ in range(4):
        driver.granted("a", mode=SHARED, ttl_ms=50_000)
    driver.granted("b", ttl_ms=50_000)
    waits(driver, "a")
    waits(driver, "b")
    driver.pass_to(101)
    assert len(pleas(driver)) == 4
    driver.pass_to(101)
    assert len(pleas(driver)) == 5


@pytest.mark.parametrize(
    ("name", "asks", "wait_ms", "detail"),
    [
        ("else", Asking(100, 1000), 5000, "ask_after_ms: 100: no namespace allows it for 'else'"),
        (
            "shut",
            Asking(100, 1000),
            5000,
            "ask_after_ms: 100: the namespace 'shut' does not allow it for 'shut'",
        ),
        ("least", Asking(99, 1000), 5000, "ask_after_ms: 99; must be at least 100 in the namespace 'least'"),
        ("least", Asking(100, 999), 5000, "grace_ms: 999; must be at least 1000 in the namespace 'least'"),
        ("a", Asking(100, 1000), 100, "ask_after_ms: 100; must be less than wait_ms, which is 100"),
        ("a", Asking(0, 1000), 0, "ask_after_ms: 0; must be less than wait_ms, which is 0"),
        ("a", Asking(-1, 1000), 5000, "ask_after_ms: -1; must be 0 to 86400000"),
        ("a", Asking(0, limits.GRACE_MS_MAX + 1), 5000, "grace_ms: 3600001; must be 0 to 3600000"),
    ],
)
def test_what_is_not_allowed(driver: Driver, name: str, asks: Asking, wait_ms: int, detail: str) -> None:
    """It is refused whether it would wait or not, with what is wrong with it."""
    driver.run(SetNamespace("shut", NamespaceSettings(holds=9)))
    driver.run(SetNamespace("least", NamespaceSettings(ask_after_ms_min=100, grace_ms_min=1000)))
    for _ in range(2):
        refused = expect(Refused, ask(driver, name, asks=asks, wait_ms=wait_ms))
        assert refused.reason is Reason.INVALID_REQUEST
        assert detail in refused.detail
        driver.acquire(name, ttl_ms=50_000)
    assert not driver.machine.state.tickets


def test_several_kinds_do_not_ask(driver: Driver) -> None:
    """They have no priority either."""
    several = AcquireSeveral(
        "",
        EXCLUSIVE,
        HoldId("h"),
        AttemptId("h"),
        ttl_ms=50_000,
        wait_ms=5000,
        locks=(Wanted("a"),),
        permits=(WantedPermits("q", 1),),
        uncommon=Uncommon(asks=Asking(0, 0)),
    )
    assert reason(driver.run(several)) is Reason.INVALID_REQUEST
    common = msgspec.structs.replace(several, uncommon=Uncommon(note="n"))
    assert isinstance(driver.run(common), Granted)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (NamespaceSettings(grace_ms_min=0), "grace_ms_min"),
        (NamespaceSettings(ask_after_ms_min=-1), "ask_after_ms_min"),
        (NamespaceSettings(ask_after_ms_min=limits.WAIT_MS_MAX + 1), "ask_after_ms_min"),
        (NamespaceSettings(ask_after_ms_min=0, grace_ms_min=limits.GRACE_MS_MAX + 1), "grace_ms_min"),
    ],
)
def test_settings_that_mean_nothing(driver: Driver, settings: NamespaceSettings, field: str) -> None:
    """They are refused, and say which."""
    refused = expect(Refused, driver.run(SetNamespace("x", settings)))
    assert refused.detail.startswith(field)


def test_a_repeated_request_asks_once(driver: Driver) -> None:
    """By another attempt: the time counts from the first."""
    driver.granted("a", ttl_ms=50_000)
    assert waits(driver, "a", request_id="r") == waits(driver, "a", request_id="r", at_ms=60)
    driver.pass_to(101)
    assert len(pleas(driver)) == 1
