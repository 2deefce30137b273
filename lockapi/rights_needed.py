"""Whether a caller has the right that a command needs for what it names (lockstate/catalogue.py).

A call is refused before it is read if its principal lacks the right everywhere (needs.py); a command, and a
read of something that has a name, are checked here. What names only a hold or a session by its id needs the
right somewhere: those ids are secrets, and whoever knows one may use it.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast.token_lines import Right
from lockapi.needs import forbidden
from lockapi.rights import Rights
from lockstate.catalogue import ROWS, On
from lockstate.words.cell_operations import (
    DeleteOperation,
    EndOperation,
    GetOperation,
    HoldCompare,
    LockCompare,
    PutOperation,
    TakeOperation,
)
from lockstate.words.commands.admin import SetNamespace
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import Acquire, AcquireSeveral, AddLocks
from lockstate.words.commands.overrides import ForgetRates, Freeze, Thaw
from lockstate.words.commands.streams import Numbered
from lockstate.words.ids import HoldId
from lockstate.words.modes import Scope


def check_name(rights: Rights, right: Right, name: str) -> None:
    """Refuse what needs a right for one name. Raises ProblemError."""
    if not rights.covers(right, name):
        raise forbidden(right, name)


def check_below(rights: Rights, right: Right, name: str) -> None:
    """Refuse what needs a right for a name and all below it. Raises ProblemError."""
    gap = rights.gap_below(right, name)
    if gap is not None:
        raise forbidden(right, gap)


def check_start(rights: Rights, right: Right, start: str) -> None:
    """Refuse what needs a right for all that begins with a text. Raises ProblemError."""
    gap = rights.gap_behind(right, start)
    if gap is not None:
        raise forbidden(right, gap)


def check_key(rights: Rights, right: Right, key: bytes) -> None:
    """Refuse what needs a right for a cell. Raises ProblemError."""
    check_name(rights, right, text_of_key(key))


def text_of_key(key: bytes) -> str:
    """Return a key as the name by which rights know it. One that is not text stays what it is."""
    return key.decode("utf-8", "surrogateescape")


# -- commands ------------------------------------------------------------------------------------------------

Check = Callable[[Rights, Right, Any], None]
"""Refuses a command that needs this right, for what it names. Raises ProblemError."""


def check_command(rights: Rights, command: Command) -> None:
    """Refuse a command of a client that lacks a right for it. Raises ProblemError."""
    right, check = _COMMANDS[command.__class__]
    check(rights, right, command)


def _on_id(rights: Rights, right: Right, _: Any) -> None:
    if not rights.somewhere(right):
        raise forbidden(right)


def _on_name(rights: Rights, right: Right, command: Any) -> None:
    check_name(rights, right, command.name)


def _on_names(rights: Rights, right: Right, command: ForgetRates) -> None:
    (check_start if command.is_prefix else check_name)(rights, right, command.name)


def _on_lock(rights: Rights, right: Right, command: Acquire) -> None:
    if not command.locks:
        _check_lock(rights, right, command.name, command.scope)
    _on_locks(rights, right, command)


def _on_locks(rights: Rights, right: Right, command: Acquire | AddLocks) -> None:
    for lock in command.locks:
        _check_lock(rights, right, lock.name, lock.scope)


def _on_several(rights: Rights, right: Right, command: AcquireSeveral) -> None:
    _on_locks(rights, right, command)
    for name in (*[one.name for one in command.permits], *[one.name for one in command.rates]):
        check_name(rights, right, name)


def _check_lock(rights: Rights, right: Right, name: str, scope: Scope) -> None:
    if scope is Scope.SUBTREE:
        check_below(rights, right, name)
    else:
        check_name(rights, right, name)


def _on_key(rights: Rights, right: Right, command: PutCell | DeleteCells) -> None:
    if isinstance(command, DeleteCells) and command.is_prefix:
        check_start(rights, right, text_of_key(command.key))
    else:
        check_key(rights, right, command.key)


def _on_operations(rights: Rights, right: Right, command: TransactCells) -> None:
    """Check both branches: which one is done is not known before."""
    named: dict[HoldId, list[str]] = {}
    for compare in command.compares:
        match compare:
            case HoldCompare():
                _on_id(rights, right, command)
            case LockCompare():
                check_name(rights, Right.READ, compare.name)
                named.setdefault(compare.hold_id, []).append(compare.name)
            case _:
                check_key(rights, Right.READ, compare.key)
    for operation in (*command.then, *command.otherwise):
        match operation:
            case GetOperation():
                check_key(rights, Right.READ, operation.key)
            case PutOperation() | DeleteOperation():
                check_key(rights, right, operation.key)
            case TakeOperation():
                check_name(rights, right, operation.name)
            case _:
                is_forced = isinstance(operation, EndOperation) and bool(operation.reason)
                needed = Right.FORCE if is_forced else right
                _on_id(rights, needed, command)
                for name in named.get(operation.hold_id, ()):
                    check_name(rights, needed, name)


def _on_commands(rights: Rights, right: Right, frame: Numbered) -> None:
    """Check all commands of a frame: it is carried out as a whole."""
    _on_id(rights, right, frame)
    for command in frame.commands:
        needed, check = _COMMANDS[command.__class__]
        check(rights, needed, command)


def _on_everything(rights: Rights, right: Right, _: Any) -> None:
    if not rights.everywhere(right):
        raise forbidden(right, "")


def _on_cluster(rights: Rights, right: Right, _: Any) -> None:
    if not rights.on_the_whole(right):
        raise forbidden(right)


def _on_prefix(rights: Rights, right: Right, command: SetNamespace) -> None:
    """Check for all that lies in it. Without a prefix the right counts everywhere."""
    if not rights.on_the_whole(right):
        check_below(rights, right, command.prefix)


def _on_below(rights: Rights, right: Right, command: Freeze | Thaw) -> None:
    check_below(rights, right, command.prefix)


def of_namespaces(rights: Rights) -> Rights:
    """Return rights by which namespaces are read: whoever may set one may read it."""
    return rights.with_implied(Right.ADMIN, Right.READ)


_CHECKS: Final[dict[On, Check]] = {
    On.ID: _on_id,
    On.NAME: _on_name,
    On.NAMES: _on_names,
    On.LOCK: _on_lock,
    On.LOCKS: _on_locks,
    On.SEVERAL: _on_several,
    On.KEY: _on_key,
    On.OPERATIONS: _on_operations,
    On.COMMANDS: _on_commands,
    On.EVERYTHING: _on_everything,
    On.CLUSTER: _on_cluster,
    On.BELOW: _on_below,
    On.PREFIX: _on_prefix,
}
_COMMANDS: Final[dict[type, tuple[Right, Check]]] = {
    row.command: (Right(row.right), _CHECKS[row.on]) for row in ROWS if row.right is not None
}
"""What clients can have carried out. All other commands are the nodes' own."""
