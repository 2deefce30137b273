"""How what a node answers about cells, the structs of `holdfast.wire`, is made of a result or a view.

A key or a value that is not text, which only other faces than HTTP could write, is shown in Base64.
"""

from holdfast.wire.cells import (
    CellChangeJson,
    CellJson,
    CellPageJson,
    CellsDeletedJson,
    CellWrittenJson,
    OperationDoneJson,
    TransactedJson,
)
from holdfast.wire.shape import FRESH, UNSET, Unset
from lockapi import cursors
from lockapi.problems import ProblemError
from lockstate.words import results
from lockstate.words.cell_operations import DeleteOperation, GetOperation, Operation, PutOperation
from lockstate.words.commands.cells import TransactCells
from lockstate.words.events import CellEvent
from lockstate.words.views import CellView


def cell_of(view: CellView | None) -> CellJson:
    """Return a cell as a JSON object. Raises ProblemError if there is none."""
    if view is None:
        raise ProblemError("cell-not-found", "there is no cell with this key")
    return _cell(view)


def event_of(event: CellEvent) -> CellChangeJson:
    """Return a change of a cell as a JSON object."""
    return CellChangeJson(
        event.revision, event.kind, "cell", event.name, event.mod_revision, event.version, event.now_ms
    )


def page_of(found: tuple[list[CellView], bytes | None]) -> CellPageJson:
    """Return a page of cells as a JSON object."""
    views, last = found
    more = None if last is None else cursors.of_key(last)
    return CellPageJson(tuple([_cell(view) for view in views]), more, **FRESH)


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


def _first(result: results.Transacted) -> results.CellDone | results.LockDone:
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


def _done(operation: Operation, part: results.CellDone | results.LockDone) -> OperationDoneJson:
    match operation, part:
        case PutOperation(), results.CellWritten():
            return OperationDoneJson(
                put=operation.key.decode(),
                create_revision=part.create_revision,
                mod_revision=part.mod_revision,
                version=part.version,
            )
        case DeleteOperation(), results.CellsDeleted():
            return OperationDoneJson(delete=operation.key.decode(), deleted=part.count)
        case GetOperation(), results.CellRead():
            return OperationDoneJson(
                get=operation.key.decode(), cell=None if part.cell is None else _cell(part.cell)
            )
    raise AssertionError(f"{part!r} is not a result of {operation!r}")


def _cell(view: CellView) -> CellJson:
    key, key_bytes = _text_or_bytes(view.key)
    value, value_bytes = _text_or_bytes(view.value)
    return CellJson(
        key=key,
        key_base64=key_bytes,
        value=value,
        value_base64=value_bytes,
        create_revision=view.create_revision,
        mod_revision=view.mod_revision,
        version=view.version,
        owner=view.owner or UNSET,
        expires_in_ms=UNSET if view.expires_in_ms is None else view.expires_in_ms,
        **FRESH,
    )


def _text_or_bytes(content: bytes) -> tuple[str | Unset, bytes | Unset]:
    try:
        return content.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, content
