"""What is answered about cells. A key or a value that is not text is shown in Base64."""

import msgspec

from holdfast.wire.shape import ABSENT, UNSET, ReadAnswer, Unset, WriteAnswer


class CellJson(ReadAnswer, frozen=True, kw_only=True):
    """A cell. `owner` is there if it lives with a session, `expires_in_ms` also if it has a lease."""

    key: str | Unset = UNSET
    key_base64: bytes | Unset = UNSET
    value: str | Unset = UNSET
    value_base64: bytes | Unset = UNSET
    create_revision: int
    mod_revision: int
    version: int
    owner: str | Unset = UNSET
    expires_in_ms: int | Unset = UNSET


class CellPageJson(ReadAnswer, frozen=True):
    """Cells in order of key, and the cursor to pass as `after` for more."""

    cells: tuple[CellJson, ...]
    next: str | None


class CellWritten(msgspec.Struct, frozen=True):
    """The numbers of a cell after it was written."""

    create_revision: int
    mod_revision: int
    version: int


class CellWrittenJson(CellWritten, frozen=True):
    """A cell that was written."""

    revision: int
    repeated: bool | Unset = UNSET


class CellsDeletedJson(WriteAnswer):
    """How many cells were deleted, and whether more are left of those that were meant."""

    deleted: int
    more: bool
    revision: int = ABSENT


class OperationDoneJson(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one operation of a transaction."""

    put: str | Unset = UNSET
    create_revision: int | Unset = UNSET
    mod_revision: int | Unset = UNSET
    version: int | Unset = UNSET
    delete: str | Unset = UNSET
    deleted: int | Unset = UNSET
    get: str | Unset = UNSET
    cell: CellJson | Unset | None = UNSET


class TransactedJson(WriteAnswer):
    """Whether all compares were true, and what was done then or else, in its order."""

    succeeded: bool
    results: tuple[OperationDoneJson, ...]
    revision: int = ABSENT


class CellChangeJson(msgspec.Struct, frozen=True):
    """A change of a cell, as watchers are told. `version` is 0 when the cell is gone; `name` is its key."""

    revision: int
    event: str
    kind: str
    name: str
    mod_revision: int
    version: int
    at_ms: int
