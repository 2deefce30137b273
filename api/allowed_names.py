"""Where this node lets clients ask for what is off by default: a priority, and a hold without a deadline.

Both are settings of each node, looked at by the node that is asked: all nodes should have the same. A prefix
covers its own name and all below it, by whole parts.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from api.problems import ProblemError
from lockstate.commands import PRIORITY_DEFAULT, AcquireAs, Command, Numbered, Uncommon

EVERYWHERE: Final = "*"
"""The word that stands for all names among the prefixes."""


class AllowedNames:
    """The prefixes that a setting has."""

    __slots__ = ("_everywhere", "_prefixes", "_setting")

    def __init__(self, setting: str, prefixes: Iterable[str] = ()) -> None:
        self._setting = setting
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

    def check(self, names: Iterable[str], what: str) -> None:
        """Raise ProblemError if it is not allowed for all names; `what` begins with the field's name."""
        for name in names:
            if not self.covers(name):
                setting = f"setting {self._setting}, flag --{self._setting.replace('_', '-')}"
                raise ProblemError(
                    "invalid-request",
                    f"{what}: this node does not allow it for {name!r} ({setting})",
                )


class AllowedForFew(NamedTuple):
    """Where a node allows what only few may have; by default nowhere."""

    priority: AllowedNames = AllowedNames("allow_priority")
    no_deadline: AllowedNames = AllowedNames("allow_no_deadline")

    def check(self, command: Command) -> None:
        """Raise ProblemError if a command, or one in a frame, asks for what this node does not allow."""
        for each in command.commands if isinstance(command, Numbered) else (command,):
            if not isinstance(each, Uncommon):
                continue
            locks = each.locks if isinstance(each, AcquireAs) else ()
            names = [lock.name for lock in locks] or [each.name]
            if each.priority != PRIORITY_DEFAULT:
                self.priority.check(names, f"priority: {each.priority}")
            if each.is_endless:
                self.no_deadline.check(names, "no_deadline: true")


NOWHERE: Final = AllowedForFew()
"""What a node allows that was told nothing."""


def allowed(priority: Iterable[str] = (), no_deadline: Iterable[str] = ()) -> AllowedForFew:
    """Return what a node allows whose settings have these prefixes."""
    return AllowedForFew(
        AllowedNames("allow_priority", priority), AllowedNames("allow_no_deadline", no_deadline)
    )
