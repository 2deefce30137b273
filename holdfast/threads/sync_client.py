"""The client for threads: the same calls as `Client`, which it runs on the loop of `portal.py`."""

import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from holdfast.client import portal
from holdfast.client.admin import SyncAdmin
from holdfast.client.cells import SyncCells
from holdfast.client.client import Client
from holdfast.client.client_options import ClientOptions, urls_of
from holdfast.client.portal import Call
from holdfast.client.rates_and_fences import SyncFence, SyncRateLimiter
from holdfast.client.reads import SyncReads
from holdfast.client.several import WantedPermits, WantedRate
from holdfast.operations.terms import (
    DEFAULT_SESSION_TTL_S,
    DEFAULT_TIMEOUT_S,
    CampaignTerms,
    CommonTerms,
    HoldTerms,
    LockTerms,
    Owner,
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
from holdfast.transport.tls import Tls
from holdfast.values import answers
from holdfast.values.durations import Seconds
from holdfast.values.metrics import Metrics
from holdfast.values.names import Name
from holdfast.values.process import OfOneProcess
from holdfast.values.words import Algorithm, Mode, Scope


class SyncClient(OfOneProcess, SyncReads):
    """Talks to a cluster from any number of threads. Names, arguments and errors are those of `Client`.

    What it holds is renewed by one thread in the background, which all clients of the process share. A call
    that is interrupted, as by Ctrl-C, leaves nothing held; at the end of the process all that clients keep
    alive is released. In a forked child the client works on, and what the parent holds is not valid.
    """

    def __init__(
        self,
        nodes: str | Iterable[str] | None = None,
        *,
        timeout: Seconds = DEFAULT_TIMEOUT_S,
        owner: str | None = None,
        tls: Tls | None = None,
        metrics: Metrics | None = None,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        insecure_plain_token: bool = False,
        stream: bool = True,
    ) -> None:
        """Prepare for these nodes; nothing is sent yet. See `Client`."""
        self._client = Client(
            nodes,
            timeout=timeout,
            owner=owner,
            tls=tls,
            metrics=metrics,
            token=token,
            token_file=token_file,
            insecure_plain_token=insecure_plain_token,
            stream=stream,
        )
        super().__init__(self._client)
        portal.register(self._client._transport)  # noqa: SLF001 - of the twin

    @classmethod
    def from_url(cls, url: str, **options: Unpack[ClientOptions]) -> Self:
        """Return a client for the nodes of one URL: `holdfast://HOST:PORT,HOST:PORT`.

        `holdfasts://` is for nodes that speak TLS. All else is said as a keyword, the token, too: a URL ends
        up in logs.
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
        portal.close(self._client)

    # -- what is acquired, kept and released ----------------------------------------------------------------

    def lock(self, name: Name, **terms: Unpack[LockTerms[SyncSession, SyncHold]]) -> SyncLock:
        """Return a lock for `with`: acquired, renewed while its body runs, then released. See `Client.lock`.

        `on_lost` is called in a thread of its own.
        """
        bare, on_lost = _bare(terms)
        return SyncLock(self._client.lock(name, **bare), SyncHold, on_lost)

    def locks(self, *names: Name, **terms: Unpack[LockTerms[SyncSession, SyncHold]]) -> SyncLock:
        """Return several locks as one: all or none, one hold, one token. See `lock`."""
        bare, on_lost = _bare(terms)
        return SyncLock(self._client.locks(*names, **bare), SyncHold, on_lost)

    def acquire(self, name: Name, **terms: Unpack[LockTerms[SyncSession, SyncHold]]) -> SyncHold:
        """Acquire a lock: short for `lock(name, ...).acquire()`, which waits, and renews the hold.

        Use the hold as the context, `with client.acquire("x") as hold`, or release it.
        """
        return self.lock(name, **terms).acquire()

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
        semaphore = self._client.semaphore(name, limit, permits=permits, strict=strict, **bare)
        return SyncSemaphore(semaphore, SyncHold, on_lost)

    def together(
        self,
        *locks: Name,
        permits: Sequence[WantedPermits] = (),
        rates: Sequence[WantedRate] = (),
        mode: Mode = "exclusive",
        scope: Scope = "node",
        **terms: Unpack[CommonTerms[SyncSession, SyncHold]],
    ) -> SyncTogether:
        """Return locks, permits and places of rate limits as one: all or none. See `Client.together`."""
        bare, on_lost = _bare(terms)
        together = self._client.together(*locks, permits=permits, rates=rates, mode=mode, scope=scope, **bare)
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
        return SyncElection(
            self._client.election(name, value=value, ttl=ttl, **bare), SyncLeadership, on_lost
        )

    def session(
        self,
        *,
        ttl: Seconds = DEFAULT_SESSION_TTL_S,
        labels: Mapping[str, str] | None = None,
        renew: bool = True,
        tied_to: Owner | None = None,
        push: bool = False,
    ) -> SyncSessionContext:
        """Return a session for `with`: kept alive while its body runs, then closed. See `Client.session`."""
        return SyncSessionContext(
            self._client.session(ttl=ttl, labels=labels, renew=renew, tied_to=tied_to, push=push)
        )

    def transaction(
        self,
        *,
        wait: Seconds | None = None,
        ttl: Seconds = DEFAULT_SESSION_TTL_S,
        labels: Mapping[str, str] | None = None,
        tied_to: Owner | None = None,
    ) -> SyncTransactionContext:
        """Return a transaction for `with`: it acquires as it goes, and releases everything at once."""
        return SyncTransactionContext(
            self._client.transaction(wait=wait, ttl=ttl, labels=labels, tied_to=tied_to)
        )

    def rate_limiter(
        self,
        name: Name,
        limit: int | str,
        per: Seconds | None = None,
        *,
        algorithm: Algorithm = "fixed-window",
    ) -> SyncRateLimiter:
        """Return a rate limit: `limit` in each `per` seconds (or `"100/minute"`), shared by all clients."""
        return SyncRateLimiter(self._client.rate_limiter(name, limit, per, algorithm=algorithm))

    def fence(self, resource: Name) -> SyncFence:
        """Return the fence of a resource: it remembers the highest token, and refuses smaller ones."""
        return SyncFence(self._client.fence(resource))

    @property
    def cells(self) -> SyncCells:
        """The cells: small values that the cluster keeps beside the locks."""
        return SyncCells(self._client.cells)

    @property
    def admin(self) -> SyncAdmin:
        """The calls of operators: about what others have, and about the cluster."""
        return SyncAdmin(self._client.admin)

    # -- plain calls on holds: one request each -------------------------------------------------------------

    def release(self, hold_id: str) -> None:
        """Release a lock by its `hold_id`. Raises LeaseExpired when it was over before."""
        Call(lambda: self._client.release(hold_id)).run()

    def release_by_value(
        self, name: Name, value: str, *, kind: Literal["lock", "semaphore"] = "lock"
    ) -> None:
        """Release the hold of a name if it has this value. See `Client.release_by_value`."""
        Call(lambda: self._client.release_by_value(name, value, kind=kind)).run()

    def renew_by_value(
        self,
        name: Name,
        value: str,
        *,
        ttl: Seconds | None = None,
        kind: Literal["lock", "semaphore"] = "lock",
    ) -> float:
        """Renew the hold of a name if it has this value. See `Client.renew_by_value`."""
        return Call(lambda: self._client.renew_by_value(name, value, ttl=ttl, kind=kind)).run()

    def resize_semaphore(self, name: Name, limit: int) -> answers.SemaphoreSize:
        """Give a semaphore that is in use another limit. Takes nothing from anybody."""
        return Call(lambda: self._client.resize_semaphore(name, limit)).run()


def _bare(terms: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the keywords of a call as the asyncio client takes them, and its `on_lost`, for a thread."""
    bare = dict(terms)
    if isinstance(session := bare.get("session"), SyncSession):
        bare["session"] = session.twin
    return bare, bare.pop("on_lost", None)
