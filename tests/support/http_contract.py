"""What requests and answers of the HTTP API carry: the published fields and words, written down once more.

Nothing of the product reads this. Tests compare it with what nodes answer, what /openapi.json says and what
the SDK sends, so that no field changes its name by accident: entries are added, never renamed.
"""

from typing import Final

from holdfast import wire

# Words of `mode`, `scope`, `algorithm` and `kind`, and of the `state` of locks and members.
MODES: Final = ("exclusive", "shared", "update", "concurrent-read", "concurrent-write")
SCOPES: Final = ("node", "subtree")
ALGORITHMS: Final = ("fixed-window", "sliding-window", "gcra")
KINDS: Final = ("lock", "semaphore", "election")
LOCK_STATES: Final = ("free", "held", "delayed")
MEMBER_STATES: Final = ("voter", "joining")

# Fields of JSON bodies: what each request may carry, by "METHOD path".
REQUEST_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    f"POST {wire.SESSIONS}": ("ttl_ms", "labels", "request_id"),
    f"POST {wire.SESSION_KEEPALIVE}": ("ttl_ms", "request_id"),
    f"POST {wire.SESSION_FORCE_CLOSE}": ("session_name", "reason", "request_id"),
    f"DELETE {wire.SESSION}": ("request_id",),
    f"POST {wire.ACQUIRE}": (
        "locks", "permits", "rate_limits", "session_id", "ttl_ms", "owner",
        "wait_ms", "poll_ms", "lock_delay_ms", "note", "request_id",
    ),
    f"POST {wire.LOCK_ACQUIRE}": (
        "name", "locks", "session_id", "ttl_ms", "owner", "mode", "scope",
        "wait_ms", "poll_ms", "lock_delay_ms", "note",
        "request_id", "if_held", "value", "value_secret", "no_deadline",
        "priority", "ask_after_ms", "grace_ms",
    ),
    f"POST {wire.LOCK_RENEW}": ("hold_id", "name", "value", "ttl_ms", "exact", "request_id"),
    f"POST {wire.LOCK_RELEASE}": ("hold_id", "name", "value", "names", "request_id"),
    f"POST {wire.WAITS_WITHDRAW}": ("request_id", "session_id", "owner", "hold_id"),
    f"POST {wire.WAITS_FORCE_END}": ("name", "reason", "kind", "ticket", "request_id"),
    f"POST {wire.LOCK_CONVERT}": ("hold_id", "mode", "wait_ms", "poll_ms", "request_id"),
    f"POST {wire.LOCK_ADD}": ("hold_id", "locks", "wait_ms", "poll_ms", "request_id"),
    f"POST {wire.LOCK_FORCE_RELEASE}": ("name", "reason", "token", "lock_delay_ms", "request_id"),
    f"POST {wire.LOCK_LIFT_DELAY}": ("name", "reason", "request_id"),
    f"POST {wire.LOCK_REVOKE}": ("name", "reason", "grace_ms", "token", "ticket", "request_id"),
    f"POST {wire.LOCK_WITHDRAW}": ("name", "reason", "token", "ticket", "request_id"),
    f"POST {wire.LOCK_PUT_OFF}": ("hold_id", "request_id"),
    f"POST {wire.LOCK_HAND_OVER}": ("hold_id", "to_ticket", "to_session", "new_hold_id", "request_id"),
    f"POST {wire.SEMAPHORE_ACQUIRE}": (
        "name", "limit", "permits", "session_id", "ttl_ms", "owner",
        "wait_ms", "poll_ms", "lock_delay_ms", "note",
        "request_id", "strict", "value", "value_secret", "no_deadline",
        "priority", "ask_after_ms", "grace_ms",
    ),
    f"POST {wire.SEMAPHORE_RENEW}": ("hold_id", "name", "value", "ttl_ms", "exact", "request_id"),
    f"POST {wire.SEMAPHORE_RELEASE}": ("hold_id", "name", "value", "request_id"),
    f"POST {wire.SEMAPHORE_RESIZE}": ("name", "limit", "reason", "request_id"),
    f"POST {wire.SEMAPHORE_LIFT_DELAY}": ("name", "reason", "request_id"),
    f"POST {wire.SEMAPHORE_REVOKE}": ("name", "reason", "grace_ms", "token", "ticket", "request_id"),
    f"POST {wire.SEMAPHORE_WITHDRAW}": ("name", "reason", "token", "ticket", "request_id"),
    f"POST {wire.SEMAPHORE_PUT_OFF}": ("hold_id", "request_id"),
    f"POST {wire.SEMAPHORE_FORCE_RELEASE}": ("name", "reason", "token", "lock_delay_ms", "request_id"),
    f"POST {wire.RATE_TAKE}": (
        "name", "limit", "window_ms", "algorithm", "cost", "wait_ms", "poll_ms", "request_id",
    ),
    f"POST {wire.RATE_PEEK}": ("name", "limit", "window_ms", "algorithm", "cost"),
    f"POST {wire.FENCE_CHECK}": ("name", "token", "kind"),
    f"POST {wire.FENCE_ADVANCE}": ("name", "token", "request_id"),
    f"POST {wire.FENCE_FORGET}": ("name", "reason", "request_id"),
    f"DELETE {wire.RATE}": ("reason", "request_id"),
    f"DELETE {wire.RATES}": ("reason", "request_id"),
    f"POST {wire.ELECTION_CAMPAIGN}": (
        "name", "session_id", "value", "owner", "if_held", "wait_ms", "poll_ms", "request_id",
    ),
    f"POST {wire.ELECTION_PROCLAIM}": ("hold_id", "value", "request_id"),
    f"POST {wire.ELECTION_RESIGN}": ("hold_id", "request_id"),
    f"POST {wire.ELECTION_DEPOSE}": ("name", "reason", "token", "request_id"),
    f"POST {wire.ELECTION_REVOKE}": ("name", "reason", "grace_ms", "token", "ticket", "request_id"),
    f"POST {wire.ELECTION_WITHDRAW}": ("name", "reason", "token", "ticket", "request_id"),
    f"POST {wire.ELECTION_PUT_OFF}": ("hold_id", "request_id"),
    f"PUT {wire.CELL}": (
        "value", "value_base64", "session_id", "ttl_ms", "if_version", "if_mod_revision", "request_id",
    ),
    f"DELETE {wire.CELL}": ("if_version", "if_mod_revision", "request_id"),
    f"DELETE {wire.CELLS}": ("request_id",),
    f"POST {wire.CELLS_TRANSACT}": ("compare", "then", "else", "request_id"),
    f"PUT {wire.QUOTA}": (
        "reason", "sessions", "holds", "waits", "cells", "fences", "rate_limits", "bytes", "request_id",
    ),
    f"DELETE {wire.QUOTA}": ("reason", "request_id"),
    f"PUT {wire.NAMESPACE}": (
        "reason", "ttl_ms_min", "ttl_ms_max", "lock_delay_ms_min", "no_deadline", "priority",
        "holds", "waits", "cells", "fences", "rate_limits", "bytes", "if_held", "rate",
        "ask_after_ms_min", "grace_ms_min", "held_ms_max", "request_id",
    ),
    f"DELETE {wire.NAMESPACE}": ("reason", "request_id"),
    f"PUT {wire.FREEZE}": ("reason", "for_ms", "request_id"),
    f"DELETE {wire.FREEZE}": ("reason", "request_id"),
    f"POST {wire.CLUSTER_MEMBERS}": ("id", "peer", "reason", "request_id"),
    f"PATCH {wire.CLUSTER_MEMBERS}": ("id", "peer", "reason", "request_id"),
    f"DELETE {wire.CLUSTER_MEMBERS}": ("id", "reason", "request_id"),
    f"POST {wire.CLUSTER_TRANSFER_LEADERSHIP}": ("to", "reason", "request_id"),
    f"PUT {wire.CLUSTER_PREFERRED_LEADER}": ("id", "reason", "request_id"),
    f"DELETE {wire.CLUSTER_PREFERRED_LEADER}": ("reason", "request_id"),
    f"PUT {wire.CLUSTER_LOG_LEVEL}": ("node_id", "level", "for_ms", "request_id"),
    f"PUT {wire.CLUSTER_RULES_HOLD}": ("reason", "request_id"),
    f"DELETE {wire.CLUSTER_RULES_HOLD}": ("reason", "request_id"),
}  # fmt: skip

# Fields of JSON answers, by "METHOD path". Stale reads carry `revision` and `lag_ms` besides; answers that
# grant, and the rest of a release, have more where it applies: see below.
ANSWER_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    f"POST {wire.SESSIONS}": ("session_id", "ttl_ms", "expires_in_ms", "revision"),
    f"POST {wire.SESSION_KEEPALIVE}": ("session_id", "expires_in_ms", "revision"),
    f"GET {wire.SESSION}": (
        "ttl_ms",
        "expires_in_ms",
        "owner",
        "labels",
        "holds",
        "tickets",
        "session_name",
    ),
    f"GET {wire.SESSIONS}": ("sessions", "next"),
    f"GET {wire.HOLDS}": ("holds", "tickets", "next"),
    f"POST {wire.WAITS_WITHDRAW}": ("withdrawn", "revision"),
    f"POST {wire.WAITS_FORCE_END}": ("ended", "revision", "left"),
    f"GET {wire.TICKET}": (
        "ticket",
        "kind",
        "names",
        "owner",
        "position",
        "waited_ms",
        "ends_in_ms",
        "estimate_ms",
    ),
    f"GET {wire.SEMAPHORES}": ("semaphores", "next"),
    f"GET {wire.ELECTIONS}": ("elections", "next"),
    f"POST {wire.RATE_PEEK}": ("allowed", "remaining", "retry_after_ms", "reset_in_ms"),
    f"GET {wire.RATES}": ("rate_limits", "next"),
    f"GET {wire.FENCE}": ("name", "highest_token"),
    f"GET {wire.FENCES}": ("fences", "next"),
    f"DELETE {wire.SESSION}": ("names", "revision"),
    f"POST {wire.SESSION_FORCE_CLOSE}": ("session_name", "owner", "names", "revision"),
    f"POST {wire.LOCK_LIFT_DELAY}": ("lifted", "left_ms", "revision"),
    f"POST {wire.LOCK_REVOKE}": ("revoked", "revision", "left"),
    f"POST {wire.LOCK_WITHDRAW}": ("withdrawn", "revision", "left"),
    f"POST {wire.LOCK_PUT_OFF}": ("token", "ends_in_ms", "revision"),
    f"POST {wire.LOCK_HAND_OVER}": ("token", "owner", "revision"),
    f"POST {wire.SEMAPHORE_LIFT_DELAY}": ("lifted", "left_ms", "revision"),
    f"POST {wire.SEMAPHORE_REVOKE}": ("revoked", "revision", "left"),
    f"POST {wire.SEMAPHORE_WITHDRAW}": ("withdrawn", "revision", "left"),
    f"POST {wire.SEMAPHORE_PUT_OFF}": ("token", "ends_in_ms", "revision"),
    f"POST {wire.FENCE_FORGET}": ("forgotten", "highest_token", "revision"),
    f"DELETE {wire.RATE}": ("forgotten", "more", "revision"),
    f"DELETE {wire.RATES}": ("forgotten", "more", "revision"),
    f"POST {wire.ACQUIRE}": (
        "hold_id",
        "token",
        "locks",
        "permits",
        "rate_limits",
        "expires_in_ms",
        "revision",
    ),
    f"POST {wire.LOCK_ACQUIRE}": ("hold_id", "token", "name", "mode", "expires_in_ms", "revision"),
    f"POST {wire.LOCK_RENEW}": ("token", "expires_in_ms", "revision"),
    f"POST {wire.LOCK_RELEASE}": ("released", "revision"),
    f"POST {wire.LOCK_FORCE_RELEASE}": ("forced", "revision"),
    f"POST {wire.LOCK_CONVERT}": ("hold_id", "token", "name", "mode", "expires_in_ms", "revision"),
    f"POST {wire.LOCK_ADD}": ("hold_id", "token", "name", "mode", "expires_in_ms", "revision"),
    f"GET {wire.LOCK}": ("name", "state", "holders", "queue"),
    f"GET {wire.LOCKS}": ("locks", "next"),
    f"POST {wire.SEMAPHORE_ACQUIRE}": (
        "hold_id",
        "token",
        "name",
        "permits",
        "available",
        "expires_in_ms",
        "revision",
        "limit",
    ),
    f"POST {wire.SEMAPHORE_RENEW}": ("token", "expires_in_ms", "revision"),
    f"POST {wire.SEMAPHORE_RELEASE}": ("released", "revision"),
    f"POST {wire.SEMAPHORE_RESIZE}": ("name", "limit", "available", "revision"),
    f"POST {wire.SEMAPHORE_FORCE_RELEASE}": ("forced", "revision"),
    f"GET {wire.SEMAPHORE}": ("name", "limit", "available", "holders", "queue"),
    f"POST {wire.RATE_TAKE}": ("allowed", "remaining", "retry_after_ms", "reset_in_ms", "revision"),
    f"POST {wire.FENCE_CHECK}": ("valid", "current_token"),
    f"POST {wire.FENCE_ADVANCE}": ("accepted", "highest_token", "revision"),
    f"POST {wire.ELECTION_CAMPAIGN}": ("hold_id", "token", "leader", "expires_in_ms", "revision"),
    f"POST {wire.ELECTION_PROCLAIM}": ("token", "revision"),
    f"POST {wire.ELECTION_RESIGN}": ("released", "revision"),
    f"POST {wire.ELECTION_DEPOSE}": ("forced", "revision"),
    f"POST {wire.ELECTION_REVOKE}": ("revoked", "revision", "left"),
    f"POST {wire.ELECTION_WITHDRAW}": ("withdrawn", "revision", "left"),
    f"POST {wire.ELECTION_PUT_OFF}": ("token", "ends_in_ms", "revision"),
    f"GET {wire.ELECTION}": ("name", "leader", "queue"),
    f"PUT {wire.CELL}": ("create_revision", "mod_revision", "version", "revision"),
    f"GET {wire.CELL}": ("key", "value", "create_revision", "mod_revision", "version"),
    f"DELETE {wire.CELL}": ("deleted", "more", "revision"),
    f"DELETE {wire.CELLS}": ("deleted", "more", "revision"),
    f"GET {wire.CELLS}": ("cells", "next"),
    f"POST {wire.CELLS_TRANSACT}": ("succeeded", "results", "revision"),
    f"GET {wire.AUDIT}": ("events", "now_ms"),
    f"GET {wire.SESSION_AUDIT}": ("events", "now_ms"),
    f"GET {wire.REFUSALS}": ("refusals", "count", "node_id"),
    f"GET {wire.CLUSTER_DEBUG}": (
        "node_id",
        "version",
        "commit",
        "python",
        "libraries",
        "settings",
        "log_level",
        "log_lines",
        "log",
        "threads",
        "tasks_count",
        "tasks",
    ),
    f"PUT {wire.CLUSTER_LOG_LEVEL}": ("node_id", "level", "before", "ends_in_ms"),
    f"GET {wire.QUOTAS}": ("quotas", "next"),
    f"GET {wire.QUOTA}": ("principal", "quota", "used"),
    f"PUT {wire.QUOTA}": ("principal", "quota", "revision"),
    f"DELETE {wire.QUOTA}": ("principal", "quota", "revision"),
    f"GET {wire.NAMESPACES}": ("namespaces", "next"),
    f"GET {wire.NAMESPACE}": ("prefix", "settings", "used"),
    f"PUT {wire.NAMESPACE}": ("prefix", "settings", "revision"),
    f"DELETE {wire.NAMESPACE}": ("prefix", "settings", "revision"),
    f"GET {wire.FREEZES}": ("freezes", "next"),
    f"GET {wire.FREEZE}": ("prefix", "frozen", "reason", "frozen_ms", "left"),
    f"PUT {wire.FREEZE}": ("prefix", "left", "revision"),
    f"DELETE {wire.FREEZE}": ("prefix", "thawed", "revision"),
    f"GET {wire.CLUSTER}": (
        "node_id",
        "leader",
        "term",
        "revision",
        "lag_ms",
        "ready",
        "nodes",
        "obstacles",
        "digest",
        "rules",
        "now_ms",
        "own",
        "rules_hold",
        "preferred",
    ),
    f"POST {wire.CLUSTER_MEMBERS}": ("members", "revision"),
    f"PATCH {wire.CLUSTER_MEMBERS}": ("members", "revision"),
    f"DELETE {wire.CLUSTER_MEMBERS}": ("members", "revision"),
    f"POST {wire.CLUSTER_TRANSFER_LEADERSHIP}": ("leader",),
    f"PUT {wire.CLUSTER_PREFERRED_LEADER}": ("preferred", "was_preferred", "revision"),
    f"DELETE {wire.CLUSTER_PREFERRED_LEADER}": ("preferred", "was_preferred", "revision"),
    f"PUT {wire.CLUSTER_RULES_HOLD}": ("rules", "held", "was_held", "revision"),
    f"DELETE {wire.CLUSTER_RULES_HOLD}": ("rules", "held", "was_held", "revision"),
}
GRANTED_EXTRA_FIELDS: Final = ("scope", "already_held", "depth", "value", "no_deadline")
"""Of a lock that covers its subtree; of one that the session had already, and that several releases end."""
SEVERAL_EXTRA_FIELDS: Final = ("already_held", "depth", "value", "no_deadline")
"""Of a hold of several locks that the session had already."""
SEVERAL_FIELDS: Final = ("hold_id", "token", "locks", "expires_in_ms", "revision")
"""What an acquire or a conversion of several locks answers."""
RELEASED_EXTRA_FIELDS: Final = ("locks", "depth")
"""Of a hold of several locks of which only some were given back: what is left; and how many releases are."""
ELECTED_EXTRA_FIELDS: Final = ("already_held",)
"""Of an election that the session led already."""
LOCK_FIELDS: Final = ("name", "mode", "scope")
"""Of each lock in `locks`, in requests and answers."""
HOLDER_FIELDS: Final = ("owner", "mode", "token", "expires_in_ms", "note", "name", "scope")
PERMITS_EXTRA_FIELDS: Final = ("value", "no_deadline")
"""Of granted permits that carry a value."""
HOLDER_EXTRA_FIELDS: Final = ("value", "no_deadline")
"""Of holders in reads that carry a value which is not secret; of all that have no deadline."""
RENEWED_EXTRA_FIELDS: Final = ("no_deadline", "revocations")
"""Of a renewal of what has no deadline, and of what is to be given up."""
HOLDER_READ_FIELDS: Final = ("since_ms", "session_name", "labels")
"""Of holders and leaders in reads; the last two if they hold in a session."""
PRINCIPAL_FIELDS: Final = ("principal",)
"""Of everything in reads that a principal has, where nodes know principals."""
REVOKED_FIELDS: Final = ("revocation",)
"""Of holders and leaders that are to give up."""
REVOCATION_FIELDS: Final = ("name", "reason", "ends_in_ms", "put_off", "ticket")
"""What was asked of them; `ticket` if it is for somebody who waits."""
KEPT_EXTRA_FIELDS: Final = ("revoked",)
"""Of a keepalive of a session that is to give up some of what it holds."""
TICKET_EXTRA_FIELDS: Final = ("session_name", "conversion", "priority", *PRINCIPAL_FIELDS)
SESSION_ROW_FIELDS: Final = (
    "session_name",
    "owner",
    "labels",
    "ttl_ms",
    "expires_in_ms",
    "holds_count",
    "tickets_count",
)
SEMAPHORE_ROW_FIELDS: Final = (
    "name",
    "limit",
    "available",
    "holders",
    "holders_count",
    "queue_length",
)
ELECTION_ROW_FIELDS: Final = ("name", "leader", "queue_length")
RATE_ROW_FIELDS: Final = ("name", "algorithm", "window_ms", "reset_in_ms", "waiting")
RATE_EXTRA_FIELDS: Final = ("principal", "last_principal")
"""Of a rate limit, where nodes know principals."""
FENCE_ROW_FIELDS: Final = ("name", "highest_token")
"""Of the things in listings."""
WAITER_FIELDS: Final = ("owner", "mode", "position", "waited_ms", "name", "scope", "ticket")
PERMITS_HOLDER_FIELDS: Final = ("owner", "token", "expires_in_ms", "note", "name", "permits")
PERMITS_WAITER_FIELDS: Final = ("owner", "position", "waited_ms", "name", "permits", "ticket")
CANDIDATE_FIELDS: Final = ("owner", "position", "waited_ms", "name", "ticket")
"""Holders and waiters of locks, of semaphores, and who waits to lead. A session's have `kind` besides."""
WAITER_EXTRA_FIELDS: Final = ("conversion", "session_name", "priority", *PRINCIPAL_FIELDS)
CELL_EXTRA_FIELDS: Final = ("key_base64", "value_base64", "owner", "expires_in_ms")
"""Of cells that are not text, that live with a session, and that end by themselves."""
CELL_EVENT_FIELDS: Final = ("revision", "event", "kind", "name", "mod_revision", "version", "at_ms")
QUOTA_ROW_FIELDS: Final = ("principal", "quota", "used")
QUOTA_FIELDS: Final = ("sessions", "holds", "waits", "cells", "fences", "rate_limits", "bytes")
"""Of a quota, and of what is used."""
NAMESPACE_ROW_FIELDS: Final = ("prefix", "settings", "used")
NAMESPACE_USED_FIELDS: Final = ("holds", "waits", "cells", "fences", "rate_limits", "bytes")
NAMESPACE_FIELDS: Final = (
    "ttl_ms_min", "ttl_ms_max", "lock_delay_ms_min", "no_deadline", "priority",
    *NAMESPACE_USED_FIELDS, "if_held", "rate", "ask_after_ms_min", "grace_ms_min", "held_ms_max",
)  # fmt: skip
FREEZE_FIELDS: Final = ("prefix", "frozen", "reason", "frozen_ms", "ends_in_ms", "left")
LEFT_FIELDS: Final = ("holds", "waits", "more")
LEADER_FIELDS: Final = ("owner", "value", "token")
CYCLE_FIELDS: Final = ("owner", "name", "kind")
EVENT_FIELDS: Final = ("revision", "event", "name", "owner", "reason", "at_ms", "lasted_ms")
EVENT_EXTRA_FIELDS: Final = (
    "ticket", "to_token", "ends_in_ms", "kind", "mode", "scope", "token", "permits", "value", "principal",
    "by", "number", "chain", "previous", "hash",
)  # fmt: skip
AUDIT_FIELDS: Final = (*EVENT_FIELDS, *EVENT_EXTRA_FIELDS[-4:])
"""Of every event; of all but the end of a session, of locks, of semaphores, of an elected leader, of what
belongs to a principal, of what one did to others, and of the audit; and of every event of the audit."""
NODE_FIELDS: Final = ("id", "http", "peer", "state", "revision", "version", "rules")
OBSTACLE_FIELDS: Final = ("kind", "peer", "for_ms", "detail", "advice")
MEMBER_FIELDS: Final = ("id", "peer", "state")

REPEATED_FIELDS: Final = ("repeated",)
"""In the answer to a write that an earlier attempt was answered so."""

# Fields of a problem document: always, and where they apply.
PROBLEM_FIELDS: Final = ("type", "title", "status", "detail", "instance", "code", "outcome", "request_id")
PROBLEM_EXTRA_FIELDS: Final = (
    "retry_after_ms", "holders", "queue_length", "position", "waited_ms", "cycle", "hidden",
    "available", "limit", "window_ms", "remaining", "highest_token", "version", "namespace", "quota", "used",
    "mod_revision", "oldest", "ended", "repeated", "revision", "lag_ms",
)  # fmt: skip
