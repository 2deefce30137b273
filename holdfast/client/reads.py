"""What there is to see, for either client. Nothing here changes anything.

With `is_stale` the asked node answers with its own view, which may be older, without asking the leader.
"""

import time
from typing import TypeVar

import msgspec

from holdfast import wire
from holdfast.client.listings import Listing, listing, pages
from holdfast.client.sync_watch import SyncWatch
from holdfast.client.twins import ForThreads, waiting
from holdfast.client.watch import Watch
from holdfast.operations import cluster_operations, hold_operations, primitive_operations
from holdfast.operations.operation import Operation, ask, decode, path_to
from holdfast.transport.transport import Transport
from holdfast.values.answers import ClusterInfo, Event, Holdings
from holdfast.values.cells import Keeper
from holdfast.values.durations import Seconds, to_ms
from holdfast.values.names import Name, to_name
from holdfast.values.other_words import Suggesting
from holdfast.values.words import HoldKind
from holdfast.wire.held import (
    ElectionInfo,
    HoldRow,
    LockInfo,
    SemaphoreInfo,
    SessionInfo,
    TicketInfo,
    TokenCheck,
    WaitRow,
)
from holdfast.wire.listings import ElectionRow, FenceRow, RateLimitRow, SemaphoreRow, SessionRow

_T = TypeVar("_T")
R = TypeVar("R", bound="Reads")


class Pong(msgspec.Struct, frozen=True):
    """The answer to a ping: the node that gave it, the leader (None: nobody leads), and the time it took."""

    node_id: str
    leader: str | None
    seconds: float


class Reads(Suggesting):
    """The calls of a client that only read."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def ping(self) -> Pong:
        """Ask any node whether it answers.

        Raises Unavailable when none does, and AccessDenied for a wrong token.
        """
        began_s = time.perf_counter()
        info = await self.cluster()
        return Pong(info.node_id, info.leader, time.perf_counter() - began_s)

    async def cluster(self) -> ClusterInfo:
        """Return the cluster as one of its nodes sees it."""
        return await self._transport.call(cluster_operations.cluster())

    def watch(self, prefix: str = "", *, since: str | int | None = None) -> Watch:
        """Return an iterator of the events of names that begin with `prefix`, from now on or since."""
        return Watch(self._transport, prefix, since)

    # -- one thing by its name ------------------------------------------------------------------------------

    async def inspect(self, name: Name, *, is_stale: bool = False) -> LockInfo:
        """Read one lock: its holders and its queue."""
        return await self._transport.call(hold_operations.get_lock(to_name(name), is_stale=is_stale))

    async def get_lock(self, name: Name, *, is_stale: bool = False) -> LockInfo:
        """Read one lock: the same as `inspect`."""
        return await self.inspect(name, is_stale=is_stale)

    async def get_semaphore(self, name: Name, *, is_stale: bool = False) -> SemaphoreInfo:
        """Read one semaphore: its limit, holders and queue."""
        operation = primitive_operations.get_semaphore(to_name(name), is_stale=is_stale)
        return await self._transport.call(operation)

    async def get_election(self, name: Name, *, is_stale: bool = False) -> ElectionInfo:
        """Read one election: its leader and its candidates."""
        operation = primitive_operations.get_election(to_name(name), is_stale=is_stale)
        return await self._transport.call(operation)

    async def get_session(self, session: Keeper | str, *, is_stale: bool = False) -> SessionInfo:
        """Read one's own session, or one by its secret id. Raises SessionExpired when it does not exist.

        `list_sessions` has the sessions of others, and `get_holdings` their holds.
        """
        operation = _by_id(wire.SESSION, _session_id(session), SessionInfo, is_stale=is_stale)
        return await self._transport.call(operation)

    async def get_holdings(self, session_name: str, *, is_stale: bool = False) -> Holdings:
        """Read the holds and waits of any session by its public name, such as `s-17`.

        Raises SessionExpired when there is no such session.
        """
        query = {"session_name": session_name} | _seen(is_stale)
        return await self._transport.call(ask(wire.HOLDS, query, lambda answer: decode(answer, Holdings)))

    async def get_ticket(self, ticket: int, *, is_stale: bool = False) -> TicketInfo:
        """Read one wait by its public number. Raises Refused (`ticket-ended`) once it is over."""
        operation = _by_id(wire.TICKET, str(ticket), TicketInfo, is_stale=is_stale)
        return await self._transport.call(operation)

    async def check_token(
        self, name: Name, token: int, *, kind: HoldKind | None = None, is_stale: bool = False
    ) -> TokenCheck:
        """Ask whether a token belongs to a current holder, of any kind or of this one.

        A fence is the better choice: it refuses late writes.
        """
        operation = primitive_operations.check_token(to_name(name), token, kind=kind, is_stale=is_stale)
        return await self._transport.call(operation)

    # -- what there is of a kind ----------------------------------------------------------------------------

    def list(
        self, prefix: str = "", *, held_longer_than: Seconds = 0, is_stale: bool = False
    ) -> Listing[LockInfo]:
        """Return the locks whose names begin with `prefix`, in order of name.

        With `held_longer_than`, only locks that have been held, or waited for, for longer.
        """
        query = {"prefix": prefix, "held_longer_than_ms": _longer(held_longer_than)} | _seen(is_stale)
        return Listing(self._transport, pages(wire.LOCKS, "locks", LockInfo, query))

    def list_semaphores(self, prefix: str = "", *, is_stale: bool = False) -> Listing[SemaphoreRow]:
        """Return the semaphores whose names begin with `prefix`, in order of name."""
        query = {"prefix": prefix} | _seen(is_stale)
        return Listing(self._transport, pages(wire.SEMAPHORES, "semaphores", SemaphoreRow, query))

    def list_elections(self, prefix: str = "", *, is_stale: bool = False) -> Listing[ElectionRow]:
        """Return the elections whose names begin with `prefix`, in order of name."""
        query = {"prefix": prefix} | _seen(is_stale)
        return Listing(self._transport, pages(wire.ELECTIONS, "elections", ElectionRow, query))

    def list_rate_limits(self, prefix: str = "", *, is_stale: bool = False) -> Listing[RateLimitRow]:
        """Return the rate limits that something was taken of, in order of name, algorithm and period."""
        query = {"prefix": prefix} | _seen(is_stale)
        return Listing(self._transport, pages(wire.RATES, "rate_limits", RateLimitRow, query))

    def list_fences(self, prefix: str = "", *, is_stale: bool = False) -> Listing[FenceRow]:
        """Return the fences whose names begin with `prefix`, in order of name."""
        query = {"prefix": prefix} | _seen(is_stale)
        return Listing(self._transport, pages(wire.FENCES, "fences", FenceRow, query))

    def list_sessions(
        self,
        *,
        owner: str = "",
        label: tuple[str, str] | None = None,
        principal: str = "",
        is_stale: bool = False,
    ) -> Listing[SessionRow]:
        """Return the sessions, the oldest first: all, or only those with an owner, a label or a principal.

        A label is a pair, such as `("host", "rack-3")`.
        """
        query = {"owner": owner, "label": _label(label), "principal": principal} | _seen(is_stale)
        return Listing(self._transport, pages(wire.SESSIONS, "sessions", SessionRow, query))

    def list_holds(
        self,
        prefix: str = "",
        *,
        owner: str = "",
        label: tuple[str, str] | None = None,
        principal: str = "",
        held_longer_than: Seconds = 0,
        no_deadline: bool | None = None,
        is_stale: bool = False,
    ) -> Listing[HoldRow]:
        """Return the holds of every kind, in order of kind and name.

        Conditions select by owner, by a label of the session, by the principal whose it is, by duration, or
        holds without a deadline (True) or with one (False).
        """
        query = _holds_query(prefix, owner, label, principal, held_longer_than, no_deadline=no_deadline)
        return Listing(self._transport, pages(wire.HOLDS, "holds", HoldRow, query | _seen(is_stale)))

    def list_waits(
        self,
        prefix: str = "",
        *,
        owner: str = "",
        label: tuple[str, str] | None = None,
        principal: str = "",
        waited_longer_than: Seconds = 0,
        is_stale: bool = False,
    ) -> Listing[WaitRow]:
        """Return the waits of every kind, in order of kind and name. See `list_holds`."""
        query = _holds_query(prefix, owner, label, principal, waited_longer_than, no_deadline=None)
        return Listing(self._transport, pages(wire.HOLDS, "tickets", WaitRow, query | _seen(is_stale)))

    # -- what happened --------------------------------------------------------------------------------------

    async def audit(
        self,
        name: Name = "",
        *,
        limit: int = 100,
        behind: int | None = None,
        by_operators: bool = False,
        is_stale: bool = False,
    ) -> tuple[Event, ...]:
        """Return the latest records of the audit, of a name or of all, the newest first.

        With `behind`, the `number` of a record, the records after it, the oldest first. With `by_operators`,
        only what operators did to others, or set.
        """
        text = to_name(name) if name else ""
        operation = primitive_operations.audit(
            text, limit, behind, by_operators=by_operators, is_stale=is_stale
        )
        return await self._transport.call(operation)

    async def session_audit(
        self, session: Keeper | str, *, limit: int = 100, is_stale: bool = False
    ) -> tuple[Event, ...]:
        """Return the latest records of one's own session, the newest first; it may have ended."""
        operation = primitive_operations.session_audit(_session_id(session), limit, is_stale=is_stale)
        return await self._transport.call(operation)


def _by_id(path: str, key: str, kind: type[_T], *, is_stale: bool) -> Operation[_T]:
    return ask(path_to(path, key), _seen(is_stale), lambda answer: decode(answer, kind))


def _session_id(session: Keeper | str) -> str:
    return session if isinstance(session, str) else session.session_id


def _seen(is_stale: bool) -> dict[str, str]:  # noqa: FBT001 - the whole of it
    return {"consistency": wire.STALE if is_stale else ""}


def _longer(length: Seconds) -> str:
    return str(to_ms(length, "held_longer_than") or "")


def _label(label: tuple[str, str] | None) -> str:
    return "" if label is None else ":".join(label)


def _holds_query(
    prefix: str,
    owner: str,
    label: tuple[str, str] | None,
    principal: str,
    longer_than: Seconds,
    *,
    no_deadline: bool | None,
) -> dict[str, str]:
    return {
        "prefix": prefix,
        "owner": owner,
        "label": _label(label),
        "principal": principal,
        "held_longer_than_ms": _longer(longer_than),
        "no_deadline": "" if no_deadline is None else str(no_deadline).lower(),
    }


class SyncReads(ForThreads[R]):
    """The calls of a client that only read, for threads. See `Reads`."""

    ping = waiting(Reads.ping)
    cluster = waiting(Reads.cluster)
    inspect = waiting(Reads.inspect)
    get_lock = waiting(Reads.get_lock)
    get_semaphore = waiting(Reads.get_semaphore)
    get_election = waiting(Reads.get_election)
    get_session = waiting(Reads.get_session)
    get_holdings = waiting(Reads.get_holdings)
    get_ticket = waiting(Reads.get_ticket)
    check_token = waiting(Reads.check_token)
    list = listing(Reads.list)
    list_semaphores = listing(Reads.list_semaphores)
    list_elections = listing(Reads.list_elections)
    list_rate_limits = listing(Reads.list_rate_limits)
    list_fences = listing(Reads.list_fences)
    list_sessions = listing(Reads.list_sessions)
    list_holds = listing(Reads.list_holds)
    list_waits = listing(Reads.list_waits)
    audit = waiting(Reads.audit)
    session_audit = waiting(Reads.session_audit)

    def watch(self, prefix: str = "", *, since: str | int | None = None) -> SyncWatch:
        """Return an iterator of the events of names that begin with `prefix`, from now on or since."""
        return SyncWatch(self._twin.watch(prefix, since=since))
