"""What a lock claims: its own name, and an intent on every ancestor of that name."""

from collections.abc import Sequence
from typing import Final

from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Claim, Mode, Scope, claim_of, intent_of
from lockstate.words.wanted import Wanted

_LOCK: Final = HoldKind.LOCK
_NODE: Final = Scope.NODE
"""Members under names of this module: looking one up in its enumeration takes longer than all else here."""

FIRST_OF_LOCKS: Final = " "
"""The border between the names of records: every election's sorts before it, no lock's does."""

Claims = tuple[tuple[str, Claim], ...]
"""Names of records, each with a claim on it; no pair comes twice. Those of one lock begin with its own
name."""

_PARENTS_KEPT_MAX: Final = 1024
"""Names whose intents are kept for each mode, at most 3 kB each: to look them up is quicker than to take them
apart."""
_kept: Final[dict[int, dict[str, Claims]]] = {mode.place: {} for mode in Mode}
"""Intents by the place of the mode, and by the name that they begin with. What is kept changes no result."""
_TOGETHER_KEPT_MAX: Final = 32_768
"""Claims of several locks that are kept, 20 MB at most: what is claimed is asked for again when it ends."""
_ELECTION: Final = "\x01"
_SEMAPHORE: Final = "\x02"
"""The prefixes of the names of elections and semaphores. A lock's name cannot contain them: they are not
printable."""


def record_name(kind: HoldKind, name: str) -> str:
    """Return the name under which the record of a lock or an election is kept, and stand-ins for permits."""
    if kind is _LOCK:
        return name
    return (_ELECTION if kind is HoldKind.ELECTION else _SEMAPHORE) + name


def permits_of(name: str) -> tuple[str, Claim]:
    """Return the stand-in for the permits of a semaphore among claims that ended."""
    return record_name(HoldKind.SEMAPHORE, name), 0


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
        return claims_of_one(name, mode)
    if locks:
        return _together.get(tuple(locks))
    if kind is HoldKind.ELECTION:
        return ((_ELECTION + name, mode.place),)
    own = (name, claim_of(mode, scope))
    slash = name.rfind("/")
    return (own, *_intents(name[:slash], mode)) if slash > 0 else (own,)


def claims_of_one(name: str, mode: Mode) -> Claims:
    """Return the claims of a lock of one name without what lies below: that is what nearly all locks are."""
    place = mode.place
    if "/" not in name:
        return ((name, place),)
    above = name.rpartition("/")[0]
    intents = _kept[place].get(above) or _intents(above, mode)
    return ((name, place),) + intents  # noqa: RUF005 - quicker than to unpack


def _intents(name: str, mode: Mode) -> Claims:
    """Return the intents on `name` and on every name above it. It is kept: many locks have one parent."""
    kept = _kept[mode.place]
    known = kept.get(name)
    if known is not None:
        return known
    here = (name, intent_of(mode))
    slash = name.rfind("/")
    intents = (here, *_intents(name[:slash], mode)) if slash > 0 else (here,)
    if len(kept) >= _PARENTS_KEPT_MAX:
        kept.clear()
    kept[name] = intents
    return intents


class ClaimsKept:
    """The claims of several locks, of which the latest are kept. What is kept changes no result."""

    def __init__(self, count_max: int) -> None:
        """Keep at most `count_max` claims."""
        self.count = 0
        self._count_max = count_max
        self._kept: dict[tuple[Wanted, ...], Claims] = {}

    def get(self, locks: tuple[Wanted, ...]) -> Claims:
        """Return the claims of these locks."""
        claims = self._kept.get(locks)
        if claims is None:
            claims = self._kept[locks] = _claims_together(locks)
            self.count += len(claims)
            while self.count > self._count_max:
                self.count -= len(self._kept.pop(next(iter(self._kept))))
        return claims


_together: Final = ClaimsKept(_TOGETHER_KEPT_MAX)


def _claims_together(locks: Sequence[Wanted]) -> Claims:
    """Return what each of several locks claims, in their order, without what one before it has claimed."""
    found: list[tuple[str, Claim]] = []
    own: set[tuple[str, Claim]] = set()
    above: dict[Claim, set[str]] = {}
    for lock in locks:
        name, intent = lock.name, intent_of(lock.mode)
        claim = name, claim_of(lock.mode, lock.scope)
        if claim not in own:
            own.add(claim)
            found.append(claim)
        known = above.setdefault(intent, set())
        while (slash := name.rfind("/")) > 0 and (name := name[:slash]) not in known:
            known.add(name)
            found.append((name, intent))  # if it is known, all those above are
    return tuple(found)


def parent(name: str) -> str:
    """Return the name of the parent's record; empty if there is none, as for every election."""
    return name[: max(name.rfind("/"), 0)] if is_lock(name) else ""


def ancestors(name: str) -> list[str]:
    """Return the names above `name`, the nearest first."""
    return [above for above, _ in claims_of(name, Mode.SHARED)[1:]]
