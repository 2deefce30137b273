"""Shorthand of the unit tests: one machine, one command at a time."""

from typing import TypeVar

from lockstate import invariants
from lockstate.commands import Acquire, Batch, Command, Entry, OpenSession, Undecodable
from lockstate.machine import LockMachine
from lockstate.modes import Mode
from lockstate.results import Event, EventKind, Granted, Outcome, Queued, Reason, Refused, Result

ResultT = TypeVar("ResultT", bound=Result)


class World:
    """A machine, and the events of the entry applied last."""

    def __init__(self) -> None:
        self.machine = LockMachine()
        self.seq = 0
        self.events: tuple[Event, ...] = ()
        self.ids_made = 0

    def apply(self, entry: Entry) -> Outcome:
        """Apply an entry and check the state."""
        outcome = self.machine.apply(entry)
        self.events = outcome.events
        invariants.check(self.machine)
        return outcome

    def run(self, command: Command | Undecodable, at_ms: int = 0) -> Result:
        """Apply one command in an entry of its own."""
        self.seq += 1
        return self.apply(Entry(at_ms, (Batch("n1", (self.seq,), (command,)),))).batches[0].results[0]

    def pass_to(self, at_ms: int) -> list[EventKind]:
        """Let time pass; return what happened."""
        return [event.kind for event in self.apply(Entry(at_ms)).events]

    def acquire(
        self,
        name: str,
        *,
        mode: Mode = Mode.EXCLUSIVE,
        session_id: str = "",
        ttl_ms: int = 1000,
        wait_ms: int = 0,
        lock_delay_ms: int = 0,
        request_id: str = "",
        owner: str = "",
        at_ms: int = 0,
    ) -> Result:
        """Acquire with the next free ids: h1 and a1, h2 and a2, ..."""
        self.ids_made += 1
        command = Acquire(
            name=name,
            mode=mode,
            hold_id=f"h{self.ids_made}",
            attempt_id=f"a{self.ids_made}",
            session_id=session_id,
            ttl_ms=0 if session_id else ttl_ms,
            wait_ms=wait_ms,
            lock_delay_ms=lock_delay_ms,
            request_id=request_id,
            owner=owner,
        )
        return self.run(command, at_ms)

    def granted(self, name: str, **options: str | int) -> Granted:
        """Acquire, and insist on being granted."""
        return expect(Granted, self.acquire(name, **options))  # type: ignore[arg-type]

    def queued(self, name: str, **options: str | int) -> Queued:
        """Acquire, and insist on waiting."""
        return expect(Queued, self.acquire(name, wait_ms=10_000, **options))  # type: ignore[arg-type]

    def open(self, session_id: str, ttl_ms: int = 1000, at_ms: int = 0) -> None:
        """Open a session."""
        self.run(OpenSession(session_id, ttl_ms), at_ms)


def expect(kind: type[ResultT], result: Result | None) -> ResultT:
    """Return `result`, which must be of this kind."""
    assert isinstance(result, kind), result
    return result


def reason(result: Result) -> Reason:
    """Return why it was refused."""
    return expect(Refused, result).reason
