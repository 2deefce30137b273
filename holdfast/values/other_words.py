"""Names that programs use which come from other libraries, and what to write here. They stay errors."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

_RENEW: Final = "renew() restarts the lease; what is held is renewed by itself"
_ONCE: Final = (
    "acquire(wait=0) tries once, or raises LockHeld; try_acquire() of a lock returns a hold or None"
)
_VALID: Final = "a hold has is_valid; a lock is asked with locked()"
_LEASE: Final = "remaining says for how many seconds it is valid"
_ELECTION: Final = "client.election(name) is campaigned for in a `with` block"
_MODE: Final = "a reader takes client.lock(name, mode='shared'); exclusive is the default"
_CELLS: Final = (
    "values are kept in client.cells: put(), get(), delete(), and transact() for several in one step"
)
_LIST: Final = "client.list(prefix) lists what is held or waited for"
_TAKE: Final = "a rate limit has take() and try_take()"
_CLOSE: Final = "close() ends a client, and lets go of what it keeps"
_CLUSTER: Final = "client.cluster() shows the nodes and their leader"
_READ: Final = "who has a lock and who waits is client.inspect(name); values are kept in client.cells"
_RATE: Final = "client.rate_limiter(name, '100/minute')"
_SESSION: Final = "client.session(ttl=20) is one lease for many holds"
_OF_HOLD: Final = "a hold has it: (await) acquire() returns one, and so does a `with` block"
_HAND_OVER: Final = "hold.hand_over(to_session=...) gives the lock to another program's session"
_RECIPE: Final = "it is made of what there is: see docs/recipes.md"
MADE_BY: Final[Mapping[str, str]] = {
    "Lock": "client.lock(name), or client.acquire(name) to take it at once",
    "Semaphore": "client.semaphore(name, limit)",
    "Together": "client.together(name, ...)",
    "Election": "client.election(name)",
    "RateLimiter": _RATE,
    "Fence": "client.fence(name)",
    "Hold": "client.acquire(name), or the block of client.lock(name)",
    "Leadership": "the block of client.election(name)",
    "Session": "client.session(ttl=20)",
    "Transaction": "client.transaction()",
}
"""The calls of a client that make what elsewhere is made by its class."""
REVOKED: Final = "what a holder is asked to give up is in hold.revocation, from its next renewal on"
"""The answer to a name or a keyword that hears of a revocation."""

METHODS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("extend", "refresh", "reacquire", "prolong", "keepalive", "heartbeat"), _RENEW),
    **dict.fromkeys(("try_acquire", "try_lock", "trylock", "acquire_nowait"), _ONCE),
    **dict.fromkeys(("is_held", "is_acquired", "is_locked", "is_leader", "owned"), _VALID),
    **dict.fromkeys(("ttl", "expires", "expires_at", "expired"), _LEASE),
    **dict.fromkeys(("elect", "campaign", "leader_election"), _ELECTION),
    **dict.fromkeys(("read_lock", "write_lock", "shared_lock", "rwlock", "rw_lock", "shared"), _MODE),
    **dict.fromkeys(("set", "put", "delete", "incr", "kv", "cell"), _CELLS),
    **dict.fromkeys(("scan", "list_locks"), _LIST),
    **dict.fromkeys(("acquire", "allow", "hit", "consume"), _TAKE),
    **dict.fromkeys(("aclose", "stop", "disconnect"), _CLOSE),
    **dict.fromkeys(("members", "status"), _CLUSTER),
    **dict.fromkeys(("revoked", "is_revoked", "on_revoke", "on_revoked"), REVOKED),
    "get": _READ,
    "contenders": "who waits is in client.inspect(name), of an election in client.get_election(name)",
    **dict.fromkeys(("lease", "create_session"), _SESSION),
    **dict.fromkeys(("limiter", "rate_limit", "throttle"), _RATE),
    **dict.fromkeys(("token", "hold_id", "renew", "remaining", "is_valid", "lost"), _OF_HOLD),
    **dict.fromkeys(("transfer", "handoff", "handover", "adopt", "attach"), _HAND_OVER),
    **dict.fromkeys(
        ("barrier", "double_barrier", "counter", "queue", "Barrier", "Counter", "Queue"), _RECIPE
    ),
    **dict.fromkeys(("acquire_all", "lock_all", "multi_lock"), "client.locks(*names)"),
    **dict.fromkeys(("holder", "holders"), _READ),
    "leader": "client.election(name).leader()",
    "run": "@holdfast.leader(name) runs a function for as long as it leads",
    "watch_prefix": "client.watch(prefix)",
    "unlock": "release() gives it back",
    "resign": "release() gives leadership back",
    "mutex": "client.lock(name)",
    "rlock": "client.lock(name, if_held='count')",
    "fencing_token": "token is the fencing token",
    "subscribe": "client.watch(prefix)",
    **dict.fromkeys(("ReadLock", "WriteLock"), _MODE),
    **{kind: call for kind, call in MADE_BY.items() if kind != "Together"},
}
"""The names of others, and what to write here."""
_HELD: Final = "LockHeld, or LockTimeout after a wait, says that others have it"
_LOST: Final = "LeaseLost says that a hold is over"
_BEGIN: Final = "begin with Client(nodes), or SyncClient(nodes) for threads"
OF_PACKAGE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("NotAcquired", "LockNotAcquired", "AlreadyLocked", "LockFailed"), _HELD),
    **dict.fromkeys(("Timeout", "AcquireTimeout", "LockAcquireTimeout"), _HELD),
    **dict.fromkeys(("LockLost", "LockNotOwned", "LockNotOwnedError", "LeaseExpiredError"), _LOST),
    **dict.fromkeys(("connect", "client", "lock", "acquire", "Holdfast"), _BEGIN),
}
"""The same for names that are looked for in the package itself."""


class EnteredOneWay:
    """Base of what has one kind of `with`: the other kind raises TypeError, which names its client."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Add the methods of the other kind."""
        super().__init_subclass__(**arguments)
        if "__aenter__" in vars(cls) and not hasattr(cls, "__enter__"):
            advice = "'async with', not 'with'; the client for threads is SyncClient"
            _refuse(cls, ("__enter__", "__exit__"), advice)
        elif "__enter__" in vars(cls) and not hasattr(cls, "__aenter__"):
            advice = "'with', not 'async with'; the client for asyncio is Client"
            _refuse(cls, ("__aenter__", "__aexit__"), advice)


def _refuse(kind: type, methods: Iterable[str], advice: str) -> None:
    """Give a class methods that raise TypeError: what it is entered with."""

    def refused(self: object, *_: object) -> None:
        raise TypeError(f"{type(self).__name__!r} object is entered with {advice}")

    for method in methods:
        setattr(kind, method, refused)


class Suggesting(EnteredOneWay):
    """Base of what users call: a name that it does not have, and others do, is answered with ours."""

    if not TYPE_CHECKING:  # for type checkers a wrong name stays one

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if hasattr(kind, name):
                return object.__getattribute__(self, name)  # a property has raised: say what it said
            hint = METHODS.get(name)
            text = f"{kind.__name__!r} object has no attribute {name!r}" + (f": {hint}" if hint else "")
            raise AttributeError(text, name=name, obj=self)


class MadeByClient(Suggesting):
    """Base of what a call of a client makes: the class itself, called with a name or a client, says which."""

    def __new__(cls, *given: Any, **named: Any) -> Self:
        """Make it. Raises TypeError for what programs pass that know other libraries."""
        first = type(given[0]).__name__ if given else ""
        if first in ("str", "Client", "SyncClient") or "name" in named:
            call = MADE_BY.get(cls.__name__.removeprefix("Sync"), "a call of a client")
            raise TypeError(f"{cls.__name__} is made by a client: {call}")
        return super().__new__(cls)
