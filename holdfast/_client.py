"""The async client: sends the operations of `_operations.py`, as often and where `_exchange.py` says."""

import asyncio
import os
import random
import socket
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self, TypeVar

import aiohttp

from holdfast import _exchange, _operations, _values, wire
from holdfast._connections import Connections, Sending
from holdfast._errors import LeaseExpired, LeaseLost, LockHeld, SessionExpired
from holdfast._exchange import Answered, Attempt, Exchange, Retry
from holdfast._hold import FORKED, RELEASED, Hold, Session, now_s
from holdfast._lock import Lock
from holdfast._operations import Operation

T = TypeVar("T")


DEFAULT_TTL_MS = 30_000
"""Milliseconds of a lease when the caller does not say: others wait so long after a crash, and a failover of
the cluster takes less than its third."""


class Client:
    """Talks to a cluster through any of its nodes, from one thread, for as long as you like.

    It outlives its event loop: the next one gets connections of its own. So does a forked child, where what
    the parent holds is not valid.

    Every call is repeated, the very same request, on the next node when a node fails or is busy, until
    `timeout_s` have passed (for a waiting acquire: after its wait). Only then it raises Unavailable (surely
    not applied) or OutcomeUnknown. A refusal of the cluster is raised at once, as Refused.
    """

    def __init__(
        self,
        nodes: str | Iterable[str] | None = None,
        *,
        timeout_s: float = 10.0,
        owner: str | None = None,
    ) -> None:
        """Prepare for these nodes; nothing is sent yet. `owner` is shown to others as the holder.

        Nodes are URLs or HOST:PORT: a list, or one string with commas between them. The default is what the
        environment variable HOLDFAST_NODES says, and else ports 7700 to 7702 of this machine.
        Raises ValueError for what cannot be the URL of a node.
        """
        self._nodes = _exchange.node_urls(nodes, os.environ)
        self._timeout_s = timeout_s
        self._owner = owner or f"{socket.gethostname()}:{os.getpid()}"
        # Clients spread over the nodes by chance; each then stays with the node that answers.
        self._node = random.randrange(len(self._nodes))  # noqa: S311 - load spreading, not a secret
        self._connections = Connections()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Holds and sessions live on until their leases end."""
        await self._connections.close()

    # -- locks ----------------------------------------------------------------------------------------------

    def lock(
        self,
        name: str,
        *,
        ttl_ms: int = DEFAULT_TTL_MS,
        wait_ms: int | None = None,
        mode: str = "exclusive",
        lock_delay_ms: int = 0,
        note: str = "",
    ) -> Lock:
        """Return a reusable lock for `async with`: acquired, renewed while its body runs, then released.

        Entering waits in the queue for as long as it takes, or `wait_ms` and then raises LockHeld; 0 tries
        once. Without a node that answers it raises Unavailable or OutcomeUnknown after `timeout_s`.
        """
        return Lock(
            self, name, ttl_ms=ttl_ms, wait_ms=wait_ms, mode=mode, lock_delay_ms=lock_delay_ms, note=note
        )

    async def acquire(
        self,
        name: str,
        *,
        ttl_ms: int | None = None,
        session: Session | None = None,
        wait_ms: int | None = 0,
        mode: str = "exclusive",
        lock_delay_ms: int = 0,
        note: str = "",
    ) -> Hold:
        """Acquire a lock with a lease of its own (`ttl_ms`, 30 s by default), or for a session: not both.

        Wait in the queue for up to `wait_ms`, then raise LockHeld; None waits for as long as it takes.
        Nothing renews the hold; see `lock`.
        """
        if ttl_ms is None and session is None:
            ttl_ms = DEFAULT_TTL_MS
        while True:
            operation = _operations.acquire(
                name,
                session=session,
                ttl_ms=ttl_ms,
                owner=self._owner,
                mode=mode,
                wait_ms=wait_ms,
                lock_delay_ms=lock_delay_ms,
                note=note,
            )
            asked_s = now_s()
            try:
                hold = await self._call(operation)
                break
            except LockHeld:
                # The longest wait that the cluster allows may be over, which is not that of the caller.
                if wait_ms is not None or now_s() - asked_s < wire.WAIT_MS_MAX / 1000:
                    raise
        hold.session = session
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
            lost = f"{hold.name!r} was granted and lost before we heard of it"
            raise LeaseLost(lost, error.code) from error

    async def renew(self, hold: Hold, *, ttl_ms: int | None = None, timeout_s: float | None = None) -> None:
        """Start the lease of `hold` anew. Raises LeaseExpired when it is over: stop the protected work."""
        _refuse_forked(hold)
        try:
            hold.lease = await self._call(_operations.renew(hold.hold_id, ttl_ms), timeout_s)
        except LeaseExpired as error:
            hold.end(error.code)
            raise

    async def release(self, hold: Hold | str, *, timeout_s: float | None = None) -> None:
        """Release a hold, given as such or by its id. Raises LeaseExpired when it was over before.

        From here on the hold is not valid, whatever the answer: the cluster may have released it.
        """
        if isinstance(hold, Hold):
            _refuse_forked(hold)
            hold.end(RELEASED)
            hold = hold.hold_id
        await self._call(_operations.release(hold), timeout_s)

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
        _refuse_forked(session)
        try:
            session.lease = await self._call(_operations.keepalive(session.session_id), timeout_s)
        except SessionExpired as error:
            session.end(error.code)
            raise

    async def close_session(self, session: Session) -> tuple[str, ...]:
        """End a session, release what it holds, and return the names of those locks.

        From here on neither the session nor its holds are valid, whatever the answer.
        """
        _refuse_forked(session)
        session.end(RELEASED)
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
        sending = Sending()
        try:
            send = self._send_probed if attempt.is_probed else self._send
            status, body = await send(attempt, sending)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            detail = f"{self._nodes[attempt.node]}: {str(error) or 'no answer in time'}"
            return exchange.on_silence(detail, was_sent=sending.was_sent, now_s=now_s(), jitter=jitter)
        return exchange.on_answer(status, body, now_s=now_s(), jitter=jitter)

    async def _send_probed(self, attempt: Attempt, sending: Sending) -> tuple[int, bytes]:
        """Make a long attempt, and give it up with TimeoutError when its node stops answering probes."""
        answering = asyncio.create_task(self._send(attempt, sending))
        probing = asyncio.create_task(self._until_hung(attempt.node))
        try:
            await asyncio.wait({answering, probing}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise TimeoutError("the node hangs")
            return answering.result()
        finally:
            answering.cancel()
            probing.cancel()
            await asyncio.wait({answering, probing})

    async def _until_hung(self, node: int) -> None:
        """Return when a node has failed to say, several times in a row, that it is alive."""
        failures = 0
        while failures < _exchange.PROBE_FAILURES_MAX:
            await asyncio.sleep(_exchange.PROBE_S)
            try:
                await self._send(_exchange.probe(node), Sending())
                failures = 0
            except (aiohttp.ClientError, TimeoutError, OSError):
                failures += 1

    async def _send(self, attempt: Attempt, sending: Sending) -> tuple[int, bytes]:
        """Make one attempt; return status and body of the answer, and note when the request goes out."""
        http = await self._connections.session()
        async with (
            asyncio.timeout(attempt.give_up_s),
            http.request(
                attempt.method,
                self._nodes[attempt.node] + attempt.path,
                data=attempt.body or None,
                headers=attempt.headers,
                allow_redirects=False,
                trace_request_ctx=sending,
            ) as response,
        ):
            return response.status, await response.read()


def _refuse_forked(leased: Hold | Session) -> None:
    """Raise LeaseLost for what belongs to the parent of this process: the child must not end or keep it."""
    if leased.reason == FORKED:
        raise LeaseLost("this belongs to the process that this one was forked from", FORKED)
