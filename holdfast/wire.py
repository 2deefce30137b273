"""The words of the HTTP API: paths, headers, field names and problem codes. Data only.

Client and node both read this file, so that they cannot disagree. What stands here is a public contract:
entries are added, never renamed. `{braces}` in a path stand for a percent-encoded part of it.
"""

from typing import Final, NamedTuple

# Paths.
SESSIONS: Final = "/v1/sessions"
SESSION: Final = "/v1/sessions/{session_id}"
SESSION_KEEPALIVE: Final = "/v1/sessions/{session_id}/keepalive"
LOCKS: Final = "/v1/locks"
LOCK: Final = "/v1/locks/{name}"
LOCK_ACQUIRE: Final = "/v1/locks/acquire"
LOCK_RENEW: Final = "/v1/locks/renew"
LOCK_RELEASE: Final = "/v1/locks/release"
LOCK_FORCE_RELEASE: Final = "/v1/locks/force-release"
CLUSTER: Final = "/v1/cluster"
CLUSTER_MEMBERS: Final = "/v1/cluster/members"
CLUSTER_TRANSFER_LEADERSHIP: Final = "/v1/cluster/transfer-leadership"
LIVEZ: Final = "/livez"
READYZ: Final = "/readyz"
METRICS: Final = "/metrics"
OPENAPI: Final = "/openapi.json"

# Media types.
JSON: Final = "application/json"
PROBLEM_JSON: Final = "application/problem+json"

# Headers. A node answers with the id that the request brought, or with one that it made.
HEADER_REQUEST_ID: Final = "Holdfast-Request-Id"
HEADER_TIMEOUT_MS: Final = "Holdfast-Timeout-Ms"
HEADER_RETRY_AFTER: Final = "Retry-After"

# Bounds of this face; those of the state machine are in its answers.
BODY_BYTES_MAX: Final = 64 * 1024
TIMEOUT_MS_MIN: Final = 50
TIMEOUT_MS_MAX: Final = 60_000
HEADER_REQUEST_ID_CHARS_MAX: Final = 64

# Words of `?consistency=`, `mode`, and `state` of locks and members.
LINEARIZABLE: Final = "linearizable"
STALE: Final = "stale"
MODES: Final = ("exclusive", "shared")
LOCK_STATES: Final = ("free", "held", "delayed")
MEMBER_STATES: Final = ("voter", "joining")
JOINING: Final = "joining"

# Fields of JSON bodies: what each request may carry, by "METHOD path".
REQUEST_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    f"POST {SESSIONS}": ("ttl_ms", "labels", "request_id"),
    f"POST {SESSION_KEEPALIVE}": ("request_id",),
    f"DELETE {SESSION}": ("request_id",),
    f"POST {LOCK_ACQUIRE}": (
        "name", "session_id", "ttl_ms", "owner", "mode", "scope",
        "wait_ms", "lock_delay_ms", "note", "request_id",
    ),
    f"POST {LOCK_RENEW}": ("hold_id", "ttl_ms", "request_id"),
    f"POST {LOCK_RELEASE}": ("hold_id", "request_id"),
    f"POST {LOCK_FORCE_RELEASE}": ("name", "reason", "lock_delay_ms", "request_id"),
    f"POST {CLUSTER_MEMBERS}": ("id", "peer"),
    f"DELETE {CLUSTER_MEMBERS}": ("id",),
    f"POST {CLUSTER_TRANSFER_LEADERSHIP}": ("to",),
}  # fmt: skip

# Fields of JSON answers, by "METHOD path". Stale reads carry `revision` and `lag_ms` besides.
ANSWER_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    f"POST {SESSIONS}": ("session_id", "ttl_ms", "expires_in_ms", "revision"),
    f"POST {SESSION_KEEPALIVE}": ("session_id", "expires_in_ms", "revision"),
    f"GET {SESSION}": ("ttl_ms", "expires_in_ms", "owner", "labels", "holds", "tickets"),
    f"DELETE {SESSION}": ("released", "revision"),
    f"POST {LOCK_ACQUIRE}": ("hold_id", "token", "name", "mode", "expires_in_ms", "revision"),
    f"POST {LOCK_RENEW}": ("token", "expires_in_ms", "revision"),
    f"POST {LOCK_RELEASE}": ("released", "revision"),
    f"POST {LOCK_FORCE_RELEASE}": ("released", "revision"),
    f"GET {LOCK}": ("name", "state", "holders", "queue"),
    f"GET {LOCKS}": ("locks", "next"),
    f"GET {CLUSTER}": ("node_id", "leader", "term", "revision", "lag_ms", "ready", "nodes"),
    f"POST {CLUSTER_MEMBERS}": ("members", "revision"),
    f"DELETE {CLUSTER_MEMBERS}": ("members", "revision"),
    f"POST {CLUSTER_TRANSFER_LEADERSHIP}": ("leader",),
}
HOLDER_FIELDS: Final = ("owner", "mode", "token", "expires_in_ms", "note")
WAITER_FIELDS: Final = ("owner", "mode", "position", "waited_ms")
NODE_FIELDS: Final = ("id", "http", "peer", "state", "revision")
MEMBER_FIELDS: Final = ("id", "peer", "state")

# Fields of a problem document: always, and where they apply.
PROBLEM_FIELDS: Final = ("type", "title", "status", "detail", "instance", "code", "outcome", "request_id")
PROBLEM_EXTRA_FIELDS: Final = ("retry_after_ms", "holders", "queue_length")
PROBLEM_TYPE_PREFIX: Final = "urn:holdfast:problem:"

NOT_APPLIED: Final = "not-applied"
UNKNOWN: Final = "unknown"


class Problem(NamedTuple):
    """One kind of problem document. `outcome` says whether the request may have had an effect."""

    status: int
    title: str
    outcome: str = NOT_APPLIED


PROBLEMS: Final[dict[str, Problem]] = {
    "invalid-request": Problem(400, "The request is not valid"),
    "name-too-long": Problem(400, "The name is too long"),
    "ttl-out-of-range": Problem(400, "The ttl is out of range"),
    "not-found": Problem(404, "There is nothing here"),
    "member-not-found": Problem(404, "No node has this id"),
    "method-not-allowed": Problem(405, "The path does not take this method"),
    "lock-held": Problem(409, "The lock is held"),
    "member-change-refused": Problem(409, "The members stay as they are"),
    "member-change-pending": Problem(409, "Another change of the members is under way"),
    "session-expired": Problem(410, "The session has expired"),
    "lease-expired": Problem(410, "The lease has expired"),
    "payload-too-large": Problem(413, "The body is too large"),
    "queue-full": Problem(429, "The queue of the lock is full"),
    "overloaded": Problem(429, "The node has too much to do"),
    "internal": Problem(500, "The node made a mistake", UNKNOWN),
    "no-leader": Problem(503, "The cluster has no leader"),
    "shutting-down": Problem(503, "The node is shutting down"),
    "not-ready": Problem(503, "The node is not ready"),
    "transfer-failed": Problem(503, "Leadership was not handed over"),
    "outcome-unknown": Problem(504, "The outcome is not known", UNKNOWN),
}
"""By code. Programs switch on the code, people read `title` and `detail`."""
