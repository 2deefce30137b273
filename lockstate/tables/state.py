"""The tables together, and the moves that keep them consistent with each other. Rules are elsewhere."""

from collections import OrderedDict
from operator import attrgetter
from typing import Final, TypeVar

import msgspec

from lockstate.tables import crowds, marks
from lockstate.tables.audit import Audit
from lockstate.tables.cells import CellTable
from lockstate.tables.claim_table import ClaimTable, Freed
from lockstate.tables.crowds import Crowds
from lockstate.tables.deadlines import Deadlines, Lease
from lockstate.tables.freezes import FrozenPrefixes
from lockstate.tables.ledger import Ledger, NamedValues
from lockstate.tables.namespaces import Namespaces
from lockstate.tables.owners import Party, Wish, party_of, wish_of
from lockstate.tables.pleas import PleaTable
from lockstate.tables.principals import Principals
from lockstate.tables.rare import Rare
from lockstate.tables.rates import Counted, RateLimits
from lockstate.tables.record_index import RecordIndex
from lockstate.tables.records import (
    NOTHING,
    Claimant,
    Delay,
    FrozenPrefix,
    Hold,
    PreferredLeader,
    RequestKey,
    RulesHold,
    Semaphore,
    Session,
    Ticket,
    permits_in,
    precedence,
    stand_in,
)
from lockstate.tables.requests import RequestMemory
from lockstate.tables.streams import Streams
from lockstate.words import limits
from lockstate.words.claims import Claims, claims_of, claims_of_one, parent, permits_of, record_name
from lockstate.words.ids import NO_HOLD, HoldId, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import (
    CONFLICTS,
    UNIT,
    Claim,
    Mode,
    Scope,
    is_intent,
)
from lockstate.words.results import Result
from lockstate.words.versions import RULES_FIRST

_LOCK: Final = HoldKind.LOCK
_SEMAPHORE: Final = HoldKind.SEMAPHORE
_NODE: Final = Scope.NODE

_SEEN_BITS: Final = 43
"""Bits in which the milliseconds at which an origin was seen stand, below its last sequence number."""


_Key = TypeVar("_Key")


class Origin(msgspec.Struct, array_like=True):
    """The last sequence number applied for one node process, and when its last batch came."""

    last_seq: int
    seen_ms: int


class State:
    """Everything that is replicated. The same entries make the same state on every node."""

    def __init__(self) -> None:  # noqa: PLR0915 - all that is replicated
        self.rules = RULES_FIRST
        """The version of the rules that this state follows (lockstate/words/versions.py)."""
        self.rules_hold: RulesHold | None = None
        """Why the rules stay as they are, None if they may move on."""
        self.preferred: PreferredLeader | None = None
        """Who should lead, None if it does not matter. It decides nothing here."""
        self.revision = 0
        self.now_ms = 0
        self._ttl_ms = self._until_ms = 0
        """Those of the lease that began last: see `start`."""
        self.next_token = 1
        self.next_order = 1
        self.sessions: dict[SessionId, Session] = {}
        self.holds: dict[HoldId, Hold] = {}
        self.tickets: dict[HoldId, Ticket] = {}
        self.semaphores: dict[str, Semaphore] = {}
        self.delays: dict[tuple[str, Scope], Delay] = {}
        self.permit_delays: dict[int, Delay] = {}
        self.freezes = FrozenPrefixes()
        """The frozen prefixes. What grants asks whether there are any (see `freezes`)."""
        self.rare_count = 0
        """How many holds and tickets have something that few have."""
        self.ranked_count = 0
        """How many tickets have another priority than most: if none has, nothing more need be asked."""
        self.party_tickets: dict[Party, dict[HoldId, Ticket]] = {}
        self.wishes: dict[Wish, dict[HoldId, Ticket]] = {}
        """The tickets of sessions by what they want, each table in order of `precedence`."""
        self.origin_tickets: dict[str, dict[HoldId, Ticket]] = {}
        self.asking = ""
        """The origin of the batch that is being applied."""
        self.fences: dict[str, int] = {}
        self.deadlines = Deadlines()
        self.ledger = Ledger()
        """The sum of the marks of all records, and of the lengths of what has no mark of its own."""
        self.pleas = PleaTable(self.deadlines, self.ledger)
        """What is to be given up."""
        self.principals = Principals(self.ledger)
        """Whose sessions and holds are, if nodes know principals, and what each may have."""
        self.owners = self.principals.rows
        """The same table once more: every command asks whether there is anything in it."""
        self.crowds = Crowds(self.principals)
        """The holders of names that many hold, by token and by value."""
        self.claimed = ClaimTable(self.crowds.joined, self.crowds.left)
        self.locks, self.intents = self.claimed.locks, self.claimed.intents
        self.names = self.claimed.names
        """The same tables once more: every command looks into them."""
        self.namespaces = Namespaces(self.ledger)
        """What holds for the names below certain prefixes."""
        self.spaces = self.namespaces.rows
        """The same table once more: every command asks whether there is anything in it."""
        self.rates = RateLimits(self.deadlines, self.take_order, self.ledger, self.count_rate)
        self.cells = CellTable(self.deadlines, self.ledger)
        self.requests = RequestMemory(self.ledger)
        self.streams = Streams(self.ledger)
        """What sessions have numbered."""
        self.origins: dict[str, Origin] = {}
        self.audit = Audit()
        self.sessions_in_order: RecordIndex[Session] = RecordIndex(attrgetter("order"))
        self.tickets_in_order: RecordIndex[Ticket] = RecordIndex(attrgetter("order"))
        self.semaphores_in_order: RecordIndex[Semaphore] = RecordIndex(attrgetter("name"))
        self.fences_in_order: RecordIndex[str] = RecordIndex(str)
        self.semaphore_values = NamedValues(self.semaphores, number_of_semaphore)
        self.fence_values = NamedValues(self.fences, number_of_fence)
        self.origin_values = NamedValues(self.origins, number_of_origin)
        self.bytes_max = limits.STATE_BYTES_MAX
        """The bound on the bytes that this state takes (see `budget`)."""
        self.endless_count = 0
        """How many holds have no deadline."""
        self.searched_count = 0
        """Holds and tickets that have been looked through so far, a measure of effort. It is not kept."""
        self.is_tight = False
        """Whether the entry that is being applied may reach that bound."""

    def take_order(self) -> int:
        """Return the next creation number."""
        order = self.next_order
        self.next_order += 1
        return order

    def count_rate(self, what: Counted, principal: str, name: str, order: int, by: int) -> None:
        """Count that a rate limit, or a place of one, comes (1) or goes (-1)."""
        self.principals.count(principal, what, name, by)
        self.namespaces.count(what, name, order, by)

    def count_hold(self, hold: Hold, by: int) -> None:
        """Count a hold that comes (1) or goes (-1), also if only its names or its token change in between."""
        if self.owners:
            self.principals.count_hold(hold, by)
        if self.spaces:
            self.namespaces.count_hold(hold, by)

    def _count_delay(self, delay: Delay, by: int) -> None:
        """Count a delay that comes (1) or goes (-1) as what it was before: a name that is held."""
        self.principals.count(delay.principal, "holds", delay.name, by)
        self.namespaces.count("holds", delay.name, delay.order, by)

    def make_up(self) -> None:
        """Make up the sums of marks, so that nothing is noted any more (see `ledger`)."""
        self.ledger.settle()
        self.deadlines.settle()

    # -- sessions -------------------------------------------------------------------------------------------

    def add_session(self, session: Session) -> None:
        """Add a session and its deadline."""
        self.sessions[session.session_id] = session
        self.sessions_in_order.add(session)
        self.deadlines.add(session)
        self.ledger.noted[session] = 0
        if self.owners:
            self.principals.count_session(session, 1)

    def remove_session(self, session: Session) -> None:
        """Take a session out; the caller ends its holds and tickets, and then forgets whose it was."""
        del self.sessions[session.session_id]
        if self.owners:
            self.principals.count_session(session, -1)
        if self.streams:
            self.streams.drop(session.session_id)
        self.sessions_in_order.remove(session)
        self.deadlines.remove(session)
        self.ledger.remove(session)

    def lease_of(self, hold: Hold) -> Lease:
        """Return the lease that `hold` lives by: its own, which may be none, or its session's."""
        return self.sessions[hold.session_id] if hold.session_id else hold

    def extend(self, lease: Lease) -> None:
        """Start a lease's ttl anew. It never ends earlier than before: that time was promised."""
        self.deadlines.move(lease, max(lease.expires_at_ms, self.now_ms + lease.ttl_ms))

    def set_end(self, lease: Lease) -> None:
        """Let a lease end after its ttl, also if that is earlier than before: its holder asks for it."""
        self.deadlines.move(lease, self.now_ms + lease.ttl_ms)

    def set_rare(self, record: Claimant, rare: Rare | None) -> None:
        """Let a hold or a ticket that is there have something else that few have."""
        self.ledger.change(record)
        self.rare_count += (rare is not None) - (record.rare is not None)
        if isinstance(record, Hold) and (crowd := self.crowds.of(record.kind, record.name)) is not None:
            crowd.set_rare(record, rare)
        else:
            record.rare = rare

    # -- permits --------------------------------------------------------------------------------------------

    def _add_permits(self, record: Hold | Ticket) -> None:
        """Count the permits of a hold, or queue up a ticket for them.

        Those of one of several kinds are its session's claims, besides the first of what it has. So are its
        rate limits: where their moments are to come, each place is to be taken out when the session ends.
        """
        if record.kind is _SEMAPHORE and isinstance(record, Hold):  # the same as below, without the calls
            self._join_semaphore(record.name, record.permits, record)
            return
        permits = permits_in(record)
        for name, count in permits:
            if isinstance(record, Ticket):
                stand_in(self.semaphores[name].queue, record)
            else:
                self._join_semaphore(name, count, record)
        if record.kind is _LOCK and (session := self.sessions.get(record.session_id)) is not None:
            session.claims_count += record.permits

    def _remove_permits(self, record: Hold | Ticket) -> Freed:
        """Take the permits back, or the ticket out of the queues for them; return what became free.

        What a hold of several kinds has reserved of rate limits is given back, too.

        A semaphore stays, even if it is idle, until its queue has been served.
        """
        if record.kind is _SEMAPHORE and isinstance(record, Hold):  # the same as below, without the calls
            self._leave_semaphore(record.name, record.permits, record)
            return [permits_of(record.name)]
        permits = permits_in(record)
        for name, count in permits:
            if isinstance(record, Ticket):
                del self.semaphores[name].queue[record.hold_id]
            else:
                self._leave_semaphore(name, count, record)
        if record.kind is _LOCK and (session := self.sessions.get(record.session_id)) is not None:
            session.claims_count -= record.permits
        if isinstance(record, Hold):
            self.rates.give_back(record.hold_id, self.now_ms)
        return [permits_of(name) for name, _ in permits]

    def _join_semaphore(self, name: str, permits: int, hold: Hold) -> None:
        semaphore = self.semaphores[name]
        semaphore.used += permits
        semaphore.holders[hold.hold_id] = hold
        if len(semaphore.holders) > crowds.SEARCHED_MAX or self.crowds.rows:
            self.crowds.joined(record_name(_SEMAPHORE, name), semaphore.holders, hold)

    def _leave_semaphore(self, name: str, permits: int, hold: Hold) -> None:
        semaphore = self.semaphores[name]
        semaphore.used -= permits
        del semaphore.holders[hold.hold_id]
        if self.crowds.rows:
            self.crowds.left(record_name(_SEMAPHORE, name), hold, len(semaphore.holders))

    # -- holds ----------------------------------------------------------------------------------------------

    def start(self, hold: Hold) -> None:
        """Let the lease of a new hold begin. Neighbours with the same numbers have them from one object."""
        ttl_ms = hold.ttl_ms
        if ttl_ms != self._ttl_ms:
            self._ttl_ms, self._until_ms = ttl_ms, self.now_ms + ttl_ms
        elif self._until_ms != self.now_ms + ttl_ms:
            self._until_ms = self.now_ms + ttl_ms
        hold.ttl_ms, hold.expires_at_ms = self._ttl_ms, self._until_ms

    def add_hold(self, hold: Hold, claims: Claims) -> Lease:
        """Add a hold with its claims and return its lease: itself if it has no session.

        A semaphore's hold has permits and no claims.
        """
        self.holds[hold.hold_id] = hold
        self.ledger.noted[hold] = 0
        if hold.rare is not None:
            self.rare_count += 1
        if self.owners or self.spaces:
            self.count_hold(hold, 1)
        if claims:
            self.claimed.add(claims, hold)
        if hold.permits:
            self._add_permits(hold)
        if hold.ttl_ms:
            self.deadlines.add(hold)
            return hold
        session = self.sessions.get(hold.session_id)
        if session is None:
            assert not hold.session_id, "a hold does not outlive its session"
            self.endless_count += 1
            return hold
        session.claims_count += len(claims) or 1
        if session.holds is NOTHING or session.by_owner is not None:
            session.add_hold(hold)
        else:
            session.holds[hold.hold_id] = hold
        return session

    def remove_hold(self, hold: Hold) -> Freed:
        """Take a hold out; return what became free. The caller forgets whose it was.

        Its semaphore stays, even if it is idle, until the queue has been served.
        """
        del self.holds[hold.hold_id]
        if self.owners or self.spaces:
            self.count_hold(hold, -1)
        if hold in self.ledger.noted:
            self.ledger.settled_sum -= self.ledger.noted.pop(hold)
        else:
            self.ledger.remove(hold)
        if hold.rare is not None:
            self.rare_count -= 1
        freed = self._remove_permits(hold) if hold.permits else []
        if self.pleas:
            self.pleas.drop_hold(hold.hold_id)
        claims = claims_of_hold(hold)
        if hold.ttl_ms:
            self.deadlines.remove(hold)
        elif session := self.sessions.get(hold.session_id):
            if session.by_owner is not None:
                session.remove_hold(hold)
            else:
                del session.holds[hold.hold_id]
            session.claims_count -= len(claims) or 1
        elif not hold.session_id:
            self.endless_count -= 1
        return self.claimed.remove(claims, hold) + freed if freed else self.claimed.remove(claims, hold)

    def reclaim(self, hold: Hold, claims: Claims, token: int) -> Freed:
        """Give a hold other claims, which its fields are about to match, and `token`, which may be a new one.

        With a new token it moves behind all other holds.
        """
        old = claims_of_hold(hold)
        names = [name for name, claim in claims if not is_intent(claim)]
        gone = tuple([(name, claim) for name, claim in old if not is_intent(claim) and name not in names])
        # The new ones first, so that no record goes away in between.
        self.claimed.add(claims, None)
        freed = self.claimed.remove(gone, hold)
        freed += self.claimed.remove(tuple([pair for pair in old if pair not in gone]), None)
        session = self.sessions.get(hold.session_id)
        if session is not None:
            session.claims_count += len(claims) - len(old)
        if token != hold.token:
            self._move_behind(hold, session, names, token, hold.name)
        return freed

    def claim_more(self, hold: Hold, claims: Claims, token: int) -> None:
        """Give a hold the claims that it lacks of `claims`, which its locks are about to match, and `token`.

        The token is a new one, with which it moves behind all other holds. It has several names from now on.
        """
        old = claims_of_hold(hold)
        more = tuple([pair for pair in claims if pair not in old])
        session = self.sessions.get(hold.session_id)
        names = [name for name, claim in old if not is_intent(claim)]
        self._move_behind(hold, session, names, token, "")
        self.claimed.add(more, hold)
        if session is not None:
            session.claims_count += len(more)

    def _move_behind(
        self, hold: Hold, session: Session | None, names: list[str], token: int, name: str
    ) -> None:
        """Give a hold a new token, and so the last place of all holds, also on the `names` that it has.

        `name` is the only one of them, empty if there are several.
        """
        self.ledger.change(hold)
        for one in names:
            self.claimed.leave(self.locks[one], hold)
        hold.token, hold.name = token, name
        self.holds[hold.hold_id] = self.holds.pop(hold.hold_id)
        if session is not None:
            session.remove_hold(hold)
            session.add_hold(hold)
        for one in names:
            self.claimed.join(self.locks[one], hold)

    # -- tickets --------------------------------------------------------------------------------------------

    def add_ticket(self, ticket: Ticket, claims: Claims) -> None:
        """Add a waiter to its queues, its session, its node process and the deadlines."""
        self.deadlines.add(ticket)
        self.tickets[ticket.hold_id] = ticket
        if self.owners or self.spaces:
            self.count_ticket(ticket, 1)
        if ticket.rare is not None:
            self.rare_count += 1
            self.ranked_count += ticket.steps != 0
        self.tickets_in_order.add(ticket)
        self.ledger.noted[ticket] = 0
        self.join_origins(ticket)
        self.party_tickets.setdefault(party_of(ticket), {})[ticket.hold_id] = ticket
        if wish := wish_of(ticket):
            of_wish = self.wishes.setdefault(wish, {})
            if self.ranked_count:
                stand_in(of_wish, ticket)
            else:
                of_wish[ticket.hold_id] = ticket
        session = self.sessions.get(ticket.session_id)
        if session is not None:
            session.claims_count += len(claims) or 1
            if session.tickets is NOTHING:
                session.tickets = {}
            session.tickets[ticket.hold_id] = ticket
        if ticket.changes:
            hold = self.holds[ticket.changes]
            self.ledger.change(hold)
            hold.changing = ticket.hold_id
        if ticket.permits:
            self._add_permits(ticket)
        lane = ticket.lane
        for name, claim in claims:
            self._queue_up(name, claim, lane, ticket)

    def count_ticket(self, ticket: Ticket, by: int) -> None:
        """Count a wait that comes (1) or goes (-1)."""
        self.principals.count_ticket(ticket, by)
        self.namespaces.count_ticket(ticket, self.holds.get(ticket.changes), by)

    def _queue_up(self, name: str, claim: Claim, lane: int, ticket: Ticket) -> None:
        lock = self.claimed.record_of(name)
        lock.waiting += UNIT[claim]
        if lock.queues is None:
            lock.queues = {}
            if above := parent(name):
                upper = self.claimed.record_of(above)
                upper.below = upper.below or {}
                upper.below[name] = None
        slot = claim + lane
        queue = lock.queues.get(slot)
        if queue is None:
            queue = lock.queues[slot] = OrderedDict()
        queue[ticket.hold_id] = ticket

    def remove_ticket(self, ticket: Ticket, claims: Claims) -> Freed:
        """Take a waiter out of its queues, with what was asked for it; return what became free.

        Whose it was stays known: the hold that it waited for is theirs as well.
        """
        del self.tickets[ticket.hold_id]
        if self.owners or self.spaces:
            self.count_ticket(ticket, -1)
        if ticket.rare is not None:
            self.rare_count -= 1
            self.ranked_count -= ticket.steps != 0
        if self.pleas:
            self.pleas.drop_ticket(ticket.order)
        if ask := self.pleas.asks.get(ticket.hold_id):
            self.pleas.drop_ask(ask)
        freed = self._remove_permits(ticket) if ticket.permits else []
        self.tickets_in_order.remove(ticket)
        self.deadlines.remove(ticket)
        self.ledger.remove(ticket)
        self.leave_origins(ticket)
        _leave(self.party_tickets, party_of(ticket), ticket)
        if wish := wish_of(ticket):
            _leave(self.wishes, wish, ticket)
        session = self.sessions.get(ticket.session_id)
        if session is not None:
            session.claims_count -= len(claims) or 1
            del session.tickets[ticket.hold_id]
        hold = self.holds.get(ticket.changes)
        if hold is not None:
            self.ledger.change(hold)
            hold.changing = NO_HOLD
        lane = ticket.lane
        freed += [left for name, claim in claims if (left := self._leave_queue(name, claim, lane, ticket))]
        return freed

    def twin_of(self, ticket: Ticket) -> Ticket | None:
        """Return the first earlier ticket with the same wish, if the two will share a hold."""
        if ticket.kind is _SEMAPHORE:
            return None
        wish = wish_of(ticket)
        first = next(iter(self.wishes.get(wish, NOTHING).values()), None) if wish else None
        return first if first is not None and precedence(first) < precedence(ticket) else None

    def join_origins(self, ticket: Ticket) -> None:
        """Let a ticket be found under the node processes that keep connections of its clients."""
        for origin in ticket.origins:
            self.origin_tickets.setdefault(origin, {})[ticket.hold_id] = ticket

    def leave_origins(self, ticket: Ticket) -> None:
        """Let a ticket not be found under them any more."""
        for origin in dict.fromkeys(ticket.origins):
            _leave(self.origin_tickets, origin, ticket)

    def _leave_queue(self, name: str, claim: Claim, lane: int, ticket: Ticket) -> tuple[str, Claim] | None:
        """Take a ticket out of one queue; return the claim if others may have waited behind it."""
        lock = self.locks[name]
        assert lock.queues is not None, "a ticket stands in its queues"
        lock.waiting -= UNIT[claim]
        slot = claim + lane
        del lock.queues[slot][ticket.hold_id]
        if not lock.queues[slot]:
            del lock.queues[slot]
        if lock.waiting:
            return (name, claim) if lock.waiting & CONFLICTS[claim] else None
        lock.queues = lock.below = None
        upper = self.locks.get(parent(name))
        if upper is not None and upper.below is not None:
            del upper.below[name]
        if not lock.held:
            self.claimed.drop(lock)
        return None

    # -- semaphores and delays ------------------------------------------------------------------------------

    def add_semaphore(self, semaphore: Semaphore) -> None:
        """Add a semaphore, or find it there."""
        if semaphore.name not in self.semaphores:
            self.semaphore_values.change(semaphore.name)
            self.semaphores[semaphore.name] = semaphore
            self.semaphores_in_order.add(semaphore)

    def resize(self, semaphore: Semaphore, limit: int) -> None:
        """Give a semaphore another limit."""
        self.semaphore_values.change(semaphore.name)
        semaphore.limit = limit

    def drop_if_idle(self, semaphore: Semaphore) -> None:
        """Forget a semaphore that nobody holds or wants."""
        if semaphore.is_idle:
            self.semaphore_values.change(semaphore.name)
            del self.semaphores[semaphore.name]
            self.semaphores_in_order.remove(semaphore)

    def set_delay(self, name: str, scope: Scope, delay_ms: int, principal: str) -> None:
        """Keep everybody from what a lock covers for `delay_ms`; a longer delay that already runs stays.

        A delay counts for the principal whose hold it follows: of several, for the one that makes it longest.
        """
        until_ms = self.now_ms + delay_ms
        delay = self.delays.get((name, scope))
        if delay is None:
            order = self.take_order()
            self.enter_delay(
                Delay(order=order, expires_at_ms=until_ms, name=name, scope=scope, principal=principal)
            )
        elif until_ms > delay.expires_at_ms:
            self.deadlines.move(delay, until_ms)
            if principal != delay.principal:
                self._hand_over(delay, principal)

    def _hand_over(self, delay: Delay, principal: str) -> None:
        """Let a delay count for another principal."""
        self.ledger.change(delay)
        self.principals.count(delay.principal, "holds", delay.name, -1)
        delay.principal = principal
        self.principals.count(principal, "holds", delay.name, 1)

    def withhold_permits(self, name: str, permits: int, delay_ms: int, principal: str) -> None:
        """Withhold permits of a semaphore from everybody for `delay_ms`."""
        self.enter_delay(
            Delay(
                order=self.take_order(),
                expires_at_ms=self.now_ms + delay_ms,
                name=name,
                kind=HoldKind.SEMAPHORE,
                permits=permits,
                principal=principal,
            )
        )

    def enter_delay(self, delay: Delay) -> None:
        """Add a delay with what it claims or withholds, and its deadline."""
        self.deadlines.add(delay)
        self.ledger.noted[delay] = 0
        self._count_delay(delay, 1)
        if delay.kind is _SEMAPHORE:
            self.permit_delays[delay.order] = delay
            semaphore = self.semaphores[delay.name]
            semaphore.delays[delay.order] = delay
            semaphore.used += delay.permits
        else:
            self.delays[delay.name, delay.scope] = delay
            self.claimed.add(claims_of(delay.name, Mode.EXCLUSIVE, delay.scope), None)

    def delays_of(self, kind: HoldKind, name: str) -> list[Delay]:
        """Return the delays of this very name, in order of creation."""
        if kind is _SEMAPHORE:
            semaphore = self.semaphores.get(name)
            return list(semaphore.delays.values()) if semaphore is not None else []
        found = [self.delays[name, scope] for scope in Scope if (name, scope) in self.delays]
        return sorted(found, key=attrgetter("order")) if kind is _LOCK else []

    def end_delay(self, delay: Delay) -> Freed:
        """Take a delay out; return what became free."""
        self.deadlines.remove(delay)
        self.ledger.remove(delay)
        self._count_delay(delay, -1)
        if delay.kind is _SEMAPHORE:
            del self.permit_delays[delay.order]
            semaphore = self.semaphores[delay.name]
            del semaphore.delays[delay.order]
            semaphore.used -= delay.permits
            return [permits_of(delay.name)]
        del self.delays[delay.name, delay.scope]
        return self.claimed.remove(claims_of(delay.name, Mode.EXCLUSIVE, delay.scope), None)

    # -- freezes --------------------------------------------------------------------------------------------

    def enter_freeze(self, freeze: FrozenPrefix) -> None:
        """Freeze a prefix that is not frozen, with its deadline if it has one."""
        if freeze.expires_at_ms:
            self.deadlines.add(freeze)
        self.ledger.noted[freeze] = 0
        self.freezes.enter(freeze)

    def drop_freeze(self, freeze: FrozenPrefix) -> None:
        """Take out the freeze of a prefix."""
        self.freezes.drop(freeze)
        if freeze.expires_at_ms:
            self.deadlines.remove(freeze)
        self.ledger.remove(freeze)

    # -- outcomes -------------------------------------------------------------------------------------------

    def settle(self, key: RequestKey | None, result: Result) -> None:
        """Record how the wait of a request ended, or that of a number of a stream."""
        if key is not None and isinstance(key[1], int):
            self.streams.settle(key, self.now_ms, result)
        else:
            self.requests.settle(key, self.now_ms, result)

    # -- origins --------------------------------------------------------------------------------------------

    def origin(self, name: str) -> Origin:
        """Return the record of an origin. A new one may replace the one unseen for longest."""
        origin = self.origins.get(name)
        if origin is None:
            if len(self.origins) >= limits.ORIGINS_COUNT_MAX:
                oldest = min(self.origins, key=lambda known: (self.origins[known].seen_ms, known))
                self.origin_values.change(oldest)
                del self.origins[oldest]
            origin = Origin(0, self.now_ms)
            self.enter_origin(name, origin)
        return origin

    def enter_origin(self, name: str, origin: Origin) -> None:
        """Add an origin."""
        self.origin_values.change(name)
        self.origins[name] = origin

    def note_batch(self, name: str, origin: Origin, last_seq: int) -> None:
        """Record that an origin's commands up to `last_seq` were applied now."""
        noted = self.origin_values.noted
        if name not in noted:
            noted[name] = number_of_origin(origin)
        origin.last_seq, origin.seen_ms = last_seq, self.now_ms

    # -- fences ---------------------------------------------------------------------------------------------

    def set_fence(self, resource: str, token: int) -> None:
        """Make `token` the highest of a resource."""
        if resource not in self.fences:
            self.ledger.settled_sum += marks.of_length(len(resource))
            self.fences_in_order.add(resource)
        self.fence_values.change(resource)
        self.fences[resource] = token

    def forget_fence(self, resource: str) -> None:
        """Forget the highest token of a resource that has one, and for whom it counted."""
        self.principals.drop_fence(resource)
        self.namespaces.drop_fence(resource)
        self.fence_values.change(resource)
        self.ledger.settled_sum -= marks.of_length(len(resource))
        self.fences_in_order.remove(resource)
        del self.fences[resource]


def number_of_semaphore(semaphore: Semaphore) -> int:
    """Return the number that stands for a semaphore: its limit is all that cannot be derived."""
    return semaphore.limit + 1


def number_of_fence(token: int) -> int:
    """Return the number that stands for the highest token of a resource: that of token 0 is not 0."""
    return token + 1


def number_of_origin(origin: Origin) -> int:
    """Return the number that stands for an origin."""
    return (origin.last_seq << _SEEN_BITS) + origin.seen_ms + 1


def _leave(tickets: dict[_Key, dict[HoldId, Ticket]], key: _Key, ticket: Ticket) -> None:
    """Take a ticket out of those of a key, and the key too with the last of them."""
    of_key = tickets[key]
    del of_key[ticket.hold_id]
    if not of_key:
        del tickets[key]


def weight_of(record: Claimant) -> int:
    """Return how many claims end with a hold or a ticket, its permits and rate limits among them.

    That is what to end it costs.
    """
    return (len(claims_of_hold(record)) or 1) + (record.permits if record.is_of_kinds else 0)


def claims_of_hold(record: Claimant) -> Claims:
    """Return the claims that a hold has or a ticket wants; none for a semaphore, which has permits."""
    name, kind = record.name, record.kind
    if name and kind is _LOCK and record.scope is _NODE:
        return claims_of_one(name, record.mode)
    if kind is _SEMAPHORE or not (name or record.locks):
        return ()
    return claims_of(name, record.mode, record.scope, record.locks, kind)
