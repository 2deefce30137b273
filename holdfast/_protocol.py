"""The client's rules, without I/O: what a request looks like and how long a lease can be relied on.

Nothing here opens a socket or reads a clock; `_client.py` does. What answers mean is in `_exchange.py`.
"""

import secrets
from collections.abc import Mapping
from urllib.parse import quote, urlencode

import msgspec

from holdfast import wire

ROUNDING_MS = 1
"""The cluster counts whole milliseconds, and may have cut off almost one."""
CLOCK_RATE_DIVISOR = 500
"""Our clock may run slower than the leader's: one part in 500 covers two bad crystals being slewed apart."""
RENEW_DIVISOR = 3
"""Renew after a third of the lease: two more renewals may fail before it is over."""


class Lease(msgspec.Struct, frozen=True):
    """How long a right can be relied on, by the asker's own monotonic clock.

    `asked_at_s` was read before the request left, so the cluster began to count later than we do.
    """

    asked_at_s: float
    expires_in_ms: int

    @property
    def valid_until_s(self) -> float:
        """When to stop, at the latest: always before the cluster gives the right to somebody else."""
        allowance_ms = ROUNDING_MS + -(-self.expires_in_ms // CLOCK_RATE_DIVISOR)
        return self.asked_at_s + max(0, self.expires_in_ms - allowance_ms) / 1000

    @property
    def renew_at_s(self) -> float:
        """When to ask for more."""
        return self.asked_at_s + self.expires_in_ms / (1000 * RENEW_DIVISOR)

    def remaining_s(self, now_s: float) -> float:
        """Return how long the right can still be relied on; 0 when it cannot."""
        return max(0.0, self.valid_until_s - now_s)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request, byte for byte what every repetition of it sends. `wait_ms` is in the body, too."""

    method: str
    path: str
    body: bytes = b""
    request_id: str = ""
    wait_ms: int = 0

    @property
    def is_read(self) -> bool:
        """Whether it changes nothing, so that a lost answer leaves no doubt."""
        return self.method == "GET"


def _write(path: str, fields: Mapping[str, object], *, method: str = "POST", wait_ms: int = 0) -> Request:
    """Build a write; fields that are None or empty are left out, for the node to choose."""
    body = {key: value for key, value in fields.items() if value not in (None, "", {})}
    request_id = str(body.get("request_id", ""))
    encoded = msgspec.json.encode(body) if body else b""
    return Request(method=method, path=path, body=encoded, request_id=request_id, wait_ms=wait_ms)


def new_request_id() -> str:
    """Return a fresh id: two requests of the world never share one."""
    return secrets.token_hex(16)


def open_session(ttl_ms: int, labels: Mapping[str, str]) -> Request:
    """Build the request that opens a session."""
    return _write(wire.SESSIONS, {"ttl_ms": ttl_ms, "labels": dict(labels), "request_id": new_request_id()})


def keepalive(session_id: str) -> Request:
    """Build the request that keeps a session alive. Repeating it is harmless, so it needs no request id."""
    return _write(wire.SESSION_KEEPALIVE.format(session_id=quote(session_id, safe="")), {})


def close_session(session_id: str) -> Request:
    """Build the request that ends a session."""
    path = wire.SESSION.format(session_id=quote(session_id, safe=""))
    return _write(path, {"request_id": new_request_id()}, method="DELETE")


def acquire(
    name: str,
    *,
    session_id: str,
    ttl_ms: int | None,
    owner: str,
    mode: str,
    wait_ms: int,
    lock_delay_ms: int,
    note: str,
) -> Request:
    """Build the request that acquires a lock."""
    fields = {
        "name": name,
        "session_id": session_id,
        "ttl_ms": ttl_ms,
        "owner": owner,
        "mode": mode,
        "wait_ms": wait_ms or None,
        "lock_delay_ms": lock_delay_ms or None,
        "note": note,
        "request_id": new_request_id(),
    }
    return _write(wire.LOCK_ACQUIRE, fields, wait_ms=wait_ms)


def renew(hold_id: str, ttl_ms: int | None) -> Request:
    """Build the request that renews a hold.

    It carries no request id on purpose: repeating it only starts the lease anew, and each attempt's
    validity counts from that attempt, where a remembered outcome would count from the first.
    """
    return _write(wire.LOCK_RENEW, {"hold_id": hold_id, "ttl_ms": ttl_ms})


def release(hold_id: str) -> Request:
    """Build the request that gives a hold back."""
    return _write(wire.LOCK_RELEASE, {"hold_id": hold_id, "request_id": new_request_id()})


def force_release(name: str, reason: str, lock_delay_ms: int) -> Request:
    """Build the request that ends every hold of a lock."""
    fields = {
        "name": name,
        "reason": reason,
        "lock_delay_ms": lock_delay_ms or None,
        "request_id": new_request_id(),
    }
    return _write(wire.LOCK_FORCE_RELEASE, fields)


def get_lock(name: str, *, is_stale: bool) -> Request:
    """Build the request that reads one lock."""
    path = wire.LOCK.format(name=quote(name, safe=""))
    return Request(method="GET", path=path + ("?consistency=stale" if is_stale else ""))


def list_locks(prefix: str, limit: int, after: str, *, is_stale: bool) -> Request:
    """Build the request that reads one page of locks."""
    query = {
        "prefix": prefix,
        "limit": str(limit),
        "after": after,
        "consistency": wire.STALE if is_stale else "",
    }
    return Request(method="GET", path=f"{wire.LOCKS}?{urlencode({k: v for k, v in query.items() if v})}")


def cluster() -> Request:
    """Build the request that asks a node how it sees the cluster."""
    return Request(method="GET", path=wire.CLUSTER)


def add_member(node_id: str, peer: str) -> Request:
    """Build the request that adds a node. Repeating it is harmless, so it needs no request id."""
    return _write(wire.CLUSTER_MEMBERS, {"id": node_id, "peer": peer})


def remove_member(node_id: str) -> Request:
    """Build the request that removes a node. Repeating it is harmless, so it needs no request id."""
    return _write(wire.CLUSTER_MEMBERS, {"id": node_id}, method="DELETE")


def transfer_leadership(to: str) -> Request:
    """Build the request that hands leadership over."""
    return _write(wire.CLUSTER_TRANSFER_LEADERSHIP, {"to": to})
