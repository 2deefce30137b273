"""Every bound of the state machine, with its reason, and the checks that apply them.

The bounds are part of the replicated behaviour: all nodes of a cluster must agree on them, so they are
constants and not configuration.
"""

from lockstate.results import Reason, Refused

NAME_BYTES_MAX = 512
"""Long enough for a path of any sane depth, short enough for a URL and a log line."""

TTL_MS_MIN = 50
"""Half a heartbeat: a shorter lease would end before its holder could hear of it."""
TTL_MS_MAX = 24 * 3600 * 1000
"""A lease is a promise to be alive; who needs more than a day renews."""

WAIT_MS_MAX = 24 * 3600 * 1000
"""A waiter occupies memory on every node until it is served."""
LOCK_DELAY_MS_MAX = 3600 * 1000
"""A lock-delay covers a late writer, not an outage."""

OWNER_BYTES_MAX = 256
NOTE_BYTES_MAX = 1024
REASON_BYTES_MAX = 1024
"""Texts shown to people; they are stored on every node and in every snapshot."""
LABELS_COUNT_MAX = 16
LABEL_BYTES_MAX = 256
"""Per session: as many as a person reads; keys and values alike."""
ID_CHARS_MAX = 64
"""Session, hold, attempt and request ids; ours are 32 hexadecimal digits (128 random bits)."""

QUEUE_LENGTH_MAX = 10_000
"""Waiters of one lock. Each release may look at them all."""
HOLDERS_COUNT_MAX = 10_000
"""Holders of one shared lock; they are all named in a refusal's snapshot and in its read."""
HOLDERS_SHOWN_MAX = 16
"""Holders named in a `lock-held` refusal."""
SESSIONS_COUNT_MAX = 2_000_000
HOLDS_COUNT_MAX = 2_000_000
TICKETS_COUNT_MAX = 500_000
"""Tables: together they stay below a few GiB of memory on each node."""

REQUESTS_COUNT_MAX = 1_000_000
"""Remembered outcomes of requests that carried a `request_id`. When all are younger than the age below,
new ones are refused: forgetting one early would break the promise that a retry gets the first outcome."""
REQUEST_AGE_MS = 5 * 60 * 1000
"""How long a `request_id` is remembered after its outcome, at least."""

ORIGINS_COUNT_MAX = 64
"""Processes that have proposed commands lately: a few nodes, each with its last restarts."""

LIST_LIMIT_MAX = 1000
"""Locks in one page of a listing."""
LIST_ROWS_MAX = 10_000
"""Locks, holders and waiters in one page, give or take its last lock: a node does nothing else meanwhile."""


_DOTS = frozenset({".", ".."})


def check_name(name: str) -> Refused | None:
    """Return why `name` is no lock name, or None.

    A name has 1 to 512 bytes of printable text; no path part is empty, "." or "..".
    """
    size_bytes = len(name) if name.isascii() else len(name.encode("utf-8", "surrogatepass"))
    if size_bytes > NAME_BYTES_MAX:
        return Refused(
            Reason.NAME_TOO_LONG, f"name: {size_bytes} bytes; at most {NAME_BYTES_MAX} are allowed"
        )
    if not name:
        return Refused(Reason.INVALID_REQUEST, "name: must not be empty")
    if not name.isprintable():
        return Refused(Reason.INVALID_REQUEST, "name: only printable characters are allowed")
    if name[0] == "/" or name[-1] == "/" or "//" in name:
        return Refused(Reason.INVALID_REQUEST, "name: no part between two '/' may be empty")
    if "." in name and not _DOTS.isdisjoint(name.split("/")):
        return Refused(Reason.INVALID_REQUEST, "name: no part may be '.' or '..': no URL could name it")
    return None


def check_ttl(ttl_ms: int) -> Refused | None:
    """Return why `ttl_ms` is no lease length, or None."""
    if TTL_MS_MIN <= ttl_ms <= TTL_MS_MAX:
        return None
    return Refused(Reason.TTL_OUT_OF_RANGE, f"ttl_ms: {ttl_ms}; must be {TTL_MS_MIN} to {TTL_MS_MAX}")


def check_range(field: str, value: int, largest: int) -> Refused | None:
    """Return why `value` is not within 0 and `largest`, or None."""
    if 0 <= value <= largest:
        return None
    return Refused(Reason.INVALID_REQUEST, f"{field}: {value}; must be 0 to {largest}")


def check_text(field: str, text: str, bytes_max: int) -> Refused | None:
    """Return why `text` may not be stored and shown, or None: printable and not too long."""
    if not text:
        return None
    size_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size_bytes > bytes_max:
        return Refused(
            Reason.INVALID_REQUEST, f"{field}: {size_bytes} bytes; at most {bytes_max} are allowed"
        )
    if not text.isprintable():
        return Refused(Reason.INVALID_REQUEST, f"{field}: only printable characters are allowed")
    return None


def check_id(field: str, text: str) -> Refused | None:
    """Return why `text` is not an id (1 to 64 printable characters), or None."""
    if text and len(text) <= ID_CHARS_MAX and text.isprintable():
        return None
    return Refused(Reason.INVALID_REQUEST, f"{field}: must be 1 to {ID_CHARS_MAX} printable characters")


def check_labels(labels: dict[str, str]) -> Refused | None:
    """Return why `labels` may not be stored, or None."""
    if len(labels) > LABELS_COUNT_MAX:
        return Refused(
            Reason.INVALID_REQUEST, f"labels: {len(labels)}; at most {LABELS_COUNT_MAX} are allowed"
        )
    for key, value in labels.items():
        if not key:
            return Refused(Reason.INVALID_REQUEST, "labels: a label's name must not be empty")
        refused = check_text("labels", key, LABEL_BYTES_MAX) or check_text("labels", value, LABEL_BYTES_MAX)
        if refused is not None:
            return refused
    return None
