"""The client for threads: the same calls as `Client`, which it runs on the loop of `_portal.py`."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self

from holdfast import _portal, _values
from holdfast._acquiring import DEFAULT_SESSION_TTL_S
from holdfast._admin import SyncAdmin
from holdfast._cells import SyncCells
from holdfast._client import Client
from holdfast._durations import Seconds
from holdfast._hold import Session
from holdfast._metrics import Metrics
from holdfast._names import Name
from holdfast._portal import Call
from holdfast._process import OfOneProcess
from holdfast._rates_and_fences import SyncFence, SyncRateLimiter
from holdfast._reads import SyncReads
from holdfast._several import WantedPermits, WantedRate
from holdfast._sync_holds import (
    SyncElection,
    SyncHold,
    SyncLeadership,
    SyncLock,
    SyncSemaphore,
    SyncSession,
    SyncSessionContext,
    SyncTogether,
)
from holdfast._sync_transaction import SyncTransactionContext
from holdfast._tls import Tls
from holdfast._wanted import DEFAULT_PRIORITY
from holdfast._words import Algorithm


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
        timeout: Seconds = 10.0,
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
        _portal.register(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all that this client keeps alive, and close its connections. See `Client.close`."""
        _portal.close(self._client)

    # -- what is acquired, kept and released ----------------------------------------------------------------

    def lock(
        self,
        name: Name,
        *,
        ttl: Seconds | None = None,
        session: SyncSession | None = None,
        timeout: Seconds | None = None,
        mode: str = "exclusive",
        scope: str = "node",
        lock_delay: Seconds = 0,
        note: str = "",
        value: str = "",
        value_secret: bool = False,
        no_deadline: bool = False,
        priority: int = DEFAULT_PRIORITY,
        push: bool = False,
        max_hold: Seconds | None = None,
        on_lost: Callable[[SyncHold], object] | None = None,
    ) -> SyncLock:
        """Return a lock for `with`: acquired, renewed while its body runs, then released. See `Client.lock`.

        `on_lost` is called in a thread of its own.
        """
        return self.locks(
            name,
            ttl=ttl,
            session=session,
            timeout=timeout,
            mode=mode,
            scope=scope,
            lock_delay=lock_delay,
            note=note,
            value=value,
            value_secret=value_secret,
            no_deadline=no_deadline,
            priority=priority,
            push=push,
            max_hold=max_hold,
            on_lost=on_lost,
        )

    def locks(
        self,
        *names: Name,
        ttl: Seconds | None = None,
        session: SyncSession | None = None,
        timeout: Seconds | None = None,
        mode: str = "exclusive",
        scope: str = "node",
        lock_delay: Seconds = 0,
        note: str = "",
        value: str = "",
        value_secret: bool = False,
        no_deadline: bool = False,
        priority: int = DEFAULT_PRIORITY,
        push: bool = False,
        max_hold: Seconds | None = None,
        on_lost: Callable[[SyncHold], object] | None = None,
    ) -> SyncLock:
        """Return several locks as one: all or none, one hold, one token. See `lock`."""
        lock = self._client.locks(
            *names,
            ttl=ttl,
            session=_twin(session),
            timeout=timeout,
            mode=mode,
            scope=scope,
            lock_delay=lock_delay,
            note=note,
            value=value,
            value_secret=value_secret,
            no_deadline=no_deadline,
            priority=priority,
            push=push,
            max_hold=max_hold,
        )
        return SyncLock(lock, SyncHold, on_lost)

    def semaphore(
        self,
        name: Name,
        *,
        limit: int | None = None,
        permits: int = 1,
        strict: bool = False,
        ttl: Seconds | None = None,
        session: SyncSession | None = None,
        timeout: Seconds | None = None,
        lock_delay: Seconds = 0,
        note: str = "",
        value: str = "",
        value_secret: bool = False,
        no_deadline: bool = False,
        priority: int = DEFAULT_PRIORITY,
        push: bool = False,
        max_hold: Seconds | None = None,
        on_lost: Callable[[SyncHold], object] | None = None,
    ) -> SyncSemaphore:
        """Return `permits` of a semaphore that has `limit` of them. See `Client.semaphore`."""
        semaphore = self._client.semaphore(
            name,
            limit=limit,
            permits=permits,
            strict=strict,
            ttl=ttl,
            session=_twin(session),
            timeout=timeout,
            lock_delay=lock_delay,
            note=note,
            value=value,
            value_secret=value_secret,
            no_deadline=no_deadline,
            priority=priority,
            push=push,
            max_hold=max_hold,
        )
        return SyncSemaphore(semaphore, SyncHold, on_lost)

    def together(
        self,
        *locks: Name,
        permits: Sequence[WantedPermits] = (),
        rates: Sequence[WantedRate] = (),
        mode: str = "exclusive",
        scope: str = "node",
        ttl: Seconds | None = None,
        session: SyncSession | None = None,
        timeout: Seconds | None = None,
        lock_delay: Seconds = 0,
        note: str = "",
        push: bool = False,
        max_hold: Seconds | None = None,
        on_lost: Callable[[SyncHold], object] | None = None,
    ) -> SyncTogether:
        """Return locks, permits and places of rate limits as one: all or none. See `Client.together`."""
        together = self._client.together(
            *locks,
            permits=permits,
            rates=rates,
            mode=mode,
            scope=scope,
            ttl=ttl,
            session=_twin(session),
            timeout=timeout,
            lock_delay=lock_delay,
            note=note,
            push=push,
            max_hold=max_hold,
        )
        return SyncTogether(together, SyncHold, on_lost)

    def election(
        self,
        name: Name,
        *,
        value: str = "",
        ttl: Seconds = DEFAULT_SESSION_TTL_S,
        session: SyncSession | None = None,
        timeout: Seconds | None = None,
        push: bool = False,
        max_hold: Seconds | None = None,
        on_lost: Callable[[SyncLeadership], object] | None = None,
    ) -> SyncElection:
        """Return an election: `with` campaigns and leads; `observe` says who leads. See `Client.election`."""
        election = self._client.election(
            name, value=value, ttl=ttl, session=_twin(session), timeout=timeout, push=push, max_hold=max_hold
        )
        return SyncElection(election, SyncLeadership, on_lost)

    def session(
        self,
        *,
        ttl: Seconds = DEFAULT_SESSION_TTL_S,
        labels: Mapping[str, str] | None = None,
        push: bool = False,
    ) -> SyncSessionContext:
        """Return a session for `with`: kept alive while its body runs, then closed. See `Client.session`."""
        return SyncSessionContext(self._client.session(ttl=ttl, labels=labels, push=push))

    def transaction(
        self,
        *,
        timeout: Seconds | None = None,
        ttl: Seconds = DEFAULT_SESSION_TTL_S,
        labels: Mapping[str, str] | None = None,
    ) -> SyncTransactionContext:
        """Return a transaction for `with`: it acquires as it goes, and releases everything at once."""
        return SyncTransactionContext(self._client.transaction(timeout=timeout, ttl=ttl, labels=labels))

    def rate_limiter(
        self, name: Name, *, limit: int, per: Seconds, algorithm: Algorithm = "fixed-window"
    ) -> SyncRateLimiter:
        """Return a rate limit: `limit` in each `per` seconds, shared by all clients."""
        return SyncRateLimiter(self._client.rate_limiter(name, limit=limit, per=per, algorithm=algorithm))

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

    # -- plain calls on locks: one request each, nothing is renewed -----------------------------------------

    def acquire(
        self,
        name: Name,
        *,
        ttl: Seconds | None = None,
        session: SyncSession | None = None,
        timeout: Seconds | None = 0,
        mode: str = "exclusive",
        scope: str = "node",
        lock_delay: Seconds = 0,
        note: str = "",
        value: str = "",
        value_secret: bool = False,
        no_deadline: bool = False,
    ) -> SyncHold:
        """Acquire a lock that nothing renews. See `Client.acquire`; to have it renewed, see `lock`."""

        async def work() -> SyncHold:
            hold = await self._client.acquire(
                name,
                ttl=ttl,
                session=_twin(session),
                timeout=timeout,
                mode=mode,
                scope=scope,
                lock_delay=lock_delay,
                note=note,
                value=value,
                value_secret=value_secret,
                no_deadline=no_deadline,
            )
            return SyncHold(hold)

        return Call(work, lambda hold: hold.twin.give_up()).run()

    def renew(self, hold: SyncHold, *, ttl: Seconds | None = None) -> None:
        """Start the lease of `hold` anew. Raises LeaseExpired when it is over: stop the protected work."""
        hold.renew(ttl=ttl)

    def release(self, hold: SyncHold | str) -> None:
        """Release a hold, or a lock by its `hold_id`. Raises LeaseExpired when it was over before."""
        if isinstance(hold, SyncHold):
            hold.release()
        else:
            Call(lambda: self._client.release(hold)).run()

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

    def resize_semaphore(self, name: Name, limit: int) -> _values.SemaphoreSize:
        """Give a semaphore that is in use another limit. Takes nothing from anybody."""
        return Call(lambda: self._client.resize_semaphore(name, limit)).run()

    # -- sessions as plain calls -----------------------------------------------------------------------------

    def open_session(self, *, ttl: Seconds, labels: Mapping[str, str] | None = None) -> SyncSession:
        """Open a session that lives for `ttl` after its last keepalive; nothing keeps it alive."""

        async def work() -> SyncSession:
            return SyncSession(await self._client.open_session(ttl=ttl, labels=labels))

        return Call(work, lambda session: session.twin.give_up()).run()

    def keepalive(self, session: SyncSession) -> None:
        """Start the session's ttl anew. Raises SessionExpired when it is over, with all that it held."""
        session.keepalive()

    def close_session(self, session: SyncSession) -> tuple[str, ...]:
        """End a session, release what it holds, and return the names of those locks."""
        return session.close()


def _twin(session: SyncSession | None) -> Session | None:
    """Return what the loop knows of a session."""
    return None if session is None else session.twin
