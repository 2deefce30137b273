"""What a lock claims: its own name, and an intent on every ancestor of that name."""

import functools
from collections.abc import Sequence
from typing import Final

from lockstate.commands import Wanted
from lockstate.modes import INTENT, Claim, Mode, Scope, claim_of, intent_of
from lockstate.results import HoldKind

_LOCK: Final = HoldKind.LOCK
_NODE: Final = Scope.NODE
"""Members under names of this module: looking one up in its enumeration takes longer than all else here."""

FIRST_OF_LOCKS: Final = " "
"""The border between the names of records: every election's sorts before it, no lock's does."""

Claims = tuple[tuple[str, Claim], ...]
"""Names of records, each with a claim on it; no pair comes twice. Those of one lock begin with its own
name."""

_PARENTS_KEPT_MAX: Final = 1024
"""Names whose intents are kept, at most 3 kB each: to look them up is quicker than to take them apart."""
_ELECTION: Final = "\x01"
_SEMAPHORE: Final = "\x02"
"""The prefixes of the names of elections and semaphores. A lock's name cannot contain them: they are not
printable."""


def record_name(kind: HoldKind, name: str) -> str:
    """Return the name under which the record of a lock or an election is kept."""
    return _ELECTION + name if kind is HoldKind.ELECTION else name


def permits_of(name: str) -> tuple[str, Claim]:
    """Return the stand-in for the permits of a semaphore among claims that ended."""
    return _SEMAPHORE + name, 0


def semaphore_of(name: str) -> str:
    """Return the semaphore that a stand-in of `permits_of` is for; empty for the name of a record."""
    return name[1:] if name[0] == _SEMAPHORE else ""


def is_lock(name: str) -> bool:
    """Whether the name of a record is that of a lock."""
    return not name.startswith(_ELECTION)


def shown_name(name: str) -> str:
    """Return the public name of the lock or election whose record is kept under `name`."""
    return name.removeprefix(_ELECTION)


def claims_of(
    name: str,
    mode: Mode,
    scope: Scope = Scope.NODE,
    locks: Sequence[Wanted] = (),
    kind: HoldKind = HoldKind.LOCK,
) -> Claims:
    """Return the claims of one lock or election, or of several locks together."""
    if not locks and scope is _NODE and kind is _LOCK:
        place = mode.place
        slash = name.rfind("/")
        return ((name, place), *_intents(name[:slash], place + INTENT)) if slash > 0 else ((name, place),)
    if locks:
        return tuple(
            dict.fromkeys(claim for lock in locks for claim in claims_of(lock.name, lock.mode, lock.scope))
        )
    if kind is HoldKind.ELECTION:
        return ((_ELECTION + name, mode.place),)
    own = (name, claim_of(mode, scope))
    slash = name.rfind("/")
    return (own, *_intents(name[:slash], intent_of(mode))) if slash > 0 else (own,)


@functools.lru_cache(_PARENTS_KEPT_MAX)
def _intents(name: str, intent: Claim) -> Claims:
    """Return the intents on `name` and on every name above it. Many locks have the same parent."""
    here = (name, intent)
    slash = name.rfind("/")
    return (here, *_intents(name[:slash], intent)) if slash > 0 else (here,)


def parent(name: str) -> str:
    """Return the name of the parent's record; empty if there is none, as for every election."""
    return name[: max(name.rfind("/"), 0)] if is_lock(name) else ""


def ancestors(name: str) -> list[str]:
    """Return the names above `name`, the nearest first."""
    return [above for above, _ in claims_of(name, Mode.SHARED)[1:]]
