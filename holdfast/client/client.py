"""The asyncio client: what there is to acquire, to watch and to read."""

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Never, Self, Unpack

from holdfast.client.acquiring import Acquiring, Lock, Semaphore, SessionContext
from holdfast.client.admin import Admin
from holdfast.client.cells import Cells
from holdfast.client.client_options import ClientOptions, urls_of
from holdfast.client.election import Election
from holdfast.client.hold import Hold, Leadership, Session
from holdfast.client.rates_and_fences import Fence, RateLimiter
from holdfast.client.reads import Reads
from holdfast.client.several import Together, WantedPermits, WantedRate
from holdfast.client.transaction import TransactionContext
from holdfast.operations import hold_operations, node_urls, primitive_operations
from holdfast.operations.terms import (
    DEFAULT_SESSION_TTL_S,
    DEFAULT_TIMEOUT_S,
    WORDS_OF_RATE,
    CampaignTerms,
    CommonTerms,
    HoldTerms,
    LockTerms,
    Owner,
    refuse_unknown,
    terms_of,
)
from holdfast.stream import streams
from holdfast.transport import access as _access
from holdfast.transport.tls import Trust, from_environment
from holdfast.transport.transport import Transport
from holdfast.values.durations import EXAMPLE_RATE, Seconds, parse_rate, to_ms, to_s
from holdfast.values.names import Name, to_name
from holdfast.values.process import OfOneProcess
from holdfast.values.words import Algorithm, Mode, Scope
from holdfast.wire.answers import SemaphoreSize


class Client(OfOneProcess, Reads):
    """Talks to a cluster through any of its nodes, from one thread, for as long as you like.

    A client may outlive its event loop: the next loop gets connections of its own. So does a forked child,
    where the parent's holds are not valid.

    Every call is repeated unchanged on the next node when a node fails or is busy, until `timeout` seconds
    have passed (after its wait, if it waits in a queue). Then it raises Unavailable (surely not applied) or
    OutcomeUnknown. A refusal of the cluster is raised at once, as Refused. A cancelled call leaves nothing
    held.

    Lengths of time are seconds, or timedelta. Names are texts, or tuples of parts such as `("order", 42)`.
    `wait` is always how long to wait in a queue, and `timeout` how long to try to reach a node.
    """

    def __init__(self, nodes: str | Iterable[str] | None = None, **options: Unpack[ClientOptions]) -> None:
        """Prepare for these nodes; nothing is sent yet. `owner` is shown to others as the holder.

        Nodes are URLs or HOST:PORT, or `unix:/PATH` for the Unix socket of a node on this machine: a list, or
        one string with commas between them. The default is what the environment variable HOLDFAST_NODES says,
        and else ports 7700 to 7702 of this machine.
        `tls` is for nodes that speak TLS; the default is what the variables HOLDFAST_CA, HOLDFAST_CERT and
        HOLDFAST_KEY say. With either, HOST:PORT is short for https://. `metrics` hears how this client
        fares.
        `token`, or the content of `token_file`, is for nodes that want to know who calls; the default is what
        HOLDFAST_ACCESS_TOKEN or HOLDFAST_ACCESS_TOKEN_FILE say. Over plain HTTP it is sent to this machine
        only, unless `insecure_plain_token` (or HOLDFAST_INSECURE_PLAIN_TOKEN=1) says otherwise.
        Without `stream`, or with HOLDFAST_NO_STREAM=1, it speaks HTTP only, also when it is busy.
        Raises ValueError for what cannot be the URL of a node or a token, for files that cannot be used, and
        for a variable that means neither yes nor no; TypeError for a keyword that there is not.
        """
        refuse_unknown(type(self).__name__, options, ClientOptions.__annotations__)
        tls = options.get("tls")
        given = tls or from_environment(os.environ)
        urls = node_urls.node_urls(nodes, os.environ, has_tls=given is not None)
        if tls is not None and (plain := node_urls.only_plain(urls)):
            raise ValueError(f"{plain!r} is not the URL of a node that speaks TLS; write it like https://")
        trust = None if given is None else Trust(given)
        access = _access.of(
            options.get("token"),
            options.get("token_file"),
            os.environ,
            is_plain_allowed=options.get("insecure_plain_token", False),
        )
        if access is not None:
            for url in urls:
                access.check(url)
        has_streams = options.get("stream", True) and not streams.is_switched_off(os.environ)
        super().__init__(
            Transport(
                urls,
                to_s(options.get("timeout", DEFAULT_TIMEOUT_S), "timeout"),
                trust=trust,
                access=access,
                metrics=options.get("metrics"),
                has_streams=has_streams,
            )
        )
        self._owner = options.get("owner") or f"{socket.gethostname()}:{os.getpid()}"

    @classmethod
    def from_url(cls, url: str, **options: Unpack[ClientOptions]) -> Self:
        """Return a client for the nodes of one URL: `holdfast://HOST:PORT,HOST:PORT`.

        `holdfasts://` is for nodes that use TLS, `unix:/PATH` for the Unix socket of one. Everything else is
        a keyword argument, including the token, because URLs end up in logs.
        """
        return cls(urls_of(url), **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Release all that was acquired with this client and is still there, and close its connections.

        From then on whatever needs the cluster raises RuntimeError; to release again does nothing.
        """
        await self._transport.close()

    # -- what is acquired, kept and released ----------------------------------------------------------------

    def lock(self, name: Name, **terms: Unpack[LockTerms[Session, Hold]]) -> Lock:
        """Return a lock for `async with`: acquired, renewed while its body runs, then released.

        Entering waits in the queue for as long as it takes, or `wait` and then raises LockTimeout; 0 tries
        once. Without a node that answers it raises Unavailable or OutcomeUnknown after the client's timeout.

        `mode` is exclusive, shared, update, concurrent-read or concurrent-write, `scope` node or subtree.
        `LockTerms` describes the keywords.
        """
        return self._locks("lock", (name,), terms)

    def locks(self, *names: Name, **terms: Unpack[LockTerms[Session, Hold]]) -> Lock:
        """Return several locks as one: all or none, one hold, one token. See `lock`."""
        return self._locks("locks", names, terms)

    def _locks(self, call: str, names: tuple[Name, ...], given: LockTerms[Session, Hold]) -> Lock:
        if not names:
            raise ValueError("names: name at least one lock")
        terms = terms_of(call, self._owner, LockTerms, given)
        mode, scope = given.get("mode", "exclusive"), given.get("scope", "node")
        texts = tuple(to_name(name) for name in names)
        return Lock(self._transport, texts, terms, mode=mode, scope=scope)

    def acquire(self, name: Name, **terms: Unpack[LockTerms[Session, Hold]]) -> Acquiring[Hold]:
        """Acquire a lock: short for `lock(name, ...).acquire()`, which waits, and renews the hold.

        Await it for the hold, or use it as the context: `async with client.acquire("x") as hold`.
        """
        return self._locks("acquire", (name,), terms).acquire()

    def semaphore(
        self,
        name: Name,
        limit: int | None = None,
        *,
        permits: int = 1,
        strict: bool = False,
        **terms: Unpack[HoldTerms[Session, Hold]],
    ) -> Semaphore:
        """Return `permits` of a semaphore with `limit` permits, to be used like a lock.

        The first client sets the limit. While the semaphore is in use the limit may be left out; a different
        one is refused (`limit-mismatch`) only with `strict`, or if it has fewer than `permits`.
        """
        return Semaphore(
            self._transport,
            to_name(name),
            terms_of("semaphore", self._owner, HoldTerms, terms),
            limit=limit,
            permits=permits,
            strict=strict,
        )

    def together(
        self,
        *locks: Name,
        permits: Sequence[WantedPermits] = (),
        rate_limits: Sequence[WantedRate] = (),
        mode: Mode = "exclusive",
        scope: Scope = "node",
        **terms: Unpack[CommonTerms[Session, Hold]],
    ) -> Together:
        """Return locks, permits of semaphores and places of rate limits as one: all or none, one hold.

        It is used like a lock, and needs at least two things, one of them a lock or a permit. Raises
        RateLimited when a rate limit has no place within `wait`; a place that was taken is not given back.
        """
        return Together(
            self._transport,
            tuple(to_name(name) for name in locks),
            terms_of("together", self._owner, CommonTerms, terms),
            permits=permits,
            rate_limits=rate_limits,
            mode=mode,
            scope=scope,
        )

    def election(
        self,
        name: Name,
        *,
        value: str = "",
        ttl: Seconds = DEFAULT_SESSION_TTL_S,
        **terms: Unpack[CampaignTerms[Session, Leadership]],
    ) -> Election:
        """Return an election: `async with` campaigns and leads; `observe` yields the leaders.

        `value` is published by the leader, such as its address. The leader leads for a `session`, or for one
        of its own that lives for `ttl` after its last keepalive.
        """
        return Election(
            self._transport,
            to_name(name),
            terms_of("election", self._owner, CampaignTerms, terms),
            value=value,
            session_ttl_s=to_s(ttl, "ttl"),
        )

    def session(
        self,
        *,
        ttl: Seconds = DEFAULT_SESSION_TTL_S,
        labels: Mapping[str, str] | None = None,
        renew: bool = True,
        tied_to: Owner | None = None,
        push: bool = False,
    ) -> SessionContext:
        """Return a session for `async with`: kept alive while its body runs, then closed.

        One keepalive renews all its holds; when the session ends, they end, too. If others end it, the client
        hears so with its next keepalive. If others end one of its holds by force, the client hears so only
        from a request that names the hold, such as its release. With `push` it hears of both at once, over a
        connection of its own. `renew` and `tied_to` are as for holds. Its label `owner` is that of the client
        if `labels` has no other.
        """
        return SessionContext(
            self._transport,
            to_ms(ttl, "ttl"),
            {"owner": self._owner, **(labels or {})},
            is_renewed=renew,
            tied_to=tied_to,
            is_pushed=push,
        )

    def transaction(
        self,
        *,
        wait: Seconds | None = None,
        ttl: Seconds = DEFAULT_SESSION_TTL_S,
        labels: Mapping[str, str] | None = None,
        tied_to: Owner | None = None,
    ) -> TransactionContext:
        """Return a transaction for `async with`: it acquires as it goes, and releases everything at once.

        `wait` is how long each of its acquires waits, None for as long as it takes. It lives in a session of
        its own, with this `ttl` and these labels.
        """
        return TransactionContext(
            self._transport,
            to_ms(ttl, "ttl"),
            labels or {},
            owner=self._owner,
            wait=wait,
            tied_to=tied_to,
        )

    def rate_limiter(
        self,
        /,
        name: Name,
        limit: int | str | None = None,
        per: Seconds | None = None,
        *,
        algorithm: Algorithm | None = None,
        **unknown: Never,
    ) -> RateLimiter:
        """Return a rate limit: `limit` in each `per` seconds, shared by all clients.

        A text such as `"100/minute"` gives both. Without them it is what the namespace of the name sets, and
        calls raise Refused (`limit-mismatch`) where that sets nothing, or something else. `algorithm` is
        fixed-window, which is the default, sliding-window or gcra. Raises ValueError for a text that is not a
        rate, and TypeError if only one of the two is given.
        """
        refuse_unknown("rate_limiter", unknown, WORDS_OF_RATE)
        if isinstance(limit, int) != (per is not None):
            raise TypeError(f"rate_limiter: say limit={EXAMPLE_RATE!r}, or limit=100 and per=60, or neither")
        if isinstance(limit, str):
            limit, per = parse_rate(limit)
        per_ms = None if per is None else to_ms(per, "per")
        return RateLimiter(self._transport, to_name(name), limit=limit, per_ms=per_ms, algorithm=algorithm)

    def fence(self, name: Name) -> Fence:
        """Return the fence of a resource: it remembers the highest token, and refuses smaller ones."""
        return Fence(self._transport, to_name(name))

    @property
    def cells(self) -> Cells:
        """The cells: small values that the cluster keeps beside the locks."""
        return Cells(self._transport)

    @property
    def admin(self) -> Admin:
        """The calls of operators: about holds and sessions of others, and about the cluster."""
        return Admin(self._transport)

    # -- plain calls on holds: one request each -------------------------------------------------------------

    async def release(self, hold_id: str) -> None:
        """Release a lock by its `hold_id`. Raises LeaseExpired when it was over before.

        A `Hold` of it does not hear of this at once: release that instead where you have it.
        """
        await self._transport.call(hold_operations.release("lock", hold_id))

    async def release_by_value(
        self, name: Name, value: str, *, kind: Literal["lock", "semaphore"] = "lock"
    ) -> None:
        """Release the hold of a name if it has this value; of several, the one that was granted first.

        A hold of several locks is not found by its value. Raises Refused (`not-holder`) when none has it. A
        `Hold` object does not notice this at once: release the object if you have it.
        """
        await self._transport.call(hold_operations.release_by_value(kind, to_name(name), value))

    async def renew_by_value(
        self,
        name: Name,
        value: str,
        *,
        ttl: Seconds | None = None,
        exact: bool = False,
        kind: Literal["lock", "semaphore"] = "lock",
    ) -> float:
        """Restart the lease of the hold of a name if it has this value; return its seconds from now.

        With `exact` it ends after `ttl` even if it was to last longer. Raises Refused (`not-holder`) when
        none has it: stop the protected work.
        """
        ttl_ms = None if ttl is None else to_ms(ttl, "ttl")
        operation = hold_operations.renew_by_value(kind, to_name(name), value, ttl_ms, exact=exact)
        lease = await self._transport.call(operation)
        return max(0.0, lease.remaining_s(self._transport.clock.now_s()))

    async def resize_semaphore(self, name: Name, limit: int, *, reason: str) -> SemaphoreSize:
        """Give a semaphore that is in use another limit. Takes nothing from anybody.

        The audit keeps the reason.
        """
        return await self._transport.call(primitive_operations.resize(to_name(name), limit, reason))


AsyncClient = Client
"""The same class, by the name that other libraries give it."""
