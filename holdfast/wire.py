"""The words of the HTTP API: paths, headers, field names and problem codes. Data only.

Client and node both read this file, so that they cannot disagree. What stands here is a public contract:
entries are added, never renamed. `{braces}` in a path stand for a percent-encoded part of it.
"""

from typing import Final, NamedTuple

# Paths.
SESSIONS: Final = "/v1/sessions"
SESSION: Final = "/v1/sessions/{session_id}"
SESSION_KEEPALIVE: Final = "/v1/sessions/{session_id}/keepalive"
SESSION_AUDIT: Final = "/v1/sessions/{session_id}/audit"
LOCKS: Final = "/v1/locks"
LOCK: Final = "/v1/locks/{name}"
LOCK_ACQUIRE: Final = "/v1/locks/acquire"
LOCK_RENEW: Final = "/v1/locks/renew"
LOCK_RELEASE: Final = "/v1/locks/release"
LOCK_CONVERT: Final = "/v1/locks/convert"
LOCK_FORCE_RELEASE: Final = "/v1/locks/force-release"
SEMAPHORE: Final = "/v1/semaphores/{name}"
SEMAPHORE_ACQUIRE: Final = "/v1/semaphores/acquire"
SEMAPHORE_RENEW: Final = "/v1/semaphores/renew"
SEMAPHORE_RELEASE: Final = "/v1/semaphores/release"
SEMAPHORE_RESIZE: Final = "/v1/semaphores/resize"
RATE_TAKE: Final = "/v1/ratelimits/take"
FENCE_CHECK: Final = "/v1/fences/check"
FENCE_ADVANCE: Final = "/v1/fences/advance"
ELECTION: Final = "/v1/elections/{name}"
ELECTION_CAMPAIGN: Final = "/v1/elections/campaign"
ELECTION_PROCLAIM: Final = "/v1/elections/proclaim"
ELECTION_RESIGN: Final = "/v1/elections/resign"
AUDIT: Final = "/v1/audit"
WATCH: Final = "/v1/watch"
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
HEADER_RATE: Final = "RateLimit"
HEADER_RATE_POLICY: Final = "RateLimit-Policy"

# Bounds of this face; those of the state machine are in its answers.
BODY_BYTES_MAX: Final = 64 * 1024
TIMEOUT_MS_MIN: Final = 50
TIMEOUT_MS_MAX: Final = 60_000
HEADER_REQUEST_ID_CHARS_MAX: Final = 64

# Words of `?consistency=`, `mode`, `scope`, `algorithm`, `kind`, and `state` of locks and members.
LINEARIZABLE: Final = "linearizable"
STALE: Final = "stale"
MODES: Final = ("exclusive", "shared", "update")
SCOPES: Final = ("node", "subtree")
ALGORITHMS: Final = ("fixed-window", "sliding-window", "gcra")
KINDS: Final = ("lock", "semaphore", "election")
LOCK_STATES: Final = ("free", "held", "delayed")
MEMBER_STATES: Final = ("voter", "joining")
JOINING: Final = "joining"

# Fields of JSON bodies: what each request may carry, by "METHOD path".
REQUEST_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    f"POST {SESSIONS}": ("ttl_ms", "labels", "request_id"),
    f"POST {SESSION_KEEPALIVE}": ("request_id",),
    f"DELETE {SESSION}": ("request_id",),
    f"POST {LOCK_ACQUIRE}": (
        "name", "locks", "session_id", "ttl_ms", "owner", "mode", "scope",
        "wait_ms", "lock_delay_ms", "note", "request_id",
    ),
    f"POST {LOCK_RENEW}": ("hold_id", "ttl_ms", "request_id"),
    f"POST {LOCK_RELEASE}": ("hold_id", "names", "request_id"),
    f"POST {LOCK_CONVERT}": ("hold_id", "mode", "wait_ms", "request_id"),
    f"POST {LOCK_FORCE_RELEASE}": ("name", "reason", "lock_delay_ms", "request_id"),
    f"POST {SEMAPHORE_ACQUIRE}": (
        "name", "limit", "permits", "session_id", "ttl_ms", "owner",
        "wait_ms", "lock_delay_ms", "note", "request_id",
    ),
    f"POST {SEMAPHORE_RENEW}": ("hold_id", "ttl_ms", "request_id"),
    f"POST {SEMAPHORE_RELEASE}": ("hold_id", "request_id"),
    f"POST {SEMAPHORE_RESIZE}": ("name", "limit", "request_id"),
    f"POST {RATE_TAKE}": ("name", "limit", "window_ms", "algorithm", "cost", "wait_ms", "request_id"),
    f"POST {FENCE_CHECK}": ("name", "token"),
    f"POST {FENCE_ADVANCE}": ("resource", "token", "request_id"),
    f"POST {ELECTION_CAMPAIGN}": ("name", "session_id", "value", "owner", "wait_ms", "request_id"),
    f"POST {ELECTION_PROCLAIM}": ("hold_id", "value", "request_id"),
    f"POST {ELECTION_RESIGN}": ("hold_id", "request_id"),
    f"POST {CLUSTER_MEMBERS}": ("id", "peer"),
    f"DELETE {CLUSTER_MEMBERS}": ("id",),
    f"POST {CLUSTER_TRANSFER_LEADERSHIP}": ("to",),
}  # fmt: skip

# Fields of JSON answers, by "METHOD path". Stale reads carry `revision` and `lag_ms` besides; answers that
# grant, and the rest of a release, have more where it applies: see below.
ANSWER_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    f"POST {SESSIONS}": ("session_id", "ttl_ms", "expires_in_ms", "revision"),
    f"POST {SESSION_KEEPALIVE}": ("session_id", "expires_in_ms", "revision"),
    f"GET {SESSION}": ("ttl_ms", "expires_in_ms", "owner", "labels", "holds", "tickets"),
    f"DELETE {SESSION}": ("released", "revision"),
    f"POST {LOCK_ACQUIRE}": ("hold_id", "token", "name", "mode", "expires_in_ms", "revision"),
    f"POST {LOCK_RENEW}": ("token", "expires_in_ms", "revision"),
    f"POST {LOCK_RELEASE}": ("released", "revision"),
    f"POST {LOCK_FORCE_RELEASE}": ("released", "revision"),
    f"POST {LOCK_CONVERT}": ("hold_id", "token", "name", "mode", "expires_in_ms", "revision"),
    f"GET {LOCK}": ("name", "state", "holders", "queue"),
    f"GET {LOCKS}": ("locks", "next"),
    f"POST {SEMAPHORE_ACQUIRE}": (
        "hold_id",
        "token",
        "name",
        "permits",
        "available",
        "expires_in_ms",
        "revision",
    ),
    f"POST {SEMAPHORE_RENEW}": ("token", "expires_in_ms", "revision"),
    f"POST {SEMAPHORE_RELEASE}": ("released", "revision"),
    f"POST {SEMAPHORE_RESIZE}": ("name", "limit", "available", "revision"),
    f"GET {SEMAPHORE}": ("name", "limit", "available", "holders", "queue"),
    f"POST {RATE_TAKE}": ("allowed", "remaining", "retry_after_ms", "reset_in_ms", "revision"),
    f"POST {FENCE_CHECK}": ("valid", "current_token"),
    f"POST {FENCE_ADVANCE}": ("accepted", "highest_token", "revision"),
    f"POST {ELECTION_CAMPAIGN}": ("hold_id", "token", "leader", "expires_in_ms", "revision"),
    f"POST {ELECTION_PROCLAIM}": ("token", "revision"),
    f"POST {ELECTION_RESIGN}": ("released", "revision"),
    f"GET {ELECTION}": ("name", "leader", "queue"),
    f"GET {AUDIT}": ("events",),
    f"GET {SESSION_AUDIT}": ("events",),
    f"GET {CLUSTER}": ("node_id", "leader", "term", "revision", "lag_ms", "ready", "nodes"),
    f"POST {CLUSTER_MEMBERS}": ("members", "revision"),
    f"DELETE {CLUSTER_MEMBERS}": ("members", "revision"),
    f"POST {CLUSTER_TRANSFER_LEADERSHIP}": ("leader",),
}
GRANTED_EXTRA_FIELDS: Final = ("scope",)
"""Of a lock that covers its subtree."""
SEVERAL_FIELDS: Final = ("hold_id", "token", "locks", "expires_in_ms", "revision")
"""What an acquire or a conversion of several locks answers."""
RELEASED_EXTRA_FIELDS: Final = ("locks",)
"""Of a hold of several locks of which only some were given back: what is left."""
LOCK_FIELDS: Final = ("name", "mode", "scope")
"""Of each lock in `locks`, in requests and answers."""
HOLDER_FIELDS: Final = ("owner", "mode", "token", "expires_in_ms", "note", "name", "scope")
WAITER_FIELDS: Final = ("owner", "mode", "position", "waited_ms", "name", "scope")
PERMITS_HOLDER_FIELDS: Final = ("owner", "token", "expires_in_ms", "note", "name", "permits")
PERMITS_WAITER_FIELDS: Final = ("owner", "position", "waited_ms", "name", "permits")
CANDIDATE_FIELDS: Final = ("owner", "position", "waited_ms", "name")
"""Holders and waiters of locks, of semaphores, and who waits to lead. A session's have `kind` besides."""
WAITER_EXTRA_FIELDS: Final = ("conversion",)
LEADER_FIELDS: Final = ("owner", "value", "token")
CYCLE_FIELDS: Final = ("owner", "name", "kind")
EVENT_FIELDS: Final = ("revision", "event", "name", "owner", "reason", "at_ms", "lasted_ms")
EVENT_EXTRA_FIELDS: Final = ("kind", "mode", "scope", "token", "permits", "value")
"""Of events of the audit: of all but the end of a session, of locks, of semaphores, of an elected leader."""
NODE_FIELDS: Final = ("id", "http", "peer", "state", "revision")
MEMBER_FIELDS: Final = ("id", "peer", "state")

# Fields of a problem document: always, and where they apply.
PROBLEM_FIELDS: Final = ("type", "title", "status", "detail", "instance", "code", "outcome", "request_id")
PROBLEM_EXTRA_FIELDS: Final = (
    "retry_after_ms", "holders", "queue_length", "cycle", "available", "limit", "highest_token", "oldest",
    "revision", "lag_ms",
)  # fmt: skip
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
    "deadlock": Problem(409, "The wait would never end"),
    "conversion-deadlock": Problem(409, "Two conversions would wait for each other"),
    "not-holder": Problem(409, "The hold does not have this"),
    "no-permits": Problem(409, "The semaphore has too few permits left"),
    "limit-mismatch": Problem(409, "The semaphore has another limit"),
    "stale-token": Problem(409, "The resource has seen a higher token"),
    "member-change-refused": Problem(409, "The members stay as they are"),
    "member-change-pending": Problem(409, "Another change of the members is under way"),
    "session-expired": Problem(410, "The session has expired"),
    "lease-expired": Problem(410, "The lease has expired"),
    "compacted": Problem(410, "The events asked for are gone"),
    "payload-too-large": Problem(413, "The body is too large"),
    "queue-full": Problem(429, "The queue is full"),
    "overloaded": Problem(429, "The node has too much to do"),
    "internal": Problem(500, "The node made a mistake", UNKNOWN),
    "no-leader": Problem(503, "The cluster has no leader"),
    "shutting-down": Problem(503, "The node is shutting down"),
    "not-ready": Problem(503, "The node is not ready"),
    "transfer-failed": Problem(503, "Leadership was not handed over"),
    "outcome-unknown": Problem(504, "The outcome is not known", UNKNOWN),
}
"""By code. Programs switch on the code, people read `title` and `detail`."""
