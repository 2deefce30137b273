"""What a lock claims: its own name, and an intent on every ancestor of it."""

from collections.abc import Sequence
from typing import Final

from lockstate.commands import Wanted
from lockstate.modes import Claim, Mode, Scope, claim_of, intent_of
from lockstate.results import HoldKind

_LOCK: Final = HoldKind.LOCK
_NODE: Final = Scope.NODE
"""Looking a member up in its enumeration takes longer than all else here."""

FIRST_OF_LOCKS: Final = " "
"""No lock's name sorts before it, and every election's does."""

Claims = tuple[tuple[str, Claim], ...]
"""Names of records with the claim on each, no pair twice. The claims of one lock begin with its own name."""

_ELECTION: Final = "\x01"
_SEMAPHORE: Final = "\x02"
"""In front of the names of elections and semaphores. No lock's name has them: they are not printable."""


def record_name(kind: HoldKind, name: str) -> str:
    """Return under which name the record of a lock or an election stands."""
    return _ELECTION + name if kind is HoldKind.ELECTION else name


def permits_of(name: str) -> tuple[str, Claim]:
    """Return what stands for the permits of a semaphore among claims that ended."""
    return _SEMAPHORE + name, 0


def semaphore_of(name: str) -> str:
    """Return the semaphore that `permits_of` named, empty for the name of a record."""
    return name[1:] if name[0] == _SEMAPHORE else ""


def is_lock(name: str) -> bool:
    """Whether a record's name is that of a lock."""
    return not name.startswith(_ELECTION)


def shown_name(name: str) -> str:
    """Return what the lock or election is called whose record has this name."""
    return name.removeprefix(_ELECTION)


def claims_of(
    name: str,
    mode: Mode,
    scope: Scope = Scope.NODE,
    locks: Sequence[Wanted] = (),
    kind: HoldKind = HoldKind.LOCK,
) -> Claims:
    """Return the claims of one lock or election, or of several locks together."""
    if not locks and scope is _NODE and kind is _LOCK and "/" not in name:
        return ((name, mode.place),)
    if locks:
        return tuple(dict.fromkeys(claim for it in locks for claim in claims_of(it.name, it.mode, it.scope)))
    if kind is HoldKind.ELECTION:
        return ((_ELECTION + name, mode.place),)
    claims = [(name, claim_of(mode, scope))]
    intent = intent_of(mode)
    at = name.rfind("/")
    while at > 0:
        claims.append((name[:at], intent))
        at = name.rfind("/", 0, at)
    return tuple(claims)


def parent(name: str) -> str:
    """Return the name of the record above that of a lock; empty if there is none, as for every election."""
    return name[: max(name.rfind("/"), 0)] if is_lock(name) else ""


def ancestors(name: str) -> list[str]:
    """Return the names above `name`, the nearest first."""
    return [above for above, _ in claims_of(name, Mode.SHARED)[1:]]
