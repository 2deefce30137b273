"""How names are spelled: what looks the same to people is one name. Every face obeys, through the gateway.

A name is in composed form (NFC), and no part of it begins or ends with white space. The state machine knows
nothing of this: what was spelled otherwise before can still be listed, released and ended by force.
"""

import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, Final

from lockapi.problems import ProblemError
from lockstate.catalogue import ROWS, On
from lockstate.words.cell_operations import PutOperation, TakeOperation
from lockstate.words.commands.admin import SetNamespace
from lockstate.words.commands.cells import TransactCells
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import Acquire, AcquireSeveral
from lockstate.words.commands.overrides import Freeze
from lockstate.words.commands.streams import Numbered


class Misspelled(ProblemError):
    """A name has another spelling than it should. The request was not applied, nor what came with it."""

    def __init__(self, detail: str) -> None:
        super().__init__("invalid-request", detail)


def check_name(field: str, name: str) -> None:
    """Refuse a name, which stands in `field`, with another spelling. Raises Misspelled.

    What is not text otherwise, such as a binary key of a cell, has no spelling.
    """
    if " " not in name and name.isascii() and name.isprintable():
        return
    stripped = "/".join([part.strip() for part in name.split("/")])
    if not stripped.isprintable():
        return
    right = unicodedata.normalize("NFC", stripped)
    if right == name:
        return
    if stripped != name:
        wrong = "begins or ends with white space, or one of its parts does"
    else:
        wrong = "is not in composed form (Unicode NFC)"
    advice = f"; write {right!r}" if all(right.split("/")) else ""
    raise Misspelled(f"{field}: {name!a} {wrong}{advice}")


def check_key(key: bytes) -> None:
    """Refuse the key of a cell with another spelling; one that is not text has none. Raises Misspelled."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return
    check_name("key", text)


def check_command(command: Command) -> None:
    """Refuse a command that would make, or ask for, something with another spelling. Raises Misspelled."""
    check = _COMMANDS.get(type(command))
    if check is not None:
        check(command)


def _name(command: Any) -> None:
    name: str = command.name
    if not name.isascii() or " " in name:
        check_name("name", name)


def _acquire(command: Acquire) -> None:
    _name(command)
    if command.locks:
        _all("locks", [lock.name for lock in command.locks])


def _several(command: AcquireSeveral) -> None:
    _all("locks", [lock.name for lock in command.locks])
    _all("permits", [each.name for each in command.permits])
    _all("rate_limits", [each.name for each in command.rates])


def _all(field: str, names: Iterable[str]) -> None:
    for index, name in enumerate(names):
        check_name(f"{field}[{index}].name", name)


def _transact(command: TransactCells) -> None:
    for operation in (*command.then, *command.otherwise):
        if isinstance(operation, PutOperation):
            check_key(operation.key)
        elif isinstance(operation, TakeOperation):
            check_name("name", operation.name)


def _set_namespace(command: SetNamespace) -> None:
    if command.settings is not None:
        check_name("prefix", command.prefix)


def _each(frame: Numbered) -> None:
    """Check all commands of a frame: it is carried out as a whole."""
    for command in frame.commands:
        check = _COMMANDS.get(command.__class__)
        if check is not None:
            check(command)


_CHECKS: Final[dict[On, Callable[[Any], None]]] = {
    On.NAME: _name,
    On.LOCK: _acquire,
    On.LOCKS: lambda command: _all("locks", [lock.name for lock in command.locks]),
    On.SEVERAL: _several,
    On.KEY: lambda command: check_key(command.key),
    On.OPERATIONS: _transact,
    On.COMMANDS: _each,
}
_COMMANDS: Final[dict[type[Any], Callable[[Any], None]]] = {
    **{row.command: _CHECKS[row.on] for row in ROWS if row.on in _CHECKS and not row.frees},
    SetNamespace: _set_namespace,
    Freeze: lambda command: check_name("prefix", command.prefix),
}
"""What is looked at, by the class of the command. What frees something only ends what is there."""
