"""What nodes answer of the cluster and of what happened, as frozen values of users.

All others are in `holdfast.wire`. Unknown fields are ignored: a newer node may send more.
"""

import msgspec

from holdfast.wire.held import HoldRow, WaitRow
from holdfast.wire.shape import ReadAnswer


class NodeInfo(msgspec.Struct, frozen=True):
    """A node as another sees it.

    `state` is leader, follower, candidate, starting, joining (not yet a voter) or unreachable.
    `version` is what it runs and `rules` the newest rules that it knows, as it said last; empty and 0 if not.
    """

    id: str
    http: str
    peer: str
    state: str
    revision: int
    version: str = ""
    rules: int = 0


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


class OwnInfo(msgspec.Struct, frozen=True):
    """What the asked node says of itself; None where it does not know.

    `state_bytes` is the counted memory of the state, `directory_bytes` what its data directory takes, and
    `free_bytes` what is left on that disk. `connections` are those of clients. From `log_level` on it logs,
    for `log_level_ms` more if somebody has set that for a time.
    """

    uptime_ms: int = 0
    state_bytes: int = 0
    state_bytes_max: int = 0
    directory_bytes: int | None = None
    free_bytes: int | None = None
    snapshot_bytes: int | None = None
    snapshot_age_ms: int | None = None
    connections: int = 0
    connections_max: int = 0
    log_level: str = ""
    log_level_ms: int | None = None


class RulesHoldInfo(msgspec.Struct, frozen=True):
    """Why the cluster stays at its rules, for how long already, and who wants it: "" if that is unknown."""

    by: str
    reason: str
    held_ms: int


class PreferredLeaderInfo(msgspec.Struct, frozen=True):
    """The node that should lead, for how long already, and who wants it: "" if that is unknown.

    `why_not` is why the asked node, if it leads, does not hand leadership over yet; empty of another.
    """

    id: str
    by: str
    reason: str
    for_ms: int
    why_not: str = ""


class ClusterInfo(msgspec.Struct, frozen=True):
    """The cluster as the asked node sees it. `leader` is None while there is none.

    `ready` says whether the node can serve, `lag_ms` how long ago it heard from a leader (0 on the leader,
    None if it has not yet). The most serious `obstacles` come first. Nodes at the same `revision` have the
    same `digest` of the state there. `rules` are those that the cluster follows, and `rules_hold` says why it
    keeps to them, if somebody wants that. `now_ms` is the cluster time of the newest entry there, and `own`
    what the node says of itself alone. `preferred` is who should lead, None if it does not matter.
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
    rules: int = 0
    now_ms: int = 0
    own: OwnInfo | None = None
    rules_hold: RulesHoldInfo | None = None
    preferred: PreferredLeaderInfo | None = None


class Holdings(ReadAnswer, frozen=True):
    """The holds and waits of a session."""

    holds: tuple[HoldRow, ...] = ()
    tickets: tuple[WaitRow, ...] = ()


class PrincipalEnded(msgspec.Struct, frozen=True):
    """What was ended of a principal: how many sessions, holds without one, and waits.

    `is_finished` says whether nothing was left; else the principal has made more all the time.
    """

    sessions: int
    holds: int
    waits: int
    is_finished: bool


class Event(msgspec.Struct, frozen=True):
    """An event of a watch, or a record of the audit.

    `event` is granted, queued, released, expired, forced, handed-over, wait-forced, converted,
    session-expired, session-forced, revoked, put-off, revocation-withdrawn, elected, resigned, delay-lifted,
    fence-forgotten, rate-limit-forgotten, frozen, thawed, resized, quota-set, quota-removed, namespace-set,
    namespace-removed, member-add-asked, member-move-asked, member-remove-asked, transfer-asked,
    leader-preferred, preference-ended, restored,
    cell-put, cell-deleted or cell-expired; `kind` is lock, semaphore, election or cell. `to_token` is that
    of the hold to which one was handed over. `principal` is its owner, or whose quota was set, `by` the
    principal of the operator. A watch continues after `id`, the audit after `number`; its
    records are chained by `hash`.
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
    to_token: int = 0
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
