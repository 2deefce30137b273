"""What the model keeps in its lists: plain records, changed in place."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from lockstate.words.events import CellEvent, Event
from lockstate.words.ids import NO_SESSION, AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.kinds import Algorithm, HoldKind, IfHeld
from lockstate.words.modes import Mode, Scope
from lockstate.words.outcomes import Settled
from lockstate.words.refusals import CycleView
from lockstate.words.results import Result
from lockstate.words.settings import NamespaceSettings, Quota
from lockstate.words.wanted import PRIORITY_DEFAULT, Asking, Wanted, WantedPermits, WantedRate
from tests.property.model_rates import Admission, RateModel

Key: TypeAlias = tuple[str, str | int]
"""Scope and request id of a remembered request."""

Party: TypeAlias = tuple[str, str]
"""Session id, empty if there is none, and owner."""
Edge: TypeAlias = tuple[HoldId, CycleView, HoldId]
"""A ticket that waits, the name it waits for, and the ticket that it waits for."""


@dataclass
class Lease:
    """A right that ends once cluster time has passed `expires_at_ms`."""

    ttl_ms: int
    expires_at_ms: int
    created: int


@dataclass
class Session:
    """A client that is alive as long as it renews."""

    session_id: SessionId
    owner: OwnerName
    labels: dict[str, str]
    lease: Lease
    public_name: str = ""
    """Told by who follows a machine: which numbers sessions get is not part of the rules."""
    principal: str = ""


@dataclass
class Hold:
    """A granted right. Its lease is the session's, or its own when `session_id` is empty.

    Of a semaphore or an election `locks` has one item, for its name. `is_several` if a list was asked for.
    """

    kind: HoldKind
    hold_id: HoldId
    attempt_id: AttemptId
    locks: list[Wanted]
    owner: OwnerName
    has_owner: bool
    token: int
    lease: Lease | None
    """None if it has no deadline."""
    session_id: SessionId
    lock_delay_ms: int
    note: str
    request: Key | None
    """The request of the latest attempt."""
    granted_at_ms: int
    is_several: bool = False
    permits: int = 0
    value: str = ""
    depth: int = 1
    """How many releases end it."""
    others: list[tuple[AttemptId, str]] = field(default_factory=list)
    """Earlier attempts, and the node processes that brought them."""
    is_secret: bool = False
    """Whether nobody else is told its value."""
    is_of_kinds: bool = False
    """Whether several kinds were asked for."""
    beside: list[WantedPermits] = field(default_factory=list)
    """The permits that it has beside its locks, which may be none."""
    rates: list[WantedRate] = field(default_factory=list)
    """The rate limits that were taken from with it."""
    at_ms: int = 0
    """The moment from which on it may be used, if that was yet to come."""
    principal: str = ""
    priority: int = PRIORITY_DEFAULT


UNKNOWN_NUMBER = -1
"""The number of a ticket that has one, as long as the model was not told which."""


@dataclass
class Ticket:
    """A request for a hold: queued, or being decided.

    `ticket_id` is what it answers to, and what its hold will be called, unless it `converts` one or `adds` to
    one.
    """

    kind: HoldKind
    ticket_id: HoldId
    attempt_id: AttemptId
    wanted: list[Wanted]
    owner: OwnerName
    has_owner: bool
    session_id: SessionId
    request: Key | None
    queued_at_ms: int
    deadline_ms: int
    created: int
    ttl_ms: int = 0
    lock_delay_ms: int = 0
    note: str = ""
    is_several: bool = False
    permits: int = 0
    value: str = ""
    converts: Hold | None = None
    adds: Hold | None = None
    origin: str = ""
    """The node process that keeps the client's connection."""
    others: list[tuple[AttemptId, str]] = field(default_factory=list)
    """Earlier attempts, and the node processes that keep their clients' connections."""
    to_mode: Mode = Mode.EXCLUSIVE
    if_held: IfHeld = IfHeld.RENEW
    is_secret: bool = False
    priority: int = PRIORITY_DEFAULT
    number: int = 0
    """The number by which events name it while it waits."""
    is_of_kinds: bool = False
    beside: list[WantedPermits] = field(default_factory=list)
    rates: list[WantedRate] = field(default_factory=list)
    principal: str = ""
    asks: Asking | None = None
    """What it asks by itself, as long as it waits and has not asked."""
    has_asked: bool = False
    asks_at_ms: int = 0
    asks_created: int = 0

    @property
    def changes(self) -> Hold | None:
        """The hold that it is about, if there is one already."""
        return self.converts or self.adds

    @property
    def locks(self) -> list[Wanted]:
        """What it wants; a conversion wants what its hold has at the moment, in another mode."""
        if self.converts is None:
            return self.wanted
        return [Wanted(lock.name, self.to_mode, lock.scope) for lock in self.converts.locks]


Deadlock: TypeAlias = tuple[Ticket, list[Edge], list[HoldId]]
"""A refused ticket, which ticket waited for which, and those through which the cycle may go."""


@dataclass
class Delay:
    """A time in which nobody gets a lock, or in which permits are withheld."""

    kind: HoldKind
    name: str
    scope: Scope
    permits: int
    until_ms: int
    created: int
    principal: str
    """Whose hold it follows: of several, the one that made it longest."""


@dataclass
class Plea:
    """What was asked of a holder: to give up a name until `until_ms`, or the hold is forced.

    It is asked for `waiter`, which has the number `ticket`, or for nobody who waits. A bound is asked by
    nobody: the name may be held no longer. Until it is told, `until_ms` is when it will be.
    """

    hold: Hold
    kind: HoldKind
    name: str
    reason: str
    grace_ms: int
    until_ms: int
    created: int
    ticket: int = 0
    waiter: "Ticket | None" = None
    is_put_off: bool = False
    is_bound: bool = False
    is_told: bool = True

    @property
    def ends_at_ms(self) -> int:
        """When the hold ends, unless it is given up."""
        return self.until_ms if self.is_told else self.until_ms + self.grace_ms


@dataclass
class Asker:
    """A wait that is about to ask by itself."""

    waiter: Ticket


@dataclass
class Rate:
    """A rate limit that is not whole before `whole_ms`."""

    key: tuple[str, Algorithm, int]
    taken: RateModel
    whole_ms: int
    created: int
    principal: str = ""
    """Who began it."""
    last_principal: str = ""
    places: list["Place"] = field(default_factory=list)
    """What of it was taken for moments to come."""


@dataclass
class Place:
    """What was taken from a rate limit for a moment to come, and who may be told of it."""

    at_ms: int
    created: int
    ids: list[str]
    request: Key | None
    principal: str
    admission: Admission | None = None


@dataclass
class Request:
    """A remembered request; `result` is None while its ticket waits."""

    content: object
    answers_to: HoldId
    result: Result | None
    outcome_ms: int


@dataclass
class Stream:
    """What a session has numbered: the last number, and the outcomes of those not acknowledged."""

    epoch: int = 0
    last: int = 0
    kept: dict[int, Request] = field(default_factory=dict)


@dataclass
class Cell:
    """A value under a key. It lives with a session, by a lease of its own, or for good."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int = 0
    version: int = 0
    session_id: SessionId = NO_SESSION
    lease: Lease | None = None
    principal: str = ""
    """For whom it counts."""
    writer: str = ""
    """Who wrote it last."""


@dataclass
class ModelNamespace:
    """A namespace, and what was there when it was set."""

    settings: NamespaceSettings
    holds_before: list[tuple[Hold, int]]
    """Holds with the tokens that they had."""
    waits_before: list[Ticket]
    cells_before: list[Cell]
    fences_before: list[object]
    rates_before: list["Rate | Place"]
    delays_before: list[Delay]


@dataclass
class ModelFreeze:
    """A frozen prefix; with None it does not thaw by itself."""

    prefix: str
    reason: str
    since_ms: int
    until_ms: int | None
    created: int


@dataclass
class ModelState:
    """The whole state. Lists are searched from end to end, nothing is indexed and nothing is counted."""

    revision: int = 0
    now_ms: int = 0
    next_token: int = 1
    created: int = 0
    sessions: list[Session] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    """In order of their tokens."""
    tickets: list[Ticket] = field(default_factory=list)
    """In order of arrival, those of all kinds together."""
    delays: list[Delay] = field(default_factory=list)
    pleas: list[Plea] = field(default_factory=list)
    """In the order in which they were asked."""
    freezes: list[ModelFreeze] = field(default_factory=list)
    rules_held_ms: int | None = None
    """Since when the rules are held, None if they are not."""
    preferred: list[str] = field(default_factory=list)
    """Who should lead: one node or none."""
    preferred_ms: int = 0
    """Since when that one should."""
    rates: list[Rate] = field(default_factory=list)
    rate_model: Callable[[Algorithm, int], RateModel] = RateModel
    """Makes what a rate limit is looked at as."""
    limits: dict[str, int] = field(default_factory=dict)
    """The limit of each semaphore that exists."""
    fences: dict[str, int] = field(default_factory=dict)
    fences_of: dict[str, str] = field(default_factory=dict)
    """For whom each fence counts."""
    cells: list[Cell] = field(default_factory=list)
    cells_revision: int = 0
    """How many commands and ends have changed any cell."""
    requests: dict[Key, Request] = field(default_factory=dict)
    streams: dict[SessionId, Stream] = field(default_factory=dict)
    number_key: Key | None = None
    """Session and number of the numbered command that is being applied."""
    numbers_again: int = 0
    numbers_waiting_again: int = 0
    """Of the entry being applied: how many numbers had come before, and how many of them wait."""
    repeated: int = 0
    """How many commands were answered with the outcome of an earlier attempt."""
    asking: str = ""
    """The node process whose commands are being applied."""
    principal: str = ""
    """Who asks for the command that is being applied, if a node knows."""
    askers: set[str] = field(default_factory=set)
    """All principals that have ever asked."""
    quotas: dict[str, Quota] = field(default_factory=dict)
    """How much each principal may have, "*" for those without one of their own."""
    namespaces: dict[str, ModelNamespace] = field(default_factory=dict)
    fences_made: dict[str, object] = field(default_factory=dict)
    """Something that stands for each fence and for no other, also if one of this name was forgotten."""
    highest_seqs: dict[str, int] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    """Of the entry being applied."""
    cell_events: list[CellEvent] = field(default_factory=list)
    """Of the entry being applied."""
    settled: list[Settled] = field(default_factory=list)
    """Of the entry being applied."""
    given_back: int = 0
    """Of the entry being applied: how many places of rate limits were given back."""
    passed: int = 0
    """Of the entry being applied: how many requests were granted past those who wait."""
    foreign: int = 0
    """Of the entry being applied: how many commands named what is another principal's."""
    parts_refused: int = 0
    """Of the entry being applied: how many transactions were refused for what they do to locks."""
    deadlocks: list[Deadlock] = field(default_factory=list)
    """For every refusal for a deadlock in the entry: why it was one."""
    history: list[Event] = field(default_factory=list)
    """The events of the audit, oldest first."""

    def places(self) -> list[tuple[Rate, Place]]:
        """Return all places of rate limits, each with its rate limit."""
        return [(rate, place) for rate in self.rates for place in rate.places]

    def next_created(self) -> int:
        """Return the creation number of something new."""
        self.created += 1
        return self.created

    def new_token(self) -> int:
        """Draw a fencing token."""
        self.next_token += 1
        return self.next_token - 1

    def new_lease(self, ttl_ms: int, at_ms: int = 0) -> Lease:
        """Return a lease that begins now, or at a later moment."""
        return Lease(ttl_ms, max(self.now_ms, at_ms) + ttl_ms, self.next_created())

    def restart(self, lease: Lease) -> int:
        """Start a lease anew, never to end earlier than before, and return what is left of it."""
        lease.expires_at_ms = max(lease.expires_at_ms, self.now_ms + lease.ttl_ms)
        return lease.expires_at_ms - self.now_ms

    def session(self, session_id: SessionId) -> Session | None:
        """Return the session of this id."""
        return next((s for s in self.sessions if s.session_id == session_id), None)

    def hold(self, hold_id: HoldId) -> Hold | None:
        """Return the hold of this id."""
        return next((h for h in self.holds if h.hold_id == hold_id), None)

    def ticket(self, ticket_id: HoldId) -> Ticket | None:
        """Return the ticket of this id."""
        return next((t for t in self.tickets if t.ticket_id == ticket_id), None)

    def asked(self, hold: Hold) -> list[Plea]:
        """Return what the holder of `hold` was asked, in that order."""
        return [p for p in self.pleas if p.hold is hold and p.is_told]

    def cell(self, key: bytes) -> Cell | None:
        """Return the cell of this key."""
        return next((c for c in self.cells if c.key == key), None)

    def left_ms(self, hold: Hold) -> int | None:
        """Return how much of a hold's lease is left; None if it has no deadline."""
        if hold.lease is None:
            return None
        ends_ms = [p.ends_at_ms for p in self.pleas if p.hold is hold and p.is_bound]
        return max(0, min([hold.lease.expires_at_ms, *ends_ms]) - self.now_ms)
