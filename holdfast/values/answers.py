"""What the cluster answers, as frozen values. Unknown fields are ignored: a newer node may send more."""

from typing import Literal

import msgspec

from holdfast.wire.answers import NamespaceUsed, Revocation, Used


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the results of reads.

    `hidden` counts what is left out because the caller may not read it. A node's own, older view (`is_stale`)
    has its `revision`, and the time since the node heard from a leader (`lag_ms`).
    """

    hidden: int = 0
    revision: int | None = None
    lag_ms: int | None = None


class Holder(msgspec.Struct, frozen=True):
    """A holder of a lock, permits or an election, as others may see it. Not all have a mode or permits."""

    owner: str
    mode: str = ""
    token: int = 0
    expires_in_ms: int = 0
    note: str = ""
    name: str = ""
    scope: str = ""
    permits: int = 0
    since_ms: int = 0
    session_name: str = ""
    labels: dict[str, str] = {}
    revocation: Revocation | None = None
    value: str = ""
    no_deadline: bool = False


class Waiter(msgspec.Struct, frozen=True):
    """A waiter. `position` counts from 1; a `conversion` of a hold goes before all others."""

    owner: str
    mode: str = ""
    position: int = 0
    waited_ms: int = 0
    permits: int = 0
    ticket: int = 0
    priority: int = 5
    name: str = ""
    scope: str = ""
    conversion: bool = False
    session_name: str = ""


class LockInfo(Seen, frozen=True):
    """A lock as it stands. `state` is free, held or delayed."""

    name: str
    state: str
    holders: tuple[Holder, ...] = ()
    queue: tuple[Waiter, ...] = ()


class NodeInfo(msgspec.Struct, frozen=True):
    """A node as another sees it.

    `state` is leader, follower, candidate, starting, joining (not yet a voter) or unreachable.
    """

    id: str
    http: str
    peer: str
    state: str
    revision: int


class Obstacle(msgspec.Struct, frozen=True):
    """What keeps the asked node from serving, or the cluster from doing what it should.

    `peer` is the node it is about, None if it is the asked node or the whole cluster; `for_ms` is its age, as
    far as the asked node knows. `detail` and `advice` are for people.
    """

    kind: str
    peer: str | None
    for_ms: int
    detail: str
    advice: str


class ClusterInfo(msgspec.Struct, frozen=True):
    """The cluster as the asked node sees it. `leader` is None while there is none.

    `ready` says whether the node can serve, `lag_ms` how long ago it heard from a leader (0 on the leader,
    None if it has not yet). The most serious `obstacles` come first. Nodes at the same `revision` have the
    same `digest` of the state there.
    """

    node_id: str
    leader: str | None
    term: int
    revision: int
    nodes: tuple[NodeInfo, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    lag_ms: int | None = None
    ready: bool = False
    digest: str = ""


class Quota(msgspec.Struct, frozen=True):
    """How much a principal may have at a time; None stands for as much as there is room for."""

    sessions: int | None = None
    holds: int | None = None
    waits: int | None = None
    cells: int | None = None
    fences: int | None = None
    bytes: int | None = None


class PrincipalInfo(msgspec.Struct, frozen=True):
    """A principal: its own quota, if it has one, and its use. "*" stands for all without one."""

    principal: str
    quota: Quota | None
    used: Used


class QuotaPage(msgspec.Struct, frozen=True):
    """The body of the answer to a listing of quotas: a page, and the cursor to pass as `after` for more."""

    quotas: tuple[PrincipalInfo, ...]
    next: str | None = None


class QuotaSet(msgspec.Struct, frozen=True):
    """The body of the answer to a change of a quota."""

    quota: Quota | None


class NamespaceSettings(msgspec.Struct, frozen=True):
    """The rules of a namespace for the names at and below its prefix; None leaves a rule open.

    Leases that do not live with a session must be `ttl_ms_min` to `ttl_ms_max` long, lock-delays at least
    `lock_delay_ms_min`. `no_deadline` and `priority` allow or forbid, instead of the settings of nodes. An
    acquire of a lock that its session holds already renews it, or is refused as `already-held` if `if_held`
    is "refuse", unless it has an `if_held` of its own. The others are bounds on how much there may be.
    """

    ttl_ms_min: int | None = None
    ttl_ms_max: int | None = None
    lock_delay_ms_min: int | None = None
    no_deadline: bool | None = None
    priority: bool | None = None
    holds: int | None = None
    waits: int | None = None
    cells: int | None = None
    fences: int | None = None
    bytes: int | None = None
    if_held: Literal["renew", "refuse"] | None = None


class NamespaceInfo(msgspec.Struct, frozen=True):
    """A namespace, by its prefix."""

    prefix: str
    settings: NamespaceSettings
    used: NamespaceUsed


class NamespacePage(msgspec.Struct, frozen=True):
    """The body of the answer to a listing of namespaces: a page, and the cursor for more."""

    namespaces: tuple[NamespaceInfo, ...]
    next: str | None = None


class NamespaceSet(msgspec.Struct, frozen=True):
    """The body of the answer to a change of a namespace."""

    settings: NamespaceSettings | None


class SessionHolding(msgspec.Struct, frozen=True):
    """One thing that a session holds."""

    kind: str
    name: str


class SessionShown(msgspec.Struct, frozen=True):
    """The body of the answer to a look at one's own session, as far as we read it."""

    holds: tuple[SessionHolding, ...] = ()


class SessionKept(msgspec.Struct, frozen=True):
    """The body of the answer to a keepalive; `revoked` are holds that are to be given up."""

    expires_in_ms: int
    revoked: tuple[Holder, ...] = ()


class HoldersRevoked(msgspec.Struct, frozen=True):
    """The body of the answer to a revocation: who is to give up."""

    revoked: tuple[Holder, ...] = ()


class HoldersReleased(msgspec.Struct, frozen=True):
    """The body of the answer to a forced release: the former holders."""

    released: tuple[Holder, ...] = ()


class SemaphoreSize(msgspec.Struct, frozen=True):
    """A semaphore's limit, and how many permits are left; below 0 after it was made smaller."""

    name: str
    limit: int
    available: int


class SemaphoreInfo(Seen, frozen=True):
    """A semaphore as it stands. Its limit is 0 while nobody holds or wants a permit."""

    name: str
    limit: int
    available: int
    holders: tuple[Holder, ...] = ()
    queue: tuple[Waiter, ...] = ()


class Taken(msgspec.Struct, frozen=True):
    """The answer of a rate limit. `retry_after_ms` is when the same request will be allowed."""

    allowed: bool
    remaining: int
    retry_after_ms: int
    reset_in_ms: int


class TokenCheck(Seen, frozen=True):
    """Whether a token belongs to a current holder; `current_token` is the highest of theirs, or 0."""

    valid: bool
    current_token: int


class FenceInfo(msgspec.Struct, frozen=True):
    """The body of the answer to a look at a fence: None if it has never seen a token."""

    highest_token: int | None


class Leader(msgspec.Struct, frozen=True):
    """The leader of an election, and the value it publishes."""

    owner: str
    value: str
    token: int
    since_ms: int = 0
    session_name: str = ""
    labels: dict[str, str] = {}
    revocation: Revocation | None = None


class ElectionInfo(Seen, frozen=True):
    """An election as it stands. `leader` is None while there is none."""

    name: str
    leader: Leader | None
    queue: tuple[Waiter, ...] = ()


class Event(msgspec.Struct, frozen=True):
    """An event of a watch, or a record of the audit.

    `event` is granted, queued, released, expired, forced, converted, session-expired, session-forced,
    revoked, put-off, elected, resigned, delay-lifted, fence-forgotten, cell-put, cell-deleted or
    cell-expired; `kind` is lock, semaphore, election or cell. `principal` is its owner, `by` the principal
    that overrode somebody. A watch continues after `id`, the audit after `number`; its records are chained by
    `hash`.
    """

    revision: int
    event: str
    kind: str = ""
    name: str = ""
    mode: str = ""
    scope: str = ""
    permits: int = 0
    owner: str = ""
    token: int = 0
    value: str = ""
    reason: str = ""
    at_ms: int = 0
    lasted_ms: int = 0
    ticket: int = 0
    ends_in_ms: int = 0
    principal: str = ""
    by: str = ""
    version: int = 0
    mod_revision: int = 0
    number: int = 0
    chain: int = 0
    previous: str = ""
    hash: str = ""
    id: str = ""


class EventList(msgspec.Struct, frozen=True):
    """The body of the answer to a question about the past."""

    events: tuple[Event, ...]
