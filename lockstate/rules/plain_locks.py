"""Fast path for the two most common commands: acquire one free lock, release one that nobody waits for.

Each is one function that writes to every table what `Locks`, with all that it calls, would write. What is not
plain is left to `Locks` before anything has changed. Must stay equal to `locks` and `holds`; the property
test compares them (tests/property/test_plain_locks.py).
"""

from collections.abc import Mapping
from typing import Final

from lockstate.rules.effects import Effects
from lockstate.rules.locks import Locks
from lockstate.tables.principals import NOBODY
from lockstate.tables.records import NOTHING, Hold, Lock, RequestKey
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.claims import claims_of_one
from lockstate.words.commands import Acquire, Release
from lockstate.words.limits import ID_CHARS_MAX, OWNER_BYTES_MAX, TTL_MS_MAX, TTL_MS_MIN, WAIT_MS_MAX
from lockstate.words.modes import UNIT, Mode, Scope, intent_of
from lockstate.words.results import RELEASED, Event, EventKind, Granted, HoldKind, Result

_EXCLUSIVE: Final = Mode.EXCLUSIVE
_NODE: Final = Scope.NODE
_LOCK: Final = HoldKind.LOCK
_GRANTED: Final = EventKind.GRANTED
_ENDED: Final = EventKind.RELEASED
"""Members under names of this module: looking one up in its enumeration takes longer."""
_OWN: Final = UNIT[_EXCLUSIVE.place]
"""What a plain lock counts on its own name."""
_INTENT: Final = UNIT[intent_of(_EXCLUSIVE)]
"""What it counts on each name above."""

_NAMES_KEPT_MAX: Final = 4096
_KEPT_CHARS_MAX: Final = 64
"""Names that are kept, 13 MB at most: who acquires a name releases it, and comes again. Longer ones are not
plain: they would have to be taken apart each time."""
_CLAIMS_MAX: Final = _KEPT_CHARS_MAX // 2
"""What a lock with such a name claims, itself and all above it, at most."""
_Named = tuple[str, tuple[str, ...]]
"""A valid name, and those above it, the nearest first."""


class PlainLocks:
    """The plain commands about locks of one state."""

    __slots__ = ("_effects", "_holds", "_intents", "_known", "_records", "_sessions", "_state", "others")

    def __init__(self, state: State, effects: Effects, locks: Locks) -> None:
        self._state = state
        self._effects = effects
        self.others = locks
        """What is not plain is for these."""
        self._holds, self._sessions = state.holds, state.sessions
        self._records, self._intents = state.locks, state.intents
        self._known: dict[str, _Named] = {}
        """The valid names that came last. What is kept changes no result."""

    def acquire(self, command: Acquire, key: RequestKey | None = None) -> Result:
        """Do what `Locks.acquire` does."""
        state, holds, records, intents = self._state, self._holds, self._records, self._intents
        name, hold_id, attempt_id = command.name, command.hold_id, command.attempt_id
        owner, session_id, ttl_ms = command.owner, command.session_id, command.ttl_ms
        session = self._sessions.get(session_id) if session_id else None
        if (
            name in records
            or command.mode is not _EXCLUSIVE
            or command.scope is not _NODE
            or command.locks
            or command.uncommon is not None
            or (owner and not (owner.isascii() and owner.isprintable() and len(owner) <= OWNER_BYTES_MAX))
            or not 0 < len(hold_id) <= ID_CHARS_MAX
            or not 0 < len(attempt_id) <= ID_CHARS_MAX
            or not 0 <= command.wait_ms <= WAIT_MS_MAX
            or hold_id in holds
            or hold_id in state.tickets
            or hold_id in self._sessions  # type: ignore[comparison-overlap]
            or len(holds) >= limits.HOLDS_COUNT_MAX
            or len(records) + len(intents) >= limits.RECORDS_COUNT_MAX
            or state.is_tight
            or (
                session is None or ttl_ms or session.claims_count > limits.SESSION_CLAIMS_MAX - _CLAIMS_MAX
                if session_id
                else not TTL_MS_MIN <= ttl_ms <= TTL_MS_MAX
            )
        ):
            return self.others.acquire(command, key)
        named = self._known.get(name) or self._named(name)
        if named is None:
            return self.others.acquire(command, key)
        name, above = named
        if (
            (above and not records.keys().isdisjoint(above))
            or (state.spaces and _lies_in(state.spaces, named))
            or (state.freezes and _lies_in(state.freezes, named))
            or (state.principals.quotas and state.principals.check_named("holds", (name,)) is not None)
        ):
            return self.others.acquire(command, key)

        if session is not None:
            owner, session_id = owner or session.owner, session.session_id  # its own strings
        lease_id = session_id or hold_id
        principal = state.principals.count_plain(lease_id, name, 1) if state.owners else NOBODY
        now_ms, token = state.now_ms, state.next_token
        state.next_token = token + 1
        hold = Hold(
            0,
            0,
            ttl_ms,
            hold_id,
            name,
            _EXCLUSIVE,
            owner,
            session_id,
            now_ms,
            hold_id if attempt_id == hold_id else attempt_id,  # type: ignore[comparison-overlap, arg-type]
            key,
            _NODE,
            (),
            _LOCK,
            0,
            None,
            token,
        )
        holds[hold_id] = hold
        state.ledger.noted[hold] = 0
        records[name] = lock = Lock(name, _OWN, 0, hold, NOTHING)
        state.names.young.append(lock)
        if name in intents:
            state.claimed.both_count += 1
        for name_above in above:
            intents[name_above] = intents.get(name_above, 0) + _INTENT
        if session is None:
            hold.order = state.take_order()
            state.start(hold)
            state.deadlines.add(hold)
            expires_at_ms = hold.expires_at_ms
        else:
            session.claims_count += 1 + len(above)
            if session.holds is NOTHING or session.by_owner is not None:
                session.add_hold(hold)
            else:
                session.holds[hold_id] = hold
            expires_at_ms = session.expires_at_ms
        self._effects.events.append(
            Event(
                state.revision,
                now_ms,
                _GRANTED,
                name,
                _EXCLUSIVE,
                owner,
                token,
                lease_id,
                0,
                principal=principal,
            )
        )
        expires_in_ms = expires_at_ms - now_ms if expires_at_ms > now_ms else 0
        return Granted(hold_id, token, name, _EXCLUSIVE, expires_in_ms)

    def release(self, command: Release) -> Result:
        """Do what `Locks.release` does."""
        state, records, hold_id = self._state, self._records, command.hold_id
        hold, kind = self._holds.get(hold_id), command.kind
        if (
            hold is None
            or hold.kind is not _LOCK
            or (kind is not _LOCK and kind is not None)
            or hold.rare is not None
            or hold.changing
            or command.names
            or hold_id in state.pleas.of_holds
        ):
            return self.others.release(command)
        named = self._known.get(hold.name) or self._named(hold.name)
        if named is None:  # of several things, among others
            return self.others.release(command)
        name, above = named
        lock = records[name]
        # If no more than that is held of the name, it is this hold that has it, and as a plain lock.
        if (
            lock.held != _OWN
            or lock.waiting
            or (above and not records.keys().isdisjoint(above))
            or (state.spaces and _lies_in(state.spaces, named))
        ):
            return self.others.release(command)

        del self._holds[hold_id]
        noted = state.ledger.noted
        if hold in noted:
            state.ledger.settled_sum -= noted.pop(hold)
        else:
            state.ledger.remove(hold)
        session_id, now_ms = hold.session_id, state.now_ms
        lease_id = session_id or hold_id
        principal = state.principals.count_plain(lease_id, name, -1) if state.owners else NOBODY
        if session_id:
            session = self._sessions[session_id]
            session.claims_count -= 1 + len(above)
            if session.by_owner is not None:
                session.remove_hold(hold)
            else:
                del session.holds[hold_id]
        elif hold.ttl_ms:
            state.deadlines.remove(hold)
        else:
            state.endless_count -= 1
        self._unclaim(lock, above)
        self._effects.events.append(
            Event(
                state.revision,
                now_ms,
                _ENDED,
                name,
                _EXCLUSIVE,
                hold.owner,
                hold.token,
                lease_id,
                now_ms - hold.since_ms,
                principal=principal,
            )
        )
        if principal and not session_id:
            state.principals.drop(hold_id)
        return RELEASED

    def _unclaim(self, lock: Lock, above: tuple[str, ...]) -> None:
        """Take back what a plain lock claims, which nothing else does."""
        name, intents = lock.name, self._intents
        del self._records[name]
        if lock.is_sorted:
            self._state.names.gone[name] = None
        if name in intents:
            self._state.claimed.both_count -= 1
        for name_above in above:
            left = intents[name_above] - _INTENT
            if left:
                intents[name_above] = left
            else:
                del intents[name_above]

    def _named(self, name: str) -> _Named | None:
        """Return a name, with those above it, and keep it; None if that is not worth while, or not a name."""
        if len(name) > _KEPT_CHARS_MAX or not name.isascii() or limits.check_name(name) is not None:
            return None
        if len(self._known) >= _NAMES_KEPT_MAX:
            self._known.clear()
        above = tuple([name_above for name_above, _ in claims_of_one(name, _EXCLUSIVE)[1:]])
        self._known[name] = named = name, above
        return named


def _lies_in(prefixes: Mapping[str, object], named: _Named) -> bool:
    """Whether a name lies in a namespace, or is frozen: what that allows has to be looked at."""
    name, above = named
    return name in prefixes or not prefixes.keys().isdisjoint(above)
