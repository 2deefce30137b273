"""The asyncio client: what there is to acquire, to watch and to read."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self

from holdfast import (
    _access,
    _exchange,
    _operations,
    _primitive_operations,
    _streams,
    _values,
)
from holdfast._acquiring import (
    DEFAULT_SESSION_TTL_S,
    Lock,
    Semaphore,
    SessionContext,
    Terms,
    confirm,
    grant,
)
from holdfast._admin import Admin
from holdfast._cells import Cells
from holdfast._durations import Seconds, to_ms, to_s
from holdfast._election import Election
from holdfast._hold import Hold, Session
from holdfast._keeping import Kept
from holdfast._lease import FORKED, RELEASED
from holdfast._metrics import Metrics
from holdfast._names import Name, to_name
from holdfast._process import OfOneProcess
from holdfast._rates_and_fences import Fence, RateLimiter
from holdfast._reads import Reads
from holdfast._several import Together, WantedPermits, WantedRate
from holdfast._tls import Tls, Trust, from_environment
from holdfast._transaction import TransactionContext
from holdfast._transport import Transport
from holdfast._wanted import DEFAULT_PRIORITY
from holdfast._words import Algorithm

OnLost = Callable[[Hold], object]
"""Called with a hold that is lost. What it returns may be awaitable."""


class Client(OfOneProcess, Reads):
    """Talks to a cluster through any of its nodes, from one thread, for as long as you like.

    It outlives its event loop: the next one gets connections of its own. So does a forked child, where what
    the parent holds is not valid.

    Every call is repeated, the very same request, on the next node when a node fails or is busy, until
    `timeout` seconds have passed (when it waits in a queue: after its wait). Only then it raises Unavailable
    (surely not applied) or OutcomeUnknown. A refusal of the cluster is raised at once, as Refused. A call
    that is cancelled leaves nothing held.

    Lengths of time are seconds, or timedelta. Names are texts, or tuples of parts such as `("order", 42)`.
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
        """Prepare for these nodes; nothing is sent yet. `owner` is shown to others as the holder.

        Nodes are URLs or HOST:PORT: a list, or one string with commas between them. The default is what the
        environment variable HOLDFAST_NODES says, and else ports 7700 to 7702 of this machine.
        `tls` is for nodes that speak TLS; the default is what the variables HOLDFAST_CA, HOLDFAST_CERT and
        HOLDFAST_KEY say. With either, HOST:PORT is short for https://. `metrics` hears how this client
        fares.
        `token`, or the content of `token_file`, is for nodes that want to know who calls; the default is what
        HOLDFAST_ACCESS_TOKEN or HOLDFAST_ACCESS_TOKEN_FILE say. Over plain HTTP it is sent to this machine
        only, unless `insecure_plain_token` (or HOLDFAST_INSECURE_PLAIN_TOKEN=1) says otherwise.
        Without `stream`, or with HOLDFAST_NO_STREAM=1, it speaks HTTP only, also when it is busy.
        Raises ValueError for what cannot be the URL of a node or a token, for files that cannot be used, and
        for a variable that means neither yes nor no.
        """
        given = tls or from_environment(os.environ)
        urls = _exchange.node_urls(nodes, os.environ, has_tls=given is not None)
        if tls is not None and (plain := _exchange.only_plain(urls)):
            raise ValueError(f"{plain!r} is not the URL of a node that speaks TLS; write it like https://")
        trust = None if given is None else Trust(given)
        access = _access.of(token, token_file, os.environ, is_plain_allowed=insecure_plain_token)
        if access is not None:
            for url in urls:
                access.check(url)
        timeout_s = to_s(timeout, "timeout")
        has_streams = stream and not _streams.is_switched_off(os.environ)
        super().__init__(
            Transport(urls, timeout_s, trust=trust, access=access, metrics=metrics, has_streams=has_streams)
        )
        self._owner = owner or f"{socket.gethostname()}:{os.getpid()}"
        self._kept: set[Kept] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of all that this client keeps alive, and close its connections.

        Holds and sessions that nothing renews (those of `acquire` and `open_session`) live on until their
        leases end.
        """
        kept = [item for item in self._kept if item.reason not in (FORKED, RELEASED)]
        try:
            if kept:
                await self._transport.finish(_give_up(kept))
        finally:
            await self._transport.close()

    # -- what is acquired, kept and released ----------------------------------------------------------------

    def lock(
        self,
        name: Name,
        *,
        ttl: Seconds | None = None,
        session: Session | None = None,
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
        on_lost: OnLost | None = None,
    ) -> Lock:
        """Return a lock for `async with`: acquired, renewed while its body runs, then released.

        Entering waits in the queue for as long as it takes, or `timeout` and then raises LockTimeout; 0 tries
        once. Without a node that answers it raises Unavailable or OutcomeUnknown after the client's timeout.

        The lease is its own, of `ttl` (30 s by default), or that of a `session`. `mode` is exclusive, shared
        or update, `scope` node or subtree. After `max_hold` the hold is lost, whatever its user does.
        The hold carries `value`, by which it can be released
        and renewed as well (`release_by_value`); with `value_secret` nobody else is told it. With
        `no_deadline`, which a node must allow, it has no lease: it is held until it is released or ended by
        others, also if this program dies.
        `priority` is 0 to 9: the highest waits first in the queue, where the nodes allow it.
        With `push` the client hears at once that others have ended the hold, over a connection of its own,
        and not with the next renewal; what lives in a `session` hears it with that, and so should many holds.
        `on_lost` is called with a hold that is lost.
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
        session: Session | None = None,
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
        on_lost: OnLost | None = None,
    ) -> Lock:
        """Return several locks as one: all or none, one hold, one token. See `lock`."""
        if not names:
            raise ValueError("names: name at least one lock")
        terms = Terms.of(
            self._owner,
            ttl=ttl,
            session=session,
            timeout=timeout,
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
        texts = tuple(to_name(name) for name in names)
        return Lock(self._transport, self._kept, texts, terms, mode=mode, scope=scope)

    def semaphore(
        self,
        name: Name,
        *,
        limit: int | None = None,
        permits: int = 1,
        strict: bool = False,
        ttl: Seconds | None = None,
        session: Session | None = None,
        timeout: Seconds | None = None,
        lock_delay: Seconds = 0,
        note: str = "",
        value: str = "",
        value_secret: bool = False,
        no_deadline: bool = False,
        priority: int = DEFAULT_PRIORITY,
        push: bool = False,
        max_hold: Seconds | None = None,
        on_lost: OnLost | None = None,
    ) -> Semaphore:
        """Return `permits` of a semaphore that has `limit` of them, to be used like a lock.

        The first to ask sets the limit. While the semaphore is in use it may be left out, and another one is
        refused (`limit-mismatch`) only with `strict`, or if there are fewer than `permits`.
        """
        terms = Terms.of(
            self._owner,
            ttl=ttl,
            session=session,
            timeout=timeout,
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
        text, kept = to_name(name), self._kept
        return Semaphore(self._transport, kept, text, terms, limit=limit, permits=permits, strict=strict)

    def together(
        self,
        *locks: Name,
        permits: Sequence[WantedPermits] = (),
        rates: Sequence[WantedRate] = (),
        mode: str = "exclusive",
        scope: str = "node",
        ttl: Seconds | None = None,
        session: Session | None = None,
        timeout: Seconds | None = None,
        lock_delay: Seconds = 0,
        note: str = "",
        push: bool = False,
        max_hold: Seconds | None = None,
        on_lost: OnLost | None = None,
    ) -> Together:
        """Return locks, permits of semaphores and places of rate limits as one: all or none, one hold.

        It is used like a lock. There are two things at least, and a lock or a permit among them. Raises
        RateLimited when a rate limit has no place within `timeout`; what was taken of one is not given back.
        """
        terms = Terms.of(
            self._owner,
            ttl=ttl,
            session=session,
            timeout=timeout,
            lock_delay=lock_delay,
            note=note,
            push=push,
            max_hold=max_hold,
            on_lost=on_lost,
        )
        names = tuple(to_name(name) for name in locks)
        return Together(
            self._transport,
            self._kept,
            names,
            terms,
            permits=permits,
            rates=rates,
            mode=mode,
            scope=scope,
        )

    def election(
        self,
        name: Name,
        *,
        value: str = "",
        ttl: Seconds = DEFAULT_SESSION_TTL_S,
        session: Session | None = None,
        timeout: Seconds | None = None,
        push: bool = False,
        max_hold: Seconds | None = None,
        on_lost: OnLost | None = None,
    ) -> Election:
        """Return an election: `async with` campaigns and leads; `observe` says who leads.

        `value` is what the leader tells everybody, such as its address. The leader leads for a `session`, or
        for one of its own that lives for `ttl` after its last keepalive.
        """
        terms = Terms.of(
            self._owner,
            ttl=None,
            session=session,
            timeout=timeout,
            push=push,
            max_hold=max_hold,
            on_lost=on_lost,
        )
        return Election(
            self._transport,
            self._kept,
            to_name(name),
            terms,
            value=value,
            session_ttl_s=to_s(ttl, "ttl"),
        )

    def session(
        self,
        *,
        ttl: Seconds = DEFAULT_SESSION_TTL_S,
        labels: Mapping[str, str] | None = None,
        push: bool = False,
    ) -> SessionContext:
        """Return a session for `async with`: kept alive while its body runs, then closed.

        One keepalive renews all that it holds; when it ends, all that is over. That others have ended it the
        client hears with its next keepalive; that they have forced away one of its holds only from a request
        that names the hold, as its release. With `push` it hears of both at once, over its own connection.
        """
        return SessionContext(self._transport, self._kept, to_ms(ttl, "ttl"), labels or {}, is_pushed=push)

    def transaction(
        self,
        *,
        timeout: Seconds | None = None,
        ttl: Seconds = DEFAULT_SESSION_TTL_S,
        labels: Mapping[str, str] | None = None,
    ) -> TransactionContext:
        """Return a transaction for `async with`: it acquires as it goes, and releases everything at once.

        `timeout` is how long each of its acquires waits, None for as long as it takes. It lives in a session
        of its own, with this `ttl` and these labels.
        """
        return TransactionContext(
            self._transport,
            self._kept,
            to_ms(ttl, "ttl"),
            labels or {},
            owner=self._owner,
            timeout=timeout,
        )

    def rate_limiter(
        self, name: Name, *, limit: int, per: Seconds, algorithm: Algorithm = "fixed-window"
    ) -> RateLimiter:
        """Return a rate limit: `limit` in each `per` seconds, shared by all clients.

        `algorithm` is fixed-window, sliding-window or gcra.
        """
        return RateLimiter(
            self._transport, to_name(name), limit=limit, per_ms=to_ms(per, "per"), algorithm=algorithm
        )

    def fence(self, resource: Name) -> Fence:
        """Return the fence of a resource: it remembers the highest token, and refuses smaller ones."""
        return Fence(self._transport, to_name(resource))

    @property
    def cells(self) -> Cells:
        """The cells: small values that the cluster keeps beside the locks."""
        return Cells(self._transport)

    @property
    def admin(self) -> Admin:
        """The calls of operators: about what others have, and about the cluster."""
        return Admin(self._transport)

    # -- plain calls on locks: one request each, nothing is renewed -----------------------------------------

    async def acquire(
        self,
        name: Name,
        *,
        ttl: Seconds | None = None,
        session: Session | None = None,
        timeout: Seconds | None = 0,  # noqa: ASYNC109 - sent
        mode: str = "exclusive",
        scope: str = "node",
        lock_delay: Seconds = 0,
        note: str = "",
        value: str = "",
        value_secret: bool = False,
        no_deadline: bool = False,
    ) -> Hold:
        """Acquire a lock with a lease of its own (`ttl`, 30 s by default), or for a session: not both.

        Wait in the queue for up to `timeout`, then raise LockTimeout; None waits for as long as it takes.
        Nothing renews the hold; see `lock`.
        """
        terms = Terms.of(
            self._owner,
            ttl=ttl,
            session=session,
            timeout=timeout,
            lock_delay=lock_delay,
            note=note,
            value=value,
            value_secret=value_secret,
            no_deadline=no_deadline,
        )
        names = (to_name(name),)
        granted = await grant(
            self._transport,
            lambda wanted: _operations.acquire(names, mode=mode, scope=scope, wanted=wanted),
            terms,
        )
        hold = Hold(self._transport, granted, session)
        await confirm(hold)
        return hold

    async def renew(self, hold: Hold, *, ttl: Seconds | None = None) -> None:
        """Start the lease of `hold` anew. Raises LeaseExpired when it is over: stop the protected work."""
        await hold.renew(ttl=ttl)

    async def release(self, hold: Hold | str) -> None:
        """Release a hold, or a lock by its `hold_id`. Raises LeaseExpired when it was over before.

        From here on the hold is not valid, whatever the answer: the cluster may have released it.
        """
        if isinstance(hold, Hold):
            await hold.release()
        else:
            await self._transport.call(_operations.release("lock", hold))

    async def release_by_value(
        self, name: Name, value: str, *, kind: Literal["lock", "semaphore"] = "lock"
    ) -> None:
        """Release the hold of a name if it has this value: of several, the one that was granted first.

        A hold of several locks is not found by its value. Raises Refused (`not-holder`) when none has it. A
        `Hold` of it does not hear of this at once: release that instead where you have it.
        """
        await self._transport.call(_operations.release_by_value(kind, to_name(name), value))

    async def renew_by_value(
        self,
        name: Name,
        value: str,
        *,
        ttl: Seconds | None = None,
        kind: Literal["lock", "semaphore"] = "lock",
    ) -> float:
        """Start the lease of the hold of a name anew if it has this value; return its seconds from now.

        Raises Refused (`not-holder`) when none has it: stop the protected work.
        """
        ttl_ms = None if ttl is None else to_ms(ttl, "ttl")
        lease = await self._transport.call(_operations.renew_by_value(kind, to_name(name), value, ttl_ms))
        return max(0.0, lease.remaining_s(self._transport.clock.now_s()))

    async def resize_semaphore(self, name: Name, limit: int) -> _values.SemaphoreSize:
        """Give a semaphore that is in use another limit. Takes nothing from anybody."""
        return await self._transport.call(_primitive_operations.resize(to_name(name), limit))

    # -- sessions as plain calls -----------------------------------------------------------------------------

    async def open_session(self, *, ttl: Seconds, labels: Mapping[str, str] | None = None) -> Session:
        """Open a session that lives for `ttl` after its last keepalive; nothing keeps it alive."""
        operation = _operations.open_session(to_ms(ttl, "ttl"), labels or {})
        return Session(self._transport, await self._transport.call(operation))

    async def keepalive(self, session: Session) -> None:
        """Start the session's ttl anew. Raises SessionExpired when it is over, with all that it held."""
        await session.keepalive()

    async def close_session(self, session: Session) -> tuple[str, ...]:
        """End a session, release what it holds, and return the names of those locks.

        From here on neither the session nor its holds are valid, whatever the answer.
        """
        return await session.close()


async def _give_up(kept: Iterable[Kept]) -> None:
    """Let go of all of them at the same time."""
    await asyncio.gather(*(item.give_up() for item in kept))
