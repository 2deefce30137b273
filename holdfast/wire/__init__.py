"""The words of the HTTP API that client and node share: paths, headers and problem codes. Data only.

Both read this file, so that they cannot disagree. It is a public contract: entries are added, never renamed.
`{braces}` in a path stand for a percent-encoded part of it.
"""

from typing import Final, NamedTuple

# Paths.
SESSIONS: Final = "/v1/sessions"
SESSION: Final = "/v1/sessions/{session_id}"
SESSION_FORCE_CLOSE: Final = "/v1/sessions/force-close"
SESSION_KEEPALIVE: Final = "/v1/sessions/{session_id}/keepalive"
SESSION_AUDIT: Final = "/v1/sessions/{session_id}/audit"
SESSION_WATCH: Final = "/v1/sessions/{session_id}/watch"
ACQUIRE: Final = "/v1/acquire"
LOCKS: Final = "/v1/locks"
LOCK: Final = "/v1/locks/{name}"
LOCK_ACQUIRE: Final = "/v1/locks/acquire"
LOCK_RENEW: Final = "/v1/locks/renew"
LOCK_RELEASE: Final = "/v1/locks/release"
LOCK_ADD: Final = "/v1/locks/add"
LOCK_CONVERT: Final = "/v1/locks/convert"
LOCK_FORCE_RELEASE: Final = "/v1/locks/force-release"
LOCK_LIFT_DELAY: Final = "/v1/locks/lift-delay"
LOCK_REVOKE: Final = "/v1/locks/revoke"
LOCK_WITHDRAW: Final = "/v1/locks/withdraw-revocation"
LOCK_PUT_OFF: Final = "/v1/locks/put-off"
LOCK_HAND_OVER: Final = "/v1/locks/hand-over"
SEMAPHORES: Final = "/v1/semaphores"
SEMAPHORE: Final = "/v1/semaphores/{name}"
SEMAPHORE_ACQUIRE: Final = "/v1/semaphores/acquire"
SEMAPHORE_RENEW: Final = "/v1/semaphores/renew"
SEMAPHORE_RELEASE: Final = "/v1/semaphores/release"
SEMAPHORE_RESIZE: Final = "/v1/semaphores/resize"
SEMAPHORE_FORCE_RELEASE: Final = "/v1/semaphores/force-release"
SEMAPHORE_LIFT_DELAY: Final = "/v1/semaphores/lift-delay"
SEMAPHORE_REVOKE: Final = "/v1/semaphores/revoke"
SEMAPHORE_WITHDRAW: Final = "/v1/semaphores/withdraw-revocation"
SEMAPHORE_PUT_OFF: Final = "/v1/semaphores/put-off"
RATES: Final = "/v1/rate-limits"
RATE: Final = "/v1/rate-limits/{name}"
RATE_TAKE: Final = "/v1/rate-limits/take"
RATE_PEEK: Final = "/v1/rate-limits/peek"
FENCES: Final = "/v1/fences"
FENCE: Final = "/v1/fences/{name}"
FENCE_CHECK: Final = "/v1/fences/check"
FENCE_ADVANCE: Final = "/v1/fences/advance"
FENCE_FORGET: Final = "/v1/fences/forget"
ELECTIONS: Final = "/v1/elections"
ELECTION: Final = "/v1/elections/{name}"
ELECTION_CAMPAIGN: Final = "/v1/elections/campaign"
ELECTION_PROCLAIM: Final = "/v1/elections/proclaim"
ELECTION_RESIGN: Final = "/v1/elections/resign"
ELECTION_DEPOSE: Final = "/v1/elections/depose"
ELECTION_REVOKE: Final = "/v1/elections/revoke"
ELECTION_WITHDRAW: Final = "/v1/elections/withdraw-revocation"
ELECTION_PUT_OFF: Final = "/v1/elections/put-off"
HOLDS: Final = "/v1/holds"
TICKET: Final = "/v1/tickets/{ticket}"
WAITS_WITHDRAW: Final = "/v1/waits/withdraw"
WAITS_FORCE_END: Final = "/v1/waits/force-end"
CELLS: Final = "/v1/cells"
CELL: Final = "/v1/cells/{key}"
CELLS_TRANSACT: Final = "/v1/cells/txn"
AUDIT: Final = "/v1/audit"
REFUSALS: Final = "/v1/refusals"
QUOTAS: Final = "/v1/quotas"
QUOTA: Final = "/v1/quotas/{principal}"
NAMESPACES: Final = "/v1/namespaces"
NAMESPACE: Final = "/v1/namespaces/{name}"
FREEZES: Final = "/v1/freezes"
FREEZE: Final = "/v1/freezes/{name}"
WATCH: Final = "/v1/watch"
STREAM: Final = "/v1/stream"
CLUSTER: Final = "/v1/cluster"
CLUSTER_BACKUP: Final = "/v1/cluster/backup"
CLUSTER_DEBUG: Final = "/v1/cluster/debug"
CLUSTER_LOG_LEVEL: Final = "/v1/cluster/log-level"
CLUSTER_MEMBERS: Final = "/v1/cluster/members"
CLUSTER_RULES_HOLD: Final = "/v1/cluster/rules-hold"
CLUSTER_PREFERRED_LEADER: Final = "/v1/cluster/preferred-leader"
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
HEADER_AUTHORIZATION: Final = "Authorization"
HEADER_AUTHENTICATE: Final = "WWW-Authenticate"
BEARER: Final = "Bearer"

# Bounds of the HTTP API; a refusal by the state machine names its own.
BODY_BYTES_MAX: Final = 64 * 1024
TIMEOUT_MS_MIN: Final = 50
TIMEOUT_MS_MAX: Final = 60_000
WAIT_MS_MAX: Final = 24 * 3600 * 1000
WAIT_KEPT_MS: Final = 10_000
"""Milliseconds for which a request with a `request_id` keeps its place while nobody is connected for it."""
HEADER_REQUEST_ID_CHARS_MAX: Final = 64

# Words of `?consistency=`, and of the `state` of members.
LINEARIZABLE: Final = "linearizable"
STALE: Final = "stale"
VOTER: Final = "voter"
JOINING: Final = "joining"

# Problem documents.
PROBLEM_TYPE_PREFIX: Final = "urn:holdfast:problem:"

NOT_APPLIED: Final = "not-applied"
UNKNOWN: Final = "unknown"


class ProblemKind(NamedTuple):
    """One kind of problem document. `outcome` says whether the request may have had an effect."""

    status: int
    title: str
    outcome: str = NOT_APPLIED


PROBLEMS: Final[dict[str, ProblemKind]] = {
    "invalid-request": ProblemKind(400, "The request is not valid"),
    "name-too-long": ProblemKind(400, "The name is too long"),
    "ttl-out-of-range": ProblemKind(400, "The ttl is out of range"),
    "wrong-kind": ProblemKind(400, "The call is for another kind"),
    "unauthenticated": ProblemKind(401, "The caller is not known"),
    "forbidden": ProblemKind(403, "The caller has no right for this"),
    "forbidden-host": ProblemKind(403, "The node does not know itself by this name"),
    "forbidden-origin": ProblemKind(403, "Pages of others cannot call the node"),
    "not-found": ProblemKind(404, "There is nothing here"),
    "member-not-found": ProblemKind(404, "No node has this id"),
    "cell-not-found": ProblemKind(404, "There is no such cell"),
    "namespace-not-found": ProblemKind(404, "There is no such namespace"),
    "method-not-allowed": ProblemKind(405, "The path does not take this method"),
    "lock-held": ProblemKind(409, "The lock is held"),
    "deadlock": ProblemKind(409, "The wait would never end"),
    "conversion-deadlock": ProblemKind(409, "Two conversions would wait for each other"),
    "not-holder": ProblemKind(409, "The hold does not have this"),
    "not-revoked": ProblemKind(409, "Nobody has asked for the hold back, or it was put off before"),
    "no-permits": ProblemKind(409, "The semaphore has too few permits left"),
    "frozen": ProblemKind(409, "The prefix is frozen"),
    "rate-limited": ProblemKind(409, "A rate limit has no place in time"),
    "limit-mismatch": ProblemKind(409, "The semaphore or rate limit has another limit"),
    "quota-exceeded": ProblemKind(409, "There is as much as there may be"),
    "already-held": ProblemKind(409, "The session holds it already"),
    "stale-token": ProblemKind(409, "The resource has seen a higher token"),
    "cell-changed": ProblemKind(409, "The cell is not as it was"),
    "member-change-refused": ProblemKind(409, "The members stay as they are"),
    "member-change-pending": ProblemKind(409, "Another change of the members is under way"),
    "session-expired": ProblemKind(410, "The session has expired"),
    "lease-expired": ProblemKind(410, "The lease has expired"),
    "ticket-ended": ProblemKind(410, "The wait has ended"),
    "compacted": ProblemKind(410, "The events asked for are gone"),
    "payload-too-large": ProblemKind(413, "The body is too large"),
    "unsupported-encoding": ProblemKind(415, "The body is encoded"),
    "expectation-failed": ProblemKind(417, "Something is expected that no node does"),
    "tls-required": ProblemKind(421, "The port speaks only TLS"),
    "too-many-requests": ProblemKind(429, "The caller asks this node too often"),
    "queue-full": ProblemKind(429, "The queue is full"),
    "overloaded": ProblemKind(429, "The node has too much to do"),
    "internal": ProblemKind(500, "The node made a mistake", UNKNOWN),
    "no-leader": ProblemKind(503, "The cluster has no leader"),
    "shutting-down": ProblemKind(503, "The node is shutting down"),
    "not-ready": ProblemKind(503, "The node is not ready"),
    "upgrade-pending": ProblemKind(503, "The cluster does not know this yet"),
    "transfer-failed": ProblemKind(503, "Leadership was not handed over"),
    "outcome-unknown": ProblemKind(504, "The outcome is not known", UNKNOWN),
}
"""The kinds by code. Programs switch on the code, people read `title` and `detail`."""
