"""Sessions in the machine: what lives and ends with them, and what others see of them."""

from lockstate.words.commands import CloseSession, KeepAlive, OpenSession
from lockstate.words.ids import SessionId
from lockstate.words.modes import Mode
from lockstate.words.results import (
    EventKind,
    Granted,
    Reason,
    Renewed,
    SessionClosed,
    SessionKept,
    SessionOpened,
)
from tests.unit.lockstate.machine_driver import MachineDriver, expect, reason


def test_opening_starts_the_ttl() -> None:
    """A session lives for its ttl after it was opened."""
    driver = MachineDriver()
    assert driver.run(OpenSession(SessionId("s1"), 500)) == SessionOpened(SessionId("s1"), 500, 500)
    assert driver.pass_to(500) == []
    assert driver.pass_to(501) == [EventKind.SESSION_EXPIRED]
    assert driver.machine.session(SessionId("s1")) is None


def test_a_keepalive_starts_the_ttl_anew() -> None:
    """A session lives for its ttl after its last keepalive."""
    driver = MachineDriver()
    driver.open("s1", ttl_ms=500)
    assert driver.keep_alive("s1", at_ms=400) == SessionKept(SessionId("s1"), 500)
    assert driver.pass_to(900) == []
    assert driver.pass_to(901) == [EventKind.SESSION_EXPIRED]


def test_an_unknown_session_has_expired() -> None:
    """Unknown and expired sessions are answered alike."""
    driver = MachineDriver()
    for command in (KeepAlive(SessionId("s1")), CloseSession(SessionId("s1"))):
        assert reason(driver.run(command)) is Reason.SESSION_EXPIRED
    assert reason(driver.acquire("a", session_id="s1")) is Reason.SESSION_EXPIRED


def test_the_lease_of_a_hold_is_not_a_session() -> None:
    """The id of a hold is not accepted where a session is asked for."""
    driver = MachineDriver()
    driver.granted("a")
    for command in (KeepAlive(SessionId("h1")), CloseSession(SessionId("h1"))):
        assert reason(driver.run(command)) is Reason.SESSION_EXPIRED
    assert reason(driver.acquire("b", session_id="h1")) is Reason.SESSION_EXPIRED
    assert driver.machine.session(SessionId("h1")) is None


def test_an_id_in_use_is_refused() -> None:
    """A session cannot be opened under an id that already names a session, a hold or a ticket."""
    driver = MachineDriver()
    driver.open("s1")
    driver.granted("a")
    driver.queued("a")
    for secret in ("s1", "h1", "h2"):
        assert reason(driver.run(OpenSession(SessionId(secret), 500))) is Reason.INVALID_REQUEST


def test_acquiring_again_returns_the_same_hold() -> None:
    """The same session, lock, mode and owner: the same hold and token, and the session is renewed."""
    driver = MachineDriver()
    driver.open("s1", ttl_ms=1000)
    first = driver.granted("a", session_id="s1", at_ms=100)
    assert first.expires_in_ms == 900
    again = driver.granted("a", session_id="s1", at_ms=600)
    assert (again.hold_id, again.token, again.expires_in_ms) == ("h1", 1, 1000)


def test_acquiring_again_is_found_among_many() -> None:
    """It makes no difference whether the session or the lock has more holds."""
    driver = MachineDriver()
    driver.open("s1")
    for name in ("a", "b", "c"):
        driver.granted(name, session_id="s1", mode=Mode.SHARED)
    assert driver.granted("c", session_id="s1", mode=Mode.SHARED).token == 3
    for _ in range(4):
        driver.granted("b", mode=Mode.SHARED)
    assert driver.granted("b", session_id="s1", mode=Mode.SHARED).token == 2


def test_another_owner_is_another_hold() -> None:
    """Within one session, owners hold apart from each other."""
    driver = MachineDriver()
    driver.open("s1")
    driver.granted("a", session_id="s1", mode=Mode.SHARED)
    assert driver.granted("a", session_id="s1", mode=Mode.SHARED, owner="bob").token == 2


def test_a_session_can_stand_in_its_own_way() -> None:
    """Acquiring another mode of what a session holds is a request like any other."""
    driver = MachineDriver()
    driver.open("s1")
    driver.granted("a", session_id="s1", mode=Mode.SHARED)
    assert reason(driver.acquire("a", session_id="s1")) is Reason.LOCK_HELD


def test_expiry_ends_waits_then_holds() -> None:
    """With a session its waits end first, so that none of them gets what its holds leave behind."""
    driver = MachineDriver()
    driver.open("s1", ttl_ms=1000)
    driver.granted("a", session_id="s1", mode=Mode.SHARED)
    driver.queued("a", session_id="s1", owner="another")
    driver.queued("a", mode=Mode.SHARED)
    driver.pass_to(1001)
    assert [(event.kind, event.session_id) for event in driver.events] == [
        (EventKind.LEFT, "s1"),
        (EventKind.EXPIRED, "s1"),
        (EventKind.SESSION_EXPIRED, "s1"),
        (EventKind.GRANTED, "h3"),
    ]
    assert driver.refused("h2").reason is Reason.SESSION_EXPIRED


def test_closing_releases_in_order_of_tokens() -> None:
    """A closed session gives back what it held, without delay, and says what that was."""
    driver = MachineDriver()
    driver.open("s1")
    for name in ("c", "a", "b"):
        driver.granted(name, session_id="s1", lock_delay_ms=500)
    assert driver.close("s1") == SessionClosed(("c", "a", "b"))
    assert [event.kind for event in driver.events] == [EventKind.RELEASED] * 3
    assert driver.machine.counts()["locks"] == 0


def test_expiry_leaves_the_delay_of_the_hold() -> None:
    """The lock-delay of a hold begins when its session expires."""
    driver = MachineDriver()
    driver.open("s1", ttl_ms=1000)
    driver.granted("a", session_id="s1", lock_delay_ms=500)
    driver.pass_to(1001)
    assert driver.machine.lock("a").state == "delayed"


def test_a_release_leaves_the_session() -> None:
    """A session lives on without holds."""
    driver = MachineDriver()
    driver.open("s1")
    driver.granted("a", session_id="s1")
    driver.release("h1")
    assert driver.machine.session(SessionId("s1")) is not None


def test_renewing_a_hold_renews_its_session() -> None:
    """A hold of a session lives as long as the session; it has no ttl to change."""
    driver = MachineDriver()
    driver.open("s1", ttl_ms=1000)
    driver.granted("a", session_id="s1")
    assert driver.renew("h1", at_ms=700) == Renewed(1, 1000)
    assert reason(driver.renew("h1", 2000)) is Reason.INVALID_REQUEST
    assert driver.machine.next_deadline_ms() == 1700


def test_the_owner_is_the_label_or_a_hash() -> None:
    """Others see the session's label, or a name that does not give its secret away."""
    driver = MachineDriver()
    driver.run(OpenSession(SessionId("secret-1"), 500, {"owner": "ann"}))
    driver.run(OpenSession(SessionId("secret-2"), 500, {"owner": ""}))
    driver.granted("a", session_id="secret-1")
    driver.granted("b", session_id="secret-2")
    driver.granted("c")
    owners = [view.holders[0].owner for view in driver.machine.locks("", "", 9)[0]]
    assert owners[0] == "ann"
    for owner, kind in zip(owners[1:], ("session", "hold"), strict=True):
        prefix, _, hashed = owner.partition("-")
        assert prefix == kind
        assert len(hashed) == 8
        assert int(hashed, 16) >= 0


def test_a_waiting_hold_belongs_to_its_session_when_granted() -> None:
    """What a session waited for lives as long as the session."""
    driver = MachineDriver()
    driver.granted("a", ttl_ms=500)
    driver.open("s1", ttl_ms=2000)
    driver.queued("a", session_id="s1")
    driver.pass_to(501)
    assert expect(Granted, driver.settled["h2"]).expires_in_ms == 1499


def test_permits_are_not_a_lock_of_that_name() -> None:
    """Holding permits of a name, or leading it, does not help to get the lock of that name."""
    driver = MachineDriver()
    driver.open("s1")
    driver.permitted("a", 3, session_id="s1")
    driver.campaign("a", "s1")
    for _ in range(3):
        driver.granted("a", mode=Mode.SHARED)
    assert driver.granted("a", mode=Mode.SHARED, session_id="s1").token == 6
    assert driver.granted("a", mode=Mode.SHARED, session_id="s1").token == 6


def test_what_lives_by_itself() -> None:
    """A session, and a hold without one; not a hold of a session, nor what is over."""
    driver = MachineDriver()
    driver.open("s1")
    own, of_session = driver.granted("a"), driver.granted("b", session_id="s1")
    assert driver.machine.lives(SessionId("s1"))
    assert driver.machine.lives(own.hold_id)
    assert not driver.machine.lives(of_session.hold_id)
    driver.release(own.hold_id)
    driver.close("s1")
    assert not driver.machine.lives(own.hold_id)
    assert not driver.machine.lives(SessionId("s1"))
