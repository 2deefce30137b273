"""Why a command had no effect.

Refusals are results, never exceptions: they are as deterministic and as replicated as grants.
"""

import enum

from lockstate.words.ids import OwnerName
from lockstate.words.kinds import HoldKind
from lockstate.words.shape import Array
from lockstate.words.views import HolderView


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


class CycleView(Array, frozen=True):
    """One step of a deadlock: `owner` waits for `name`, which the next step's owner holds or waits for."""

    owner: OwnerName
    name: str
    kind: HoldKind = HoldKind.LOCK


class Refused(Array, frozen=True, tag=11):
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


class RefusedInNamespace(Refused, frozen=True, tag=39):
    """A namespace does not allow it. If a quota of it is used up, `quota` and `facts` say which one."""

    namespace: str = ""
    quota: str = ""
