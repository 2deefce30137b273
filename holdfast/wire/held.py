"""Who holds and who waits, as answers show it: of locks, semaphores, elections and sessions.

Modes and scopes are shown of locks, permits of semaphores; elections have neither. Nothing here is secret.
"""

import msgspec

from holdfast.wire.shape import ABSENT, MayLack, ReadAnswer
from holdfast.wire.words import PRIORITY_DEFAULT, HoldKindSaid, ModeSaid, ScopeSaid


class Revocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to a holder to give up `name` within `ends_in_ms`, after which its hold is ended by force.

    `put_off` says whether it has been put off, which is possible once; `ticket` is the number of the wait
    that needs the hold, 0 if there is none.
    """

    name: str
    reason: str
    ends_in_ms: int
    put_off: bool
    ticket: MayLack[int] = 0


class Holder(msgspec.Struct, frozen=True):
    """A holder of a lock, permits or an election, as others may see it. Not all have a mode or permits."""

    owner: str
    mode: MayLack[ModeSaid] = ""
    token: int = 0
    expires_in_ms: MayLack[int] = 0
    note: str = ""
    name: str = ""
    scope: MayLack[ScopeSaid] = ""
    permits: MayLack[int] = 0
    since_ms: MayLack[int] = 0
    session_name: MayLack[str] = ""
    labels: MayLack[dict[str, str]] = {}
    revocation: MayLack[Revocation] | None = None
    value: MayLack[str] = ""
    no_deadline: MayLack[bool] = False
    principal: MayLack[str] = ""


class Waiter(msgspec.Struct, frozen=True):
    """A waiter. `position` counts from 1; a `conversion` of a hold goes before all others.

    `principal` is whose it is, where nodes know principals; the same in all of these.
    """

    owner: str
    mode: MayLack[ModeSaid] = ""
    position: int = 0
    waited_ms: int = 0
    name: str = ""
    scope: MayLack[ScopeSaid] = ""
    permits: MayLack[int] = 0
    ticket: int = 0
    conversion: MayLack[bool] = False
    session_name: MayLack[str] = ""
    priority: MayLack[int] = PRIORITY_DEFAULT
    principal: MayLack[str] = ""


class Leader(msgspec.Struct, frozen=True):
    """The leader of an election, and the value it publishes; reads also say for how long, and where."""

    owner: str
    value: str
    token: int
    since_ms: MayLack[int] = 0
    session_name: MayLack[str] = ""
    labels: MayLack[dict[str, str]] = {}
    revocation: MayLack[Revocation] | None = None
    principal: MayLack[str] = ""


class CycleStepJson(msgspec.Struct, frozen=True):
    """One step of a deadlock: `owner` waits for `name`, which the owner of the next step has or waits for."""

    owner: str
    name: str
    kind: HoldKindSaid


class HoldRow(Holder, frozen=True, kw_only=True):
    """A hold: a lock, permits or an election, by `kind`."""

    kind: HoldKindSaid


class WaitRow(Waiter, frozen=True, kw_only=True):
    """A wait for a lock, permits or an election, by `kind`."""

    kind: HoldKindSaid


# -- one thing --------------------------------------------------------------------------------------------


class LockInfo(ReadAnswer, frozen=True):
    """A lock as it stands. `state` is free, held or delayed.

    Holders of subtrees that it lies in are among its holders.
    """

    name: str
    state: str
    holders: tuple[Holder, ...] = ()
    queue: tuple[Waiter, ...] = ()


class SemaphoreInfo(ReadAnswer, frozen=True):
    """A semaphore as it stands. Its limit is 0 while nobody holds or wants a permit."""

    name: str
    limit: int
    available: int
    holders: tuple[Holder, ...] = ()
    queue: tuple[Waiter, ...] = ()


class ElectionInfo(ReadAnswer, frozen=True):
    """An election as it stands. `leader` is None while there is none."""

    name: str
    leader: Leader | None
    queue: tuple[Waiter, ...] = ()


class SessionInfo(ReadAnswer, frozen=True):
    """A session as a client that knows its id may see it, with its holds and waits.

    `session_name` is what others know it by.
    """

    ttl_ms: int = 0
    expires_in_ms: int = 0
    owner: str = ""
    labels: dict[str, str] = {}
    holds: tuple[HoldRow, ...] = ()
    tickets: tuple[WaitRow, ...] = ()
    session_name: str = ""


class TicketInfo(ReadAnswer, frozen=True):
    """A wait, by its public number. It is given up in `ends_in_ms`.

    `estimate_ms` guesses from how long others have held it when it may be granted; None without a guess.
    """

    ticket: int
    kind: HoldKindSaid
    names: tuple[str, ...]
    owner: str
    position: int
    waited_ms: int
    ends_in_ms: int
    estimate_ms: int | None = None
    session_name: MayLack[str] = ""
    conversion: MayLack[bool] = False
    priority: MayLack[int] = PRIORITY_DEFAULT
    principal: MayLack[str] = ""


class TokenCheck(ReadAnswer, frozen=True):
    """Whether a token belongs to a current holder; `current_token` is the highest of theirs, or 0."""

    valid: bool
    current_token: int


class FenceJson(ReadAnswer, frozen=True, kw_only=True):
    """The highest token that a resource has seen, null if none."""

    name: str = ABSENT
    highest_token: int | None
