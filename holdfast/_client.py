"""The async client: sends what `_protocol.py` builds, as often and where `_exchange.py` says."""

import asyncio
import os
import random
import socket
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from holdfast import _protocol, _values, wire
from holdfast._errors import LeaseExpired, LeaseLost, OutcomeUnknown, SessionExpired
from holdfast._exchange import Attempt, Done, Exchange, Retry
from holdfast._hold import Hold, Session, now_s
from holdfast._lock import Lock
from holdfast._protocol import Lease, Request

T = TypeVar("T")

CONNECT_S_MAX = 2.0
"""A node that does not take a connection this fast is as good as down."""
PROBE_S = 2.0
PROBE_FAILURES_MAX = 2
"""During a long wait: how often to ask whether its node still lives, and when to turn to another."""


class _Reply(msgspec.Struct, frozen=True):
    """A good answer, and when its request and the attempt that was answered began."""

    body: bytes
    asked_at_s: float
    attempted_at_s: float


class Client:
    """Talks to a cluster through any of its nodes. Use it in one event loop, for as long as you like.

    Every call is repeated, the very same request, on the next node when a node fails or is busy, until
    `timeout_s` have passed (for a waiting acquire: after its wait). Only then it raises Unavailable (surely
    not applied) or OutcomeUnknown. A refusal of the cluster is raised at once, as Refused.
    """

    def __init__(self, nodes: Sequence[str], *, timeout_s: float = 10.0, owner: str | None = None) -> None:
        """Prepare for the nodes at these URLs; nothing is sent yet. `owner` is shown to others as the holder.

        Raises ValueError for a URL that cannot be one of a node.
        """
        self._nodes = tuple(_base_url(node) for node in nodes)
        if not self._nodes:
            raise ValueError("nodes: name at least one, such as http://127.0.0.1:7701")
        self._timeout_s = timeout_s
        self._owner = owner or f"{socket.gethostname()}:{os.getpid()}"
        # Clients spread over the nodes by chance; each then stays with the node that answers.
        self._node = random.randrange(len(self._nodes))  # noqa: S311 - load spreading, no secret
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

    # --- locks

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
        if (ttl_ms is None) == (session is None):
            raise ValueError("give either ttl_ms or session")
        request = _protocol.acquire(
            name,
            session_id=session.session_id if session else "",
            ttl_ms=ttl_ms,
            owner=self._owner,
            mode=mode,
            wait_ms=wait_ms,
            lock_delay_ms=lock_delay_ms,
            note=note,
        )
        reply = await self._call(request)
        granted = _decode(reply.body, _values.Granted)
        lease = Lease(reply.asked_at_s, granted.expires_in_ms)
        hold = Hold(
            hold_id=granted.hold_id, token=granted.token, name=granted.name, mode=granted.mode, lease=lease
        )
        if now_s() >= lease.renew_at_s:
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
        reply = await self._call(_protocol.renew(hold.hold_id, ttl_ms), timeout_s)
        hold.lease = Lease(reply.attempted_at_s, _decode(reply.body, _values.Renewed).expires_in_ms)

    async def release(self, hold: Hold | str, *, timeout_s: float | None = None) -> None:
        """Give a hold (or a hold id) back. Raises LeaseExpired when it was over before."""
        hold_id = hold.hold_id if isinstance(hold, Hold) else hold
        await self._call(_protocol.release(hold_id), timeout_s)

    async def force_release(
        self, name: str, *, reason: str, lock_delay_ms: int = 0
    ) -> tuple[_values.Holder, ...]:
        """End every hold of a lock, whoever has it, and return who lost it."""
        reply = await self._call(_protocol.force_release(name, reason, lock_delay_ms))
        return _decode(reply.body, _values.HoldersReleased).released

    async def get_lock(self, name: str, *, is_stale: bool = False) -> _values.LockInfo:
        """Read one lock: who holds it, who waits. `is_stale` allows the answering node's own, older view."""
        reply = await self._call(_protocol.get_lock(name, is_stale=is_stale))
        return _decode(reply.body, _values.LockInfo)

    async def list_locks(
        self, prefix: str = "", *, limit: int = 100, after: str = "", is_stale: bool = False
    ) -> _values.LockPage:
        """Read a page of the locks whose names begin with `prefix`, in order of name."""
        reply = await self._call(_protocol.list_locks(prefix, limit, after, is_stale=is_stale))
        return _decode(reply.body, _values.LockPage)

    # --- sessions and the cluster

    async def open_session(self, *, ttl_ms: int, labels: Mapping[str, str] | None = None) -> Session:
        """Open a session that lives for `ttl_ms` after its last keepalive."""
        reply = await self._call(_protocol.open_session(ttl_ms, labels or {}))
        opened = _decode(reply.body, _values.SessionOpened)
        return Session(opened.session_id, Lease(reply.asked_at_s, opened.expires_in_ms))

    async def keepalive(self, session: Session, *, timeout_s: float | None = None) -> None:
        """Start the session's ttl anew. Raises SessionExpired when it is over, with all that it held."""
        reply = await self._call(_protocol.keepalive(session.session_id), timeout_s)
        session.lease = Lease(reply.attempted_at_s, _decode(reply.body, _values.SessionKept).expires_in_ms)

    async def close_session(self, session: Session) -> tuple[str, ...]:
        """End a session, release what it holds, and return the names of those locks."""
        reply = await self._call(_protocol.close_session(session.session_id))
        return _decode(reply.body, _values.NamesReleased).released

    async def cluster(self) -> _values.ClusterInfo:
        """Return the cluster as one of its nodes sees it."""
        return _decode((await self._call(_protocol.cluster())).body, _values.ClusterInfo)

    async def add_member(self, node_id: str, peer: str) -> tuple[_values.Member, ...]:
        """Add a node that listens for the others at `peer` (HOST:PORT); return all members.

        The new one is `joining` until it has caught up; adding it again tells. Raises MemberChangeRefused.
        """
        reply = await self._call(_protocol.add_member(node_id, peer))
        return _decode(reply.body, _values.MemberList).members

    async def remove_member(self, node_id: str) -> tuple[_values.Member, ...]:
        """Remove a node and return the members that are left.

        Raises MemberChangeRefused, also when the cluster would lose its quorum.
        """
        reply = await self._call(_protocol.remove_member(node_id))
        return _decode(reply.body, _values.MemberList).members

    async def transfer_leadership(self, to: str = "") -> str:
        """Hand leadership to a node, or to the one that is furthest, and return who leads then."""
        reply = await self._call(_protocol.transfer_leadership(to))
        return _decode(reply.body, _values.LeadershipTransferred).leader

    # --- transport

    async def _call(self, request: Request, timeout_s: float | None = None) -> _Reply:
        """Send one request, and again until it has an outcome or the deadline has passed."""
        asked_at_s = now_s()
        exchange = Exchange(
            request,
            nodes_count=len(self._nodes),
            node=self._node,
            now_s=asked_at_s,
            timeout_s=self._timeout_s if timeout_s is None else timeout_s,
        )
        while True:
            attempted_at_s = now_s()
            attempt = exchange.attempt(attempted_at_s)
            step = await self._try(request, attempt, exchange)
            if isinstance(step, Done):
                self._node = attempt.node
                return _Reply(step.body, asked_at_s, attempted_at_s)
            await asyncio.sleep(step.delay_s)

    async def _try(self, request: Request, attempt: Attempt, exchange: Exchange) -> Done | Retry:
        """Make one attempt and tell the exchange how it went."""
        send = self._send_watched if attempt.give_up_s > 2 * PROBE_S else self._send
        jitter = random.random()  # noqa: S311 - spreads load, no secret
        try:
            status, body = await send(request, attempt)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            not_sent = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
            detail = f"{self._nodes[attempt.node]}: {str(error) or 'no answer in time'}"
            return exchange.on_silence(detail, was_sent=not not_sent, now_s=now_s(), jitter=jitter)
        return exchange.on_answer(status, body, now_s=now_s(), jitter=jitter)

    async def _send_watched(self, request: Request, attempt: Attempt) -> tuple[int, bytes]:
        """Make a long attempt, and give it up with TimeoutError when its node stops answering others."""
        sending = asyncio.create_task(self._send(request, attempt))
        watching = asyncio.create_task(self._until_hung(attempt.node))
        try:
            await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise TimeoutError("the node hangs")
            return sending.result()
        finally:
            sending.cancel()
            watching.cancel()
            await asyncio.wait({sending, watching})

    async def _until_hung(self, node: int) -> None:
        """Return when a node has failed to say, several times in a row, that it is alive."""
        failures = 0
        probe = Request(method="GET", path=wire.LIVEZ)
        attempt = Attempt(node=node, answer_ms=wire.TIMEOUT_MS_MIN, give_up_s=PROBE_S)
        while failures < PROBE_FAILURES_MAX:
            await asyncio.sleep(PROBE_S)
            try:
                await self._send(probe, attempt)
                failures = 0
            except (aiohttp.ClientError, TimeoutError, OSError):
                failures += 1

    async def _send(self, request: Request, attempt: Attempt) -> tuple[int, bytes]:
        """Make one attempt on one node."""
        if self._http is None:
            # No limit on connections: a waiting acquire occupies one, and must not keep a renewal waiting.
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S_MAX),
            )
        headers = {wire.HEADER_TIMEOUT_MS: str(attempt.answer_ms)}
        if request.request_id:
            headers[wire.HEADER_REQUEST_ID] = request.request_id
        if request.body:
            headers["Content-Type"] = wire.JSON
        url = self._nodes[attempt.node] + request.path
        async with (
            asyncio.timeout(attempt.give_up_s),
            self._http.request(
                request.method, url, data=request.body or None, headers=headers, allow_redirects=False
            ) as response,
        ):
            return response.status, await response.read()


def _base_url(node: str) -> str:
    """Return a node's URL without a slash at the end. Raises ValueError when it is none."""
    parts = urlsplit(node)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{node!r} is no URL of a node; write it like http://127.0.0.1:7701")
    return node.rstrip("/")


def _decode(body: bytes, kind: type[T]) -> T:
    """Decode an answer. It may come from something that is no node; then the outcome is not known."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise OutcomeUnknown(f"the answer is none of a Holdfast node: {error}") from error
