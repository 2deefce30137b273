"""Sessions in the machine: what lives and ends with them, and what others see of them."""

from lockstate.words.commands.sessions import CloseSession, KeepAlive
from lockstate.words.ids import SessionId
from lockstate.words.refusals import Reason
from tests.unit.lockstate.machine_driver import MachineDriver, reason


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
