"""What a node answers about cells: one struct per JSON object, and how each is made of a result or a view.

A key or a value that is not text, which only other faces than HTTP could write, is shown in Base64.
"""

import base64

import msgspec

from holdfast.wire.answers import WriteAnswer
from lockapi import cursors
from lockapi.problems import ProblemError
from lockapi.views import ReadAnswer
from lockstate.words import results
from lockstate.words.cell_operations import CellOperation, DeleteOperation, GetOperation, PutOperation
from lockstate.words.commands import TransactCells

Unset = msgspec.UnsetType
UNSET = msgspec.UNSET


class CellJson(ReadAnswer, kw_only=True):
    """A cell. `owner` is there if it lives with a session, `expires_in_ms` also if it has a lease."""

    key: str | Unset = UNSET
    key_base64: str | Unset = UNSET
    value: str | Unset = UNSET
    value_base64: str | Unset = UNSET
    create_revision: int
    mod_revision: int
    version: int
    owner: str | Unset = UNSET
    expires_in_ms: int | Unset = UNSET


class CellPageJson(ReadAnswer):
    """Cells in order of key, and the cursor to pass as `after` for more."""

    cells: tuple[CellJson, ...]
    next: str | None


class CellWrittenJson(WriteAnswer):
    """A cell that was written."""

    create_revision: int
    mod_revision: int
    version: int
    revision: int


class CellsDeletedJson(WriteAnswer):
    """How many cells were deleted, and whether more are left of those that were meant."""

    deleted: int
    more: bool
    revision: int


class OperationDoneJson(msgspec.Struct, kw_only=True):
    """What became of one operation of a transaction."""

    put: str | Unset = UNSET
    create_revision: int | Unset = UNSET
    mod_revision: int | Unset = UNSET
    version: int | Unset = UNSET
    delete: str | Unset = UNSET
    deleted: bool | Unset = UNSET
    get: str | Unset = UNSET
    cell: CellJson | Unset | None = UNSET


class TransactedJson(WriteAnswer):
    """Whether all compares were true, and what was done then or else, in its order."""

    succeeded: bool
    results: tuple[OperationDoneJson, ...]
    revision: int


class CellChangeJson(msgspec.Struct):
    """A change of a cell, as watchers are told. `version` is 0 when the cell is gone; `name` is its key."""

    revision: int
    event: results.CellEventKind
    kind: str
    name: str
    mod_revision: int
    version: int
    at_ms: int


def cell_of(view: results.CellView | None) -> CellJson:
    """Return a cell as a JSON object. Raises ProblemError if there is none."""
    if view is None:
        raise ProblemError("cell-not-found", "there is no cell with this key")
    return _cell(view)


def event_of(event: results.CellEvent) -> CellChangeJson:
    """Return a change of a cell as a JSON object."""
    return CellChangeJson(
        event.revision, event.kind, "cell", event.name, event.mod_revision, event.version, event.now_ms
    )


def page_of(found: tuple[list[results.CellView], bytes | None]) -> CellPageJson:
    """Return a page of cells as a JSON object."""
    views, last = found
    return CellPageJson(
        tuple([_cell(view) for view in views]), None if last is None else cursors.of_key(last)
    )


def written(result: results.CellWritten, revision: int) -> CellWrittenJson:
    """Return the answer to a write."""
    return CellWrittenJson(result.create_revision, result.mod_revision, result.version, revision)


def written_if(result: results.Transacted, revision: int) -> CellWrittenJson:
    """Return the answer to a write with conditions. Raises ProblemError if they are not met."""
    part = _first(result)
    assert isinstance(part, results.CellWritten)
    return written(part, revision)


def deleted_if(result: results.Transacted, revision: int) -> CellsDeletedJson:
    """Return the answer to a deletion with conditions. Raises ProblemError if they are not met."""
    part = _first(result)
    assert isinstance(part, results.CellsDeleted)
    return deleted(part, revision)


def deleted(result: results.CellsDeleted, revision: int) -> CellsDeletedJson:
    """Return the answer to a deletion."""
    return CellsDeletedJson(result.count, result.is_more, revision)


def transacted(command: TransactCells, result: results.Transacted, revision: int) -> TransactedJson:
    """Return the answer to a transaction."""
    operations = command.then if result.succeeded else command.otherwise
    done = [_done(operation, part) for operation, part in zip(operations, result.results, strict=True)]
    return TransactedJson(result.succeeded, tuple(done), revision)


def _first(result: results.Transacted) -> results.CellWritten | results.CellsDeleted | results.CellRead:
    """Return the only result of a conditional change. Raises ProblemError if its conditions are not met."""
    (part,) = result.results
    if result.succeeded:
        return part
    assert isinstance(part, results.CellRead)
    view = part.cell
    version, mod_revision = (0, 0) if view is None else (view.version, view.mod_revision)
    raise ProblemError(
        "cell-changed",
        f"the cell has version {version} and mod_revision {mod_revision}",
        facts={"version": version, "mod_revision": mod_revision},
    )


def _done(
    operation: CellOperation, part: results.CellWritten | results.CellsDeleted | results.CellRead
) -> OperationDoneJson:
    key = operation.key.decode()
    match operation, part:
        case PutOperation(), results.CellWritten():
            return OperationDoneJson(
                put=key,
                create_revision=part.create_revision,
                mod_revision=part.mod_revision,
                version=part.version,
            )
        case DeleteOperation(), results.CellsDeleted():
            return OperationDoneJson(delete=key, deleted=bool(part.count))
        case GetOperation(), results.CellRead():
            return OperationDoneJson(get=key, cell=None if part.cell is None else _cell(part.cell))
    raise AssertionError(f"{part!r} is not a result of {operation!r}")


def _cell(view: results.CellView) -> CellJson:
    cell = CellJson(
        create_revision=view.create_revision, mod_revision=view.mod_revision, version=view.version
    )
    try:
        cell.key = view.key.decode()
    except UnicodeDecodeError:
        cell.key_base64 = base64.b64encode(view.key).decode()
    try:
        cell.value = view.value.decode()
    except UnicodeDecodeError:
        cell.value_base64 = base64.b64encode(view.value).decode()
    if view.owner:
        cell.owner = view.owner
    if view.expires_in_ms is not None:
        cell.expires_in_ms = view.expires_in_ms
    return cell
