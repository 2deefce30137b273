"""The client's operations as values: what to send for each, and how to read its answer. No I/O.

`_exchange.py` decides to which node an operation is sent and how often; `_client.py` sends it.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from holdfast import _values, wire
from holdfast._errors import OutcomeUnknown
from holdfast._hold import Hold, Lease, Session

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class TimedAnswer(msgspec.Struct, frozen=True):
    """A good answer; by our clock, when its operation and the attempt that was answered began."""

    body: bytes
    asked_at_s: float
    attempted_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[T_co]):
    """One request, byte for byte what every repetition of it sends, and how to read its answer.

    `wait_ms` is how long the request may wait in a queue; it is in the body, too. `waits_for_ever` says that
    this is not a deadline of the caller: without a node that answers, nobody wants to wait so long.
    """

    method: str
    path: str
    read: Callable[[TimedAnswer], T_co]
    body: bytes = b""
    request_id: str = ""
    wait_ms: int = 0
    waits_for_ever: bool = False

    @property
    def changes_nothing(self) -> bool:
        """Whether a lost answer leaves no doubt about its effect: there is none."""
        return self.method == "GET"


# -- locks ------------------------------------------------------------------------------------------------


def acquire(
    name: str,
    *,
    session: Session | None,
    ttl_ms: int | None,
    owner: str,
    mode: str,
    wait_ms: int | None,
    lock_delay_ms: int,
    note: str,
) -> Operation[Hold]:
    """Acquire a lock. `wait_ms` None waits as long as the cluster allows.

    Raises ValueError unless exactly one of `session` and `ttl_ms` is given.
    """
    if (ttl_ms is None) == (session is None):
        raise ValueError("give either ttl_ms or session")
    waits_for_ever = wait_ms is None
    wait_ms = wire.WAIT_MS_MAX if wait_ms is None else wait_ms
    fields = {
        "name": name,
        "session_id": session.session_id if session else "",
        "ttl_ms": ttl_ms,
        "owner": owner,
        "mode": mode,
        "wait_ms": wait_ms or None,
        "lock_delay_ms": lock_delay_ms or None,
        "note": note,
        "request_id": new_request_id(),
    }
    return _write(wire.LOCK_ACQUIRE, fields, _granted, wait_ms=wait_ms, waits_for_ever=waits_for_ever)


def _granted(answer: TimedAnswer) -> Hold:
    granted = _decode(answer, _values.Granted)
    return Hold(
        hold_id=granted.hold_id,
        token=granted.token,
        name=granted.name,
        mode=granted.mode,
        lease=Lease(answer.asked_at_s, granted.expires_in_ms),
    )


def renew(hold_id: str, ttl_ms: int | None) -> Operation[Lease]:
    """Renew a hold.

    It carries no request id on purpose: repeating it only starts the lease anew, and the new lease counts
    from the attempt that was answered, where a remembered outcome would count from the first.
    """
    return _write(wire.LOCK_RENEW, {"hold_id": hold_id, "ttl_ms": ttl_ms}, _renewed)


def _renewed(answer: TimedAnswer) -> Lease:
    return Lease(answer.attempted_at_s, _decode(answer, _values.Renewed).expires_in_ms)


def release(hold_id: str) -> Operation[None]:
    """Release a hold."""
    return _write(wire.LOCK_RELEASE, {"hold_id": hold_id, "request_id": new_request_id()}, lambda _: None)


def force_release(name: str, reason: str, lock_delay_ms: int) -> Operation[tuple[_values.Holder, ...]]:
    """End every hold of a lock; the answer names the holders."""
    fields = {
        "name": name,
        "reason": reason,
        "lock_delay_ms": lock_delay_ms or None,
        "request_id": new_request_id(),
    }
    return _write(
        wire.LOCK_FORCE_RELEASE, fields, lambda answer: _decode(answer, _values.HoldersReleased).released
    )


def get_lock(name: str, *, is_stale: bool) -> Operation[_values.LockInfo]:
    """Read one lock."""
    path = wire.LOCK.format(name=quote(name, safe=""))
    query = {"consistency": wire.STALE if is_stale else ""}
    return _read(path, query, lambda answer: _decode(answer, _values.LockInfo))


def list_locks(prefix: str, limit: int, after: str, *, is_stale: bool) -> Operation[_values.LockPage]:
    """Read one page of locks."""
    query = {
        "prefix": prefix,
        "limit": str(limit),
        "after": after,
        "consistency": wire.STALE if is_stale else "",
    }
    return _read(wire.LOCKS, query, lambda answer: _decode(answer, _values.LockPage))


# -- sessions ---------------------------------------------------------------------------------------------


def open_session(ttl_ms: int, labels: Mapping[str, str]) -> Operation[Session]:
    """Open a session."""
    fields = {"ttl_ms": ttl_ms, "labels": dict(labels), "request_id": new_request_id()}
    return _write(wire.SESSIONS, fields, _opened)


def _opened(answer: TimedAnswer) -> Session:
    opened = _decode(answer, _values.SessionOpened)
    return Session(opened.session_id, Lease(answer.asked_at_s, opened.expires_in_ms))


def keepalive(session_id: str) -> Operation[Lease]:
    """Keep a session alive. Repeating it is harmless, so it needs no request id."""
    return _write(wire.SESSION_KEEPALIVE.format(session_id=quote(session_id, safe="")), {}, _kept)


def _kept(answer: TimedAnswer) -> Lease:
    return Lease(answer.attempted_at_s, _decode(answer, _values.SessionKept).expires_in_ms)


def close_session(session_id: str) -> Operation[tuple[str, ...]]:
    """Close a session; the answer names the locks that it held."""
    path = wire.SESSION.format(session_id=quote(session_id, safe=""))
    fields = {"request_id": new_request_id()}
    return _write(
        path, fields, lambda answer: _decode(answer, _values.NamesReleased).released, method="DELETE"
    )


# -- the cluster ------------------------------------------------------------------------------------------


def cluster() -> Operation[_values.ClusterInfo]:
    """Ask a node how it sees the cluster."""
    return _read(wire.CLUSTER, {}, lambda answer: _decode(answer, _values.ClusterInfo))


def add_member(node_id: str, peer: str) -> Operation[tuple[_values.Member, ...]]:
    """Add a node. Repeating it is harmless, so it needs no request id."""
    return _write(wire.CLUSTER_MEMBERS, {"id": node_id, "peer": peer}, _members)


def move_member(node_id: str, peer: str) -> Operation[tuple[_values.Member, ...]]:
    """Change a node's address. Repeating it is harmless, so it needs no request id."""
    return _write(wire.CLUSTER_MEMBERS, {"id": node_id, "peer": peer}, _members, method="PATCH")


def remove_member(node_id: str) -> Operation[tuple[_values.Member, ...]]:
    """Remove a node. Repeating it is harmless, so it needs no request id."""
    return _write(wire.CLUSTER_MEMBERS, {"id": node_id}, _members, method="DELETE")


def _members(answer: TimedAnswer) -> tuple[_values.Member, ...]:
    return _decode(answer, _values.MemberList).members


def transfer_leadership(to: str) -> Operation[str]:
    """Hand leadership over; the answer names the new leader."""
    return _write(
        wire.CLUSTER_TRANSFER_LEADERSHIP,
        {"to": to},
        lambda answer: _decode(answer, _values.LeadershipTransferred).leader,
    )


# -- what they have in common -----------------------------------------------------------------------------


def new_request_id() -> str:
    """Return a fresh id: no two requests in the world share one."""
    return secrets.token_hex(16)


def _write(
    path: str,
    fields: Mapping[str, object],
    read: Callable[[TimedAnswer], T],
    *,
    method: str = "POST",
    wait_ms: int = 0,
    waits_for_ever: bool = False,
) -> Operation[T]:
    """Make a write. Fields that are None or empty are left out, for the node to choose."""
    body = {key: value for key, value in fields.items() if value not in (None, "", {})}
    return Operation(
        method=method,
        path=path,
        read=read,
        body=msgspec.json.encode(body) if body else b"",
        request_id=str(body.get("request_id", "")),
        wait_ms=wait_ms,
        waits_for_ever=waits_for_ever,
    )


def _read(path: str, query: Mapping[str, str], read: Callable[[TimedAnswer], T]) -> Operation[T]:
    """Make a read. Query parameters that are empty are left out."""
    given = urlencode({key: value for key, value in query.items() if value})
    return Operation(method="GET", path=f"{path}?{given}" if given else path, read=read)


def _decode(answer: TimedAnswer, kind: type[T]) -> T:
    """Decode an answer. It may not come from a node at all; then the outcome is not known."""
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.DecodeError as error:
        raise OutcomeUnknown(f"the answer is not that of a Holdfast node: {error}") from error
