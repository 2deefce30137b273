"""The async client: sends the operations of `_operations.py`, as often and where `_exchange.py` says."""

import asyncio
import os
import random
import socket
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

import aiohttp

from holdfast import _exchange, _operations, _values
from holdfast._errors import LeaseExpired, LeaseLost, SessionExpired
from holdfast._exchange import Answered, Attempt, Exchange, Retry
from holdfast._hold import Hold, Session, now_s
from holdfast._lock import Lock
from holdfast._operations import Operation

T = TypeVar("T")

CONNECT_S_MAX = 2.0
"""Seconds that a connection may take: a node that is slower is as good as down."""


class Client:
    """Talks to a cluster through any of its nodes. Use it in one event loop, for as long as you like.

    Every call is repeated, the very same request, on the next node when a node fails or is busy, until
    `timeout_s` have passed (for a waiting acquire: after its wait). Only then it raises Unavailable (surely
    not applied) or OutcomeUnknown. A refusal of the cluster is raised at once, as Refused.
    """

    def __init__(self, nodes: Sequence[str], *, timeout_s: float = 10.0, owner: str | None = None) -> None:
        """Prepare for the nodes at these URLs; nothing is sent yet. `owner` is shown to others as the holder.

        Raises ValueError for a URL that cannot be that of a node.
        """
        self._nodes = tuple(_exchange.base_url(node) for node in nodes)
        if not self._nodes:
            raise ValueError("nodes: name at least one, such as http://127.0.0.1:7701")
        self._timeout_s = timeout_s
        self._owner = owner or f"{socket.gethostname()}:{os.getpid()}"
        # Clients spread over the nodes by chance; each then stays with the node that answers.
        self._node = random.randrange(len(self._nodes))  # noqa: S311 - load spreading, not a secret
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Holds and sessions live on until their leases end."""
        if self._http is not None:
            await self._http.close()
            self._http = None

    # -- locks ----------------------------------------------------------------------------------------------

    def lock(
        self,
        name: str,
        *,
        ttl_ms: int,
        wait_ms: int = 0,
        mode: str = "exclusive",
        lock_delay_ms: int = 0,
        note: str = "",
    ) -> Lock:
        """Return a reusable lock for `async with`: acquired, renewed while its body runs, then released."""
        return Lock(
            self, name, ttl_ms=ttl_ms, wait_ms=wait_ms, mode=mode, lock_delay_ms=lock_delay_ms, note=note
        )

    async def acquire(
        self,
        name: str,
        *,
        ttl_ms: int | None = None,
        session: Session | None = None,
        wait_ms: int = 0,
        mode: str = "exclusive",
        lock_delay_ms: int = 0,
        note: str = "",
    ) -> Hold:
        """Acquire a lock with a lease of its own (`ttl_ms`) or for a session: exactly one of the two.

        Wait in the queue for up to `wait_ms`, then raise LockHeld. Nothing renews the hold; see `lock`.
        """
        hold = await self._call(
            _operations.acquire(
                name,
                session=session,
                ttl_ms=ttl_ms,
                owner=self._owner,
                mode=mode,
                wait_ms=wait_ms,
                lock_delay_ms=lock_delay_ms,
                note=note,
            )
        )
        if now_s() >= hold.lease.renew_at_s:
            await self._confirm(hold, session)
        return hold

    async def _confirm(self, hold: Hold, session: Session | None) -> None:
        """Start the lease of a late grant anew: counted from before a long wait, it would be over by now."""
        try:
            if session is None:
                await self.renew(hold)
            else:
                await self.keepalive(session)
                hold.lease = session.lease
        except (LeaseExpired, SessionExpired) as error:
            raise LeaseLost(f"{hold.name!r} was granted and lost before we heard of it") from error

    async def renew(self, hold: Hold, *, ttl_ms: int | None = None, timeout_s: float | None = None) -> None:
        """Start the lease of `hold` anew. Raises LeaseExpired when it is over: stop the protected work."""
        hold.lease = await self._call(_operations.renew(hold.hold_id, ttl_ms), timeout_s)

    async def release(self, hold: Hold | str, *, timeout_s: float | None = None) -> None:
        """Release a hold, given as such or by its id. Raises LeaseExpired when it was over before."""
        hold_id = hold.hold_id if isinstance(hold, Hold) else hold
        await self._call(_operations.release(hold_id), timeout_s)

    async def force_release(
        self, name: str, *, reason: str, lock_delay_ms: int = 0
    ) -> tuple[_values.Holder, ...]:
        """End every hold of a lock, whoever has it, and return the former holders."""
        return await self._call(_operations.force_release(name, reason, lock_delay_ms))

    async def get_lock(self, name: str, *, is_stale: bool = False) -> _values.LockInfo:
        """Read one lock: its holders and its queue. `is_stale` allows the node's own, older view."""
        return await self._call(_operations.get_lock(name, is_stale=is_stale))

    async def list_locks(
        self, prefix: str = "", *, limit: int = 100, after: str = "", is_stale: bool = False
    ) -> _values.LockPage:
        """Read a page of the locks whose names begin with `prefix`, in order of name.

        `after` is the `next` of the page before.
        """
        return await self._call(_operations.list_locks(prefix, limit, after, is_stale=is_stale))

    # -- sessions and the cluster ---------------------------------------------------------------------------

    async def open_session(self, *, ttl_ms: int, labels: Mapping[str, str] | None = None) -> Session:
        """Open a session that lives for `ttl_ms` after its last keepalive."""
        return await self._call(_operations.open_session(ttl_ms, labels or {}))

    async def keepalive(self, session: Session, *, timeout_s: float | None = None) -> None:
        """Start the session's ttl anew. Raises SessionExpired when it is over, with all that it held."""
        session.lease = await self._call(_operations.keepalive(session.session_id), timeout_s)

    async def close_session(self, session: Session) -> tuple[str, ...]:
        """End a session, release what it holds, and return the names of those locks."""
        return await self._call(_operations.close_session(session.session_id))

    async def cluster(self) -> _values.ClusterInfo:
        """Return the cluster as one of its nodes sees it."""
        return await self._call(_operations.cluster())

    async def add_member(self, node_id: str, peer: str) -> tuple[_values.Member, ...]:
        """Add a node that listens for the others at `peer` (HOST:PORT); return all members.

        It is `joining` until it has caught up; adding it again tells. Raises MemberChangeRefused.
        """
        return await self._call(_operations.add_member(node_id, peer))

    async def move_member(self, node_id: str, peer: str) -> tuple[_values.Member, ...]:
        """Make the other nodes reach a node at `peer` (HOST:PORT) from now on; return all members.

        It keeps its id, its data directory and its vote. Raises MemberChangeRefused.
        """
        return await self._call(_operations.move_member(node_id, peer))

    async def remove_member(self, node_id: str) -> tuple[_values.Member, ...]:
        """Remove a node and return the members that are left.

        Raises MemberChangeRefused, also when the cluster would lose its quorum.
        """
        return await self._call(_operations.remove_member(node_id))

    async def transfer_leadership(self, to: str = "") -> str:
        """Hand leadership to a node, or to the most advanced one, and return the new leader."""
        return await self._call(_operations.transfer_leadership(to))

    # -- transport ------------------------------------------------------------------------------------------

    async def _call(self, operation: Operation[T], timeout_s: float | None = None) -> T:
        """Send one operation, and again until it has an outcome or the deadline has passed."""
        exchange = Exchange(
            operation,
            nodes_count=len(self._nodes),
            node=self._node,
            now_s=now_s(),
            timeout_s=self._timeout_s if timeout_s is None else timeout_s,
        )
        while True:
            step = await self._try(exchange)
            if isinstance(step, Answered):
                self._node = step.node
                return step.value
            await asyncio.sleep(step.delay_s)

    async def _try(self, exchange: Exchange[T]) -> Answered[T] | Retry:
        """Make one attempt and tell the exchange how it went."""
        attempt = exchange.attempt(now_s())
        jitter = random.random()  # noqa: S311 - spreads load, not a secret
        try:
            status, body = await (self._send_probed(attempt) if attempt.is_probed else self._send(attempt))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            not_sent = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
            detail = f"{self._nodes[attempt.node]}: {str(error) or 'no answer in time'}"
            return exchange.on_silence(detail, was_sent=not not_sent, now_s=now_s(), jitter=jitter)
        return exchange.on_answer(status, body, now_s=now_s(), jitter=jitter)

    async def _send_probed(self, attempt: Attempt) -> tuple[int, bytes]:
        """Make a long attempt, and give it up with TimeoutError when its node stops answering probes."""
        sending = asyncio.create_task(self._send(attempt))
        probing = asyncio.create_task(self._until_hung(attempt.node))
        try:
            await asyncio.wait({sending, probing}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise TimeoutError("the node hangs")
            return sending.result()
        finally:
            sending.cancel()
            probing.cancel()
            await asyncio.wait({sending, probing})

    async def _until_hung(self, node: int) -> None:
        """Return when a node has failed to say, several times in a row, that it is alive."""
        failures = 0
        while failures < _exchange.PROBE_FAILURES_MAX:
            await asyncio.sleep(_exchange.PROBE_S)
            try:
                await self._send(_exchange.probe(node))
                failures = 0
            except (aiohttp.ClientError, TimeoutError, OSError):
                failures += 1

    async def _send(self, attempt: Attempt) -> tuple[int, bytes]:
        """Make one attempt; return status and body of the answer."""
        if self._http is None:
            # No limit on connections: a waiting acquire occupies one, and must not keep a renewal waiting.
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S_MAX),
            )
        async with (
            asyncio.timeout(attempt.give_up_s),
            self._http.request(
                attempt.method,
                self._nodes[attempt.node] + attempt.path,
                data=attempt.body or None,
                headers=attempt.headers,
                allow_redirects=False,
            ) as response,
        ):
            return response.status, await response.read()
