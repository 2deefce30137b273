"""What operators are told: of quotas, namespaces and members, and of callers that were refused."""

from typing import Literal

import msgspec

from holdfast.wire.shape import ABSENT, UNSET, MayLack, ReadAnswer, Unset, WriteAnswer
from holdfast.wire.words import Algorithm


class Quota(msgspec.Struct, frozen=True):
    """How much a principal may have at a time; None stands for as much as there is room for."""

    sessions: int | None = None
    holds: int | None = None
    waits: int | None = None
    cells: int | None = None
    fences: int | None = None
    rate_limits: int | None = None
    bytes: int | None = None


class Used(msgspec.Struct, frozen=True):
    """How much a principal has. `holds` counts names: those that it holds or waits for, and lock-delays.

    A lock-delay counts for the principal that had the hold, until it is over. `waits` are for holds, for
    changes of holds, and for the places of rate limits; `rate_limits` are those that it began and that are
    not whole.

    `bytes` counts the names of all these, its cells (keys and values), the notes and values of its holds and
    waits, and the labels of its sessions.
    """

    sessions: int
    holds: int
    waits: int
    cells: int
    fences: int
    rate_limits: int
    bytes: int


class PrincipalInfo(ReadAnswer, frozen=True):
    """A principal: its own quota, if it has one, and its use. "*" stands for all without one."""

    principal: str
    quota: Quota | None
    used: Used


class QuotaPageJson(ReadAnswer, frozen=True):
    """Principals by name, and the cursor to pass as `after` for more."""

    quotas: tuple[PrincipalInfo, ...]
    next: str | None


class QuotaSetJson(WriteAnswer, kw_only=True):
    """What a principal may have from now on; null if it has no quota of its own."""

    principal: str = ABSENT
    quota: Quota | None
    revision: int = ABSENT


class RateSettings(msgspec.Struct, frozen=True):
    """What a rate limit is: `limit` in each `window_ms`, counted by an algorithm."""

    limit: int
    window_ms: int
    algorithm: Algorithm


class NamespaceSettings(msgspec.Struct, frozen=True):
    """The rules of a namespace for the names at and below its prefix; None leaves a rule open.

    Leases that do not live with a session must be `ttl_ms_min` to `ttl_ms_max` long, lock-delays at least
    `lock_delay_ms_min`. `no_deadline` and `priority` allow or forbid, instead of the settings of nodes. An
    acquire of a lock that its session holds already, or a campaign of a leader, renews it, or is refused as
    `already-held` if `if_held` is "refuse", unless it has an `if_held` of its own. `rate` is what each rate
    limit is, each by its name. With an `ask_after_ms_min` waits may ask by themselves, after that time or
    later, and with a grace of `grace_ms_min` or more. What is granted may be held for `held_ms_max`, however
    often it is renewed. The others are bounds on how much there may be.
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
    rate_limits: int | None = None
    bytes: int | None = None
    if_held: Literal["renew", "refuse"] | None = None
    rate: RateSettings | None = None
    ask_after_ms_min: int | None = None
    grace_ms_min: int | None = None
    held_ms_max: int | None = None


class NamespaceUsed(msgspec.Struct, frozen=True):
    """How much there is in a namespace of what was made since it was set.

    `holds` counts the names there that are held, waited for, or kept by a lock-delay.
    """

    holds: int
    waits: int
    cells: int
    fences: int
    rate_limits: int
    bytes: int


class NamespaceInfo(ReadAnswer, frozen=True):
    """A namespace, by its prefix."""

    prefix: str
    settings: NamespaceSettings
    used: NamespaceUsed


class NamespacePageJson(ReadAnswer, frozen=True):
    """Namespaces by prefix, and the cursor to pass as `after` for more."""

    namespaces: tuple[NamespaceInfo, ...]
    next: str | None


class NamespaceSetJson(WriteAnswer, kw_only=True):
    """What a namespace says from now on; null if it was removed."""

    prefix: str = ABSENT
    settings: NamespaceSettings | None
    revision: int = ABSENT


class LeftBelow(msgspec.Struct, frozen=True):
    """How many holds and waits there are at and below a prefix; of very many only the first are counted."""

    holds: int
    waits: int
    more: MayLack[bool] = False


class FreezeInfo(ReadAnswer, frozen=True):
    """A prefix, and whether it is frozen itself: for how long already, and for how much longer.

    Without `ends_in_ms` it does not thaw by itself. A list does not count what is `left`.
    """

    prefix: str
    frozen: bool
    reason: str
    frozen_ms: int
    ends_in_ms: MayLack[int] | None = None
    left: MayLack[LeftBelow] | None = None


class FreezePageJson(ReadAnswer, frozen=True):
    """Frozen prefixes in order, and the cursor to pass as `after` for more."""

    freezes: tuple[FreezeInfo, ...]
    next: str | None


class FrozenJson(WriteAnswer, kw_only=True):
    """A prefix is frozen from now on, for so long or until it is thawed, with what is left below it."""

    prefix: str = ABSENT
    ends_in_ms: int | Unset = UNSET
    left: LeftBelow
    revision: int = ABSENT


class ThawedJson(WriteAnswer, kw_only=True):
    """Whether there was a freeze of the prefix to end."""

    prefix: str = ABSENT
    thawed: bool
    revision: int = ABSENT


class RefusedAttempt(msgspec.Struct, frozen=True):
    """A call, or a command of a stream, that a node has refused because of its caller.

    `code` is unauthenticated, forbidden, forbidden-host or forbidden-origin. `principal` is empty for an
    unknown caller; `method` and `route` are "-" if the call was refused before it was parsed. `number` counts
    the refusals of this node, and `unix_ms` is its clock.
    """

    number: int
    unix_ms: int
    code: str
    principal: str
    address: str
    method: str
    route: str
    detail: str
    request_id: str


class Refusals(msgspec.Struct, frozen=True):
    """The newest of them on the node that answered, the newest first; `count` since it was started."""

    refusals: tuple[RefusedAttempt, ...]
    count: int
    node_id: str


class Member(msgspec.Struct, frozen=True):
    """A node in the list of members. `state` is voter, or joining until it has caught up."""

    id: str
    peer: str
    state: str


class MemberListJson(msgspec.Struct, frozen=True):
    """All nodes of the cluster, in order of their ids."""

    members: tuple[Member, ...]
    revision: int = ABSENT


class LeadershipTransferredJson(msgspec.Struct, frozen=True):
    """The node that leads now."""

    leader: str


class RulesHeldJson(WriteAnswer, kw_only=True):
    """The rules that the cluster follows, whether it keeps to them from now on, and whether it did before."""

    rules: int
    held: bool
    was_held: bool
    revision: int = ABSENT


class LeaderPreferredJson(WriteAnswer, kw_only=True):
    """The node that should lead from now on, and the one that should before; null if it does not matter."""

    preferred: str | None
    was_preferred: str | None
    revision: int = ABSENT


class DebugStack(msgspec.Struct, frozen=True):
    """Where `count` threads or tasks are, the innermost call last. Of many, only some are named."""

    names: tuple[str, ...]
    count: int
    calls: tuple[str, ...]


class DebugInfo(msgspec.Struct, frozen=True):
    """What the node that answered has for those that look for a mistake in it; without secrets.

    `log` are its newest lines, of `log_lines` that it has logged since its start. `settings` are those that
    it was started with. Of very many `tasks` only some were looked at, and `tasks_count` says how many
    there are.
    """

    node_id: str
    version: str
    commit: str
    python: str
    libraries: dict[str, str]
    settings: dict[str, str]
    log_level: str
    log_lines: int
    log: tuple[str, ...]
    threads: tuple[DebugStack, ...]
    tasks_count: int
    tasks: tuple[DebugStack, ...]


class LogLevelSetJson(msgspec.Struct, frozen=True, kw_only=True):
    """From which level on the node logs now, and before. It goes back by itself if it `ends_in_ms`."""

    node_id: str
    level: str
    before: str
    ends_in_ms: int | None


class HealthJson(msgspec.Struct, frozen=True, omit_defaults=True):
    """The node answers; otherwise there is a problem document. `troubles` are sentences for people."""

    ok: bool
    troubles: MayLack[tuple[str, ...]] = ()
