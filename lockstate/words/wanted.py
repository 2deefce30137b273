"""What is asked for, and how: the parts of the commands that ask for a hold."""

from typing import Final

from lockstate.words.kinds import Algorithm
from lockstate.words.modes import Mode, Scope
from lockstate.words.shape import Array

PRIORITY_DEFAULT = 5
"""The priority of a request that does not name one."""


class Wanted(Array, frozen=True):
    """One of several locks: asked for together, held together."""

    name: str
    mode: Mode = Mode.EXCLUSIVE
    scope: Scope = Scope.NODE


class WantedPermits(Array, frozen=True):
    """Permits of one semaphore, asked for together with other things. `limit` 0 stands for any limit."""

    name: str
    limit: int = 0
    permits: int = 1


class WantedRate(Array, frozen=True):
    """A place of one rate limit, asked for together with other things. The fields are those of `TakeRate`."""

    name: str
    limit: int = 0
    window_ms: int = 0
    algorithm: Algorithm | None = None
    cost: int = 1


class Asking(Array, frozen=True):
    """When a wait asks those that are in its way to give up, and what grace they have then."""

    ask_after_ms: int
    grace_ms: int


class Uncommon(Array, frozen=True):
    """What only few acquires say, in one field: an ordinary one has None there, and is short.

    `value` is a text that the hold carries, which only its holder is told of if it `is_secret`. `priority` is
    its place in the queue, 0 to 9. A hold that `is_endless` has neither a session nor a ttl, and ends when
    somebody ends it. A wait that `asks` does so once, if it waits for so long.

    `priority_not_for` and `endless_not_for` are those of the names for which the node that was asked is not
    set to allow it. Then it is refused, unless a namespace allows it.
    """

    lock_delay_ms: int = 0
    note: str = ""
    value: str = ""
    is_secret: bool = False
    priority: int = PRIORITY_DEFAULT
    is_endless: bool = False
    priority_not_for: tuple[str, ...] = ()
    endless_not_for: tuple[str, ...] = ()
    asks: Asking | None = None


ORDINARY: Final = Uncommon()
"""What an acquire says that has nothing uncommon."""
