"""The tables together, and the moves that concern few of them. Rules are elsewhere.

What concerns many has files of its own: how holds enter and leave (`holds`), tickets (`tickets`), lock-delays
(`delays`).
"""

from operator import attrgetter
from typing import Final

import msgspec

from lockstate.tables import marks
from lockstate.tables.audit import Audit
from lockstate.tables.cells import CellTable
from lockstate.tables.claim_table import ClaimTable
from lockstate.tables.crowds import Crowds
from lockstate.tables.deadlines import Deadlines, Lease
from lockstate.tables.freezes import FrozenPrefixes
from lockstate.tables.ledger import Ledger, NamedValues
from lockstate.tables.namespaces import Namespaces
from lockstate.tables.owners import Party, Wish
from lockstate.tables.pleas import PleaTable
from lockstate.tables.principals import Principals
from lockstate.tables.rare import Rare
from lockstate.tables.rates import Counted, RateLimits
from lockstate.tables.record_index import RecordIndex
from lockstate.tables.records import (
    Claimant,
    Delay,
    Hold,
    PreferredLeader,
    RequestKey,
    RulesHold,
    Semaphore,
    Session,
    Ticket,
)
from lockstate.tables.requests import RequestMemory
from lockstate.tables.streams import Streams
from lockstate.words import limits
from lockstate.words.ids import HoldId, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import (
    Scope,
)
from lockstate.words.results import Result
from lockstate.words.versions import RULES_FIRST

_LOCK: Final = HoldKind.LOCK
_SEMAPHORE: Final = HoldKind.SEMAPHORE
_NODE: Final = Scope.NODE

_SEEN_BITS: Final = 43
"""Bits in which the milliseconds at which an origin was seen stand, below its last sequence number."""


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
        self.freezes = FrozenPrefixes(self.deadlines, self.ledger)
        """The frozen prefixes. What grants asks whether there are any (see `freezes`)."""
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

    def count_ticket(self, ticket: Ticket, by: int) -> None:
        """Count a wait that comes (1) or goes (-1)."""
        self.principals.count_ticket(ticket, by)
        self.namespaces.count_ticket(ticket, self.holds.get(ticket.changes), by)

    def make_up(self) -> None:
        """Make up the sums of marks, so that nothing is noted any more (see `ledger`)."""
        self.ledger.settle()
        self.deadlines.settle()

    # -- sessions and leases ---------------------------------------------------------------------------------

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

    def start(self, hold: Hold) -> None:
        """Let the lease of a new hold begin. Neighbours with the same numbers have them from one object."""
        ttl_ms = hold.ttl_ms
        if ttl_ms != self._ttl_ms:
            self._ttl_ms, self._until_ms = ttl_ms, self.now_ms + ttl_ms
        elif self._until_ms != self.now_ms + ttl_ms:
            self._until_ms = self.now_ms + ttl_ms
        hold.ttl_ms, hold.expires_at_ms = self._ttl_ms, self._until_ms

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

    # -- semaphores -----------------------------------------------------------------------------------------

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
