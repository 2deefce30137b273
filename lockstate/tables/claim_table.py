"""What is claimed by name: the records of names, and the intents on the ancestors of what is claimed."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from lockstate.tables.names import NameIndex
from lockstate.tables.records import NOTHING, Claimant, Hold, Lock
from lockstate.words import limits
from lockstate.words.claims import Claims, claims_of, claims_of_one
from lockstate.words.ids import HoldId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import CONFLICTS, IS_INTENT, UNIT, Claim, Counts, Mode, Scope, claim_of

_LOCK: Final = HoldKind.LOCK
_SEMAPHORE: Final = HoldKind.SEMAPHORE
_NODE: Final = Scope.NODE

Freed = list[tuple[str, Claim]]
"""Claims that ended and that somebody waits for. `serve` finds out who can go."""

APART_FROM: Final = 40_000
"""Rows from which on the tables of holds, records and intents are kept from growing in one entry."""
_APART_ROWS: Final = 4_096
"""As much as an entry has commands. The records have so many rows of no name then, the intents twice.

Each of these tables may get a row for each lock, and Python makes a table that is full anew: in 30 ms if it
has 700,000 rows, and in 50 if it has a million.
"""
_NO_NAME: Final = "\x03"
"""What the keys of these rows begin with, as no name of a lock, an election or a semaphore does."""
_NOBODY: Final = Lock(_NO_NAME)

WHOLE: Claim = claim_of(Mode.EXCLUSIVE, Scope.SUBTREE)
"""The claim that conflicts with every other."""


class ClaimTable:
    """Which names are claimed. Counts what holds and delays claim; what tickets want is for `tickets`."""

    def __init__(
        self,
        joined: Callable[[str, dict[HoldId, Hold], Hold], None],
        left: Callable[[str, Hold, int], None],
    ) -> None:
        """Tell `joined` and `left` of holders that come to a record and go (see `Crowds`)."""
        self._joined, self._left = joined, left
        self.locks: dict[str, Lock] = {}
        """Records of what is held, delayed or wanted itself, and of ancestors of what is wanted."""
        self.names = NameIndex(self.locks)
        self.intents: dict[str, Counts] = {}
        """By ancestor, the intents of what is held or delayed below it."""
        self.both_count = 0
        """How many names are in both tables."""
        self._apart_count = 0
        """How many rows of both tables are of no name."""

    def __len__(self) -> int:
        """Return how many names are active, ancestors among them."""
        return len(self.locks) + len(self.intents) - self.both_count - self._apart_count

    def records(self) -> Iterator[Lock]:
        """Yield the records of all names, in no particular order."""
        return (lock for lock in self.locks.values() if lock is not _NOBODY)

    def all_intents(self) -> Iterator[tuple[str, Counts]]:
        """Yield the names below which something is held or delayed, with the intents of that, in no order."""
        return (named for named in self.intents.items() if named[0][0] != _NO_NAME)

    def settle(self) -> None:
        """Sort names in and out, if there are many, and keep large tables from growing in one entry."""
        self.names.settle()
        if len(self.locks) > APART_FROM and _NO_NAME not in self.locks:
            self.locks.update(dict.fromkeys(_no_names(_APART_ROWS), _NOBODY))
            self._apart_count += _APART_ROWS
        if len(self.intents) > APART_FROM and _NO_NAME not in self.intents:
            self.intents.update(dict.fromkeys(_no_names(2 * _APART_ROWS), 0))
            self._apart_count += 2 * _APART_ROWS

    def held_on(self, name: str) -> Counts:
        """Return the counts of all that holds and delays claim on a name, intents among it."""
        lock = self.locks.get(name)
        intents = self.intents.get(name, 0)
        return intents if lock is None else lock.held + intents

    def add(self, claims: Claims, hold: Hold | None) -> None:
        """Count the claims of `hold`, or of a delay."""
        locks, intents, young = self.locks, self.intents, self.names.young
        for name, claim in claims:
            if IS_INTENT[claim]:
                if name in intents:
                    intents[name] += UNIT[claim]
                else:
                    intents[name] = UNIT[claim]
                    if name in locks:
                        self.both_count += 1
                continue
            lock = locks.get(name)
            if lock is None:
                # As `record_of` does, without the call. Not to give NOTHING would take longer.
                locks[name] = lock = Lock(name, UNIT[claim], 0, hold, NOTHING)
                young.append(lock)
                if name in intents:
                    self.both_count += 1
            else:
                lock.held += UNIT[claim]
                if hold is not None:
                    self.join(lock, hold)

    def add_intents(self, below: Mapping[tuple[str, Claim], int]) -> None:
        """Count so many intents on each of these names, and as many on all names above it."""
        locks, intents = self.locks, self.intents
        while below:
            above: dict[tuple[str, Claim], int] = {}
            for (name, claim), number in below.items():
                if name in intents:
                    intents[name] += UNIT[claim] * number
                else:
                    intents[name] = UNIT[claim] * number
                    if name in locks:
                        self.both_count += 1
                if parent := name.rpartition("/")[0]:
                    above[parent, claim] = above.get((parent, claim), 0) + number
            below = above

    def remove(self, claims: Claims, hold: Hold | None) -> Freed:
        """Take the claims back; return those that somebody waits for."""
        locks, intents = self.locks, self.intents
        freed: Freed = []
        for name, claim in claims:
            lock = locks.get(name)
            if IS_INTENT[claim]:
                left = intents[name] - UNIT[claim]
                if left:
                    intents[name] = left
                else:
                    del intents[name]
                    if lock is not None:
                        self.both_count -= 1
            else:
                assert lock is not None, "what is claimed has a record"
                lock.held -= UNIT[claim]
                if not lock.held and not lock.waiting:
                    del locks[name]  # as `drop` does, without the call
                    if lock.is_sorted:
                        self.names.gone[name] = None
                    if name in intents:
                        self.both_count -= 1
                    continue
                if hold is not None:
                    freed += self._leave_lock(lock, hold)
            if lock is not None and lock.waiting & CONFLICTS[claim]:
                freed.append((name, claim))
        return freed

    def _leave_lock(self, lock: Lock, hold: Hold) -> Freed:
        """Take a holder out of a record that stays; return what became free beside its claim."""
        # If the name was full, now even waiters that never conflicted may go.
        was_full = lock.waiting and lock.holders_count == limits.HOLDERS_COUNT_MAX
        self.leave(lock, hold)
        return [(lock.name, WHOLE)] if was_full else []

    def join(self, lock: Lock, hold: Hold) -> None:
        """Put `hold` behind the other holders of a record."""
        lock.add_holder(hold)
        self._joined(lock.name, lock.holders, hold)

    def leave(self, lock: Lock, hold: Hold) -> None:
        """Take a holder out of a record that stays."""
        lock.remove_holder(hold)
        self._left(lock.name, hold, lock.holders_count)

    def record_of(self, name: str) -> Lock:
        """Return the record of a name, made if there is none."""
        lock = self.locks.get(name)
        if lock is None:
            lock = self.locks[name] = Lock(name)
            self.names.young.append(lock)
            if name in self.intents:
                self.both_count += 1
        return lock

    def drop(self, lock: Lock) -> None:
        """Forget a record that nothing is held or wanted of."""
        del self.locks[lock.name]
        if lock.is_sorted:
            self.names.gone[lock.name] = None
        if lock.name in self.intents:
            self.both_count -= 1


def _no_names(count: int) -> Iterator[str]:
    """Yield so many keys of rows that are of no name: _NO_NAME itself, and others that begin so."""
    yield _NO_NAME
    yield from (f"{_NO_NAME}{number}" for number in range(1, count))


def claims_of_hold(record: Claimant) -> Claims:
    """Return the claims that a hold has or a ticket wants; none for a semaphore, which has permits."""
    name, kind = record.name, record.kind
    if name and kind is _LOCK and record.scope is _NODE:
        return claims_of_one(name, record.mode)
    if kind is _SEMAPHORE or not (name or record.locks):
        return ()
    return claims_of(name, record.mode, record.scope, record.locks, kind)


def weight_of(record: Claimant) -> int:
    """Return how many claims end with a hold or a ticket, its permits and rate limits among them.

    That is what to end it costs.
    """
    return (len(claims_of_hold(record)) or 1) + (record.permits if record.is_of_kinds else 0)
