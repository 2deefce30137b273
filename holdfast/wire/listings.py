"""What listings show: the rows of each, and its pages with the cursor to pass as `after` for more."""

import msgspec

from holdfast.wire.held import Holder, HoldRow, Leader, LockInfo, WaitRow
from holdfast.wire.shape import MayLack, ReadAnswer
from holdfast.wire.words import AlgorithmSaid


class SemaphoreRow(msgspec.Struct, frozen=True):
    """A semaphore in a listing: the first of its holders, and how many hold and want its permits."""

    name: str
    limit: int
    available: int
    holders: tuple[Holder, ...] = ()
    holders_count: int = 0
    queue_length: int = 0


class ElectionRow(msgspec.Struct, frozen=True):
    """An election in a listing: its leader, None if there is none, and how many want to lead."""

    name: str
    leader: Leader | None = None
    queue_length: int = 0


class RateLimitRow(msgspec.Struct, frozen=True):
    """A rate limit of which something was taken: it is whole again in `reset_in_ms`.

    `waiting` requests have places whose moments are to come. Where nodes know principals, it counts for
    `principal`, the first to take from it, and `last_principal` was the last.
    """

    name: str
    algorithm: AlgorithmSaid
    window_ms: int
    reset_in_ms: int
    waiting: int
    principal: MayLack[str] = ""
    last_principal: MayLack[str] = ""


class FenceRow(msgspec.Struct, frozen=True):
    """The highest token that a resource has seen."""

    name: str
    highest_token: int


class SessionRow(msgspec.Struct, frozen=True):
    """A session as everybody may see it, by its public name."""

    session_name: str
    owner: str = ""
    labels: dict[str, str] = {}
    ttl_ms: int = 0
    expires_in_ms: int = 0
    holds_count: int = 0
    tickets_count: int = 0
    principal: MayLack[str] = ""


class LockPageJson(ReadAnswer, frozen=True):
    """Locks in order of name."""

    locks: tuple[LockInfo, ...]
    next: str | None


class HoldPageJson(ReadAnswer, frozen=True):
    """Holds and waits of all kinds, in order of kind and name."""

    holds: tuple[HoldRow, ...]
    tickets: tuple[WaitRow, ...]
    next: str | None


class SemaphorePageJson(ReadAnswer, frozen=True):
    """Semaphores in order of name."""

    semaphores: tuple[SemaphoreRow, ...]
    next: str | None


class ElectionPageJson(ReadAnswer, frozen=True):
    """Elections in order of name."""

    elections: tuple[ElectionRow, ...]
    next: str | None


class RatePageJson(ReadAnswer, frozen=True):
    """Rate limits in order of name, algorithm and window."""

    rate_limits: tuple[RateLimitRow, ...]
    next: str | None


class FencePageJson(ReadAnswer, frozen=True):
    """Fences in order of name."""

    fences: tuple[FenceRow, ...]
    next: str | None


class SessionPageJson(ReadAnswer, frozen=True):
    """Sessions, the oldest first."""

    sessions: tuple[SessionRow, ...]
    next: str | None
