"""The rules of locks: who gets one, who waits, how things end. The place where grants are decided.

`machine` calls one method per command, and `expire_due` when time has passed. Nothing here knows of entries,
batches or repeated requests.
"""

from lockstate import limits, views
from lockstate.commands import (
    Acquire,
    Cancel,
    CloseSession,
    ForceRelease,
    KeepAlive,
    OpenSession,
    Release,
    Renew,
)
from lockstate.modes import COMPATIBLE, Mode, passable
from lockstate.results import (
    Cancelled,
    Event,
    EventKind,
    ForceReleased,
    Granted,
    Queued,
    Reason,
    Refused,
    Released,
    Renewed,
    Result,
    SessionClosed,
    SessionKept,
    SessionOpened,
)
from lockstate.state import State, public_name
from lockstate.tables import Delay, Hold, Lock, RequestKey, Session, Ticket

_RELEASED = Released()
_SESSION_EXPIRED = Refused(Reason.SESSION_EXPIRED, "the session has expired or never was")
_LEASE_EXPIRED = Refused(Reason.LEASE_EXPIRED, "the hold has ended or never was")


class Rules:
    """Changes one state by the rules of locks. `events` gathers what others may want to know."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.events: list[Event] = []

    def expire_due(self) -> None:
        """End what cluster time has passed, in order of (deadline, creation)."""
        state = self.state
        while (record := state.deadlines.pop_due(state.now_ms)) is not None:
            match record:
                case Session():
                    self._end_session(record, EventKind.EXPIRED)
                case Ticket():
                    self._serve(self._drop_ticket(record))
                case _:
                    assert isinstance(record, Delay), "nothing else ends by itself"
                    lock = state.locks[record.name]
                    lock.delay = None
                    self._serve(lock)

    # -- sessions -------------------------------------------------------------------------------------------

    def open_session(self, command: OpenSession) -> Result:
        """Open a session, unless its id is in use."""
        state = self.state
        refused = (
            limits.check_id("session_id", command.session_id)
            or limits.check_ttl(command.ttl_ms)
            or limits.check_labels(command.labels)
            or self._check_unused("session_id", command.session_id)
            or self._check_room(
                len(state.sessions) - state.own_sessions_count, limits.SESSIONS_COUNT_MAX, "sessions"
            )
        )
        if refused is not None:
            return refused
        owner = command.labels.get("owner") or public_name("session", command.session_id)
        self._add_session(command.session_id, command.ttl_ms, owner, command.labels, is_own=False)
        return SessionOpened(command.session_id, command.ttl_ms, command.ttl_ms)

    def _add_session(
        self, session_id: str, ttl_ms: int, owner: str, labels: dict[str, str], *, is_own: bool
    ) -> Session:
        state = self.state
        session = Session(
            order=state.take_order(),
            expires_at_ms=state.now_ms + ttl_ms,
            session_id=session_id,
            ttl_ms=ttl_ms,
            owner=owner,
            labels=labels,
            is_own=is_own,
        )
        state.add_session(session)
        return session

    def client_session(self, session_id: str) -> Session | None:
        """Return a session that a client opened; the lease of a single hold is none."""
        session = self.state.sessions.get(session_id)
        return session if session is not None and not session.is_own else None

    def keep_alive(self, command: KeepAlive) -> Result:
        """Start a session's ttl anew."""
        session = self.client_session(command.session_id)
        if session is None:
            return _SESSION_EXPIRED
        self.state.extend(session)
        return SessionKept(session.session_id, session.ttl_ms)

    def close_session(self, command: CloseSession) -> Result:
        """End a session, its holds and its waits."""
        session = self.client_session(command.session_id)
        if session is None:
            return _SESSION_EXPIRED
        return SessionClosed(self._end_session(session, EventKind.RELEASED))

    def _end_session(self, session: Session, kind: EventKind) -> tuple[str, ...]:
        """End a session with its waits and holds, then serve who waited for them; return the names it held.

        Its tickets go first: none of them may get what its holds leave behind.
        """
        state = self.state
        state.remove_session(session)
        touched: dict[str, Lock] = {}
        for ticket in list(session.tickets.values()):
            touched[ticket.name] = self._drop_ticket(ticket, _SESSION_EXPIRED)
        holds = list(session.holds.values())
        for hold in holds:
            touched[hold.name] = self._drop_hold(hold, kind)
        if kind is EventKind.EXPIRED and not session.is_own:
            self._emit(EventKind.SESSION_EXPIRED, owner=session.owner)
        for lock in touched.values():
            self._serve(lock)
        return tuple([hold.name for hold in holds])

    # -- acquire --------------------------------------------------------------------------------------------

    def acquire(self, command: Acquire, key: RequestKey | None) -> Result:
        """Grant, queue or refuse. `key` is what the request is remembered under."""
        state = self.state
        refused = self._check_acquire(command)
        if refused is not None:
            return refused
        session = None
        if command.session_id:
            session = self.client_session(command.session_id)
            if session is None:
                return _SESSION_EXPIRED
        owner = command.owner or (session.owner if session else public_name("hold", command.hold_id))
        lock = state.locks.get(command.name)
        if session is not None and lock is not None:
            hold = self._held_already(session, lock, command, owner)
            if hold is not None:
                state.extend(session)
                hold.attempt_id, hold.request = command.attempt_id, key
                return self.granted(hold)
        refused = self._check_room(len(state.holds), limits.HOLDS_COUNT_MAX, "holds")
        if refused is not None:
            return refused
        if lock is None or self._is_free_for(lock, command):
            return self._grant(self._ticket(command, owner, key))
        if command.wait_ms == 0:
            return self._lock_held(lock)
        return self._enqueue(lock, self._ticket(command, owner, key))

    def _check_acquire(self, command: Acquire) -> Refused | None:
        """Return what is wrong with the command itself, or with adding anything to full tables."""
        refused = (
            limits.check_name(command.name)
            or limits.check_id("hold_id", command.hold_id)
            or limits.check_id("attempt_id", command.attempt_id)
            or limits.check_text("owner", command.owner, limits.OWNER_BYTES_MAX)
            or limits.check_text("note", command.note, limits.NOTE_BYTES_MAX)
            or limits.check_range("wait_ms", command.wait_ms, limits.WAIT_MS_MAX)
            or limits.check_range("lock_delay_ms", command.lock_delay_ms, limits.LOCK_DELAY_MS_MAX)
        )
        if refused is not None:
            return refused
        if bool(command.session_id) == bool(command.ttl_ms):
            return Refused(Reason.INVALID_REQUEST, "session_id, ttl_ms: give exactly one of the two")
        return (limits.check_ttl(command.ttl_ms) if command.ttl_ms else None) or self._check_unused(
            "hold_id", command.hold_id
        )

    def _check_unused(self, field: str, secret: str) -> Refused | None:
        """Refuse an id that already names something: ids are random, so this is a mistake of its maker."""
        state = self.state
        if secret in state.holds or secret in state.tickets or secret in state.sessions:
            return Refused(Reason.INVALID_REQUEST, f"{field}: is in use")
        return None

    def _check_room(self, count: int, count_max: int, what: str) -> Refused | None:
        if count < count_max:
            return None
        return Refused(Reason.OVERLOADED, f"the cluster has {count} {what}; no more are allowed", (), 0, 1000)

    def _held_already(self, session: Session, lock: Lock, command: Acquire, owner: str) -> Hold | None:
        """Return the hold that `session` already has and asks for again."""
        mine, all_holds = session.holds, lock.holders
        for hold in (mine if len(mine) < len(all_holds) else all_holds).values():
            if (hold.session_id, hold.name, hold.mode, hold.owner) == (
                session.session_id,
                command.name,
                command.mode,
                owner,
            ):
                return hold
        return None

    def _is_free_for(self, lock: Lock, command: Acquire) -> bool:
        """Whether a newcomer may have the lock at once: no holder and no waiter conflicts with it."""
        return (
            lock.delay is None
            and len(lock.holders) < limits.HOLDERS_COUNT_MAX
            and command.mode in passable(lock.held_modes)
            and command.mode in passable(lock.waiting_modes)
        )

    def _ticket(self, command: Acquire, owner: str, key: RequestKey | None) -> Ticket:
        state = self.state
        return Ticket(
            order=state.take_order(),
            expires_at_ms=state.now_ms + command.wait_ms,
            hold_id=command.hold_id,
            name=command.name,
            mode=command.mode,
            owner=owner,
            note=command.note,
            session_id=command.session_id,
            ttl_ms=command.ttl_ms,
            lock_delay_ms=command.lock_delay_ms,
            queued_at_ms=state.now_ms,
            attempt_id=command.attempt_id,
            request=key,
        )

    def _enqueue(self, lock: Lock, ticket: Ticket) -> Result:
        refused = self._check_room(len(self.state.tickets), limits.TICKETS_COUNT_MAX, "waiters")
        if refused is not None:
            return refused
        queue_length = len(lock.queue)
        if queue_length >= limits.QUEUE_LENGTH_MAX:
            return Refused(
                Reason.QUEUE_FULL,
                f"{queue_length} wait for this lock; no more are allowed",
                (),
                queue_length,
                1000,
            )
        self.state.add_ticket(ticket)
        self._emit(EventKind.QUEUED, name=ticket.name, mode=ticket.mode, owner=ticket.owner)
        return Queued(ticket.hold_id, queue_length + 1)

    def _grant(self, ticket: Ticket) -> Granted:
        """Give a lock that is free for it to a ticket that stands in no queue (any more). Draws a token."""
        state = self.state
        session_id = ticket.session_id
        if not session_id:
            session_id = ticket.hold_id
            self._add_session(session_id, ticket.ttl_ms, ticket.owner, {}, is_own=True)
        hold = Hold(
            hold_id=ticket.hold_id,
            token=state.next_token,
            name=ticket.name,
            mode=ticket.mode,
            owner=ticket.owner,
            note=ticket.note,
            session_id=session_id,
            lock_delay_ms=ticket.lock_delay_ms,
            attempt_id=ticket.attempt_id,
            request=ticket.request,
        )
        state.next_token += 1
        state.add_hold(hold)
        granted = self.granted(hold)
        self._emit_hold(EventKind.GRANTED, hold, result=granted)
        return granted

    def granted(self, hold: Hold) -> Granted:
        """Return what the holder is told of its hold now."""
        return Granted(hold.hold_id, hold.token, hold.name, hold.mode, views.remaining_ms(self.state, hold))

    def _lock_held(self, lock: Lock) -> Refused:
        """Say who is in the way, and when it makes sense to ask again."""
        holders = views.holder_views(self.state, lock, limits.HOLDERS_SHOWN_MAX)
        waits = [holder.expires_in_ms for holder in holders]
        if lock.delay is not None:
            waits.append(lock.delay.expires_at_ms - self.state.now_ms)
        if holders:
            detail = f"held by {holders[0].owner}"
        else:
            detail = "delayed after an expiry or a forced release" if lock.delay else "others wait for it"
        retry_after_ms = max(1, min(waits, default=1))
        return Refused(Reason.LOCK_HELD, detail, holders, len(lock.queue), retry_after_ms)

    # -- renew, release, cancel, force ----------------------------------------------------------------------

    def renew(self, command: Renew) -> Result:
        """Start the lease of a hold anew.

        A shorter ttl counts from the next renewal on. If it cut the lease, one that comes late would end what
        a later and longer one has promised.
        """
        hold = self.state.holds.get(command.hold_id)
        if hold is None:
            return _LEASE_EXPIRED
        session = self.state.sessions[hold.session_id]
        if command.ttl_ms:
            refused = limits.check_ttl(command.ttl_ms)
            if refused is not None:
                return refused
            if not session.is_own:
                return Refused(Reason.INVALID_REQUEST, "ttl_ms: this hold lives as long as its session")
            session.ttl_ms = command.ttl_ms
        self.state.extend(session)
        return Renewed(hold.token, views.remaining_ms(self.state, hold))

    def release(self, command: Release) -> Result:
        """End a hold and serve who waits for it."""
        hold = self.state.holds.get(command.hold_id)
        if hold is None:
            return _LEASE_EXPIRED
        self._serve(self._drop_hold(hold, EventKind.RELEASED))
        return _RELEASED

    def cancel(self, command: Cancel) -> Result:
        """Undo an acquire whose client never heard of it; a later attempt of the same request keeps it."""
        state = self.state
        ticket = state.tickets.get(command.hold_id)
        hold = state.holds.get(command.hold_id)
        attempt = ticket or hold
        if attempt is None or attempt.attempt_id != command.attempt_id:
            return Cancelled(undone=False)
        state.requests.forget(attempt.request, attempt.hold_id)
        if isinstance(attempt, Ticket):
            # Told to all: an earlier attempt of the same request may still wait on another connection.
            lock = self._drop_ticket(attempt)
        else:
            lock = self._drop_hold(attempt, EventKind.RELEASED)
        self._serve(lock)
        return Cancelled(undone=True)

    def force_release(self, command: ForceRelease) -> Result:
        """End all holds of a lock, whoever has them."""
        refused = (
            limits.check_name(command.name)
            or limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX)
            or limits.check_range("lock_delay_ms", command.lock_delay_ms, limits.LOCK_DELAY_MS_MAX)
        )
        if refused is not None:
            return refused
        lock = self.state.locks.get(command.name)
        if lock is None or not lock.holders:
            return ForceReleased(())
        released = views.holder_views(self.state, lock)
        for hold in list(lock.holders.values()):
            self._drop_hold(hold, EventKind.FORCED, reason=command.reason)
        if command.lock_delay_ms:
            self.state.set_delay(lock, command.lock_delay_ms)
        self._serve(lock)
        return ForceReleased(released)

    # -- how things end -------------------------------------------------------------------------------------

    def _drop_hold(self, hold: Hold, kind: EventKind, reason: str = "") -> Lock:
        """End a hold and say so. An expired one may leave a lock-delay. The caller serves the queue."""
        lock = self.state.remove_hold(hold)
        if kind is EventKind.EXPIRED and hold.lock_delay_ms:
            self.state.set_delay(lock, hold.lock_delay_ms)
        self._emit_hold(kind, hold, reason=reason)
        return lock

    def _drop_ticket(self, ticket: Ticket, refusal: Refused | None = None) -> Lock:
        """End a wait with a refusal, `lock-held` by default. The caller serves who stood behind it."""
        lock = self.state.remove_ticket(ticket)
        refusal = refusal or self._lock_held(lock)
        self.state.requests.settle(ticket.request, self.state.now_ms, refusal)
        self._emit_hold(EventKind.WAIT_ENDED, ticket, result=refusal)
        return lock

    def _serve(self, lock: Lock) -> None:
        """Grant, in order of arrival, to every waiter that no holder and no earlier waiter conflicts with."""
        state = self.state
        if lock.delay is None and lock.queue:
            allowed = passable(lock.held_modes)
            room = limits.HOLDERS_COUNT_MAX - len(lock.holders)
            winners: list[Ticket] = []
            for ticket in lock.queue.values():
                if not allowed or len(winners) >= room:
                    break
                if ticket.mode in allowed:
                    winners.append(ticket)
                allowed &= COMPATIBLE[ticket.mode]
            for ticket in winners:
                state.remove_ticket(ticket)
                state.requests.settle(ticket.request, state.now_ms, self._grant(ticket))
        state.drop_if_idle(lock)

    def _emit_hold(
        self, kind: EventKind, of: Hold | Ticket, *, reason: str = "", result: Granted | Refused | None = None
    ) -> None:
        """Tell of a hold or a waiter."""
        token = of.token if isinstance(of, Hold) else 0
        self._emit(kind, of.name, of.mode, of.owner, token, of.hold_id, reason, result)

    def _emit(  # noqa: PLR0917 - the fields of an event, called at three places
        self,
        kind: EventKind,
        name: str = "",
        mode: Mode | None = None,
        owner: str = "",
        token: int = 0,
        hold_id: str = "",
        reason: str = "",
        result: Granted | Refused | None = None,
    ) -> None:
        state = self.state
        self.events.append(
            Event(state.revision, state.now_ms, kind, name, mode, owner, token, hold_id, reason, result)
        )
