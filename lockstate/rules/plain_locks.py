"""Fast path for the most common commands: acquire one free lock, release one that nobody waits for.

A lock may have a value, by which it is released.

One loop writes to every table what `Locks`, with all that it calls, would write, for one command or for the
plain ones of a whole frame. What is not plain is left to `Locks` before anything has changed. Must stay equal
to `locks` and `holds`; the property test compares them (tests/property/test_plain_locks.py).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from lockstate.rules.effects import Effects
from lockstate.tables.happened import PlainEnd, PlainGrant
from lockstate.tables.principals import NOBODY
from lockstate.tables.rare import Rare
from lockstate.tables.records import NOTHING, Hold, Lock, RequestKey, Session
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.claims import claims_of_one
from lockstate.words.commands.holds import Acquire, Release, ReleaseByValue
from lockstate.words.ids import NO_SESSION, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.limits import ID_CHARS_MAX, OWNER_BYTES_MAX, TTL_MS_MAX, TTL_MS_MIN, WAIT_MS_MAX
from lockstate.words.modes import UNIT, Mode, Scope, intent_of
from lockstate.words.results import RELEASED, Granted, Result
from lockstate.words.wanted import Uncommon

_EXCLUSIVE: Final = Mode.EXCLUSIVE
_NODE: Final = Scope.NODE
_LOCK: Final = HoldKind.LOCK
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
_VALUE_CHARS_MAX: Final = 128
"""Longer values are not plain: outcomes that frames keep have a bound for all that is."""
_FIRST: Final = range(1)
PLAIN: Final[frozenset[type]] = frozenset({Acquire, Release, ReleaseByValue})
"""The classes of commands that may be plain."""
_Named = tuple[str, tuple[str, ...]]
"""A valid name, and those above it, the nearest first."""


class General(Protocol):
    """Carries out any command about locks: `Locks` does."""

    def acquire(self, command: Acquire, key: RequestKey | None = None, /) -> Result:
        """Acquire locks, or wait for them."""

    def release(self, command: Release, /) -> Result:
        """Release a hold, or a part of it."""


class PlainLocks:
    """The plain commands about locks of one state."""

    __slots__ = ("_effects", "_known", "_more_tables", "_state", "_tables", "by_value", "others")

    def __init__(
        self,
        state: State,
        effects: Effects,
        others: General,
        by_value: Callable[[ReleaseByValue], Result],
    ) -> None:
        self._state = state
        self._effects = effects
        self.others = others
        """What is not plain is for these."""
        self.by_value = by_value
        """So is a release by value that is not plain for this."""
        self._known: dict[str, _Named] = {}
        """The valid names that came last. What is kept changes no result."""
        self._tables = (
            state.holds,
            state.sessions,
            state.locks,
            state.intents,
            state.tickets,
            state.pleas.of_holds,
            state.claimed,
            state.ledger,
            state.ledger.noted,
        )
        self._more_tables = (
            self._known.get,
            state.principals,
            state.owners,
            state.principals.quotas,
            state.spaces,
            state.freezes,
        )
        """What each run looks into. None of them is ever another object."""

    def acquire(self, command: Acquire, key: RequestKey | None = None) -> Result:
        """Do what `Locks.acquire` does."""
        done = self.run((command,), _FIRST, key)
        return done[0] if done else self.others.acquire(command, key)

    def release(self, command: Release | ReleaseByValue) -> Result:
        """Do what `Locks.release` does, or `Values.release`."""
        done = self.run((command,), _FIRST)
        return done[0] if done else self.general(command)

    def general(self, command: Any, key: RequestKey | None = None) -> Result:
        """Carry out a command that is not plain."""
        kind = command.__class__
        if kind is Release:
            return self.others.release(command)
        return self.by_value(command) if kind is ReleaseByValue else self.others.acquire(command, key)

    def run(  # noqa: C901, PLR0912, PLR0915 - one loop, so that it finds everything in its own variables
        self,
        commands: Sequence[Any],
        places: range,
        key: RequestKey | None = None,
        first: int = 0,
        only: SessionId = NO_SESSION,
    ) -> list[Result]:
        """Carry out the commands at these places up to the first that is not plain; return their results.

        Each has `key`; in a frame, whose numbers begin with `first`, that with its own number. With `only`
        those of other sessions are not plain, nor are leases of their own. What cannot change before the end
        is looked at once: nothing but plain commands comes.
        """
        state = self._state
        results: list[Result] = []
        if not self._may_begin(commands[places.start], len(places)):
            return results
        holds, sessions, records, intents, tickets, asked, claimed, ledger, noted = self._tables
        known, principals, owners, quotas, spaces, freezes = self._more_tables
        young, events = state.names.young, self._effects.events
        claims_max = limits.SESSION_CLAIMS_MAX - _CLAIMS_MAX
        now_ms, token = state.now_ms, state.next_token
        session: Session | None = None
        session_id = NO_SESSION
        for place in places:
            command = commands[place]
            kind = command.__class__
            if kind is not Acquire:
                if kind is Release:
                    hold = None if command.names else holds.get(command.hold_id)
                elif kind is ReleaseByValue and command.value and command.name in records:
                    hold = records[command.name].holder
                    if hold is None or hold.rare is None or hold.rare.value != command.value:
                        break
                else:
                    break
                if (
                    hold is None
                    or hold.kind is not _LOCK
                    or (command.kind is not _LOCK and command.kind is not None)
                    or ((rare := hold.rare) is not None and (owners or rare.depth > 1))
                    or hold.changing
                    or (hold_id := hold.hold_id) in asked
                    or (only and hold.session_id != only)
                ):
                    break
                named = known(hold.name) or self._named(hold.name)
                if named is None:  # of several things, among others
                    break
                name, above = named
                lock = records[name]
                # If no more than that is held of the name, it is this hold that has it, and as a plain lock.
                if (
                    lock.held != _OWN
                    or lock.waiting
                    or (above and not records.keys().isdisjoint(above))
                    or (spaces and _lies_in(spaces, named))
                ):
                    break

                del holds[hold_id]
                if hold in noted:
                    ledger.settled_sum -= noted.pop(hold)
                else:
                    ledger.remove(hold)
                if rare is not None:
                    state.rare_count -= 1
                lease_id = hold.session_id or hold_id
                principal = principals.count_plain(lease_id, name, -1) if owners else NOBODY
                if hold.session_id:
                    if hold.session_id != session_id or session is None:
                        session_id = hold.session_id
                        session = sessions[session_id]
                    session.claims_count -= 1 + len(above)
                    if session.by_owner is not None:
                        session.remove_hold(hold)
                    else:
                        del session.holds[hold_id]
                elif hold.ttl_ms:
                    state.deadlines.remove(hold)
                else:
                    state.endless_count -= 1
                del records[name]
                if lock.is_sorted:
                    state.names.gone[name] = None
                if name in intents:
                    claimed.both_count -= 1
                for name_above in above:
                    left = intents[name_above] - _INTENT
                    if left:
                        intents[name_above] = left
                    else:
                        del intents[name_above]
                events.append(PlainEnd(hold, principal))
                if principal and not hold.session_id:
                    principals.drop(hold_id)
                results.append(RELEASED)
                continue

            name, hold_id, attempt_id = command.name, command.hold_id, command.attempt_id
            ttl_ms, owner = command.ttl_ms, command.owner
            if command.session_id != session_id:
                session_id = command.session_id
                session = sessions.get(session_id)
            if (
                name in records
                or command.mode is not _EXCLUSIVE
                or command.scope is not _NODE
                or command.locks
                or ((said := command.uncommon) is not None and (owners or quotas or not _is_marked(said)))
                or (owner and not (owner.isascii() and owner.isprintable() and len(owner) <= OWNER_BYTES_MAX))
                or not 0 < len(hold_id) <= ID_CHARS_MAX
                or not 0 < len(attempt_id) <= ID_CHARS_MAX
                or not 0 <= command.wait_ms <= WAIT_MS_MAX
                or hold_id in holds
                or hold_id in tickets
                or hold_id in sessions
                or (
                    session is None or ttl_ms or session.claims_count > claims_max
                    if session_id
                    else not TTL_MS_MIN <= ttl_ms <= TTL_MS_MAX
                )
                or (only and session_id != only)
            ):
                break
            named = known(name) or self._named(name)
            if named is None:
                break
            name, above = named
            if (
                (above and not records.keys().isdisjoint(above))
                or (spaces and _lies_in(spaces, named))
                or (freezes and _lies_in(freezes, named))
                or (quotas and principals.check_named("holds", (name,)) is not None)
            ):
                break

            if session is not None:
                owner, session_id = owner or session.owner, session.session_id  # its own strings
            lease_id = session_id or hold_id
            principal = principals.count_plain(lease_id, name, 1) if owners else NOBODY
            rare, value, told = None, "", ""
            if said is not None:
                value, told = said.value, "" if said.is_secret else said.value
                rare = Rare(value=value, is_secret=said.is_secret)
                state.rare_count += 1
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
                hold_id if attempt_id == hold_id else attempt_id,
                (key[0], first + place) if first and key is not None else key,
                _NODE,
                (),
                _LOCK,
                0,
                rare,
                token,
            )
            holds[hold_id] = hold
            noted[hold] = 0
            records[name] = lock = Lock(name, _OWN, 0, hold, NOTHING)
            young.append(lock)
            if name in intents:
                claimed.both_count += 1
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
            events.append(PlainGrant(hold, name, token, told, principal))
            expires_in_ms = expires_at_ms - now_ms if expires_at_ms > now_ms else 0
            results.append(Granted(hold_id, token, name, _EXCLUSIVE, expires_in_ms, value=value))
            token += 1
        state.next_token = token
        self._effects.plain_count += len(results)
        return results

    def _may_begin(self, command: Any, count: int) -> bool:
        """Whether this command may be the first of `count` plain ones, for all of which there is room.

        One look, before anything is prepared: more of those who want a contended name may follow.
        """
        state = self._state
        if command.__class__ is Acquire:
            if command.mode is not _EXCLUSIVE or command.name in state.locks:
                return False
        else:
            of = state.holds.get(command.hold_id) if command.__class__ is Release else command
            lock = None if of is None else state.locks.get(of.name)
            if lock is None or lock.held != _OWN or lock.waiting:
                return False
        return not (
            state.is_tight
            or len(state.holds) + count > limits.HOLDS_COUNT_MAX
            or len(state.locks) + len(state.intents) + count * _CLAIMS_MAX > limits.RECORDS_COUNT_MAX
        )

    def _named(self, name: str) -> _Named | None:
        """Return a name, with those above it, and keep it; None if that is not worth while, or not a name."""
        if len(name) > _KEPT_CHARS_MAX or not name.isascii() or limits.check_name(name) is not None:
            return None
        if len(self._known) >= _NAMES_KEPT_MAX:
            self._known.clear()
        above = tuple([name_above for name_above, _ in claims_of_one(name, _EXCLUSIVE)[1:]])
        self._known[name] = named = name, above
        return named


def _is_marked(said: Uncommon) -> bool:
    """Whether this is all that few acquires say: a short value, secret or not."""
    value = said.value
    return (
        0 < len(value) <= _VALUE_CHARS_MAX
        and value.isascii()
        and value.isprintable()
        and said == Uncommon(0, "", value, said.is_secret)
    )


def _lies_in(prefixes: Mapping[str, object], named: _Named) -> bool:
    """Whether a name lies in a namespace, or is frozen: what that allows has to be looked at."""
    name, above = named
    return name in prefixes or not prefixes.keys().isdisjoint(above)
