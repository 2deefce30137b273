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

LOCKS_COUNT_MAX = 64
"""Locks in one acquire: they are granted in one step, on every node."""
REQUEST_CLAIMS_MAX = 2_000
"""Claims of the locks of one acquire: as many as 64 names that are 30 parts deep have."""
SESSION_CLAIMS_MAX = 20_000
"""Claims of one session's holds and waits (a lock has one, and one more for each ancestor of its name). They
all end in one step when the session does."""
QUEUE_LENGTH_MAX = 10_000
"""Waiters of one name, or of one semaphore."""
HOLDERS_COUNT_MAX = 10_000
"""Holders of one shared lock; they are all named in its read."""
SEMAPHORE_LIMIT_MAX = 1_000_000
"""Permits of one semaphore."""
SEMAPHORES_COUNT_MAX = 1_000_000
"""Active semaphores, together with the delays that keep permits of some."""
VALUE_BYTES_MAX = 1024
"""What an elected leader says: an address, not a document."""
FENCES_COUNT_MAX = 1_000_000
"""Resources whose highest token is remembered: for ever, or a stale token could pass."""
TOKEN_MAX = (1 << 53) - 1
"""The largest integer that every JSON reader keeps."""
EXPIRIES_PER_ENTRY_MAX = 2_000
"""Claims that one entry ends because their time is over; what is left is due at the next one. A node does
nothing else meanwhile."""
ABANDONED_PER_COMMAND_MAX = 1_000
"""Waits of a lost node that one command undoes; the leader asks again for the rest."""
DEADLOCK_STEPS_MAX = 2_000
"""Holds and tickets looked at in search of a deadlock. Beyond, a wait ends with its `wait_ms`."""
CYCLE_SHOWN_MAX = 64
"""Steps of a deadlock that a refusal names."""
AUDIT_COUNT_MAX = 10_000
"""Events in the audit: as many as a person could look through, and few enough for every snapshot."""
AUDIT_LIMIT_MAX = 1_000
"""Events in one answer."""
RECORDS_COUNT_MAX = 4_000_000
"""Active names together with their ancestors."""
HOLDERS_SHOWN_MAX = 16
"""Holders named in a `lock-held` refusal."""
SESSIONS_COUNT_MAX = 2_000_000
HOLDS_COUNT_MAX = 2_000_000
TICKETS_COUNT_MAX = 500_000
"""Tables: together they stay below a few GiB of memory on each node."""

REQUESTS_COUNT_MAX = 1_000_000
"""Remembered outcomes of requests that carried a `request_id`. When all are younger than the age below,
new ones are refused: forgetting one early would break the promise that a retry gets the first outcome."""
REQUESTS_PER_ENTRY_MAX = 2_000
"""Outcomes that one entry forgets because they are old; the others stay a little longer."""
REQUEST_AGE_MS = 5 * 60 * 1000
"""How long a `request_id` is remembered after its outcome, at least."""

ORIGINS_COUNT_MAX = 64
"""Processes that have proposed commands lately: a few nodes, each with its last restarts."""

LIST_LIMIT_MAX = 1000
"""Locks in one page of a listing."""
LIST_ROWS_MAX = 10_000
"""Locks, holders and waiters in one page, give or take its last lock: a node does nothing else meanwhile."""

RATE_LIMIT_MAX = 1_000_000
"""As for a semaphore: whoever may do more than this in a window needs no permission for each."""
RATE_WINDOW_MS_MIN = 10
"""Commands share log entries, and with them their moment: within less, a rate means nothing."""
RATE_WINDOW_MS_MAX = 31 * 24 * 3600 * 1000
"""A monthly quota. A rate limit occupies memory on every node for as long as its window."""
RATE_LIMITERS_COUNT_MAX = 1_000_000
"""Rate limits that are not whole: one for each user of a large service; some 500 bytes each."""
RATE_ROWS_MAX = 1000
"""Rows in the log of one sliding window: up to this limit it is exact, above it counts in as many steps."""
RATE_ROWS_COUNT_MAX = 2_000_000
"""Rows in the logs of all sliding windows: 32 MB in memory, less than 20 MB in a snapshot."""


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


def check_made_id(field: str, text: str) -> Refused | None:
    """Return why `text` is no id that a node made (1 to 64 characters), or None."""
    if 0 < len(text) <= ID_CHARS_MAX:
        return None
    return Refused(Reason.INVALID_REQUEST, f"{field}: must be 1 to {ID_CHARS_MAX} characters")


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
