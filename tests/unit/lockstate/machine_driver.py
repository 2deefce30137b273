"""Shorthand of the unit tests: one machine, one command at a time, ids that count up."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.words.commands.entries import Batch, Cancel, Command, Entry, Undecodable
from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    AddLocks,
    Campaign,
    Convert,
    Release,
    Renew,
)
from lockstate.words.commands.overrides import ForceRelease
from lockstate.words.commands.primitives import ResizeSemaphore
from lockstate.words.commands.sessions import CloseSession, KeepAlive, OpenSession
from lockstate.words.events import Event, EventKind
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.kinds import IfHeld
from lockstate.words.modes import Mode, Scope
from lockstate.words.outcomes import Outcome
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, Queued, Result
from lockstate.words.wanted import Uncommon, Wanted

EXCLUSIVE, SHARED, UPDATE = Mode.EXCLUSIVE, Mode.SHARED, Mode.UPDATE
NODE, SUBTREE = Scope.NODE, Scope.SUBTREE

ResultT = TypeVar("ResultT", bound=Result)


class MachineDriver:
    """A machine, and the events and ended waits of the last entry."""

    def __init__(self) -> None:
        self.machine = LockMachine()
        self.seq = 0
        self.events: Sequence[Event] = ()
        self.settled: dict[str, Granted | Refused] = {}
        self.ids_made = 0

    def apply(self, entry: Entry) -> Outcome:
        """Apply an entry and check the state."""
        outcome = self.machine.apply(entry)
        self.events = outcome.events
        self.settled = {end.hold_id: end.result for end in outcome.settled}
        invariants.check(self.machine.state)
        return outcome

    def run(self, command: Command | Undecodable, at_ms: int = 0) -> Result:
        """Apply one command in an entry of its own."""
        return self.run_all([command], at_ms)[0]

    def run_all(self, commands: Iterable[Command | Undecodable], at_ms: int = 0) -> tuple[Result, ...]:
        """Apply commands in one entry."""
        listed = tuple(commands)
        seqs = tuple(range(self.seq + 1, self.seq + 1 + len(listed)))
        self.seq += len(listed)
        return self.apply(Entry(at_ms, (Batch("n1", seqs, listed),))).batches[0].results

    def pass_to(self, at_ms: int) -> list[EventKind]:
        """Let time pass; return what happened."""
        return [event.kind for event in self.apply(Entry(at_ms)).events]

    def happened(self) -> list[tuple[str, str]]:
        """Return the kinds and names of the events of the last entry."""
        return [(event.kind.value, event.name) for event in self.events]

    def served(self) -> list[str]:
        """Return the waits that ended with a grant in the last entry, in order."""
        return [hold_id for hold_id, result in self.settled.items() if isinstance(result, Granted)]

    def refused(self, hold_id: str) -> Refused:
        """Return the refusal with which a wait ended in the last entry."""
        return expect(Refused, self.settled[hold_id])

    def _next_id(self) -> int:
        self.ids_made += 1
        return self.ids_made

    # -- locks ----------------------------------------------------------------------------------------------

    def acquire(
        self,
        name: str = "",
        *,
        mode: Mode = EXCLUSIVE,
        scope: Scope = NODE,
        locks: Iterable[Wanted] = (),
        session_id: str = "",
        ttl_ms: int = 1000,
        wait_ms: int = 0,
        lock_delay_ms: int = 0,
        request_id: str = "",
        owner: str = "",
        note: str = "",
        if_held: IfHeld | None = None,
        at_ms: int = 0,
    ) -> Result:
        """Acquire with the next free ids: h1 and a1, h2 and a2, ..."""
        number = self._next_id()
        command = Acquire(
            name=name,
            mode=mode,
            hold_id=HoldId(f"h{number}"),
            attempt_id=AttemptId(f"a{number}"),
            session_id=SessionId(session_id),
            ttl_ms=0 if session_id else ttl_ms,
            wait_ms=wait_ms,
            request_id=request_id,
            owner=OwnerName(owner),
            scope=scope,
            locks=tuple(locks),
            if_held=if_held,
            uncommon=Uncommon(lock_delay_ms, note) if lock_delay_ms or note else None,
        )
        return self.run(command, at_ms)

    def granted(self, name: str = "", **options: Any) -> Granted:
        """Acquire, and expect a grant."""
        return expect(Granted, self.acquire(name, **options))

    def queued(self, name: str = "", **options: Any) -> Queued:
        """Acquire, and expect to wait."""
        return expect(Queued, self.acquire(name, **{"wait_ms": 10_000, **options}))

    def release(self, hold_id: str, *names: str, request_id: str = "", at_ms: int = 0) -> Result:
        """Give a hold back, or a part of it."""
        return self.run(Release(HoldId(hold_id), request_id, names), at_ms)

    def renew(self, hold_id: str, ttl_ms: int = 0, *, request_id: str = "", at_ms: int = 0) -> Result:
        """Start the lease of a hold anew."""
        return self.run(Renew(HoldId(hold_id), ttl_ms, request_id), at_ms)

    def cancel(self, hold_id: str, attempt_id: str, at_ms: int = 0) -> Result:
        """Undo an attempt."""
        return self.run(Cancel(HoldId(hold_id), AttemptId(attempt_id)), at_ms)

    def force(self, name: str, lock_delay_ms: int = 0, at_ms: int = 0) -> Result:
        """End every hold of a lock."""
        return self.run(ForceRelease(name, "", lock_delay_ms), at_ms)

    def convert(
        self, hold_id: str, mode: Mode, *, wait_ms: int = 0, request_id: str = "", at_ms: int = 0
    ) -> Result:
        """Convert with the next free ids: t1 and a1, t2 and a2, ..."""
        number = self._next_id()
        command = Convert(
            HoldId(hold_id), mode, HoldId(f"t{number}"), AttemptId(f"a{number}"), wait_ms, request_id
        )
        return self.run(command, at_ms)

    def converting(self, hold_id: str, mode: Mode, **options: Any) -> Queued:
        """Convert, and expect to wait."""
        return expect(Queued, self.convert(hold_id, mode, **{"wait_ms": 10_000, **options}))

    def add(
        self, hold_id: str, *locks: str | Wanted, wait_ms: int = 0, request_id: str = "", at_ms: int = 0
    ) -> Result:
        """Add locks, exclusive ones if only named, with the next free ids: t1 and a1, t2 and a2, ..."""
        number = self._next_id()
        wanted = tuple(Wanted(lock) if isinstance(lock, str) else lock for lock in locks)
        command = AddLocks(
            HoldId(hold_id), wanted, HoldId(f"t{number}"), AttemptId(f"a{number}"), wait_ms, request_id
        )
        return self.run(command, at_ms)

    def added(self, hold_id: str, *locks: str | Wanted, **options: Any) -> Granted:
        """Add locks, and expect that they are granted."""
        return expect(Granted, self.add(hold_id, *locks, **options))

    def adding(self, hold_id: str, *locks: str | Wanted, **options: Any) -> Queued:
        """Add locks, and expect to wait."""
        return expect(Queued, self.add(hold_id, *locks, **{"wait_ms": 10_000, **options}))

    # -- semaphores and elections ---------------------------------------------------------------------------

    def permits(
        self,
        name: str,
        limit: int,
        permits: int = 1,
        *,
        session_id: str = "",
        ttl_ms: int = 1000,
        wait_ms: int = 0,
        lock_delay_ms: int = 0,
        request_id: str = "",
        owner: str = "",
        at_ms: int = 0,
    ) -> Result:
        """Ask for permits with the next free ids."""
        number = self._next_id()
        command = AcquirePermits(
            name=name,
            limit=limit,
            permits=permits,
            hold_id=HoldId(f"h{number}"),
            attempt_id=AttemptId(f"a{number}"),
            session_id=SessionId(session_id),
            ttl_ms=0 if session_id else ttl_ms,
            owner=OwnerName(owner),
            wait_ms=wait_ms,
            request_id=request_id,
            is_strict=True,
            uncommon=Uncommon(lock_delay_ms) if lock_delay_ms else None,
        )
        return self.run(command, at_ms)

    def permitted(self, name: str, limit: int, permits: int = 1, **options: Any) -> Granted:
        """Ask for permits, and expect a grant."""
        return expect(Granted, self.permits(name, limit, permits, **options))

    def wanting(self, name: str, limit: int, permits: int = 1, **options: Any) -> Queued:
        """Ask for permits, and expect to wait."""
        return expect(Queued, self.permits(name, limit, permits, **{"wait_ms": 10_000, **options}))

    def resize(self, name: str, limit: int, at_ms: int = 0) -> Result:
        """Give a semaphore another limit."""
        return self.run(ResizeSemaphore(name, limit), at_ms)

    def campaign(
        self,
        name: str,
        session_id: str,
        value: str = "",
        *,
        owner: str = "",
        wait_ms: int = 0,
        request_id: str = "",
        if_held: IfHeld | None = None,
        at_ms: int = 0,
    ) -> Result:
        """Campaign with the next free ids."""
        number = self._next_id()
        command = Campaign(
            name,
            SessionId(session_id),
            value,
            HoldId(f"h{number}"),
            AttemptId(f"a{number}"),
            OwnerName(owner),
            wait_ms,
            request_id,
            if_held,
        )
        return self.run(command, at_ms)

    def draw(self, newest: int) -> None:
        """Let this be the newest token that was granted."""
        assert newest >= self.machine.next_token - 1
        self.machine.state.next_token = newest + 1

    # -- sessions -------------------------------------------------------------------------------------------

    def open(self, *session_ids: str, ttl_ms: int = 1000, at_ms: int = 0) -> None:
        """Open sessions, each with its id as the owner's name."""
        for session_id in session_ids:
            self.run(OpenSession(SessionId(session_id), ttl_ms, {"owner": session_id}), at_ms)

    def keep_alive(self, session_id: str, at_ms: int = 0) -> Result:
        """Start the ttl of a session anew."""
        return self.run(KeepAlive(SessionId(session_id)), at_ms)

    def close(self, session_id: str, *, request_id: str = "", at_ms: int = 0) -> Result:
        """End a session."""
        return self.run(CloseSession(SessionId(session_id), request_id), at_ms)


def wanted(*names: str, mode: Mode = EXCLUSIVE, scope: Scope = NODE) -> tuple[Wanted, ...]:
    """Return several locks to ask for."""
    return tuple(Wanted(name, mode, scope) for name in names)


def expect(kind: type[ResultT], result: Result | None) -> ResultT:
    """Return `result`, which must be of this kind."""
    assert isinstance(result, kind), result
    return result


def again(result: Result | None) -> Granted:
    """Return `result`, which must be the grant of what the session held already."""
    granted = expect(Granted, result)
    assert granted.depth >= 1, granted
    return granted


def with_uncommon(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields of an acquire, with those that are uncommon where they belong."""
    rare = {name: value for name, value in fields.items() if name in Uncommon.__struct_fields__}
    rest = {name: value for name, value in fields.items() if name not in rare}
    return rest | {"uncommon": Uncommon(**rare)} if rare else rest


def reason(result: Result) -> Reason:
    """Return why it was refused."""
    return expect(Refused, result).reason
