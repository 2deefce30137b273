"""What the state machine says: results for the asker, events for everybody, views for readers.

Refusals are results, never exceptions: they are as deterministic and as replicated as grants.
"""

import enum

import msgspec

from lockstate.modes import Mode


class Reason(enum.StrEnum):
    """Why a command was refused. The value is the public code of the HTTP API."""

    INVALID_REQUEST = "invalid-request"
    NAME_TOO_LONG = "name-too-long"
    TTL_OUT_OF_RANGE = "ttl-out-of-range"
    LOCK_HELD = "lock-held"
    SESSION_EXPIRED = "session-expired"
    LEASE_EXPIRED = "lease-expired"
    QUEUE_FULL = "queue-full"
    OVERLOADED = "overloaded"


class _Value(msgspec.Struct, frozen=True, array_like=True):
    """Base of results and views."""


class HolderView(_Value, frozen=True):
    """A holder as others may see it: no secret in it."""

    owner: str
    mode: Mode
    token: int
    expires_in_ms: int
    note: str
    name: str = ""


class WaiterView(_Value, frozen=True):
    """A waiter as others may see it. `position` counts from 1."""

    owner: str
    mode: Mode
    position: int
    waited_ms: int
    name: str = ""


class LockView(_Value, frozen=True):
    """A lock at one revision. `state` is free, held or delayed."""

    name: str
    state: str
    holders: tuple[HolderView, ...] = ()
    queue: tuple[WaiterView, ...] = ()


class SessionView(_Value, frozen=True):
    """A session at one revision, for who knows its id; holds and tickets without their secrets."""

    ttl_ms: int
    expires_in_ms: int
    owner: str
    labels: dict[str, str]
    holds: tuple[HolderView, ...]
    tickets: tuple[WaiterView, ...]


class SessionOpened(_Value, frozen=True, tag=1):
    """The session exists."""

    session_id: str
    ttl_ms: int
    expires_in_ms: int


class SessionKept(_Value, frozen=True, tag=2):
    """The session lives on."""

    session_id: str
    expires_in_ms: int


class SessionClosed(_Value, frozen=True, tag=3):
    """The session ended; `released` are the names of the locks it held, in order of their tokens."""

    released: tuple[str, ...]


class Granted(_Value, frozen=True, tag=4):
    """The lock is held. `expires_in_ms` is 0 when a repeated request finds its hold already ended."""

    hold_id: str
    token: int
    name: str
    mode: Mode
    expires_in_ms: int


class Queued(_Value, frozen=True, tag=5):
    """The request waits. An event says how it ended: `granted` or `wait-ended`, with this `hold_id`."""

    hold_id: str
    position: int


class Renewed(_Value, frozen=True, tag=6):
    """The lease runs anew."""

    token: int
    expires_in_ms: int


class Released(_Value, frozen=True, tag=7):
    """The hold is over."""


class ForceReleased(_Value, frozen=True, tag=8):
    """What the force ended."""

    released: tuple[HolderView, ...]


class Cancelled(_Value, frozen=True, tag=9):
    """Whether there was an attempt to undo."""

    undone: bool


class Done(_Value, frozen=True, tag=10):
    """A Tick or a Barrier was applied."""


class Refused(_Value, frozen=True, tag=11):
    """The command had no effect. `retry_after_ms` is a hint, 0 when there is none."""

    reason: Reason
    detail: str
    holders: tuple[HolderView, ...] = ()
    queue_length: int = 0
    retry_after_ms: int = 0


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
)


class EventKind(enum.StrEnum):
    """What happened. The values are the public event names, `wait-ended` excepted."""

    GRANTED = "granted"
    QUEUED = "queued"
    RELEASED = "released"
    EXPIRED = "expired"
    FORCED = "forced"
    SESSION_EXPIRED = "session-expired"
    WAIT_ENDED = "wait-ended"


class Event(msgspec.Struct, frozen=True):
    """Something that others may want to know, at a revision.

    `hold_id` is a secret: it lets the node that holds the connection find its waiter, and never leaves it.
    A `granted` event carries the Granted result, a `wait-ended` event the refusal, for that waiter.
    """

    revision: int
    now_ms: int
    kind: EventKind
    name: str = ""
    mode: Mode | None = None
    owner: str = ""
    token: int = 0
    hold_id: str = ""
    reason: str = ""
    result: Granted | Refused | None = None


class BatchOutcome(msgspec.Struct, frozen=True):
    """The results of one batch: `results[i]` answers `seqs[i]`. Repeated commands are left out."""

    origin: str
    seqs: tuple[int, ...]
    results: tuple[Result, ...]


class Outcome(msgspec.Struct, frozen=True):
    """What applying one entry did."""

    revision: int
    now_ms: int
    batches: tuple[BatchOutcome, ...]
    events: tuple[Event, ...]
