"""What listings and looks at one session or one wait show, as frozen values. See `answers.py`."""

import msgspec

from holdfast.values.answers import Holder, Leader, Seen, Waiter


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
    """A rate limit of which something was taken: it is whole again in `reset_in_ms`."""

    name: str
    algorithm: str
    window_ms: int
    reset_in_ms: int


class FenceRow(msgspec.Struct, frozen=True):
    """The highest token that a resource has seen."""

    resource: str
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


class HoldRow(Holder, frozen=True, kw_only=True):
    """A hold: a lock, permits or an election, by `kind`."""

    kind: str


class WaitRow(Waiter, frozen=True, kw_only=True):
    """A wait for a lock, permits or an election, by `kind`."""

    kind: str


class Holdings(Seen, frozen=True):
    """The holds and waits of a session."""

    holds: tuple[HoldRow, ...] = ()
    tickets: tuple[WaitRow, ...] = ()


class SessionInfo(Seen, frozen=True):
    """A session as a client that knows its id may see it, with its holds and waits."""

    session_name: str
    owner: str
    labels: dict[str, str]
    ttl_ms: int
    expires_in_ms: int
    holds: tuple[HoldRow, ...] = ()
    tickets: tuple[WaitRow, ...] = ()


class TicketInfo(Seen, frozen=True):
    """A wait, by its public number. It is given up in `ends_in_ms`.

    `estimate_ms` guesses from how long others have held it when it may be granted; None without a guess.
    """

    ticket: int
    kind: str
    names: tuple[str, ...]
    owner: str
    position: int
    waited_ms: int
    ends_in_ms: int
    estimate_ms: int | None = None
    session_name: str = ""
    conversion: bool = False
    priority: int = 5
