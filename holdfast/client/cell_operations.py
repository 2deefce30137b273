"""The operations on cells. No I/O."""

from collections.abc import Sequence
from urllib.parse import quote

from holdfast import wire
from holdfast.client.listings import Page, page_of
from holdfast.operations import stream_more_forms
from holdfast.operations.operation import Operation, TimedAnswer, ask, decode, new_request_id, path_to, write
from holdfast.values.cells import (
    Cell,
    CellCompare,
    CellDelete,
    CellGet,
    CellOperation,
    CellPut,
    CellResult,
    Fields,
    Transacted,
)
from holdfast.values.durations import to_ms
from holdfast.values.errors import OutcomeUnknown
from holdfast.values.names import to_name
from holdfast.wire.cells import CellJson, CellsDeletedJson, CellWritten, OperationDoneJson, TransactedJson
from holdfast.wire.shape import UNSET


def get(key: str, *, is_stale: bool) -> Operation[Cell]:
    """Read one cell."""
    return ask(_path(key), _consistency(is_stale), lambda answer: _cell(decode(answer, CellJson)))


def list_page(prefix: str, limit: int, after: str, *, is_stale: bool) -> Operation[Page[Cell]]:
    """Read a page of the cells whose keys begin with `prefix`."""
    query = {"prefix": prefix, "limit": str(limit), "after": after} | _consistency(is_stale)
    return ask(wire.CELLS, query, _page)


def put(
    put: CellPut, *, if_version: int | None = None, if_mod_revision: int | None = None
) -> Operation[CellWritten]:
    """Write one cell, if it is as it was."""
    fields = put.fields()
    del fields["put"]
    key = to_name(put.key)
    numbered = None
    if (if_version, if_mod_revision) == (None, None):
        session_id = "" if put.session is None else put.session.session_id
        ttl_ms = None if put.ttl is None else to_ms(put.ttl, "ttl")
        numbered = stream_more_forms.put(key, put.value, session_id, ttl_ms)
    return write(
        _path(key),
        lambda: fields | _conditions(if_version, if_mod_revision) | {"request_id": new_request_id()},
        lambda answer: decode(answer, CellWritten),
        method="PUT",
        always="value" if isinstance(put.value, str) else "value_base64",
        numbered=numbered,
    )


def delete(key: str, *, if_version: int | None = None, if_mod_revision: int | None = None) -> Operation[bool]:
    """Delete one cell, if it is as it was; the answer says whether it was there."""
    return write(
        _path(key),
        lambda: _conditions(if_version, if_mod_revision) | {"request_id": new_request_id()},
        lambda answer: decode(answer, CellsDeletedJson).deleted > 0,
        method="DELETE",
        numbered=stream_more_forms.delete(key) if (if_version, if_mod_revision) == (None, None) else None,
    )


def delete_some(prefix: str | None) -> Operation[tuple[int, bool]]:
    """Delete cells whose keys begin with `prefix`, or any; return how many, and whether there are more."""
    which = "all=true" if prefix is None else f"prefix={quote(prefix, safe='')}"
    path = f"{wire.CELLS}?{which}"
    return write(path, {"request_id": new_request_id()}, _deleted, method="DELETE")


def transact(
    compare: Sequence[CellCompare], then: Sequence[CellOperation], otherwise: Sequence[CellOperation]
) -> Operation[Transacted]:
    """Do all of `then` if everything in `compare` is true, and all of `otherwise` if not, in one step."""
    fields = {
        "compare": [part.fields() for part in compare],
        "then": [part.fields() for part in then],
        "else": [part.fields() for part in otherwise],
        "request_id": new_request_id(),
    }
    return write(
        wire.CELLS_TRANSACT, fields, lambda answer: _transacted(answer, tuple(then), tuple(otherwise))
    )


def _path(key: str) -> str:
    """Return the path of a cell. Raises ValueError for `.` and `..`, which are taken out of every path."""
    if key in (".", ".."):
        raise ValueError(f"key: {key!r} cannot be part of a path; name it in a transaction")
    return path_to(wire.CELL, key)


def _consistency(is_stale: bool) -> dict[str, str]:  # noqa: FBT001 - the whole of it
    return {"consistency": wire.STALE if is_stale else ""}


def _conditions(if_version: int | None, if_mod_revision: int | None) -> Fields:
    return {"if_version": if_version, "if_mod_revision": if_mod_revision}


def _page(answer: TimedAnswer) -> Page[Cell]:
    page = page_of(answer, "cells", CellJson)
    return Page(
        items=tuple(_cell(cell) for cell in page.items),
        next=page.next,
        hidden=page.hidden,
        revision=page.revision,
        lag_ms=page.lag_ms,
    )


def _deleted(answer: TimedAnswer) -> tuple[int, bool]:
    deleted = decode(answer, CellsDeletedJson)
    return deleted.deleted, deleted.more


def _transacted(
    answer: TimedAnswer, then: tuple[CellOperation, ...], otherwise: tuple[CellOperation, ...]
) -> Transacted:
    done = decode(answer, TransactedJson)
    operations = then if done.succeeded else otherwise
    if len(operations) != len(done.results):
        raise OutcomeUnknown("the answer does not come from a Holdfast node: a result is missing")
    results = [_result(operation, part) for operation, part in zip(operations, done.results, strict=True)]
    return Transacted(done.succeeded, tuple(results))


def _result(operation: CellOperation, done: OperationDoneJson) -> CellResult:
    match operation, done:
        case CellPut(), OperationDoneJson(
            create_revision=int(created), mod_revision=int(modified), version=int(version)
        ):
            return CellWritten(created, modified, version)
        case CellDelete(), OperationDoneJson(deleted=int(count)):
            return count > 0
        case CellGet(), OperationDoneJson(cell=None):
            return None
        case CellGet(), OperationDoneJson(cell=CellJson() as cell):
            return _cell(cell)
    raise OutcomeUnknown("the answer does not come from a Holdfast node: a result lacks what was done")


def _cell(cell: CellJson) -> Cell:
    """Return a cell as users see it: bytes that are not text came as Base64. One of the two always comes."""
    for text, encoded in ((cell.key, cell.key_base64), (cell.value, cell.value_base64)):
        if text is UNSET and encoded is UNSET:
            raise OutcomeUnknown(
                "the answer does not come from a Holdfast node: a cell lacks its key or value"
            )
    return Cell(
        key=cell.key or (cell.key_base64 or b"").decode(errors="surrogateescape"),
        value=(cell.value or "").encode() or cell.value_base64 or b"",
        create_revision=cell.create_revision,
        mod_revision=cell.mod_revision,
        version=cell.version,
        owner=cell.owner or "",
        expires_in_ms=None if cell.expires_in_ms is UNSET else cell.expires_in_ms,
    )
