"""What can be wrong with a command itself, whatever the state: the checks that several commands share."""

from collections.abc import Sequence

from lockstate.tables.records import Hold
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.claims import ancestors
from lockstate.words.commands.holds import Acquire, AcquirePermits, Acquisition
from lockstate.words.limits import ID_CHARS_MAX, NAME_BYTES_MAX, TTL_MS_MAX, TTL_MS_MIN, WAIT_MS_MAX
from lockstate.words.modes import Scope
from lockstate.words.refusals import Reason, Refused
from lockstate.words.wanted import Asking, Uncommon, Wanted


def check_acquire(command: Acquire) -> Refused | None:
    """Return what is wrong with an acquire, or None. One condition lets nearly all of them pass."""
    name = command.name
    if (
        name.isascii()
        and 0 < len(name) <= NAME_BYTES_MAX
        and name.isprintable()
        and ("/" not in name or ("//" not in name and name[0] != "/" and name[-1] != "/"))
        and ("." not in name or limits.check_name(name) is None)
        and not command.locks
        and 0 < len(command.hold_id) <= ID_CHARS_MAX
        and 0 < len(command.attempt_id) <= ID_CHARS_MAX
        and 0 <= command.wait_ms <= WAIT_MS_MAX
        and not command.owner
        and command.uncommon is None
        and (not command.ttl_ms if command.session_id else TTL_MS_MIN <= command.ttl_ms <= TTL_MS_MAX)
    ):
        return None
    return check_locks(command) or check_attempt(command) or check_lease(command)


def check_locks(command: Acquire) -> Refused | None:
    """Return why these locks cannot be asked for, or None: it must be one, or several that do not overlap."""
    if not command.locks:
        return limits.check_name(command.name)
    if command.name:
        return invalid("name and locks: only one of the two is allowed")
    return check_together(command.locks)


def check_together(locks: Sequence[Wanted]) -> Refused | None:
    """Return why no hold can have these locks together, or None."""
    if len(locks) > limits.LOCKS_COUNT_MAX:
        return invalid(f"locks: {len(locks)}; at most {limits.LOCKS_COUNT_MAX} are allowed")
    for lock in locks:
        refused = limits.check_name(lock.name)
        if refused is not None:
            return refused
    claims_count = sum([1 + lock.name.count("/") for lock in locks])
    if claims_count > limits.REQUEST_CLAIMS_MAX:
        names = f"{claims_count} names with their ancestors"
        return invalid(f"locks: {names}; at most {limits.REQUEST_CLAIMS_MAX} are allowed")
    return _check_apart(locks)


def _check_apart(locks: Sequence[Wanted]) -> Refused | None:
    names = {lock.name for lock in locks}
    if len(names) < len(locks):
        return invalid("locks: a name is given twice")
    trees = {lock.name for lock in locks if lock.scope is Scope.SUBTREE}
    for lock in locks if trees else ():
        for above in ancestors(lock.name):
            if above in trees:
                return invalid(f"locks: {lock.name!r} lies in the subtree {above!r}, which is asked for too")
    return None


def check_attempt(command: Acquisition) -> Refused | None:
    """Return what is wrong with the fields that all these commands have, or None."""
    return (
        limits.check_made_id("hold_id", command.hold_id)
        or limits.check_made_id("attempt_id", command.attempt_id)
        or (limits.check_text("owner", command.owner, limits.OWNER_BYTES_MAX) if command.owner else None)
        or limits.check_range("wait_ms", command.wait_ms, limits.WAIT_MS_MAX)
    )


def check_value(value: str) -> Refused | None:
    """Return why no hold may have this value, or None."""
    return limits.check_text("value", value, limits.HOLD_VALUE_BYTES_MAX)


def check_lease(command: Acquire | AcquirePermits) -> Refused | None:
    """Return what is wrong with the lease, or with what is uncommon, or None."""
    asked, ttl_ms = command.uncommon, command.ttl_ms
    if asked is not None:
        refused = _check_uncommon(asked) or check_asking(asked.asks, command.wait_ms)
        if refused is not None:
            return refused
        if asked.is_endless:
            if command.session_id or ttl_ms:
                return invalid("no_deadline: give it instead of session_id and ttl_ms")
            return None
    if (not command.session_id) == (not ttl_ms):
        return invalid("session_id, ttl_ms: give exactly one of the two")
    return limits.check_ttl(ttl_ms) if ttl_ms else None


def _check_uncommon(asked: Uncommon) -> Refused | None:
    if asked.is_secret and not asked.value:
        return invalid("value_secret: needs a value")
    return (
        limits.check_text("note", asked.note, limits.NOTE_BYTES_MAX)
        or limits.check_range("lock_delay_ms", asked.lock_delay_ms, limits.LOCK_DELAY_MS_MAX)
        or check_value(asked.value)
        or limits.check_range("priority", asked.priority, limits.PRIORITY_MAX)
    )


def check_asking(asks: Asking | None, wait_ms: int) -> Refused | None:
    """Return why a wait of this length cannot ask by itself like that, or None."""
    if asks is None:
        return None
    if asks.ask_after_ms >= wait_ms:
        return invalid(f"ask_after_ms: {asks.ask_after_ms}; must be less than wait_ms, which is {wait_ms}")
    return limits.check_range("ask_after_ms", asks.ask_after_ms, limits.WAIT_MS_MAX) or limits.check_range(
        "grace_ms", asks.grace_ms, limits.GRACE_MS_MAX
    )


def check_limit(limit: int, permits: int = 1) -> Refused | None:
    """Return why a semaphore cannot have this `limit`, or give this many `permits` at once, or None."""
    if not 1 <= limit <= limits.SEMAPHORE_LIMIT_MAX:
        return invalid(f"limit: {limit}; must be 1 to {limits.SEMAPHORE_LIMIT_MAX}")
    if not 1 <= permits <= limit:
        return invalid(f"permits: {permits}; must be 1 to the limit, {limit}")
    return None


def check_unchanging(state: State, hold: Hold, field: str) -> Refused | None:
    """Refuse what cannot be while a change of the hold waits; `field` is what the refusal begins with."""
    if not hold.changing:
        return None
    is_addition = state.tickets[hold.changing].is_addition
    return invalid(f"{field} being {'added to' if is_addition else 'converted'}")


def invalid(detail: str) -> Refused:
    """Return the refusal of a command that its client must correct."""
    return Refused(Reason.INVALID_REQUEST, detail)
