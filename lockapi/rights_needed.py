"""Which right each command needs for what it names: the one place that decides it, for every face.

A call is refused before it is read if its principal lacks the right everywhere (needs.py); a command, and a
read of something that has a name, are checked here. What names only a hold or a session by its id needs the
right somewhere: those ids are secrets, and whoever knows one may use it.
"""

from collections.abc import Callable
from typing import Any, Final, get_args

from holdfast.token_lines import Right
from lockapi.needs import forbidden
from lockapi.rights import Rights
from lockstate.words.cell_operations import CellOperation, GetOperation, HoldCompare
from lockstate.words.commands import (
    Acquire,
    AcquirePermits,
    AcquireSeveral,
    AddLocks,
    AdvanceFence,
    Campaign,
    CloseSession,
    Command,
    Convert,
    DeleteCells,
    EndWait,
    ForceCloseSession,
    ForceRelease,
    ForgetFence,
    KeepAlive,
    LiftDelay,
    Numbered,
    NumberedCommand,
    OpenSession,
    Proclaim,
    PutCell,
    PutOff,
    Release,
    ReleaseByValue,
    Renew,
    RenewByValue,
    ResizeSemaphore,
    ResumeStream,
    Revoke,
    SetNamespace,
    SetQuota,
    TakeRate,
    TransactCells,
)
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


def check_command(rights: Rights, command: Command) -> None:
    """Refuse a command of a client that lacks a right for it. Raises ProblemError."""
    _COMMANDS[type(command)](rights, command)


def _acquire(rights: Rights, command: Acquire) -> None:
    if not command.locks:
        _acquire_one(rights, command.name, command.scope)
    for lock in command.locks:
        _acquire_one(rights, lock.name, lock.scope)


def _acquire_several(rights: Rights, command: AcquireSeveral) -> None:
    for lock in command.locks:
        _acquire_one(rights, lock.name, lock.scope)
    for name in (*[one.name for one in command.permits], *[one.name for one in command.rates]):
        check_name(rights, Right.ACQUIRE, name)


def _add(rights: Rights, command: AddLocks) -> None:
    for lock in command.locks:
        _acquire_one(rights, lock.name, lock.scope)


def _acquire_one(rights: Rights, name: str, scope: Scope) -> None:
    if scope is Scope.SUBTREE:
        check_below(rights, Right.ACQUIRE, name)
    elif not rights.covers(Right.ACQUIRE, name):
        raise forbidden(Right.ACQUIRE, name)


def _acquire_name(
    rights: Rights,
    command: AcquirePermits | Campaign | TakeRate | ResizeSemaphore | ReleaseByValue | RenewByValue,
) -> None:
    check_name(rights, Right.ACQUIRE, command.name)


def _advance(rights: Rights, command: AdvanceFence) -> None:
    check_name(rights, Right.ACQUIRE, command.resource)


def _by_id(rights: Rights, _: Command) -> None:
    """Check what is known only by its id."""
    if not rights.somewhere(Right.ACQUIRE):
        raise forbidden(Right.ACQUIRE)


def _force(rights: Rights, command: ForceRelease | Revoke) -> None:
    check_name(rights, Right.FORCE, command.name)


def _lift_delay(rights: Rights, command: LiftDelay) -> None:
    check_name(rights, Right.FORCE, command.name)


def _forget_fence(rights: Rights, command: ForgetFence) -> None:
    check_name(rights, Right.FORCE, command.resource)


def _force_session(rights: Rights, _: ForceCloseSession) -> None:
    """Check for everything: a session may have anything."""
    if not rights.everywhere(Right.FORCE):
        raise forbidden(Right.FORCE, "")


def _set_quota(rights: Rights, _: SetQuota) -> None:
    if not rights.on_the_whole(Right.ADMIN):
        raise forbidden(Right.ADMIN)


def _set_namespace(rights: Rights, command: SetNamespace) -> None:
    """Check for all that lies in it. Without a prefix the right counts everywhere."""
    if not rights.on_the_whole(Right.ADMIN):
        check_below(rights, Right.ADMIN, command.prefix)


def of_namespaces(rights: Rights) -> Rights:
    """Return rights by which namespaces are read: whoever may set one may read it."""
    return rights.with_implied(Right.ADMIN, Right.READ)


def _put_cell(rights: Rights, command: PutCell) -> None:
    check_key(rights, Right.ACQUIRE, command.key)


def _delete_cells(rights: Rights, command: DeleteCells) -> None:
    if command.is_prefix:
        check_start(rights, Right.ACQUIRE, text_of_key(command.key))
    else:
        check_key(rights, Right.ACQUIRE, command.key)


def _transact(rights: Rights, command: TransactCells) -> None:
    """Check both branches: which one is done is not known before."""
    for compare in command.compares:
        if isinstance(compare, HoldCompare):
            _by_id(rights, command)
        else:
            check_key(rights, Right.READ, compare.key)
    for operation in (*command.then, *command.otherwise):
        check_key(rights, _of_operation(operation), operation.key)


def _each(rights: Rights, frame: Numbered) -> None:
    """Check all commands of a frame: it is carried out as a whole."""
    _by_id(rights, frame)
    for command in frame.commands:
        _NUMBERED[type(command)](rights, command)


def _of_operation(operation: CellOperation) -> Right:
    return Right.READ if isinstance(operation, GetOperation) else Right.ACQUIRE


_COMMANDS: Final[dict[type[Any], Callable[[Rights, Any], None]]] = {
    OpenSession: _by_id,
    KeepAlive: _by_id,
    CloseSession: _by_id,
    Acquire: _acquire,
    Release: _by_id,
    Renew: _by_id,
    Convert: _by_id,
    AddLocks: _add,
    Proclaim: _by_id,
    AcquirePermits: _acquire_name,
    Campaign: _acquire_name,
    TakeRate: _acquire_name,
    ResizeSemaphore: _acquire_name,
    AdvanceFence: _advance,
    ForceRelease: _force,
    ForceCloseSession: _force_session,
    LiftDelay: _lift_delay,
    Revoke: _force,
    PutOff: _by_id,
    ReleaseByValue: _acquire_name,
    RenewByValue: _acquire_name,
    AcquireSeveral: _acquire_several,
    ForgetFence: _forget_fence,
    SetQuota: _set_quota,
    SetNamespace: _set_namespace,
    PutCell: _put_cell,
    DeleteCells: _delete_cells,
    TransactCells: _transact,
    ResumeStream: _by_id,
    Numbered: _each,
}
"""The commands that clients can have carried out. All others are the nodes' own."""

_NUMBERED: Final[dict[type[Any], Callable[[Rights, Any], None]]] = {
    **{command: _COMMANDS[command] for command in get_args(NumberedCommand) if command in _COMMANDS},
    EndWait: _by_id,
}
"""The commands that clients can number on a stream."""
