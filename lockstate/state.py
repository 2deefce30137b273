"""The tables together, and the moves that keep them consistent with each other. Rules are in rules.py."""

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from lockstate import limits
from lockstate.requests import RequestMemory
from lockstate.tables import (
    ALONE,
    EMPTY,
    Deadlines,
    Delay,
    Hold,
    Lock,
    NameIndex,
    Session,
    Ticket,
    joined,
    without,
)


class Origin(msgspec.Struct, array_like=True):
    """How far the commands of one node process have been applied, and when the last one was."""

    last_seq: int
    seen_ms: int


def public_name(kind: str, secret: str) -> str:
    """Return a name for others to see that identifies a secret id without giving it away."""
    return f"{kind}-{hashlib.blake2b(secret.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"


class State:
    """Everything that is replicated. Same entries, same state, on every node."""

    def __init__(self) -> None:
        self.revision = 0
        self.now_ms = 0
        self.next_token = 1
        self.next_order = 1
        self.sessions: dict[str, Session] = {}
        self.own_sessions_count = 0
        self.holds: dict[str, Hold] = {}
        self.tickets: dict[str, Ticket] = {}
        self.locks: dict[str, Lock] = {}
        self.names = NameIndex()
        self.deadlines = Deadlines()
        self.requests = RequestMemory()
        self.origins: dict[str, Origin] = {}

    def take_order(self) -> int:
        """Return the next creation number."""
        order = self.next_order
        self.next_order += 1
        return order

    def lock_for(self, name: str) -> Lock:
        """Return the record of `name`, made if it is not active."""
        lock = self.locks.get(name)
        if lock is None:
            lock = self.locks[name] = Lock(name=name)
            self.names.add(name)
        return lock

    def drop_if_idle(self, lock: Lock) -> None:
        """Forget a name that nothing is known of any more."""
        if lock.is_idle and self.locks.pop(lock.name, None) is not None:
            self.names.remove(lock.name)

    def add_session(self, session: Session) -> None:
        """Enter a session and its deadline."""
        session.labels = session.labels or EMPTY
        self.sessions[session.session_id] = session
        self.own_sessions_count += session.is_own
        self.deadlines.set(session)

    def remove_session(self, session: Session) -> None:
        """Take a session out; its holds and tickets are the caller's."""
        del self.sessions[session.session_id]
        self.own_sessions_count -= session.is_own
        self.deadlines.discard(session)

    def extend(self, session: Session) -> None:
        """Start a session's ttl anew. It never ends earlier than it did before: that was promised."""
        session.expires_at_ms = max(session.expires_at_ms, self.now_ms + session.ttl_ms)
        self.deadlines.set(session)

    def add_hold(self, hold: Hold) -> None:
        """Enter a hold with its lock and session."""
        self.holds[hold.hold_id] = hold
        sole = {hold.hold_id: hold}
        self.lock_for(hold.name).add_holder(hold, sole)
        session = self.sessions[hold.session_id]
        session.holds = joined(session.holds, sole)

    def remove_hold(self, hold: Hold) -> Lock:
        """Take a hold out, and with it the session that existed for it alone; return its lock."""
        del self.holds[hold.hold_id]
        session = self.sessions.get(hold.session_id)
        if session is not None:
            session.holds = without(session.holds, hold.hold_id)
            if session.is_own:
                self.remove_session(session)
        lock = self.locks[hold.name]
        lock.remove_holder(hold)
        return lock

    def add_ticket(self, ticket: Ticket) -> None:
        """Enter a waiter with its lock, session and deadline."""
        self._enter_ticket(ticket, self.lock_for(ticket.name))
        self.deadlines.set(ticket)

    def _enter_ticket(self, ticket: Ticket, lock: Lock) -> None:
        sole = {ticket.hold_id: ticket}
        self.tickets[ticket.hold_id] = ticket
        lock.add_waiter(ticket, sole)
        if ticket.session_id:
            session = self.sessions[ticket.session_id]
            session.tickets = joined(session.tickets, sole)

    def remove_ticket(self, ticket: Ticket) -> Lock:
        """Take a waiter out; return its lock."""
        del self.tickets[ticket.hold_id]
        session = self.sessions.get(ticket.session_id)
        if session is not None:
            session.tickets = without(session.tickets, ticket.hold_id)
        self.deadlines.discard(ticket)
        lock = self.locks[ticket.name]
        lock.remove_waiter(ticket)
        return lock

    def set_delay(self, lock: Lock, delay_ms: int) -> None:
        """Keep `lock` from everybody for `delay_ms`; a longer delay that already runs stays."""
        until_ms = self.now_ms + delay_ms
        if lock.delay is None:
            lock.delay = Delay(order=self.take_order(), expires_at_ms=until_ms, name=lock.name)
            self.deadlines.set(lock.delay)
        elif until_ms > lock.delay.expires_at_ms:
            lock.delay.expires_at_ms = until_ms
            self.deadlines.set(lock.delay)

    # -- from a snapshot: the same moves for many records, faster -------------------------------------------
    # In this order; `deadlines.settle` and `index_names` must follow before anything else is done.

    def load_sessions(self, sessions: Iterable[Session]) -> None:
        """Enter sessions that have neither holds nor tickets yet."""
        known = self.sessions
        for session in sessions:
            if not session.labels:
                session.labels = EMPTY
            known[session.session_id] = session
            self.own_sessions_count += session.is_own
        self.deadlines.load(sessions)

    def load_holds(self, holds: Iterable[Hold]) -> None:
        """Enter holds with their locks and sessions. Equal strings become one."""
        sessions, known, locks = self.sessions, self.holds, self.locks
        for hold in holds:
            session = sessions[hold.session_id]
            session_id = hold.session_id = session.session_id
            if session.is_own:
                hold.hold_id = session_id
            if hold.owner == session.owner:
                hold.owner = session.owner
            hold_id, name = hold.hold_id, hold.name
            sole = {hold_id: hold}
            known[hold_id] = hold
            session.holds = joined(session.holds, sole) if session.holds else sole
            lock = locks.get(name)
            if lock is None:
                locks[name] = Lock(name=name, holders=sole, queue=EMPTY, held_modes=ALONE[hold.mode])
            else:
                hold.name = lock.name
                lock.add_holder(hold, sole)

    def load_tickets(self, tickets: Iterable[Ticket]) -> None:
        """Enter waiters with their locks and sessions."""
        for ticket in tickets:
            self._enter_ticket(ticket, self._unindexed_lock(ticket.name))
        self.deadlines.load(tickets)

    def load_delays(self, delays: Iterable[Delay]) -> None:
        """Enter lock-delays with their locks."""
        for delay in delays:
            self._unindexed_lock(delay.name).delay = delay
        self.deadlines.load(delays)

    def _unindexed_lock(self, name: str) -> Lock:
        lock = self.locks.get(name)
        if lock is None:
            lock = self.locks[name] = Lock(name=name)
        return lock

    def index_names(self) -> Iterator[None]:
        """Enter the names of all locks in the index, in steps."""
        return self.names.load(self.locks)

    def origin(self, name: str) -> Origin:
        """Return the record of an origin; the one unseen for longest makes room for a new one."""
        origin = self.origins.get(name)
        if origin is None:
            if len(self.origins) >= limits.ORIGINS_COUNT_MAX:
                oldest = min(self.origins, key=lambda known: (self.origins[known].seen_ms, known))
                del self.origins[oldest]
            origin = self.origins[name] = Origin(0, self.now_ms)
        return origin
