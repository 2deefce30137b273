"""The records of the state. They are plain data; the tables that hold them are in `state`.

No record refers to one that refers back to it. So reference counts free them all, and the garbage collector
need not track millions of them (gc=False): a full collection would stop the node for seconds.
"""

import bisect
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, repeat
from typing import Any, Final, TypeVar

import msgspec

from lockstate.tables.deadlines import Lease, Timed
from lockstate.tables.rare import PLAIN, Rare, of_hold
from lockstate.words import limits
from lockstate.words.ids import NO_HOLD, AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import CLAIMS_END, Claim, Counts, Mode, Scope, is_intent
from lockstate.words.results import Result
from lockstate.words.wanted import PRIORITY_DEFAULT, Wanted

RequestKey = tuple[str, str | int]
"""Scope and request id of a remembered request; or a session, and the number that it gave to a command."""

_encode: Final = msgspec.msgpack.Encoder().encode
NOTHING: Final[dict[Any, Any]] = {}
"""The empty table, shared by all records whose labels or tables are empty, as most are. Never changed."""
_nothing = repeat(NOTHING).__next__

_SEARCHED_MAX: Final = 64
"""Holds of a session that are searched one by one; with more than that it keeps a table by owner."""

CONVERSION: Final = CLAIMS_END
"""The offset of a claim's queue of conversions, which stand ahead of all others, from its other queue."""
RANKED: Final = 2 * CONVERSION
"""The first offset of a claim's queues of other priorities than most: each priority has its own, so that
nobody enters a queue but at its end."""
_LANES: Final = (0, CONVERSION)
_ALL_LANES: Final = (*_LANES, *range(RANKED, RANKED + CONVERSION * (limits.PRIORITY_MAX + 1), CONVERSION))

Permits = tuple[tuple[str, int], ...]
"""Names of semaphores, each with a number of permits."""

Place = tuple[bool, int, int]
"""The place of a ticket among others: what `precedence` returns."""


class Claimant(Lease, eq=False, gc=False, array_like=True):
    """What a hold and a ticket have in common: what it is of, whose it is, and since when.

    It lives with a session (`session_id`) or has a lease of its own (`ttl_ms`), never both; with neither it
    has no deadline, and ends when somebody ends it. Without a session its `owner` may be empty. With several
    locks `name` is empty and `locks` lists them. `permits` are a semaphore's. `rare` is what few have.

    Of several kinds are those of kind LOCK with `permits`: how many things beside locks it asked for.
    What these are is said in `rare` (see `several`). It may have no lock at all.
    """

    hold_id: HoldId
    name: str
    mode: Mode
    owner: OwnerName
    session_id: SessionId
    since_ms: int
    attempt_id: AttemptId
    request: RequestKey | None
    scope: Scope = Scope.NODE
    locks: tuple[Wanted, ...] = ()
    kind: HoldKind = HoldKind.LOCK
    permits: int = 0
    rare: Rare | None = None

    @property
    def details(self) -> Rare:
        """What it has in `rare`, or would have."""
        return self.rare or PLAIN

    @property
    def is_of_kinds(self) -> bool:
        """Whether it is of several kinds, or was when it was asked for."""
        return self.permits > 0 and self.kind is HoldKind.LOCK


class Hold(Claimant, eq=False, gc=False, array_like=True):
    """One granted right. `order` and `expires_at_ms` are 0 if it has no lease of its own.

    `changing` is the id of the ticket while a conversion of it, or an addition to it, waits.
    """

    token: int = 0
    changing: HoldId = NO_HOLD

    @property
    def is_endless(self) -> bool:
        """Whether it has no deadline."""
        return not (self.session_id or self.ttl_ms)


class Ticket(Claimant, eq=False, gc=False, array_like=True):
    """A waiter, until `expires_at_ms`. Its `ttl_ms` is that of the lease it will get.

    `hold_id` is the id that the hold will have. One that changes a hold has an id of its own there and no
    `ttl_ms`, and `changes` is the id of the hold: it is a conversion, or an addition. `origin` is the node
    process that keeps its client's connection.
    """

    changes: HoldId = NO_HOLD
    origin: str = ""

    @property
    def is_addition(self) -> bool:
        """Whether it waits for more locks for a hold, in the ordinary order."""
        return self.rare is not None and self.rare.is_addition

    @property
    def is_conversion(self) -> bool:
        """Whether it waits for another mode of a hold, ahead of all newcomers."""
        return bool(self.changes) and not self.is_addition

    @property
    def origins(self) -> tuple[str, ...]:
        """The node processes that keep connections of its clients; one may be named twice."""
        return (self.origin, *[origin for _, origin in self.details.attempts])

    @property
    def steps(self) -> int:
        """By how many steps of its priority it stands behind an ordinary ticket."""
        return 0 if self.rare is None else PRIORITY_DEFAULT - self.rare.priority

    @property
    def lane(self) -> int:
        """The offset of the queues that it stands in."""
        if self.is_conversion:
            return CONVERSION
        return RANKED + CONVERSION * self.details.priority if self.steps else 0


HoldOrTicket = TypeVar("HoldOrTicket", Hold, Ticket)
"""What a function makes of one command: a hold, or the ticket for it."""


def hold_of(ticket: Ticket, now_ms: int) -> Hold:
    """Return the hold that `ticket` waits for, without token and deadline."""
    return Hold(
        0,
        0,
        ticket.ttl_ms,
        ticket.hold_id,
        ticket.name,
        ticket.mode,
        ticket.owner,
        ticket.session_id,
        now_ms,
        ticket.attempt_id,
        ticket.request,
        ticket.scope,
        ticket.locks,
        ticket.kind,
        ticket.permits,
        of_hold(ticket.rare),
    )


class Session(Lease, eq=False, gc=False, array_like=True):
    """A client that is alive as long as it renews.

    `claims_count` is how many claims its holds and tickets have. `by_owner` has the same holds once more, by
    owner, once they are too many to be searched.
    """

    session_id: SessionId
    owner: OwnerName
    labels: dict[str, str]
    holds: dict[HoldId, Hold] = msgspec.field(default_factory=_nothing)
    tickets: dict[HoldId, Ticket] = msgspec.field(default_factory=_nothing)
    claims_count: int = 0
    by_owner: dict[OwnerName, dict[HoldId, Hold]] | None = None

    def holds_of(self, owner: OwnerName) -> dict[HoldId, Hold]:
        """Return the holds of `owner`; if the session has few, those of others are among them."""
        if self.by_owner is None:
            if len(self.holds) <= _SEARCHED_MAX:
                return self.holds
            self.by_owner = {}
            for hold in self.holds.values():
                self.by_owner.setdefault(hold.owner, {})[hold.hold_id] = hold
        return self.by_owner.get(owner, NOTHING)

    def add_hold(self, hold: Hold) -> None:
        """Put `hold` behind the others."""
        if self.holds is NOTHING:
            self.holds = {}
        self.holds[hold.hold_id] = hold
        if self.by_owner is not None:
            self.by_owner.setdefault(hold.owner, {})[hold.hold_id] = hold

    def remove_hold(self, hold: Hold) -> None:
        """Take `hold` out."""
        del self.holds[hold.hold_id]
        if self.by_owner is not None:
            del self.by_owner[hold.owner][hold.hold_id]
            if not self.by_owner[hold.owner]:
                del self.by_owner[hold.owner]


def encoded_bytes(result: Result) -> int:
    """Return how many bytes a result takes as it is stored."""
    return len(_encode(result))


class Kept(msgspec.Struct, gc=False, array_like=True):
    """The outcome of a numbered command whose client may still ask for it, and when it came.

    `size_bytes` is what its result takes as it is stored.
    """

    result: Result
    at_ms: int
    size_bytes: int


class Stream(msgspec.Struct, eq=False, gc=False):
    """The numbered commands of one session: the last number, and what is kept, in order of the numbers.

    The outcomes of the newest plain commands, up to the last, stay in `fresh` as they came, until somebody
    looks: mostly the client says before that it has them.
    """

    session_id: SessionId
    epoch: int = 0
    last: int = 0
    rows: dict[int, Kept] = msgspec.field(default_factory=dict)
    rows_bytes: int = 0
    fresh: list[tuple[int, int, Sequence[Result]]] = msgspec.field(default_factory=list)
    """Runs of outcomes: the number of the first, when they came, and all of them."""

    @property
    def kept(self) -> dict[int, Kept]:
        """Return all that is kept, by number."""
        self.settle()
        return self.rows

    @property
    def kept_bytes(self) -> int:
        """Return how many bytes the results of these take as they are stored."""
        self.settle()
        return self.rows_bytes

    @property
    def kept_count(self) -> int:
        """Return how many outcomes are kept."""
        return len(self.rows) + self.fresh_count

    @property
    def fresh_count(self) -> int:
        """Return how many of these nobody has looked at."""
        return self.last + 1 - self.fresh[0][0] if self.fresh else 0

    def settle(self) -> None:
        """Enter what is fresh among the rows."""
        for first, at_ms, results in self.fresh:
            kept = [Kept(result, at_ms, len(_encode(result))) for result in results]
            self.rows.update(enumerate(kept, first))
            self.rows_bytes += sum([one.size_bytes for one in kept])
        self.fresh.clear()


class Delay(Timed, eq=False, gc=False, array_like=True):
    """A lock-delay: nobody gets what it covers until it is over. It claims like an exclusive hold.

    For a semaphore it withholds `permits`. It counts for `principal`, who had the hold, until it is over.
    """

    name: str
    scope: Scope = Scope.NODE
    kind: HoldKind = HoldKind.LOCK
    permits: int = 0
    principal: str = ""


class Plea(Timed, eq=False, gc=False, array_like=True):
    """One name of a hold that its holder was asked to give up. The hold ends as by force when this does.

    The holder may put that off once, by another `grace_ms`. `ticket` is the wait for which it was asked, and
    with which the plea ends; 0 if for none.

    A *bound* is what nobody asks: a namespace lets the name be held only so long. The hold expires with it,
    and nobody can put it off. Its holder is told only when it has `grace_ms` left.
    """

    hold_id: HoldId
    name: str
    kind: HoldKind
    reason: str
    grace_ms: int
    ticket: int = 0
    is_put_off: bool = False
    is_bound: bool = False
    is_told: bool = True

    @property
    def ends_at_ms(self) -> int:
        """When the hold ends, unless it is given up."""
        return self.expires_at_ms if self.is_told else self.expires_at_ms + self.grace_ms


class Ask(Timed, eq=False, gc=False, array_like=True):
    """The moment at which a ticket asks those that are in its way to give up, unless it ends before."""

    hold_id: HoldId


class FrozenPrefix(Timed, eq=False, gc=False, array_like=True):
    """A prefix at and below which nothing new is granted (see `freezes`).

    With an `expires_at_ms` of 0 it lasts until somebody ends it.
    """

    prefix: str
    reason: str
    since_ms: int


class RulesHold(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Why the cluster stays at its rules although all nodes may know newer ones, since when and for whom."""

    since_ms: int
    by: str
    reason: str


class PreferredLeader(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The node that should lead whenever it can, since when, and who wants that why."""

    since_ms: int
    node_id: str
    by: str
    reason: str


class Lock(msgspec.Struct, eq=False, gc=False):
    """A name that is held or wanted itself, or an ancestor of one that is wanted: what there is of it.

    `held` counts the claims of holds and delays but for their intents, which stand in `State.intents`, and
    `waiting` all those of tickets. A single holder of the name
    itself is `holder`; several are in `holders`, in order of their tokens. `queues` has the tickets by claim,
    and of each claim conversions and each priority apart, in order of arrival, and `below` the names one
    level down that have tickets; both exist only while somebody waits. `is_sorted` says that the index of
    names has this name in its sorted part.
    """

    name: str
    held: Counts = 0
    waiting: Counts = 0
    holder: Hold | None = None
    holders: dict[HoldId, Hold] = msgspec.field(default_factory=_nothing)
    queues: dict[Claim, OrderedDict[HoldId, Ticket]] | None = None
    below: dict[str, None] | None = None
    is_sorted: bool = False

    def add_holder(self, hold: Hold) -> None:
        """Put `hold` behind the other holders of this name."""
        if self.holder is not None:
            self.holders = OrderedDict({self.holder.hold_id: self.holder, hold.hold_id: hold})
            self.holder = None
        elif self.holders:
            self.holders[hold.hold_id] = hold
        else:
            self.holder = hold

    def remove_holder(self, hold: Hold) -> None:
        """Take `hold` out."""
        if self.holder is hold:
            self.holder = None
            return
        del self.holders[hold.hold_id]
        if len(self.holders) == 1:
            (self.holder,) = self.holders.values()
            self.holders = NOTHING

    def all_holders(self) -> Collection[Hold]:
        """Return the holders of this name in order of their tokens."""
        return self.holders.values() if self.holder is None else (self.holder,)

    @property
    def holders_count(self) -> int:
        """Return how many hold this name."""
        return len(self.holders) if self.holder is None else 1

    def queue(self) -> list[Ticket]:
        """Return the tickets for this very name: conversions, then the others in their order."""
        if self.queues is None:
            return []
        own = [queue.values() for slot, queue in self.queues.items() if not is_intent(slot % CONVERSION)]
        return sorted(chain.from_iterable(own), key=precedence)

    def place_of(self, ticket: Ticket) -> int:
        """Return the place of a ticket among those for this very name, from 1."""
        own = [queue for slot, queue in (self.queues or {}).items() if not is_intent(slot % CONVERSION)]
        return sum([place_among(queue, ticket) for queue in own]) + 1

    @property
    def conversions_count(self) -> int:
        """Return how many of the tickets for this very name are conversions."""
        own = [
            queue
            for slot, queue in (self.queues or {}).items()
            if CONVERSION <= slot < RANKED and not is_intent(slot % CONVERSION)
        ]
        return sum([len(queue) for queue in own])

    @property
    def queue_length(self) -> int:
        """Return how many tickets there are for this very name."""
        if self.queues is None:
            return 0
        return sum(len(queue) for slot, queue in self.queues.items() if not is_intent(slot % CONVERSION))


class Semaphore(msgspec.Struct, eq=False, gc=False):
    """One active semaphore. `used` counts the permits of holds and of `delays`, which are keyed by order."""

    name: str
    limit: int
    used: int = 0
    holders: OrderedDict[HoldId, Hold] = msgspec.field(default_factory=OrderedDict)
    queue: OrderedDict[HoldId, Ticket] = msgspec.field(default_factory=OrderedDict)
    delays: dict[int, Delay] = msgspec.field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        """Whether nobody has or wants a permit, so that it can be forgotten."""
        return not self.used and not self.queue


def precedence(ticket: Ticket) -> Place:
    """Return the sorting key of tickets: conversions first, then in order of arrival, but for priorities.

    A ticket stands at the time of its arrival, moved by `limits.PRIORITY_STEP_MS` for each step of its
    priority: a wait makes up for a lower one, so that nobody starves. The key never changes, so tickets age
    without being looked at, and one that nobody of a higher priority joins within nine steps is not overtaken
    any more. With the same priority everywhere this is the order of arrival.
    """
    if ticket.rare is None:  # the same as below, without the calls
        return not ticket.changes, ticket.since_ms, ticket.order
    moved_ms = ticket.steps * limits.PRIORITY_STEP_MS
    return not ticket.is_conversion, ticket.since_ms + moved_ms, ticket.order


def lanes_of(queues: dict[Claim, OrderedDict[HoldId, Ticket]]) -> tuple[int, ...]:
    """Return the offsets at which there may be queues, always in the same order."""
    return _LANES if max(queues, default=0) < RANKED else _ALL_LANES


def stand_in(queue: dict[HoldId, Ticket], ticket: Ticket) -> None:
    """Put `ticket` into a queue of tickets of any priority, ahead of those that it comes before.

    A queue of a semaphore has at most `limits.QUEUE_LENGTH_MAX` tickets. One that overtakes all of them takes
    about ten milliseconds, half of that for the search for deadlocks.
    """
    place = place_among(queue, ticket)
    behind = list(queue)[place:] if place < len(queue) else []
    queue[ticket.hold_id] = ticket
    for hold_id in behind:
        queue[hold_id] = queue.pop(hold_id)


def last_of(queue: dict[HoldId, Ticket]) -> Ticket:
    """Return the last ticket of a queue that is not empty."""
    return next(reversed(queue.values()))


def place_among(queue: dict[HoldId, Ticket], ticket: Ticket) -> int:
    """Return how many tickets of a queue come before `ticket`, which need not be in it."""
    if not queue or precedence(last_of(queue)) < precedence(ticket):
        return len(queue)
    return bisect.bisect_left(list(queue.values()), precedence(ticket), key=precedence)


def each_lock(record: Claimant) -> Iterator[Wanted]:
    """Yield what a hold has or a ticket wants: the one lock, each of several, or none beside permits."""
    if record.locks:
        yield from record.locks
    elif record.name:
        yield Wanted(record.name, record.mode, record.scope)


def names_of(record: Claimant) -> tuple[str, ...]:
    """Return the names that a hold has, or a ticket wants: one twice if it is of a lock and of permits."""
    if record.name:
        return (record.name,)
    return (*[lock.name for lock in record.locks], *[one.name for one in record.details.permits])


def permits_in(record: Claimant) -> Permits:
    """Return the permits that a hold has or a ticket wants."""
    if record.kind is HoldKind.SEMAPHORE:
        return ((record.name, record.permits),)
    if not record.permits:
        return ()
    return tuple([(one.name, one.permits) for one in record.details.permits])
