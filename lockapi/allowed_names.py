"""Where this node lets clients ask for what is off by default: a priority, and a hold without a deadline.

Both are settings of each node, looked at by the node that is asked: all nodes should have the same. A prefix
covers its own name and all below it, by whole parts. A namespace may say otherwise. Those are part of the
state, so the state machine decides; what is said here is for which names this node does not allow it.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from lockstate.words.cell_operations import TakeOperation
from lockstate.words.commands.cells import TransactCells
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import Acquire, AcquirePermits
from lockstate.words.commands.streams import Numbered
from lockstate.words.wanted import PRIORITY_DEFAULT

EVERYWHERE: Final = "*"
"""The word that stands for all names among the prefixes."""
Asked = Acquire | AcquirePermits
AskedT = TypeVar("AskedT", bound=Asked)
_MAY_BE_UNCOMMON: Final[frozenset[Any]] = frozenset({Acquire, AcquirePermits})
"""The classes of commands that can ask for any of it."""


class AllowedNames:
    """The prefixes that a setting has."""

    __slots__ = ("_everywhere", "_prefixes")

    def __init__(self, prefixes: Iterable[str] = ()) -> None:
        self._prefixes = frozenset(prefixes)
        self._everywhere = EVERYWHERE in self._prefixes

    def covers(self, name: str) -> bool:
        """Whether the setting allows it for this name."""
        while not self._everywhere and name not in self._prefixes:
            slash = name.rfind("/")
            if slash < 0:
                return False
            name = name[:slash]
        return True

    def missing(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of the names for which it is not allowed."""
        return tuple([name for name in names if not self.covers(name)])


class AllowedForFew(NamedTuple):
    """Where a node allows what only few may have; by default nowhere."""

    priority: AllowedNames = AllowedNames()
    no_deadline: AllowedNames = AllowedNames()

    def told(self, command: Command) -> Command:
        """Return a command that says, of itself or of those in its frame, what this node does not allow."""
        if isinstance(command, Asked):
            return self._told(command)
        if isinstance(command, TransactCells):
            return self._told_transaction(command)
        if isinstance(command, Numbered) and _has_uncommon(command.commands):
            each = [self._told(one) if isinstance(one, Asked) else one for one in command.commands]
            return msgspec.structs.replace(command, commands=tuple(each))
        return command

    def _told(self, command: AskedT) -> AskedT:
        asked = command.uncommon
        if asked is None:
            return command
        locks = command.locks if isinstance(command, Acquire) else ()
        names = [lock.name for lock in locks] or [command.name]
        priority = self.priority.missing(names) if asked.priority != PRIORITY_DEFAULT else ()
        endless = self.no_deadline.missing(names) if asked.is_endless else ()
        if (asked.priority_not_for, asked.endless_not_for) == (priority, endless):
            return command
        uncommon = msgspec.structs.replace(asked, priority_not_for=priority, endless_not_for=endless)
        return msgspec.structs.replace(command, uncommon=uncommon)

    def _told_transaction(self, command: TransactCells) -> TransactCells:
        takes = [part for part in (*command.then, *command.otherwise) if isinstance(part, TakeOperation)]
        missing = self.no_deadline.missing([take.name for take in takes if not take.ttl_ms])
        return msgspec.structs.replace(command, endless_not_for=missing) if takes else command


def _has_uncommon(commands: Iterable[Any]) -> bool:
    """Whether any of the commands of a frame asks for what is uncommon: hardly one does."""
    return any([one.uncommon for one in commands if one.__class__ in _MAY_BE_UNCOMMON])  # noqa: C419 - quicker


NOWHERE: Final = AllowedForFew()
"""What a node allows that was told nothing."""


def allowed(priority: Iterable[str] = (), no_deadline: Iterable[str] = ()) -> AllowedForFew:
    """Return what a node allows whose settings have these prefixes."""
    return AllowedForFew(AllowedNames(priority), AllowedNames(no_deadline))
