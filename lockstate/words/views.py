"""What may be seen of the state: lockstate/reads makes these values; results and refusals show some."""

from lockstate.words.ids import NO_OWNER, OwnerName
from lockstate.words.kinds import Algorithm, HoldKind
from lockstate.words.modes import Mode, Scope
from lockstate.words.settings import NamespaceSettings, Quota
from lockstate.words.shape import Array
from lockstate.words.wanted import PRIORITY_DEFAULT


class HolderView(Array, frozen=True):
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


class RevocationView(Array, frozen=True):
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


class WaiterView(Array, frozen=True):
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


class LockView(Array, frozen=True):
    """A lock at one revision. `state` is free, held or delayed."""

    name: str
    state: str
    holders: tuple[HoldView, ...] = ()
    queue: tuple[WaiterView, ...] = ()


class SemaphoreView(Array, frozen=True):
    """A semaphore at one revision. While nobody holds or wants it, `limit` is 0: the next acquire sets it."""

    name: str
    limit: int
    available: int
    holders: tuple[HoldView, ...] = ()
    queue: tuple[WaiterView, ...] = ()


class ElectionView(Array, frozen=True):
    """An election at one revision; `leader` is None when nobody leads, `value` is the leader's."""

    name: str
    leader: HoldView | None = None
    value: str = ""
    queue: tuple[WaiterView, ...] = ()


class SemaphoreSummary(Array, frozen=True):
    """A semaphore in a listing, with the first of its holders."""

    name: str
    limit: int
    available: int
    holders: tuple[HoldView, ...]
    holders_count: int
    queue_length: int


class ElectionSummary(Array, frozen=True):
    """An election in a listing."""

    name: str
    leader: HoldView | None
    value: str
    queue_length: int


class RateRowView(Array, frozen=True):
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


class HighestToken(Array, frozen=True):
    """The highest token that a resource has seen; None if it never saw one."""

    name: str
    highest_token: int | None


class FenceView(Array, frozen=True):
    """Whether a token is a present holder's; `current_token` is the highest of theirs, 0 if there is none."""

    valid: bool
    current_token: int


class SessionView(Array, frozen=True):
    """A session at one revision, for a client that knows its id; no hold or ticket shows its secret."""

    ttl_ms: int
    expires_in_ms: int
    owner: OwnerName
    labels: dict[str, str]
    holds: tuple[HoldView, ...]
    tickets: tuple[WaiterView, ...]
    session_name: str = ""


class SessionSummary(Array, frozen=True):
    """A session in a listing: nothing in it gives a right."""

    session_name: str
    owner: OwnerName
    labels: dict[str, str]
    ttl_ms: int
    expires_in_ms: int
    holds_count: int
    tickets_count: int
    principal: str = ""


class PrincipalRow(Array, frozen=True):
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


class NamespaceSummary(Array, frozen=True):
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


class LeftView(Array, frozen=True):
    """What is held and waited for at and below a prefix: of names up to a bound, so `is_all` may be false."""

    holds: int
    waits: int
    is_all: bool = True


class FreezeView(Array, frozen=True):
    """A prefix and its freeze. It thaws in `ends_in_ms`, or if that is None when somebody says so."""

    name: str
    """The prefix, under the field by which rights find what may be read."""
    is_frozen: bool
    reason: str = ""
    frozen_ms: int = 0
    ends_in_ms: int | None = None
    left: LeftView | None = None


class Holdings(Array, frozen=True):
    """A page of holds and waits of all kinds; `next` is the place to go on after if there may be more."""

    holds: tuple[HoldView, ...]
    tickets: tuple[WaiterView, ...]
    next: str | None = None


class TicketView(Array, frozen=True):
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


class StreamView(Array, frozen=True):
    """What is known of a stream: the last number, and how many outcomes are kept for its client."""

    epoch: int
    last: int
    kept_count: int


class CellView(Array, frozen=True):
    """A cell as anybody may see it. `owner` is that of its session; without a lease nothing expires, None."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    owner: OwnerName = NO_OWNER
    expires_in_ms: int | None = None
