"""Cells as values: what is read and written, and the parts of a transaction. No I/O."""

import base64
from typing import Protocol, TypeAlias

import msgspec

from holdfast.values.durations import Seconds, to_ms
from holdfast.values.names import Name, to_name
from holdfast.values.words import Relation
from holdfast.wire.cells import CellWritten

CellValue: TypeAlias = str | bytes
"""What is written in a cell: at most 4096 bytes, or a text that has no more in UTF-8."""
Fields: TypeAlias = dict[str, object]


class Keeper(Protocol):
    """A session of either client, which cells can live with. `session_id` is a secret."""

    @property
    def session_id(self) -> str:
        """The secret of the session."""
        ...


class Held(Protocol):
    """A hold of any kind, of either client. `hold_id` is a secret."""

    @property
    def hold_id(self) -> str:
        """The secret of the hold."""
        ...


class Cell(msgspec.Struct, frozen=True):
    """A cell as it was read. Its three numbers are for conditions: see `Cells`.

    `owner` is the owner of its session; `expires_in_ms` is None if it has no lease. A key that is not UTF-8,
    which only other faces than HTTP could write, has surrogate escapes.
    """

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    owner: str = ""
    expires_in_ms: int | None = None

    @property
    def text(self) -> str:
        """The value as text. Raises UnicodeDecodeError if it is something else."""
        return self.value.decode()


class CellIs(msgspec.Struct, frozen=True):
    """A compare: a cell has this `version`, `create_revision`, `mod_revision` or `value`; give one of them.

    For a missing cell the numbers are 0, and of values only `!=` is true.
    """

    key: Name
    version: int | None = None
    create_revision: int | None = None
    mod_revision: int | None = None
    value: CellValue | None = None
    relation: Relation = "="

    def fields(self) -> Fields:
        """Return it as JSON."""
        fields: Fields = {"key": to_name(self.key)}
        fields |= {name: number for name in _NUMBERS if (number := getattr(self, name)) is not None}
        if self.value is not None:
            fields |= _of_value(self.value)
        return fields if self.relation == "=" else fields | {"relation": self.relation}


_NUMBERS = ("version", "create_revision", "mod_revision")


class StillHeld(msgspec.Struct, frozen=True):
    """A compare: this hold, of a lock, of permits or of an election, is still there.

    With `token` it must not have changed since: a conversion or an addition draws a new token.
    """

    hold: Held | str
    """A hold, or its `hold_id`."""
    token: int | None = None

    def fields(self) -> Fields:
        """Return it as JSON."""
        fields: Fields = {"hold_id": self.hold if isinstance(self.hold, str) else self.hold.hold_id}
        return fields if self.token is None else fields | {"token": self.token}


class CellPut(msgspec.Struct, frozen=True):
    """An operation: write a cell. It lives with `session`, for `ttl`, or until it is deleted."""

    key: Name
    value: CellValue
    session: Keeper | None = None
    ttl: Seconds | None = None

    def fields(self) -> Fields:
        """Return it as JSON."""
        return {"put": to_name(self.key)} | _of_value(self.value) | _of_life(self.session, self.ttl)


class CellDelete(msgspec.Struct, frozen=True):
    """An operation: delete a cell, if it is there."""

    key: Name

    def fields(self) -> Fields:
        """Return it as JSON."""
        return {"delete": to_name(self.key)}


class CellGet(msgspec.Struct, frozen=True):
    """An operation: read a cell, including earlier changes of the same transaction."""

    key: Name

    def fields(self) -> Fields:
        """Return it as JSON."""
        return {"get": to_name(self.key)}


CellCompare: TypeAlias = CellIs | StillHeld
CellOperation: TypeAlias = CellPut | CellDelete | CellGet
CellResult: TypeAlias = CellWritten | bool | Cell | None
"""What an operation has come to: what was written; whether there was a cell to delete; what was read."""


class Transacted(msgspec.Struct, frozen=True):
    """The outcome of a transaction, with a result for each operation of `then`, or else of `otherwise`."""

    succeeded: bool
    results: tuple[CellResult, ...]


def _of_value(value: CellValue) -> Fields:
    """Return the field of a value: bytes travel as Base64."""
    if isinstance(value, bytes):
        return {"value_base64": base64.b64encode(value).decode()}
    return {"value": value}


def _of_life(session: Keeper | None, ttl: Seconds | None) -> Fields:
    """Return the fields that say how long a cell lives."""
    fields: Fields = {}
    if session is not None:
        fields["session_id"] = session.session_id
    if ttl is not None:
        fields["ttl_ms"] = to_ms(ttl, "ttl")
    return fields
