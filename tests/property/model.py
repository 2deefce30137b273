"""A second opinion on what locks do: the rules of the state machine written as plainly as possible.

Lists are searched from end to end, nothing is indexed and nothing is cached. What this file says is the
specification of `lockstate.machine`; where the two disagree, one of them has a bug. It uses the types of
`lockstate` and nothing of its machine. Default owners are not hashed here; who compares allows for it.
"""

from dataclasses import dataclass, field

import msgspec

from lockstate import limits
from lockstate.commands import (
    Acquire,
    Barrier,
    Cancel,
    CloseSession,
    Command,
    Entry,
    ForceRelease,
    KeepAlive,
    OpenSession,
    Release,
    Renew,
    Tick,
    Undecodable,
)
from lockstate.modes import Mode
from lockstate.results import (
    Cancelled,
    Done,
    Event,
    EventKind,
    ForceReleased,
    Granted,
    HolderView,
    LockView,
    Queued,
    Reason,
    Refused,
    Released,
    Renewed,
    Result,
    SessionClosed,
    SessionKept,
    SessionOpened,
    SessionView,
    WaiterView,
)
from tests.property.model_checks import content, refuse_bad
from tests.property.model_records import Delay, Hold, Key, Lease, Request, Session, Ticket

NO_OUTCOME = frozenset(
    {
        Reason.INVALID_REQUEST,
        Reason.NAME_TOO_LONG,
        Reason.TTL_OUT_OF_RANGE,
        Reason.QUEUE_FULL,
        Reason.OVERLOADED,
    }
)
"""Mistakes of the client: without effect, so the corrected request may keep its id."""


def without_holders(result: Result) -> Result:
    """Return what is remembered of a result: not who was in the way."""
    return msgspec.structs.replace(result, holders=()) if isinstance(result, Refused) else result


@dataclass
class Model:
    """The whole state, and `apply`, which mirrors the machine's."""

    revision: int = 0
    now_ms: int = 0
    next_token: int = 1
    created: int = 0
    sessions: list[Session] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    """In order of their tokens."""
    tickets: list[Ticket] = field(default_factory=list)
    """In order of arrival, those of all locks together."""
    delays: dict[str, Delay] = field(default_factory=dict)
    requests: dict[Key, Request] = field(default_factory=dict)
    highest_seqs: dict[str, int] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    """Of the entry being applied."""

    def apply(self, entry: Entry) -> list[tuple[str, int, Result]]:
        """Apply one entry and return (origin, seq, result) of every command that was not a repetition."""
        self.revision += 1
        self.now_ms = max(self.now_ms, entry.now_ms)
        self.events = []
        self._forget_old_requests()
        while self._expire_first_due():
            pass
        answers = []
        for batch in entry.batches:
            for seq, command in zip(batch.seqs, batch.commands, strict=True):
                if seq <= self.highest_seqs.get(batch.origin, 0):
                    continue
                self.highest_seqs[batch.origin] = seq
                answers.append((batch.origin, seq, self._run(command)))
        return answers

    # Time

    def deadlines(self) -> list[tuple[int, int, str, object]]:
        """Return (end, creation, kind, thing) of everything that ends by time, the first to end first."""
        every: list[tuple[int, int, str, object]] = []
        every += [(s.lease.expires_at_ms, s.lease.created, "session", s) for s in self.sessions]
        every += [(h.lease.expires_at_ms, h.lease.created, "hold", h) for h in self.holds if not h.session_id]
        every += [(t.deadline_ms, t.created, "ticket", t) for t in self.tickets]
        every += [(d.until_ms, d.created, "delay", name) for name, d in self.delays.items()]
        return sorted(every, key=lambda item: item[:2])

    def _expire_first_due(self) -> bool:
        for end_ms, _, _, thing in self.deadlines():
            if self.now_ms <= end_ms:
                return False
            match thing:
                case Session():
                    self._end_session(thing, EventKind.EXPIRED)
                case Hold():
                    self._end_hold(thing, EventKind.EXPIRED, thing.lock_delay_ms)
                    self._serve(thing.name)
                case Ticket():
                    self._end_wait(thing, None)
                    self._serve(thing.acquire.name)
                case str():
                    del self.delays[thing]
                    self._serve(thing)
            return True
        return False

    def _forget_old_requests(self) -> None:
        for key, request in list(self.requests.items()):
            if request.result is not None and self.now_ms > request.outcome_ms + limits.REQUEST_AGE_MS:
                del self.requests[key]

    def _lease(self, ttl_ms: int) -> Lease:
        self.created += 1
        return Lease(ttl_ms, self.now_ms + ttl_ms, self.created)

    def _restart(self, lease: Lease) -> int:
        lease.expires_at_ms = max(lease.expires_at_ms, self.now_ms + lease.ttl_ms)
        return lease.expires_at_ms - self.now_ms

    # Commands

    def _run(self, command: Command | Undecodable) -> Result:
        refused = refuse_bad(command)
        if refused is not None:
            return refused
        key = self._request_key(command)
        if key is None:
            return self._decide(command)
        remembered = self.requests.get(key)
        if remembered is not None:
            return self._repeat(command, remembered)
        result = self._decide(command)
        if isinstance(result, Refused) and result.reason in NO_OUTCOME:
            return result
        hold_id = result.hold_id if isinstance(result, Granted | Queued) else ""
        waiting = isinstance(result, Queued)
        self.requests[key] = Request(
            content(command), hold_id, None if waiting else without_holders(result), self.now_ms
        )
        return result

    def _request_key(self, command: Command | Undecodable) -> Key | None:
        match command:
            case OpenSession():
                scope = ""
            case CloseSession():
                scope = command.session_id
            case Acquire():
                scope = command.session_id or command.owner
            case Renew() | Release():
                scope = command.hold_id
            case ForceRelease():
                scope = command.name
            case _:
                return None
        return (scope, command.request_id) if command.request_id else None

    def _repeat(self, command: Command | Undecodable, remembered: Request) -> Result:
        if remembered.content != content(command):
            return Refused(Reason.INVALID_REQUEST, "")
        if isinstance(command, Acquire):
            for ticket in self.tickets:
                if ticket.acquire.hold_id == remembered.hold_id:
                    ticket.attempt_id = command.attempt_id
                    return Queued(remembered.hold_id, self._position(ticket))
        result = remembered.result
        assert result is not None, "a request without a result waits"
        if isinstance(result, Granted):
            hold = self._hold(result.hold_id)
            expires_in_ms = 0
            if hold is not None:
                assert isinstance(command, Acquire)
                hold.attempt_id, hold.request = command.attempt_id, self._request_key(command)
                expires_in_ms = hold.lease.expires_at_ms - self.now_ms
            return Granted(result.hold_id, result.token, result.name, result.mode, expires_in_ms)
        if isinstance(result, Renewed):
            assert isinstance(command, Renew)
            hold = self._hold(command.hold_id)
            return Renewed(result.token, hold.lease.expires_at_ms - self.now_ms if hold else 0)
        if isinstance(result, SessionOpened):
            session = self._session(result.session_id)
            left_ms = session.lease.expires_at_ms - self.now_ms if session else 0
            return SessionOpened(result.session_id, result.ttl_ms, left_ms)
        return result

    def _decide(self, command: Command | Undecodable) -> Result:  # noqa: C901 - one case for each command
        match command:
            case OpenSession():
                return self._open(command)
            case KeepAlive():
                session = self._session(command.session_id)
                if session is None:
                    return Refused(Reason.SESSION_EXPIRED, "")
                return SessionKept(command.session_id, self._restart(session.lease))
            case CloseSession():
                session = self._session(command.session_id)
                if session is None:
                    return Refused(Reason.SESSION_EXPIRED, "")
                return SessionClosed(self._end_session(session, EventKind.RELEASED))
            case Acquire():
                return self._acquire(command)
            case Cancel():
                return self._cancel(command)
            case Renew():
                return self._renew(command)
            case Release():
                return self._release(command)
            case ForceRelease():
                return self._force(command)
            case Tick() | Barrier() | Undecodable():
                return Done()

    def _open(self, command: OpenSession) -> Result:
        if self._session(command.session_id) is not None:
            return Refused(Reason.INVALID_REQUEST, "")
        owner = command.labels.get("owner") or f"session-{command.session_id}"
        lease = self._lease(command.ttl_ms)
        self.sessions.append(Session(command.session_id, owner, command.labels, lease))
        return SessionOpened(command.session_id, command.ttl_ms, command.ttl_ms)

    def _acquire(self, command: Acquire) -> Result:
        if command.session_id:
            session = self._session(command.session_id)
            if session is None:
                return Refused(Reason.SESSION_EXPIRED, "")
            owner = command.owner or session.owner
            for hold in self.holds:
                same = (hold.session_id, hold.name, hold.mode, hold.owner)
                if same == (command.session_id, command.name, command.mode, owner):
                    hold.attempt_id, hold.request = command.attempt_id, self._request_key(command)
                    return self._granted(hold, self._restart(session.lease))
        else:
            owner = command.owner or f"hold-{command.hold_id}"
        earlier = [t.acquire.mode for t in self.tickets if t.acquire.name == command.name]
        if self._may_grant(command.name, command.mode, earlier):
            return self._grant(command, command.attempt_id, self._request_key(command), owner)
        if command.wait_ms:
            self.created += 1
            deadline_ms = self.now_ms + command.wait_ms
            key = self._request_key(command)
            ticket = Ticket(command, command.attempt_id, key, owner, self.now_ms, deadline_ms, self.created)
            self.tickets.append(ticket)
            self._tell(EventKind.QUEUED, command.name, owner, 0)
            return Queued(command.hold_id, self._position(ticket))
        return self._refuse_held(command.name)

    def _cancel(self, command: Cancel) -> Result:
        for ticket in self.tickets:
            if (ticket.acquire.hold_id, ticket.attempt_id) == (command.hold_id, command.attempt_id):
                self.tickets.remove(ticket)
                self._tell(EventKind.WAIT_ENDED, ticket.acquire.name, ticket.owner, 0)
                self._forget(ticket.request, command.hold_id)
                self._serve(ticket.acquire.name)
                return Cancelled(undone=True)
        hold = self._hold(command.hold_id)
        if hold is None or hold.attempt_id != command.attempt_id:
            return Cancelled(undone=False)
        self._end_hold(hold, EventKind.RELEASED, 0)
        self._forget(hold.request, command.hold_id)
        self._serve(hold.name)
        return Cancelled(undone=True)

    def _forget(self, key: Key | None, hold_id: str) -> None:
        if key in self.requests and self.requests[key].hold_id == hold_id:
            del self.requests[key]

    def _renew(self, command: Renew) -> Result:
        hold = self._hold(command.hold_id)
        if hold is None:
            return Refused(Reason.LEASE_EXPIRED, "")
        refused = limits.check_ttl(command.ttl_ms) if command.ttl_ms else None
        if refused is not None:
            return refused
        if hold.session_id and command.ttl_ms:
            return Refused(Reason.INVALID_REQUEST, "")
        hold.lease.ttl_ms = command.ttl_ms or hold.lease.ttl_ms
        return Renewed(hold.token, self._restart(hold.lease))

    def _release(self, command: Release) -> Result:
        hold = self._hold(command.hold_id)
        if hold is None:
            return Refused(Reason.LEASE_EXPIRED, "")
        self._end_hold(hold, EventKind.RELEASED, 0)
        self._serve(hold.name)
        return Released()

    def _force(self, command: ForceRelease) -> Result:
        ended = self.holder_views(command.name)
        for hold in [h for h in self.holds if h.name == command.name]:
            self._end_hold(hold, EventKind.FORCED, command.lock_delay_ms)
        self._serve(command.name)
        return ForceReleased(ended)

    # What commands and time have in common

    def _may_grant(self, name: str, mode: Mode, earlier: list[Mode]) -> bool:
        if name in self.delays:
            return False
        others = [hold.mode for hold in self.holds if hold.name == name] + earlier
        return not others or (mode is Mode.SHARED and all(other is Mode.SHARED for other in others))

    def _grant(self, command: Acquire, attempt_id: str, request: Key | None, owner: str) -> Granted:
        session = self._session(command.session_id)
        lease = session.lease if session else self._lease(command.ttl_ms)
        hold = Hold(
            hold_id=command.hold_id,
            attempt_id=attempt_id,
            name=command.name,
            mode=command.mode,
            owner=owner,
            token=self.next_token,
            lease=lease,
            session_id=command.session_id,
            lock_delay_ms=command.lock_delay_ms,
            note=command.note,
            request=request,
        )
        self.next_token += 1
        self.holds.append(hold)
        self._tell(EventKind.GRANTED, hold.name, owner, hold.token)
        # Whoever is served while the end of its own session is due in the same entry has nothing left.
        return self._granted(hold, max(0, lease.expires_at_ms - self.now_ms))

    def _granted(self, hold: Hold, expires_in_ms: int) -> Granted:
        return Granted(hold.hold_id, hold.token, hold.name, hold.mode, expires_in_ms)

    def _serve(self, name: str) -> None:
        earlier: list[Mode] = []
        for ticket in [t for t in self.tickets if t.acquire.name == name]:
            if self._may_grant(name, ticket.acquire.mode, earlier):
                self.tickets.remove(ticket)
                granted = self._grant(ticket.acquire, ticket.attempt_id, ticket.request, ticket.owner)
                self._conclude(ticket, granted)
            else:
                earlier.append(ticket.acquire.mode)

    def _conclude(self, ticket: Ticket, result: Result) -> None:
        for request in self.requests.values():
            if request.result is None and request.hold_id == ticket.acquire.hold_id:
                request.result = without_holders(result)
                request.outcome_ms = self.now_ms

    def _refuse_held(self, name: str) -> Refused:
        holders = self.holder_views(name)[: limits.HOLDERS_SHOWN_MAX]
        queue_length = len([t for t in self.tickets if t.acquire.name == name])
        return Refused(Reason.LOCK_HELD, "", holders, queue_length)

    def _end_wait(self, ticket: Ticket, refused: Refused | None) -> None:
        """End a wait with `refused`, or with the refusal of one who did not want to wait."""
        self.tickets.remove(ticket)
        self._conclude(ticket, refused or self._refuse_held(ticket.acquire.name))
        self._tell(EventKind.WAIT_ENDED, ticket.acquire.name, ticket.owner, 0)

    def _end_hold(self, hold: Hold, kind: EventKind, lock_delay_ms: int) -> None:
        self.holds.remove(hold)
        self._tell(kind, hold.name, hold.owner, hold.token)
        until_ms = self.now_ms + lock_delay_ms
        current = self.delays.get(hold.name)
        if lock_delay_ms and current is None:
            self.created += 1
            self.delays[hold.name] = Delay(until_ms, self.created)
        elif lock_delay_ms and current is not None:
            current.until_ms = max(current.until_ms, until_ms)

    def _end_session(self, session: Session, kind: EventKind) -> tuple[str, ...]:
        self.sessions.remove(session)
        tickets = [t for t in self.tickets if t.acquire.session_id == session.session_id]
        holds = [h for h in self.holds if h.session_id == session.session_id]
        for ticket in tickets:
            self._end_wait(ticket, Refused(Reason.SESSION_EXPIRED, ""))
        for hold in holds:
            self._end_hold(hold, kind, hold.lock_delay_ms if kind is EventKind.EXPIRED else 0)
        for name in [t.acquire.name for t in tickets] + [h.name for h in holds]:
            self._serve(name)
        if kind is EventKind.EXPIRED:
            self._tell(EventKind.SESSION_EXPIRED, "", session.owner, 0)
        return tuple(hold.name for hold in holds)

    def _tell(self, kind: EventKind, name: str, owner: str, token: int) -> None:
        self.events.append(Event(self.revision, self.now_ms, kind, name=name, owner=owner, token=token))

    # Views

    def _session(self, session_id: str) -> Session | None:
        return next((s for s in self.sessions if s.session_id == session_id), None)

    def _hold(self, hold_id: str) -> Hold | None:
        return next((h for h in self.holds if h.hold_id == hold_id), None)

    def _position(self, ticket: Ticket) -> int:
        return [t for t in self.tickets if t.acquire.name == ticket.acquire.name].index(ticket) + 1

    def _holder_view(self, hold: Hold) -> HolderView:
        expires_in_ms = max(0, hold.lease.expires_at_ms - self.now_ms)
        return HolderView(hold.owner, hold.mode, hold.token, expires_in_ms, hold.note, hold.name)

    def _waiter_view(self, ticket: Ticket) -> WaiterView:
        waited_ms = self.now_ms - ticket.queued_at_ms
        return WaiterView(
            ticket.owner, ticket.acquire.mode, self._position(ticket), waited_ms, ticket.acquire.name
        )

    def holder_views(self, name: str) -> tuple[HolderView, ...]:
        """Return the holders of the lock in order of their tokens."""
        return tuple(self._holder_view(hold) for hold in self.holds if hold.name == name)

    def lock(self, name: str) -> LockView:
        """Return the lock as readers see it."""
        holders = self.holder_views(name)
        queue = tuple(self._waiter_view(t) for t in self.tickets if t.acquire.name == name)
        state = "held" if holders else "delayed" if name in self.delays else "free"
        return LockView(name, state, holders, queue)

    def session(self, session_id: str) -> SessionView | None:
        """Return the session as its client sees it."""
        session = self._session(session_id)
        if session is None:
            return None
        holds = tuple(self._holder_view(h) for h in self.holds if h.session_id == session_id)
        tickets = tuple(self._waiter_view(t) for t in self.tickets if t.acquire.session_id == session_id)
        expires_in_ms = session.lease.expires_at_ms - self.now_ms
        return SessionView(session.lease.ttl_ms, expires_in_ms, session.owner, session.labels, holds, tickets)

    def active_names(self) -> list[str]:
        """Return the names of locks that are not free, in order."""
        names = {h.name for h in self.holds} | {t.acquire.name for t in self.tickets} | set(self.delays)
        return sorted(names)
