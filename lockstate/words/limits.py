"""Every bound of the state machine, with its reason, and the checks that apply them.

The bounds are part of the replicated behaviour: all nodes of a cluster must agree on them. So they are
constants, not configuration.
"""

from lockstate.words.refusals import Reason, Refused

NAME_BYTES_MAX = 512
"""Bytes of a name: enough for a path of any sane depth, few enough for a URL and a log line."""

TTL_MS_MIN = 50
"""Milliseconds of the shortest lease, half a heartbeat: a shorter one would end before its holder heard of
it."""
TTL_MS_MAX = 24 * 3600 * 1000
"""Milliseconds of the longest lease, a day: a lease is a promise to be alive, and can be renewed."""

WAIT_MS_MAX = 24 * 3600 * 1000
"""Milliseconds of the longest wait, a day: a waiter takes memory on every node until it is served."""
PRIORITY_MAX = 9
"""The highest priority; the lowest is 0. Ten are more than anybody can tell apart."""
PRIORITY_STEP_MS = 10 * 1000
"""Milliseconds of waiting that one step of priority is worth. So a request of the lowest priority is
overtaken by one of the highest only if that comes within nine steps, a minute and a half."""
LOCK_DELAY_MS_MAX = 3600 * 1000
"""Milliseconds of the longest lock-delay, an hour: it covers a late writer, not an outage."""
GRACE_MS_MAX = 3600 * 1000
"""Milliseconds of the longest grace of a revocation, an hour."""
HELD_MS_MAX = 31 * 24 * 3600 * 1000
"""Milliseconds of the longest bound on how long something may be held, a month."""
HELD_NOTICE_MS_MAX = 60 * 1000
"""Milliseconds before that in which the holder is told to give up, a minute; at most half of the bound."""
REVOKED_PER_COMMAND_MAX = 1_000
"""Holders that one command asks to give up."""
PLEAS_PER_NAME_MAX = 16
"""Waits for each of which the holder of one name may have been asked. It is not asked for further ones."""
WAITS_FORCED_PER_COMMAND_MAX = 1_000
"""Waits that one command of an operator ends."""
ATTEMPTS_COUNT_MAX = 8
"""Attempts at one request that are known beside the newest one: more than there are nodes to ask."""

OWNER_BYTES_MAX = 256
"""Bytes of an owner's name. Like all texts shown to people, it is stored on every node and in every
snapshot."""
NOTE_BYTES_MAX = 1024
"""Bytes of a hold's note, for people to read."""
REASON_BYTES_MAX = 1024
"""Bytes of the reason of a forced release, for people to read."""
LABELS_COUNT_MAX = 16
"""Labels of one session: as many as a person reads."""
LABEL_BYTES_MAX = 256
"""Bytes of a label's key, and of its value."""
ID_CHARS_MAX = 64
"""Characters of a session, hold, attempt or request id. Ours are 32 hexadecimal digits: 128 random bits."""

PERMITS_COUNT_MAX = 16
"""Semaphores in one acquire of several kinds."""
RATES_COUNT_MAX = 16
"""Rate limits in one acquire of several kinds."""
LOCKS_COUNT_MAX = 64
"""Locks in one acquire: they are granted in one step, on every node."""
REQUEST_CLAIMS_MAX = 2_000
"""Claims of all locks of one acquire: as many as 64 names with 30 parts have."""
SESSION_CLAIMS_MAX = 20_000
"""Claims of one session's holds and waits, which all end in one step when the session does. A lock has one,
and one more for each ancestor of its name; of several kinds each semaphore and each rate limit has one."""
QUEUE_LENGTH_MAX = 10_000
"""Waiters for one name, or for one semaphore."""
HOLDERS_COUNT_MAX = 10_000
"""Holders of one shared lock: a read of it lists them all."""
SEMAPHORE_LIMIT_MAX = 1_000_000
"""Permits of one semaphore."""
SEMAPHORES_COUNT_MAX = 1_000_000
"""Active semaphores, counted together with the delays that withhold permits."""
VALUE_BYTES_MAX = 1024
"""Bytes of an elected leader's value: an address, not a document."""
HOLD_VALUE_BYTES_MAX = 1024
"""Bytes of the value that a hold carries: a mark of its holder, not a document."""
FENCES_COUNT_MAX = 1_000_000
"""Resources whose highest token is remembered. None is forgotten by
itself, or a stale token could pass."""
TOKEN_MAX = (1 << 53) - 1
"""The highest token: the largest integer that every JSON reader keeps exactly."""
EXPIRIES_PER_ENTRY_MAX = 2_000
"""Claims that one entry ends because their time is over, since a node does nothing else meanwhile. The rest
is due at the next entry."""
ABANDONED_PER_COMMAND_MAX = 1_000
"""Waits of a lost node that one command ends; the leader asks again for the rest."""
DEADLOCK_STEPS_MAX = 2_000
"""Holds and tickets that one search for a deadlock looks at. A deadlock that is larger is not found: its
waits end with their `wait_ms`."""
CYCLE_SHOWN_MAX = 64
"""Steps of a deadlock that a refusal names."""
AUDIT_COUNT_MAX = 10_000
"""Events in the audit: as many as a person could look through, and few enough for every snapshot."""
ACTS_COUNT_MAX = 1_000
"""Records of what operators did to others that are kept beside those: each may have a reason of 1 kB."""
AUDIT_LIMIT_MAX = 1_000
"""Events in one answer about the audit."""
RECORDS_COUNT_MAX = 4_000_000
"""Active names, counted with their ancestors."""
HOLDERS_SHOWN_MAX = 16
"""Holders that a `lock-held` refusal names."""
SESSIONS_COUNT_MAX = 2_000_000
"""Sessions. With as many holds and tickets as there may be, the tables take a few GiB on each node."""
HOLDS_COUNT_MAX = 2_000_000
"""Holds of every kind."""
TICKETS_COUNT_MAX = 500_000
"""Waiters of every kind."""

REQUESTS_COUNT_MAX = 1_000_000
"""Remembered outcomes of requests that carried a `request_id`. When all are younger than `REQUEST_AGE_MS`,
new requests are refused: forgetting one early would break the promise that a retry gets the first outcome."""
REQUESTS_PER_ENTRY_MAX = 2_000
"""Outcomes that one entry forgets because they are old; the others stay a little longer."""
REQUEST_AGE_MS = 5 * 60 * 1000
"""Milliseconds for which an outcome is remembered at least, counted from when it was known."""

PRINCIPAL_BYTES_MAX = 64
"""Bytes of the name of a principal: files of tokens allow 63."""
QUOTAS_COUNT_MAX = 100_000
"""Principals with a quota of their own: as many as a file of tokens has lines."""
QUOTA_MAX = 1_000_000_000
"""The largest number in a quota: more than there is room for of anything, and of bytes about as many."""
NAMESPACES_COUNT_MAX = 10_000
"""Namespaces: more than people can tell apart, and few enough for one page of memory on each node."""

FREEZES_COUNT_MAX = 1_000
"""Frozen prefixes: each lock of a subtree is compared with all of them."""
FREEZE_MS_MAX = 31 * 24 * 3600 * 1000
"""Milliseconds of the longest freeze that ends by itself, a month."""

ORIGINS_COUNT_MAX = 64
"""Node processes whose sequence numbers are remembered: a few nodes, each with its last restarts."""

STATE_BYTES_MAX = 4 << 30
"""Bytes that the state may take until an entry sets another bound: enough for two million sessions and as
many holds. See lockstate/tables/budget.py."""
STREAM_KEPT_MAX = 1_024
"""Outcomes of one stream that its client has not acknowledged: as many commands are under way at once."""
STREAM_KEPT_BYTES_MAX = 256 << 10
"""Bytes of them, beyond which no further command is taken."""
FRAME_EFFORT_MAX = 10_000
"""Events, and holds and waiters that were looked through, with which a frame of a stream takes no further
command. A frame that makes as many for each of its commands would stop all nodes for seconds."""
STREAM_RANGES_MAX = 64
"""Ranges of numbers that one frame acknowledges."""

STATE_BYTES_LEAST = 16 << 20
"""Bytes of the lowest bound that an entry can set: with less nobody could work."""
STATE_GROWTH_MAX = 256 << 20
"""Bytes by which one entry may let the state grow. It has at most 1 MiB of commands, and those with the most
ancestors of names take 110 times as much."""

CELL_KEY_BYTES_MAX = 512
"""Bytes of a cell's key, as of a name."""
CELL_VALUE_BYTES_MAX = 4096
"""Bytes of a cell's value: an address, a counter, a small document. Files belong elsewhere."""
CELLS_COUNT_MAX = 1_000_000
"""Cells. This is a place for what belongs to locks, not a database."""
CELLS_BYTES_MAX = 256 << 20
"""Bytes of the keys and values of all cells, which are in every snapshot and in the memory of every node."""
SESSION_CELLS_MAX = 1_000
"""Cells that live with one session, and end in one step with it."""
TRANSACTION_PARTS_MAX = 64
"""Compares of one transaction, and operations in each of its two branches: all nodes do them in one step."""
CELLS_DELETED_MAX = 1_000
"""Cells that one command deletes by their prefix."""

LIST_LIMIT_MAX = 1000
"""Locks in one page of a listing."""
LIST_ROWS_MAX = 10_000
"""Locks, holders and waiters in one page, except that its last lock may exceed it: a node does nothing else
while it makes the page."""
LIST_CELL_BYTES_MAX = 1 << 20
"""Bytes of keys and values in one page of cells, except that its last cell may exceed it."""

RATE_LIMIT_MAX = 1_000_000
"""The largest limit of a rate limit: a client that may do more in a window need not ask each time."""
RATE_WINDOW_MS_MIN = 10
"""Milliseconds of the shortest window: commands that share a log entry share their time, so a rate within
less means nothing."""
RATE_WINDOW_MS_MAX = 31 * 24 * 3600 * 1000
"""Milliseconds of the longest window, a month. A rate limit takes memory on every node for as long as its
window."""
RATE_LIMITERS_COUNT_MAX = 1_000_000
"""Rate limits that are not whole: one for each user of a large service, some 500 bytes each."""
RATE_PLACES_MAX = 1000
"""Places of one rate limit whose moments are to come: giving one back counts all others anew, in half a
millisecond."""
RATES_FORGOTTEN_MAX = 1_000
"""Rate limits that one command forgets, each counted with its places; the last may exceed it."""
RATE_ROWS_MAX = 1000
"""Rows in the log of one sliding window. Up to this limit the window is exact, above it counts in this many
steps."""
RATE_ROWS_COUNT_MAX = 2_000_000
"""Rows in the logs of all sliding windows: 32 MB in memory, less than 20 MB in a snapshot."""

RETRY_MS = 1000
"""Milliseconds after which to ask again when no lease or delay says it: a table is full, a quota used up, or
only waiters are in the way."""
_DOTS = frozenset({".", ".."})
"""The parts of a path that URLs give a meaning of their own."""


def check_name(name: str) -> Refused | None:
    """Return why `name` is not a valid name, or None.

    A name is 1 to 512 bytes of printable text; no part of its path is empty, "." or "..".
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
    if "/" in name and (name[0] == "/" or name[-1] == "/" or "//" in name):
        return Refused(Reason.INVALID_REQUEST, "name: no part between two '/' may be empty")
    if "." in name and not _DOTS.isdisjoint(name.split("/")):
        return Refused(Reason.INVALID_REQUEST, "name: no part may be '.' or '..': no URL could name it")
    return None


def check_prefix(prefix: str) -> Refused | None:
    """Return why `prefix` does not stand for itself and all names below it, or None: it is a valid name."""
    above = prefix[:-1]
    if prefix.endswith("/") and check_name(above) is None:
        detail = f"prefix: leave out the '/' at its end: {above!r} covers all below it, too"
        return Refused(Reason.INVALID_REQUEST, detail)
    return check_name(prefix)


def check_key(key: bytes) -> Refused | None:
    """Return why `key` cannot be the key of a cell, or None."""
    if 0 < len(key) <= CELL_KEY_BYTES_MAX:
        return None
    return Refused(Reason.INVALID_REQUEST, f"key: {len(key)} bytes; must be 1 to {CELL_KEY_BYTES_MAX}")


def check_ttl(ttl_ms: int) -> Refused | None:
    """Return why `ttl_ms` is not a valid length of a lease, or None."""
    if TTL_MS_MIN <= ttl_ms <= TTL_MS_MAX:
        return None
    return Refused(Reason.TTL_OUT_OF_RANGE, f"ttl_ms: {ttl_ms}; must be {TTL_MS_MIN} to {TTL_MS_MAX}")


def check_range(field: str, value: int, largest: int) -> Refused | None:
    """Return why `value` is not between 0 and `largest`, or None."""
    return None if 0 <= value <= largest else out_of_range(field, value, largest)


def out_of_range(field: str, value: int, largest: int) -> Refused:
    """Return the refusal of a value that is not between 0 and `largest`."""
    return Refused(Reason.INVALID_REQUEST, f"{field}: {value}; must be 0 to {largest}")


def check_text(field: str, text: str, bytes_max: int) -> Refused | None:
    """Return why `text` is not fit to be stored and shown, or None: it must be printable and not too long."""
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
    """Return why `text` is not an id that a client may choose, 1 to 64 printable characters, or None."""
    if text and len(text) <= ID_CHARS_MAX and text.isprintable():
        return None
    return Refused(Reason.INVALID_REQUEST, f"{field}: must be 1 to {ID_CHARS_MAX} printable characters")


def check_made_id(field: str, text: str) -> Refused | None:
    """Return why `text` cannot be an id that a node made, 1 to 64 characters, or None."""
    if 0 < len(text) <= ID_CHARS_MAX:
        return None
    return Refused(Reason.INVALID_REQUEST, f"{field}: must be 1 to {ID_CHARS_MAX} characters")


def check_count(count: int, count_max: int, what: str) -> Refused | None:
    """Refuse more of something than the cluster may have."""
    if count < count_max:
        return None
    return Refused(Reason.OVERLOADED, f"the cluster has {count} {what}; no more are allowed", (), 0, RETRY_MS)


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
