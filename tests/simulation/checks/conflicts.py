"""Which locks may be held beside each other, written down once more: nothing of the product is asked."""

from collections.abc import Iterable
from typing import Final

from lockstate.words.modes import Mode, Scope
from lockstate.words.wanted import Wanted

_TOGETHER: Final = (
    {Mode.SHARED},
    {Mode.SHARED, Mode.UPDATE},
    {Mode.CONCURRENT_READ},
    {Mode.CONCURRENT_READ, Mode.SHARED},
    {Mode.CONCURRENT_READ, Mode.UPDATE},
    {Mode.CONCURRENT_READ, Mode.CONCURRENT_WRITE},
    {Mode.CONCURRENT_WRITE},
)
"""The sets of modes in which one name may be held by several at a time."""


def are_compatible(one: Mode, other: Mode) -> bool:
    """Whether two may hold a lock at the same time."""
    return {one, other} in _TOGETHER


def covers(lock: Wanted, name: str) -> bool:
    """Whether a lock is of `name`, or of a subtree that has it."""
    return name == lock.name or (lock.scope is Scope.SUBTREE and name.startswith(lock.name + "/"))


def conflict(ones: Iterable[Wanted], others: Iterable[Wanted]) -> bool:
    """Whether any of these and any of those cover a common name in modes that do not go together."""
    others = tuple(others)
    return any(
        (covers(one, other.name) or covers(other, one.name)) and not are_compatible(one.mode, other.mode)
        for one in ones
        for other in others
    )


def is_stronger(one: Mode, other: Mode) -> bool:
    """Whether the first mode keeps anything away that the second does not."""
    return any(are_compatible(other, mode) and not are_compatible(one, mode) for mode in Mode)


def draws_token(before: Mode, after: Mode) -> bool:
    """Whether a hold that is converted gets a new token.

    It does when it may write and others may have read what it did not exclude, and when it is kept from
    writers that it was not kept from.
    """
    if not is_stronger(after, before):
        return False
    may_write = after in (Mode.EXCLUSIVE, Mode.CONCURRENT_WRITE)
    return may_write or before in (Mode.CONCURRENT_READ, Mode.CONCURRENT_WRITE)
