"""The client for threads: the same calls as `Client`, which it runs on the loop of `portal.py`."""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from holdfast.client import portal
from holdfast.client.admin import SyncAdmin
from holdfast.client.cells import SyncCells
from holdfast.client.client import Client
from holdfast.client.client_options import ClientOptions, urls_of
from holdfast.client.rates_and_fences import SyncFence, SyncRateLimiter
from holdfast.client.reads import SyncReads
from holdfast.client.several import WantedPermits, WantedRate
from holdfast.client.twins import making, waiting
from holdfast.operations.terms import (
    DEFAULT_SESSION_TTL_S,
    CampaignTerms,
    CommonTerms,
    HoldTerms,
    LockTerms,
    refuse_unknown,
)
from holdfast.threads.sync_holds import (
    SyncElection,
    SyncHold,
    SyncLeadership,
    SyncLock,
    SyncSemaphore,
    SyncSession,
    SyncSessionContext,
    SyncTogether,
)
from holdfast.threads.sync_transaction import SyncTransactionContext
from holdfast.values.durations import Seconds
from holdfast.values.names import Name
from holdfast.values.process import OfOneProcess
from holdfast.values.words import Mode, Scope


class SyncClient(OfOneProcess, SyncReads[Client]):
    """Talks to a cluster from any number of threads. Names, arguments and errors are those of `Client`.

    One background thread, which all clients of the process share, renews its holds. A call that is
    interrupted, as by Ctrl-C, leaves nothing held; at the end of the process everything that clients keep
    alive is released. In a forked child the client works on, and the parent's holds are not valid.
    """

    def __init__(self, nodes: str | Iterable[str] | None = None, **options: Unpack[ClientOptions]) -> None:
        """Prepare for these nodes; nothing is sent yet. See `Client`."""
        refuse_unknown(type(self).__name__, options, ClientOptions.__annotations__)
        super().__init__(Client(nodes, **options))
        portal.register(self._twin._transport)  # noqa: SLF001 - of the twin

    @classmethod
    def from_url(cls, url: str, **options: Unpack[ClientOptions]) -> Self:
        """Return a client for the nodes of one URL: `holdfast://HOST:PORT,HOST:PORT`.

        `holdfasts://` is for nodes that speak TLS, `unix:/PATH` for the Unix socket of one. All else is said
        as a keyword, the token, too: a URL ends up in logs.
        """
        return cls(urls_of(url), **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all that this client keeps alive, and close its connections. See `Client.close`."""
        portal.close(self._twin)

    # -- what is acquired, kept and released ----------------------------------------------------------------

    def lock(self, name: Name, **terms: Unpack[LockTerms[SyncSession, SyncHold]]) -> SyncLock:
        """Return a lock for `with`: acquired, renewed while its body runs, then released. See `Client.lock`.

        `on_lost` is called in a thread of its own.
        """
        bare, on_lost = _bare(terms)
        return SyncLock(self._twin.lock(name, **bare), SyncHold, on_lost)

    def locks(self, *names: Name, **terms: Unpack[LockTerms[SyncSession, SyncHold]]) -> SyncLock:
        """Return several locks as one: all or none, one hold, one token. See `lock`."""
        bare, on_lost = _bare(terms)
        return SyncLock(self._twin.locks(*names, **bare), SyncHold, on_lost)

    def acquire(self, name: Name, **terms: Unpack[LockTerms[SyncSession, SyncHold]]) -> SyncHold:
        """Acquire a lock: short for `lock(name, ...).acquire()`, which waits, and renews the hold.

        Use the hold as the context, `with client.acquire("x") as hold`, or release it.
        """
        bare, on_lost = _bare(terms)
        lock = self._twin._locks("acquire", (name,), bare)  # noqa: SLF001 - errors name the call that was made
        return SyncLock(lock, SyncHold, on_lost).acquire()

    def semaphore(
        self,
        name: Name,
        limit: int | None = None,
        *,
        permits: int = 1,
        strict: bool = False,
        **terms: Unpack[HoldTerms[SyncSession, SyncHold]],
    ) -> SyncSemaphore:
        """Return `permits` of a semaphore that has `limit` of them. See `Client.semaphore`."""
        bare, on_lost = _bare(terms)
        semaphore = self._twin.semaphore(name, limit, permits=permits, strict=strict, **bare)
        return SyncSemaphore(semaphore, SyncHold, on_lost)

    def together(
        self,
        *locks: Name,
        permits: Sequence[WantedPermits] = (),
        rate_limits: Sequence[WantedRate] = (),
        mode: Mode = "exclusive",
        scope: Scope = "node",
        **terms: Unpack[CommonTerms[SyncSession, SyncHold]],
    ) -> SyncTogether:
        """Return locks, permits and places of rate limits as one: all or none. See `Client.together`."""
        bare, on_lost = _bare(terms)
        together = self._twin.together(
            *locks, permits=permits, rate_limits=rate_limits, mode=mode, scope=scope, **bare
        )
        return SyncTogether(together, SyncHold, on_lost)

    def election(
        self,
        name: Name,
        *,
        value: str = "",
        ttl: Seconds = DEFAULT_SESSION_TTL_S,
        **terms: Unpack[CampaignTerms[SyncSession, SyncLeadership]],
    ) -> SyncElection:
        """Return an election: `with` campaigns and leads; `observe` says who leads. See `Client.election`."""
        bare, on_lost = _bare(terms)
        return SyncElection(self._twin.election(name, value=value, ttl=ttl, **bare), SyncLeadership, on_lost)

    session = making(Client.session, SyncSessionContext)
    transaction = making(Client.transaction, SyncTransactionContext)
    rate_limiter = making(Client.rate_limiter, SyncRateLimiter)
    fence = making(Client.fence, SyncFence)

    @property
    def cells(self) -> SyncCells:
        """The cells: small values that the cluster keeps beside the locks."""
        return SyncCells(self._twin.cells)

    @property
    def admin(self) -> SyncAdmin:
        """The calls of operators: about what others have, and about the cluster."""
        return SyncAdmin(self._twin.admin)

    # -- plain calls on holds: one request each -------------------------------------------------------------

    release = waiting(Client.release)
    release_by_value = waiting(Client.release_by_value)
    renew_by_value = waiting(Client.renew_by_value)
    resize_semaphore = waiting(Client.resize_semaphore)


def _bare(terms: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the keywords of a call as the asyncio client takes them, and its `on_lost`, for a thread."""
    bare = dict(terms)
    if isinstance(session := bare.get("session"), SyncSession):
        bare["session"] = session.twin
    return bare, bare.pop("on_lost", None)
