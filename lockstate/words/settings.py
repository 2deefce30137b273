"""What operators set: what a principal may have, and what a namespace says of all that lies in it."""

from lockstate.words.kinds import Algorithm, IfHeld
from lockstate.words.shape import Array


class RateSettings(Array, frozen=True):
    """What a rate limit is: `limit` in each `window_ms`, counted in one way."""

    limit: int
    window_ms: int
    algorithm: Algorithm = Algorithm.FIXED_WINDOW


class Quota(Array, frozen=True):
    """How much one principal may have at a time; None stands for as much as there is room for.

    `holds` counts what it holds and what it waits for, `waits` only the latter, with waits for changes.
    `cells`, `fences` and `rate_limits` are those that it made, and what `bytes` are is said in
    lockstate/tables/principals.py.
    """

    sessions: int | None = None
    holds: int | None = None
    waits: int | None = None
    cells: int | None = None
    fences: int | None = None
    rate_limits: int | None = None
    bytes: int | None = None


class NamespaceSettings(Array, frozen=True):
    """What a namespace says of what lies in it; None leaves it open (lockstate/rules/namespace_rules.py).

    A lease of a hold's own is to be `ttl_ms_min` to `ttl_ms_max` long, and a lock-delay at least
    `lock_delay_ms_min`. `no_deadline` and `priority` allow or forbid, in the place of what nodes are set to.
    `if_held` is what an acquire of a lock or a campaign means that does not say it itself: to renew, or to
    refuse. `rate` is what each rate limit of the namespace is, each by its name. Waits may ask by themselves
    if there is an `ask_after_ms_min`, no earlier than that, and with a grace of `grace_ms_min` or more. What
    is granted may be held for `held_ms_max`, however often it is renewed. The others are quotas
    (lockstate/tables/namespaces.py).
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
    if_held: IfHeld | None = None
    rate: RateSettings | None = None
    ask_after_ms_min: int | None = None
    grace_ms_min: int | None = None
    held_ms_max: int | None = None
