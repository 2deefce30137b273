"""What a request waits under or was granted, for the node that is to take it back."""

from lockstate.machine import LockMachine
from lockstate.rules import attempts
from lockstate.words.commands.entries import Batch, Command, Entry, OnBehalf
from lockstate.words.commands.holds import Acquire, Release
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.kinds import IfHeld
from lockstate.words.modes import Mode

NOTHING = (HoldId(""), ())


class _Log:
    """A machine, and the entries that it applied."""

    def __init__(self) -> None:
        self.machine = LockMachine()
        self._seq = 0

    def apply(self, *commands: Command) -> None:
        """Apply each command as an entry of its own."""
        for command in commands:
            self._seq += 1
            self.machine.apply(Entry(self._seq, (Batch("a.1", (self._seq,), (command,)),)))

    def found(self, scope: str, request_id: str, principal: str = "") -> tuple[HoldId, tuple[AttemptId, ...]]:
        """Return what a request has."""
        return attempts.of_request(self.machine.state, principal, scope, request_id)


def acquire(attempt: str, request_id: str, *, owner: str = "o") -> Acquire:
    """Return an attempt at the lock that all want."""
    return Acquire(
        "a",
        Mode.EXCLUSIVE,
        HoldId(f"hold-{attempt}"),
        AttemptId(attempt),
        ttl_ms=60_000,
        wait_ms=60_000,
        owner=OwnerName(owner),
        request_id=request_id,
    )


def test_a_grant_and_a_wait_are_found_with_all_attempts() -> None:
    """Of a wait those that came later, too; by the scope in which the id counts, and no other."""
    log = _Log()
    log.apply(acquire("1", "first"), acquire("2", "second"), acquire("3", "second"))
    assert log.found("o", "first") == ("hold-1", ("1",))
    assert log.found("o", "second") == ("hold-2", ("2", "3"))
    assert log.found("other", "first") == NOTHING
    log.apply(Release(HoldId("hold-1")))
    assert log.found("o", "first") == NOTHING


def test_a_request_is_that_of_its_principal() -> None:
    """Others do not find it; one that was asked when nobody was known is found by all."""
    log = _Log()
    log.apply(OnBehalf("ann", acquire("1", "first")), acquire("2", "second"))
    assert log.found("o", "first", "ann") == ("hold-1", ("1",))
    assert log.found("o", "first", "bob") == NOTHING
    assert log.found("o", "first") == NOTHING
    assert log.found("o", "second", "ann") == ("hold-2", ("2",))


def test_what_a_session_had_before_is_not_found() -> None:
    """Neither by the request that found it, nor by the first one, whose hold was given to another."""
    log, session = _Log(), SessionId("s")
    first = Acquire(
        "a", Mode.EXCLUSIVE, HoldId("h1"), AttemptId("1"), session, request_id="first", if_held=IfHeld.RENEW
    )
    second = Acquire(
        "a", Mode.EXCLUSIVE, HoldId("h2"), AttemptId("2"), session, request_id="second", if_held=IfHeld.RENEW
    )
    log.apply(OpenSession(session, 60_000), first)
    assert log.found("s", "first") == ("h1", ("1",))
    log.apply(second)
    assert log.found("s", "first") == NOTHING
    assert log.found("s", "second") == NOTHING
