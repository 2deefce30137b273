"""What the state machine says: results for the client that asked, events for everybody, views for readers.

Refusals are results, never exceptions: they are as deterministic and as replicated as grants.
"""

import enum
from collections.abc import Sequence
from typing import Final

import msgspec

from lockstate.words import kinds
from lockstate.words.commands import (
    PRIORITY_DEFAULT,
    Algorithm,
    ClusterAct,
    NamespaceSettings,
    Quota,
    Wanted,
)
from lockstate.words.ids import NO_OWNER, HoldId, OwnerName, SessionId
from lockstate.words.modes import Mode, Scope

HoldKind = kinds.HoldKind
"""Results are full of it, so it can be had from here as well."""


class Reason(enum.StrEnum):
    """Why a command was refused. The value is the public code of the HTTP API."""

    INVALID_REQUEST = "invalid-request"
    NAME_TOO_LONG = "name-too-long"
    TTL_OUT_OF_RANGE = "ttl-out-of-range"
    LOCK_HELD = "lock-held"
    SESSION_EXPIRED = "session-expired"
    LEASE_EXPIRED = "lease-expired"
    TICKET_ENDED = "ticket-ended"
    QUEUE_FULL = "queue-full"
    OVERLOADED = "overloaded"
    DEADLOCK = "deadlock"
    CONVERSION_DEADLOCK = "conversion-deadlock"
    NOT_HOLDER = "not-holder"
    NO_PERMITS = "no-permits"
    LIMIT_MISMATCH = "limit-mismatch"
    ALREADY_HELD = "already-held"
    STALE_TOKEN = "stale-token"  # noqa: S105 - not a secret
    WRONG_KIND = "wrong-kind"
    NOT_REVOKED = "not-revoked"
    RATE_LIMITED = "rate-limited"
    QUOTA_EXCEEDED = "quota-exceeded"
    FROZEN = "frozen"

    __hash__ = str.__hash__  # that of Enum is a Python function, and slow


class _Value(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of results and views."""


class HolderView(_Value, frozen=True):
    """A holder as others may see it: it contains no secret. `permits` is 0 except for semaphores.

    `expires_in_ms` is None of a hold without a deadline.
    """

    owner: OwnerName
    mode: Mode
    token: int
    expires_in_ms: int | None
    note: str
    name: str = ""
    scope: Scope = Scope.NODE
    kind: HoldKind = HoldKind.LOCK
    permits: int = 0


class RevocationView(_Value, frozen=True):
    """What was asked of a holder: to give up `name` within `ends_in_ms`, or it is forced, for `reason`.

    `ticket` is the wait for which it was asked, 0 if for none. A holder may put it off only once.
    """

    name: str
    reason: str
    ends_in_ms: int
    ticket: int = 0
    is_put_off: bool = False


class HoldView(HolderView, frozen=True):
    """A holder as reads show it: for how many milliseconds already, and in which session.

    Without a session `session_name` is empty. The name is public: it gives no right.
    """

    since_ms: int = 0
    session_name: str = ""
    labels: dict[str, str] = {}
    revocation: RevocationView | None = None
    value: str = ""
    """What the hold of a lock or of permits carries, unless it is secret. A leader's is told with it."""
    principal: str = ""
    """Whose it is; empty if nobody's."""


class RevokedView(HolderView, frozen=True):
    """A holder that was asked to give up."""

    revocation: RevocationView = RevocationView("", "", 0)


class WaiterView(_Value, frozen=True):
    """A waiter as others may see it. `position` counts from 1; conversions stand ahead of all others.

    `ticket` is its public number, which no other waiter ever had or will have. `principal` is whose it is,
    empty if nobody's.
    """

    owner: OwnerName
    mode: Mode
    position: int
    waited_ms: int
    name: str = ""
    scope: Scope = Scope.NODE
    kind: HoldKind = HoldKind.LOCK
    permits: int = 0
    is_conversion: bool = False
    ticket: int = 0
    session_name: str = ""
    priority: int = PRIORITY_DEFAULT
    principal: str = ""


class CycleView(_Value, frozen=True):
    """One step of a deadlock: `owner` waits for `name`, which the next step's owner holds or waits for."""

    owner: OwnerName
    name: str
    kind: HoldKind = HoldKind.LOCK


class LockView(_Value, frozen=True):
    """A lock at one revision. `state` is free, held or delayed."""

    name: str
    state: str
    holders: tuple[HoldView, ...] = ()
    queue: tuple[WaiterView, ...] = ()


class SemaphoreView(_Value, frozen=True):
    """A semaphore at one revision. While nobody holds or wants it, `limit` is 0: the next acquire sets it."""

    name: str
    limit: int
    available: int
    holders: tuple[HoldView, ...] = ()
    queue: tuple[WaiterView, ...] = ()


class ElectionView(_Value, frozen=True):
    """An election at one revision; `leader` is None when nobody leads, `value` is the leader's."""

    name: str
    leader: HoldView | None = None
    value: str = ""
    queue: tuple[WaiterView, ...] = ()


class SemaphoreSummary(_Value, frozen=True):
    """A semaphore in a listing, with the first of its holders."""

    name: str
    limit: int
    available: int
    holders: tuple[HoldView, ...]
    holders_count: int
    queue_length: int


class ElectionSummary(_Value, frozen=True):
    """An election in a listing."""

    name: str
    leader: HoldView | None
    value: str
    queue_length: int


class RateRowView(_Value, frozen=True):
    """A rate limit in a listing; it is whole again in `reset_in_ms`.

    So many of its places are to come (`waiting`). It counts for `principal`, and `last_principal` took last.
    """

    name: str
    algorithm: Algorithm
    window_ms: int
    reset_in_ms: int
    waiting: int = 0
    principal: str = ""
    last_principal: str = ""


class HighestToken(_Value, frozen=True):
    """The highest token that a resource has seen; None if it never saw one."""

    name: str
    highest_token: int | None


class FenceView(_Value, frozen=True):
    """Whether a token is a present holder's; `current_token` is the highest of theirs, 0 if there is none."""

    valid: bool
    current_token: int


class SessionView(_Value, frozen=True):
    """A session at one revision, for a client that knows its id; no hold or ticket shows its secret."""

    ttl_ms: int
    expires_in_ms: int
    owner: OwnerName
    labels: dict[str, str]
    holds: tuple[HoldView, ...]
    tickets: tuple[WaiterView, ...]
    session_name: str = ""


class SessionSummary(_Value, frozen=True):
    """A session in a listing: nothing in it gives a right."""

    session_name: str
    owner: OwnerName
    labels: dict[str, str]
    ttl_ms: int
    expires_in_ms: int
    holds_count: int
    tickets_count: int
    principal: str = ""


class PrincipalRow(_Value, frozen=True):
    """A principal that has anything or a quota of its own, which is None if it has none."""

    principal: str
    quota: Quota | None
    sessions: int
    holds: int
    waits: int
    cells: int
    fences: int
    rate_limits: int
    bytes: int


class NamespaceSummary(_Value, frozen=True):
    """A namespace with what is in it, of what it counts."""

    name: str
    """The prefix, under the field by which rights find what may be read."""
    settings: NamespaceSettings
    holds: int
    waits: int
    cells: int
    fences: int
    rate_limits: int
    bytes: int


class LeftView(_Value, frozen=True):
    """What is held and waited for at and below a prefix: of names up to a bound, so `is_all` may be false."""

    holds: int
    waits: int
    is_all: bool = True


class FreezeView(_Value, frozen=True):
    """A prefix and its freeze. It thaws in `ends_in_ms`, or if that is None when somebody says so."""

    name: str
    """The prefix, under the field by which rights find what may be read."""
    is_frozen: bool
    reason: str = ""
    frozen_ms: int = 0
    ends_in_ms: int | None = None
    left: LeftView | None = None


class Holdings(_Value, frozen=True):
    """A page of holds and waits of all kinds; `next` is the place to go on after if there may be more."""

    holds: tuple[HoldView, ...]
    tickets: tuple[WaiterView, ...]
    next: str | None = None


class TicketView(_Value, frozen=True):
    """A waiter by its public number. It gives up in `ends_in_ms`; `estimate_ms` is a guess, or None."""

    ticket: int
    kind: HoldKind
    names: tuple[str, ...]
    owner: OwnerName
    position: int
    waited_ms: int
    ends_in_ms: int
    estimate_ms: int | None
    session_name: str = ""
    is_conversion: bool = False
    priority: int = PRIORITY_DEFAULT
    principal: str = ""


class SessionOpened(_Value, frozen=True, tag=1):
    """The session exists."""

    session_id: SessionId
    ttl_ms: int
    expires_in_ms: int


class SessionKept(_Value, frozen=True, tag=2):
    """The session lives on, but is to give up these `revoked` ones of its holds, the first ones."""

    session_id: SessionId
    expires_in_ms: int
    revoked: tuple[RevokedView, ...] = ()


class SessionClosed(_Value, frozen=True, tag=3):
    """The session ended; `released` are the names of the locks it held, in order of their tokens."""

    released: tuple[str, ...]


class Granted(_Value, frozen=True, tag=4):
    """It is held. `expires_in_ms` is 0 when a repeated request finds that its hold has ended already.

    It is None of a hold without a deadline.

    For several locks `name` is empty and `locks` lists them; `permits`, `available` and `limit` are a
    semaphore's. What the session held already has a `depth`: how many releases end it; else that is 0.
    `value` is what the hold of a lock or of permits carries.
    """

    hold_id: HoldId
    token: int
    name: str
    mode: Mode
    expires_in_ms: int | None
    owner: OwnerName = NO_OWNER
    scope: Scope = Scope.NODE
    locks: tuple[Wanted, ...] = ()
    permits: int = 0
    available: int = 0
    depth: int = 0
    limit: int = 0
    value: str = ""


class Queued(_Value, frozen=True, tag=5):
    """The request waits. How the wait ends is settled under this `hold_id` in a later outcome."""

    hold_id: HoldId
    position: int


class Renewed(_Value, frozen=True, tag=6):
    """The lease has started anew; None is left of what has no deadline.

    Nevertheless the holder is to give up what `revocations` name: each name once, by its earliest end.
    """

    token: int
    expires_in_ms: int | None
    revocations: tuple[RevocationView, ...] = ()


class Released(_Value, frozen=True, tag=7):
    """The hold is over; if only a part of it was given back, `locks` are still held.

    With a `depth` it goes on: that many more releases end it.
    """

    locks: tuple[Wanted, ...] = ()
    depth: int = 0


RELEASED: Final = Released()
"""The outcome of nearly every release: the whole hold has ended."""


class SessionForced(_Value, frozen=True, tag=21):
    """Somebody else's session ended; `released` are the names that it held, in order of their tokens."""

    session_name: str
    owner: OwnerName
    released: tuple[str, ...]


class DelaysLifted(_Value, frozen=True, tag=22):
    """How many delays ended before their time, and how long the longest of them would have gone on."""

    count: int
    left_ms: int


class FenceForgotten(_Value, frozen=True, tag=23):
    """The highest token that the resource had seen; None if it never saw one."""

    highest_token: int | None


class RatesForgotten(_Value, frozen=True, tag=46):
    """How many rate limits were forgotten. One command forgets only so many: `is_more` says some are left."""

    count: int
    is_more: bool = False


class Revoked(_Value, frozen=True, tag=24):
    """The holders that are to give up, with what they were asked: the earliest end of several counts.

    One command asks only so many: `left` were not asked yet.
    """

    holders: tuple[RevokedView, ...]
    left: int = 0


class RevocationsWithdrawn(_Value, frozen=True, tag=49):
    """How many revocations were taken back. One command takes back only so many: `left` go on."""

    count: int
    left: int = 0


class WaitsForced(_Value, frozen=True, tag=45):
    """The waits that were ended. One command ends only so many: `left` still wait."""

    waits: tuple[WaiterView, ...]
    left: int = 0


class PutOffTo(_Value, frozen=True, tag=25):
    """The hold is not forced before `ends_in_ms` are over; it cannot be put off again."""

    token: int
    ends_in_ms: int


class HandedOver(_Value, frozen=True, tag=50):
    """`owner` holds the lock from now on, with this `token`."""

    token: int
    owner: OwnerName


class PermitsHeld(_Value, frozen=True):
    """Permits of one semaphore in a hold of several kinds; `available` are left for others."""

    name: str
    permits: int
    available: int
    limit: int


class RateUsed(_Value, frozen=True):
    """What one rate limit answered to a request for several kinds: the last two fields of `RateTaken`."""

    name: str
    remaining: int
    reset_in_ms: int


class GrantedSeveral(Granted, frozen=True, tag=36):
    """Things of several kinds are held, under one id and one token.

    The client may go on once cluster time is `at_ms`, for which its `rates` were reserved, and from which on
    its own lease counts; 0 stands for at once. Whoever asks what became of an attempt is not told of rates.
    """

    held: tuple[PermitsHeld, ...] = ()
    rates: tuple[RateUsed, ...] = ()
    at_ms: int = 0


class ForceReleased(_Value, frozen=True, tag=8):
    """Every hold of the lock was ended: these."""

    released: tuple[HolderView, ...]


class Cancelled(_Value, frozen=True, tag=9):
    """Whether there was an attempt to undo."""

    undone: bool


class Done(_Value, frozen=True, tag=10):
    """A Tick or a Barrier was applied, or an act was recorded."""


class Refused(_Value, frozen=True, tag=11):
    """The command had no effect. `retry_after_ms` is a hint, 0 when there is none.

    `cycle` names a deadlock, `facts` are the numbers that belong to a reason: `available` and `limit`, or
    `highest_token`. A refusal is remembered with its `detail`, so its wording is part of the replicated
    state: two nodes that word it differently have different digests. Rewording one is a change of the rules.
    """

    reason: Reason
    detail: str
    holders: tuple[HolderView, ...] = ()
    queue_length: int = 0
    retry_after_ms: int = 0
    cycle: tuple[CycleView, ...] = ()
    facts: dict[str, int] = {}


class QuotaExceeded(Refused, frozen=True, tag=37):
    """A principal has as much as it may have: `quota` names what. `facts` are `limit` and `used`."""

    quota: str = ""


class QuotaSet(_Value, frozen=True, tag=38):
    """A principal has another quota from now on, or none of its own."""


class RefusedInNamespace(Refused, frozen=True, tag=39):
    """A namespace does not allow it. If a quota of it is used up, `quota` and `facts` say which one."""

    namespace: str = ""
    quota: str = ""


class NamespaceSet(_Value, frozen=True, tag=44):
    """There is such a namespace from now on, or none."""


class Frozen(_Value, frozen=True, tag=47):
    """Nothing new is granted below a prefix for `ends_in_ms`, or until it is thawed if that is None.

    `left` is what still is held and waited for.
    """

    ends_in_ms: int | None
    left: LeftView


class Thawed(_Value, frozen=True, tag=48):
    """The prefix is not frozen; `was_frozen` says whether it was."""

    was_frozen: bool


class RulesHeld(_Value, frozen=True, tag=51):
    """The cluster follows `rules`; `was_held` says whether it was kept there before."""

    rules: int
    was_held: bool


class LeaderPreferred(_Value, frozen=True, tag=52):
    """It is recorded who should lead; `was` is the node that should have before, empty if it was none."""

    was: str


class Resized(_Value, frozen=True, tag=12):
    """The semaphore has this limit; `available` is negative while more is held than that."""

    limit: int
    available: int


class Proclaimed(_Value, frozen=True, tag=13):
    """The election has the value."""

    token: int


class RateTaken(_Value, frozen=True, tag=14):
    """The answer of a rate limit. If allowed, the client may go on once cluster time is `at_ms`.

    `retry_after_ms` is 0 when allowed, and when no waiting helps (the cost is above the limit).
    `reset_in_ms` is the time until the limit is whole again. It is `limit` in each `window_ms`.
    """

    allowed: bool
    limit: int
    remaining: int
    retry_after_ms: int
    reset_in_ms: int
    at_ms: int
    window_ms: int = 0


class FenceAdvanced(_Value, frozen=True, tag=15):
    """The resource accepts this token and higher ones."""

    highest_token: int


class WaitsAbandoned(_Value, frozen=True, tag=16):
    """How many waits were ended, and how many of the same process are left."""

    ended: int
    left: int


class StreamFault(enum.StrEnum):
    """Why nothing of a frame was applied. The value is the code on the stream."""

    GONE = "session-expired"
    REPLACED = "replaced"
    GAP = "gap"
    MALFORMED = "malformed"

    __hash__ = str.__hash__


class StreamResumed(_Value, frozen=True, tag=70):
    """All numbers up to `last` are applied. Frames of this connection carry `epoch`."""

    epoch: int
    last: int


class NumberedDone(_Value, frozen=True, tag=71):
    """What became of a frame: results of its numbers from the first on.

    With `refused` there was no room for the rest of it: these numbers are free to be given again.
    """

    results: tuple["Result", ...]
    refused: Refused | None = None


class FrameRefused(_Value, frozen=True, tag=72):
    """Nothing of a frame was applied; all numbers up to `last` have been before."""

    fault: StreamFault
    last: int = 0


class StreamView(_Value, frozen=True):
    """What is known of a stream: the last number, and how many outcomes are kept for its client."""

    epoch: int
    last: int
    kept_count: int


class CellView(_Value, frozen=True):
    """A cell as anybody may see it. `owner` is that of its session; without a lease nothing expires, None."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    owner: OwnerName = NO_OWNER
    expires_in_ms: int | None = None


class CellWritten(_Value, frozen=True, tag=40):
    """The cell has the value. Revisions are those of the table of cells."""

    create_revision: int
    mod_revision: int
    version: int


class CellsDeleted(_Value, frozen=True, tag=41):
    """How many cells were deleted. One command deletes only so many: `is_more` says that some are left.

    `revision` is that of the table of cells.
    """

    count: int
    revision: int
    is_more: bool = False


class CellRead(_Value, frozen=True, tag=42):
    """What a transaction has read: None if there is no such cell."""

    cell: CellView | None


class LockTaken(_Value, frozen=True, tag=53):
    """A transaction has taken a lock; None is left of what has no deadline."""

    token: int
    expires_in_ms: int | None


CellDone = CellWritten | CellsDeleted | CellRead
LockDone = LockTaken | Released | Renewed


class Transacted(_Value, frozen=True, tag=43):
    """A transaction was carried out: `then` if it succeeded, else `otherwise`, with a result for each part.

    `revision` is that of the table of cells. Of a repeated request, what was read is read again, and times
    that remain count from now.
    """

    succeeded: bool
    revision: int
    results: tuple[CellDone | LockDone, ...]


Result = (
    SessionOpened
    | SessionKept
    | SessionClosed
    | Granted
    | Queued
    | Renewed
    | Released
    | ForceReleased
    | Cancelled
    | Done
    | Refused
    | Resized
    | Proclaimed
    | RateTaken
    | FenceAdvanced
    | WaitsAbandoned
    | CellWritten
    | CellsDeleted
    | Transacted
    | SessionForced
    | DelaysLifted
    | FenceForgotten
    | RatesForgotten
    | Revoked
    | RevocationsWithdrawn
    | WaitsForced
    | PutOffTo
    | HandedOver
    | QuotaExceeded
    | QuotaSet
    | RefusedInNamespace
    | NamespaceSet
    | Frozen
    | Thawed
    | RulesHeld
    | LeaderPreferred
    | GrantedSeveral
    | StreamResumed
    | NumberedDone
    | FrameRefused
)


class EventKind(enum.StrEnum):
    """What happened. The values are the public event names."""

    GRANTED = "granted"
    QUEUED = "queued"
    RELEASED = "released"
    EXPIRED = "expired"
    FORCED = "forced"
    HANDED_OVER = "handed-over"
    CONVERTED = "converted"
    ELECTED = "elected"
    RESIGNED = "resigned"
    SESSION_EXPIRED = "session-expired"
    SESSION_FORCED = "session-forced"
    DELAY_LIFTED = "delay-lifted"
    FENCE_FORGOTTEN = "fence-forgotten"
    RATE_LIMIT_FORGOTTEN = "rate-limit-forgotten"
    WAIT_FORCED = "wait-forced"
    REVOKED = "revoked"
    REVOCATION_WITHDRAWN = "revocation-withdrawn"
    PUT_OFF = "put-off"
    FROZEN = "frozen"
    THAWED = "thawed"
    LEFT = "left"
    RESIZED = "resized"
    QUOTA_SET = "quota-set"
    QUOTA_REMOVED = "quota-removed"
    NAMESPACE_SET = "namespace-set"
    NAMESPACE_REMOVED = "namespace-removed"
    MEMBER_ADD_ASKED = "member-add-asked"
    MEMBER_MOVE_ASKED = "member-move-asked"
    MEMBER_REMOVE_ASKED = "member-remove-asked"
    TRANSFER_ASKED = "transfer-asked"
    RULES_HELD = "rules-held"
    RULES_RELEASED = "rules-released"
    LEADER_PREFERRED = "leader-preferred"
    PREFERENCE_ENDED = "preference-ended"
    RESTORED = "restored"

    __hash__ = str.__hash__  # that of Enum is a Python function, and slow


OF_SETTINGS: Final = frozenset(
    {
        EventKind.QUOTA_SET,
        EventKind.QUOTA_REMOVED,
        EventKind.NAMESPACE_SET,
        EventKind.NAMESPACE_REMOVED,
    }
)
"""What operators set for others, and what that was before is gone. What it is now is the `value`, as JSON."""
OF_CLUSTER: Final = {
    ClusterAct.ADD: EventKind.MEMBER_ADD_ASKED,
    ClusterAct.MOVE: EventKind.MEMBER_MOVE_ASKED,
    ClusterAct.REMOVE: EventKind.MEMBER_REMOVE_ASKED,
    ClusterAct.TRANSFER: EventKind.TRANSFER_ASKED,
}
"""What operators are about to do to the cluster itself."""
OF_NODES: Final = frozenset({*OF_CLUSTER.values(), EventKind.LEADER_PREFERRED, EventKind.PREFERENCE_ENDED})
"""What operators do about nodes. Which one is meant is the `value`, as JSON."""
OF_OPERATORS: Final = OF_SETTINGS.union(
    OF_NODES,
    {
        EventKind.FORCED,
        EventKind.SESSION_FORCED,
        EventKind.WAIT_FORCED,
        EventKind.REVOKED,
        EventKind.REVOCATION_WITHDRAWN,
        EventKind.DELAY_LIFTED,
        EventKind.FENCE_FORGOTTEN,
        EventKind.RATE_LIMIT_FORGOTTEN,
        EventKind.RESIZED,
        EventKind.FROZEN,
        EventKind.THAWED,
        EventKind.RULES_HELD,
        EventKind.RULES_RELEASED,
        EventKind.RESTORED,
    },
)
"""What operators do, and give a reason for."""


class Left(enum.StrEnum):
    """Why a wait ended without a grant of its own: the reason of the event `left`."""

    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"
    SHARED = "shared"
    ALREADY_HELD = "already-held"
    LIMIT_MISMATCH = "limit-mismatch"
    LEASE_EXPIRED = "lease-expired"
    SESSION_CLOSED = "session-closed"
    SESSION_EXPIRED = "session-expired"
    SESSION_FORCED = "session-forced"
    FORCED = "forced"
    RATE_LIMITED = "rate-limited"

    __hash__ = str.__hash__


HELD_TOO_LONG: Final = "held-too-long"
"""Why a holder is to give up what a namespace lets nobody hold longer. No operator can give this reason."""


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something that happened at a revision. A hold of several locks causes one event for each of them.

    `session_id` is the id of the session, or of the hold if it has a lease of its own. It is a secret: it
    selects the events for a client that names it, and never leaves the node. `lasted_ms` is how long the hold
    or the wait that ended had lasted; of a grant, how long it was waited for. `value` is an elected leader's.

    `ticket` is the public number of the wait that began or ended with it, or for which a holder is to give
    up within `ends_in_ms`; both are 0 if there is no such thing. `to_token` is that of the hold to which this
    one was handed over, and which is granted with the next event; 0 of any other.

    The end of a session has no name, and no more than its owner and, if it was forced, a reason. A delay that
    was lifted, what was forgotten (a fence or a rate limit), a semaphore that was resized (to so many
    `permits`), a prefix that was frozen or thawed, and what operators set (`OF_SETTINGS`) or do about
    nodes (`OF_NODES`), have no owner and no session.

    `principal` is whom it belongs to, and `by` who overrode somebody: forced, revoked, lifted, forgot, or set
    something. Both are empty if nodes were told of no principals. A quota has no name: it is the principal's.
    """

    revision: int
    now_ms: int
    kind: EventKind
    name: str
    mode: Mode
    owner: OwnerName
    token: int
    session_id: SessionId | HoldId
    lasted_ms: int
    reason: str = ""
    of: HoldKind = HoldKind.LOCK
    scope: Scope = Scope.NODE
    permits: int = 0
    value: str = ""
    ticket: int = 0
    ends_in_ms: int = 0
    principal: str = ""
    by: str = ""
    to_token: int = 0

    @property
    def concerns_others(self) -> bool:
        """Whether an operator did it, and to something that is not known to be its own.

        What ends with the grace of a revocation is nobody's deed: that was the revocation. What is set for
        a principal concerns whoever has to know why, also if an operator sets it for itself.
        """
        if self.kind is EventKind.REVOKED and self.reason == HELD_TOO_LONG:
            return False
        is_own = self.principal and self.by in ("", self.principal) and self.kind not in OF_SETTINGS
        return self.kind in OF_OPERATORS and not is_own


class CellEventKind(enum.StrEnum):
    """What happened to a cell. The values are the public event names."""

    PUT = "cell-put"
    DELETED = "cell-deleted"
    EXPIRED = "cell-expired"

    __hash__ = str.__hash__  # that of Enum is a Python function, and slow


class CellEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A change of a cell. `mod_revision` is that of the change, `version` 0 if the cell is gone.

    It expired if its lease or its session did. The value is not told: whoever wants it reads the cell.
    """

    revision: int
    now_ms: int
    kind: CellEventKind
    key: bytes
    mod_revision: int
    version: int

    @property
    def name(self) -> str:
        """The key as text."""
        return self.key.decode("utf-8", "backslashreplace")


class Settled(msgspec.Struct, frozen=True):
    """How a wait ended, for the node that keeps its client's connection. It waited under `hold_id`.

    `added` are the locks that an addition waited for: its grant tells of all that the hold has. `position` is
    the place in the queue of one whose time was over, 0 of any other, and where the queue was too long.
    """

    hold_id: HoldId
    result: Granted | Refused
    waited_ms: int
    added: tuple[Wanted, ...] = ()
    position: int = 0


class BatchOutcome(msgspec.Struct, frozen=True):
    """The results of one batch: `results[i]` is that of `seqs[i]`. Commands that came twice are left out.

    `repeated` are those of `seqs` that asked with a `request_id` for what was answered before.
    """

    origin: str
    seqs: tuple[int, ...]
    results: tuple[Result, ...]
    repeated: tuple[int, ...] = ()


class Outcome(msgspec.Struct, frozen=True):
    """What applying one entry did."""

    revision: int
    now_ms: int
    batches: tuple[BatchOutcome, ...]
    events: Sequence[Event]
    settled: tuple[Settled, ...] = ()
    cell_events: tuple[CellEvent, ...] = ()

    @property
    def all_events(self) -> Sequence[Event | CellEvent]:
        """The events, and those of cells behind them."""
        return (*self.events, *self.cell_events) if self.cell_events else self.events
