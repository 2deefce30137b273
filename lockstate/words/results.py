"""What became of a command, for the client that asked: one frozen struct for each answer, and their union.

Why a command had no effect is told in refusals.py.
"""

import enum
from typing import Final

from lockstate.words.ids import NO_OWNER, HoldId, OwnerName, SessionId
from lockstate.words.modes import Mode, Scope
from lockstate.words.refusals import QuotaExceeded, Refused, RefusedInNamespace
from lockstate.words.shape import Array
from lockstate.words.views import CellView, HolderView, LeftView, RevocationView, RevokedView, WaiterView
from lockstate.words.wanted import Wanted


class SessionOpened(Array, frozen=True, tag=1):
    """The session exists."""

    session_id: SessionId
    ttl_ms: int
    expires_in_ms: int


class SessionKept(Array, frozen=True, tag=2):
    """The session lives on, but is to give up these `revoked` ones of its holds, the first ones."""

    session_id: SessionId
    expires_in_ms: int
    revoked: tuple[RevokedView, ...] = ()


class SessionClosed(Array, frozen=True, tag=3):
    """The session ended; `released` are the names of the locks it held, in order of their tokens."""

    released: tuple[str, ...]


class Granted(Array, frozen=True, tag=4):
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


class Queued(Array, frozen=True, tag=5):
    """The request waits. How the wait ends is settled under this `hold_id` in a later outcome."""

    hold_id: HoldId
    position: int


class Renewed(Array, frozen=True, tag=6):
    """The lease has started anew; None is left of what has no deadline.

    Nevertheless the holder is to give up what `revocations` name: each name once, by its earliest end.
    """

    token: int
    expires_in_ms: int | None
    revocations: tuple[RevocationView, ...] = ()


class Released(Array, frozen=True, tag=7):
    """The hold is over; if only a part of it was given back, `locks` are still held.

    With a `depth` it goes on: that many more releases end it.
    """

    locks: tuple[Wanted, ...] = ()
    depth: int = 0


RELEASED: Final = Released()
"""The outcome of nearly every release: the whole hold has ended."""


class SessionForced(Array, frozen=True, tag=21):
    """Somebody else's session ended; `released` are the names that it held, in order of their tokens."""

    session_name: str
    owner: OwnerName
    released: tuple[str, ...]


class DelaysLifted(Array, frozen=True, tag=22):
    """How many delays ended before their time, and how long the longest of them would have gone on."""

    count: int
    left_ms: int


class FenceForgotten(Array, frozen=True, tag=23):
    """The highest token that the resource had seen; None if it never saw one."""

    highest_token: int | None


class RatesForgotten(Array, frozen=True, tag=46):
    """How many rate limits were forgotten. One command forgets only so many: `is_more` says some are left."""

    count: int
    is_more: bool = False


class Revoked(Array, frozen=True, tag=24):
    """The holders that are to give up, with what they were asked: the earliest end of several counts.

    One command asks only so many: `left` were not asked yet.
    """

    holders: tuple[RevokedView, ...]
    left: int = 0


class RevocationsWithdrawn(Array, frozen=True, tag=49):
    """How many revocations were taken back. One command takes back only so many: `left` go on."""

    count: int
    left: int = 0


class WaitsForced(Array, frozen=True, tag=45):
    """The waits that were ended. One command ends only so many: `left` still wait."""

    waits: tuple[WaiterView, ...]
    left: int = 0


class PutOffTo(Array, frozen=True, tag=25):
    """The hold is not forced before `ends_in_ms` are over; it cannot be put off again."""

    token: int
    ends_in_ms: int


class HandedOver(Array, frozen=True, tag=50):
    """`owner` holds the lock from now on, with this `token`."""

    token: int
    owner: OwnerName


class PermitsHeld(Array, frozen=True):
    """Permits of one semaphore in a hold of several kinds; `available` are left for others."""

    name: str
    permits: int
    available: int
    limit: int


class RateUsed(Array, frozen=True):
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


class ForceReleased(Array, frozen=True, tag=8):
    """Every hold of the lock was ended: these."""

    released: tuple[HolderView, ...]


class Cancelled(Array, frozen=True, tag=9):
    """Whether there was an attempt to undo."""

    undone: bool


class Done(Array, frozen=True, tag=10):
    """A Tick or a Barrier was applied, or an act was recorded."""


class QuotaSet(Array, frozen=True, tag=38):
    """A principal has another quota from now on, or none of its own."""


class NamespaceSet(Array, frozen=True, tag=44):
    """There is such a namespace from now on, or none."""


class Frozen(Array, frozen=True, tag=47):
    """Nothing new is granted below a prefix for `ends_in_ms`, or until it is thawed if that is None.

    `left` is what still is held and waited for.
    """

    ends_in_ms: int | None
    left: LeftView


class Thawed(Array, frozen=True, tag=48):
    """The prefix is not frozen; `was_frozen` says whether it was."""

    was_frozen: bool


class RulesHeld(Array, frozen=True, tag=51):
    """The cluster follows `rules`; `was_held` says whether it was kept there before."""

    rules: int
    was_held: bool


class LeaderPreferred(Array, frozen=True, tag=52):
    """It is recorded who should lead; `was` is the node that should have before, empty if it was none."""

    was: str


class Resized(Array, frozen=True, tag=12):
    """The semaphore has this limit; `available` is negative while more is held than that."""

    limit: int
    available: int


class Proclaimed(Array, frozen=True, tag=13):
    """The election has the value."""

    token: int


class RateTaken(Array, frozen=True, tag=14):
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


class FenceAdvanced(Array, frozen=True, tag=15):
    """The resource accepts this token and higher ones."""

    highest_token: int


class WaitsAbandoned(Array, frozen=True, tag=16):
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


class StreamResumed(Array, frozen=True, tag=70):
    """All numbers up to `last` are applied. Frames of this connection carry `epoch`."""

    epoch: int
    last: int


class NumberedDone(Array, frozen=True, tag=71):
    """What became of a frame: results of its numbers from the first on.

    With `refused` there was no room for the rest of it: these numbers are free to be given again.
    """

    results: tuple["Result", ...]
    refused: Refused | None = None


class FrameRefused(Array, frozen=True, tag=72):
    """Nothing of a frame was applied; all numbers up to `last` have been before."""

    fault: StreamFault
    last: int = 0


class CellWritten(Array, frozen=True, tag=40):
    """The cell has the value. Revisions are those of the table of cells."""

    create_revision: int
    mod_revision: int
    version: int


class CellsDeleted(Array, frozen=True, tag=41):
    """How many cells were deleted. One command deletes only so many: `is_more` says that some are left.

    `revision` is that of the table of cells.
    """

    count: int
    revision: int
    is_more: bool = False


class CellRead(Array, frozen=True, tag=42):
    """What a transaction has read: None if there is no such cell."""

    cell: CellView | None


class LockTaken(Array, frozen=True, tag=53):
    """A transaction has taken a lock; None is left of what has no deadline."""

    token: int
    expires_in_ms: int | None


CellDone = CellWritten | CellsDeleted | CellRead


LockDone = LockTaken | Released | Renewed


class Transacted(Array, frozen=True, tag=43):
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
