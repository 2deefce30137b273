"""Requests about cells. Keys are text here; values are text, or any bytes in Base64."""

import base64
import binascii
from typing import Annotated

import msgspec

from lockapi.requests.fields import (
    UNSET,
    HoldIdText,
    Maybe,
    Request,
    SessionIdText,
    Token,
    Ttl,
    Write,
    check,
    check_between,
    check_prefix_or_all,
    invalid,
)
from lockstate.rules.cells import check_put
from lockstate.rules.transactions import check_transaction
from lockstate.words import limits
from lockstate.words.cell_operations import (
    CellCompare,
    CellField,
    CellOperation,
    Compare,
    DeleteOperation,
    GetOperation,
    HoldCompare,
    Operation,
    PutOperation,
    Relation,
)
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.ids import NO_SESSION, SessionId

Key = Annotated[str, msgspec.Meta(extra_json_schema={"minLength": 1, "maxLength": limits.CELL_KEY_BYTES_MAX})]
Text = Annotated[str, msgspec.Meta(extra_json_schema={"maxLength": limits.CELL_VALUE_BYTES_MAX})]
Base64 = Annotated[str, msgspec.Meta(extra_json_schema={"contentEncoding": "base64"})]
Number = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 0})]

_NUMBER_MAX = (1 << 53) - 1
"""The largest revision or version that a client can name: every JSON reader keeps it exactly."""


def _value(text: str | Maybe, encoded: str | Maybe) -> bytes:
    """Return a value that is given as text or in Base64. Raises ProblemError."""
    if isinstance(text, str) and encoded is UNSET:
        return text.encode()
    if not isinstance(encoded, str) or text is not UNSET:
        raise invalid("value, value_base64: give exactly one of the two")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise invalid("value_base64: is not Base64") from None


def _put(key: str, value: bytes, session_id: SessionId | Maybe, ttl_ms: int | Maybe) -> PutOperation:
    """Return the write of a cell. Raises ProblemError."""
    if session_id is UNSET:
        session_id = NO_SESSION
    else:
        check(limits.check_id("session_id", session_id))
    if ttl_ms is UNSET:
        ttl_ms = 0
    else:
        check(limits.check_ttl(ttl_ms))
    return PutOperation(key.encode(), value, session_id, ttl_ms)


class _Conditional(Write, kw_only=True):
    """Base of what may be asked for only while a cell is as it was."""

    if_version: Number | Maybe = UNSET
    if_mod_revision: Number | Maybe = UNSET

    @property
    def is_conditional(self) -> bool:
        """Whether there are conditions: then the command is a transaction."""
        return self.if_version is not UNSET or self.if_mod_revision is not UNSET

    def compares(self, key: bytes) -> tuple[CellCompare, ...]:
        """Return the conditions. Raises ProblemError."""
        compares: list[CellCompare] = []
        for name, number, of in (
            ("if_version", self.if_version, CellField.VERSION),
            ("if_mod_revision", self.if_mod_revision, CellField.MOD_REVISION),
        ):
            if number is not UNSET:
                check_between(name, number, 0, _NUMBER_MAX)
                compares.append(CellCompare(key, of, number=number))
        return tuple(compares)


class PutCellRequest(_Conditional, kw_only=True):
    """Write a cell, whatever it had, or only if it is as it was."""

    value: Text | Maybe = UNSET
    value_base64: Base64 | Maybe = UNSET
    session_id: SessionIdText | Maybe = UNSET
    ttl_ms: Ttl | Maybe = UNSET

    def command(self, key: str) -> PutCell | TransactCells:
        """Return the command. Raises ProblemError."""
        put = _put(key, _value(self.value, self.value_base64), self.session_id, self.ttl_ms)
        check(check_put(put))
        compares = self.compares(put.key)
        if compares:
            return TransactCells(compares, (put,), (GetOperation(put.key),), self.checked_id())
        return PutCell(put.key, put.value, put.session_id, put.ttl_ms, self.checked_id())


class DeleteCellRequest(_Conditional, kw_only=True):
    """Delete a cell, or only if it is as it was."""

    def command(self, key: str) -> DeleteCells | TransactCells:
        """Return the command. Raises ProblemError."""
        key_bytes = key.encode()
        check(limits.check_key(key_bytes))
        compares = self.compares(key_bytes)
        if compares:
            return TransactCells(
                compares, (DeleteOperation(key_bytes),), (GetOperation(key_bytes),), self.checked_id()
            )
        return DeleteCells(key_bytes, request_id=self.checked_id())


class DeletePrefixRequest(Write, kw_only=True):
    """Delete the cells whose keys begin with the prefix in the query, or all."""

    def command(self, prefix: str, *, is_all: bool) -> DeleteCells:
        """Return the command. Raises ProblemError."""
        return deletion(prefix.encode(), is_all=is_all, request_id=self.checked_id())


def check_text_key(key: bytes) -> None:
    """Raise ProblemError if a key is not text: HTTP could not name the cell."""
    if not key.isascii():
        try:
            key.decode()
        except UnicodeDecodeError:
            raise invalid("key: must be UTF-8") from None


def deletion(prefix: bytes, *, is_all: bool, request_id: str = "") -> DeleteCells:
    """Return the command that deletes the cells below a prefix, or all cells. Raises ProblemError."""
    check_prefix_or_all(prefix, is_all=is_all, what="cells")
    if len(prefix) > limits.CELL_KEY_BYTES_MAX:
        raise invalid(f"prefix: {len(prefix)} bytes; at most {limits.CELL_KEY_BYTES_MAX} are allowed")
    check_text_key(prefix)
    return DeleteCells(prefix, is_prefix=True, request_id=request_id)


class CompareRequest(Request, kw_only=True):
    """One compare: of a cell, by exactly one of its fields, or with a hold that must still be there."""

    key: Key | Maybe = UNSET
    version: Number | Maybe = UNSET
    create_revision: Number | Maybe = UNSET
    mod_revision: Number | Maybe = UNSET
    value: Text | Maybe = UNSET
    value_base64: Base64 | Maybe = UNSET
    relation: Relation = Relation.EQUAL
    hold_id: HoldIdText | Maybe = UNSET
    token: Token | Maybe = UNSET

    def part(self) -> Compare:
        """Return the part of the transaction. Raises ProblemError."""
        given = [name for name in _COMPARED if getattr(self, name) is not UNSET]
        if self.hold_id is not UNSET:
            if self.key is not UNSET or given or self.relation is not Relation.EQUAL:
                raise invalid("compare: hold_id can be combined only with token")
            token = 0 if self.token is UNSET else self.token
            check_between("token", token, 0, limits.TOKEN_MAX)
            return HoldCompare(self.hold_id, token)
        if self.key is UNSET or self.token is not UNSET:
            raise invalid("compare: needs a key, or a hold_id with or without a token")
        if len(given) != 1:
            raise invalid(f"compare: give exactly one of {', '.join(_COMPARED)}")
        key = self.key.encode()
        if given[0] in {"value", "value_base64"}:
            return CellCompare(
                key, CellField.VALUE, self.relation, value=_value(self.value, self.value_base64)
            )
        number = getattr(self, given[0])
        check_between(given[0], number, 0, _NUMBER_MAX)
        return CellCompare(key, CellField(given[0]), self.relation, number)


_COMPARED = ("version", "create_revision", "mod_revision", "value", "value_base64")
"""What of a cell can be compared, each in a field of its own."""


class OperationRequest(Request, kw_only=True):
    """One operation: `put`, `delete` or `get`, with the key."""

    put_key: Key | Maybe = msgspec.field(default=UNSET, name="put")
    delete_key: Key | Maybe = msgspec.field(default=UNSET, name="delete")
    get_key: Key | Maybe = msgspec.field(default=UNSET, name="get")
    value: Text | Maybe = UNSET
    value_base64: Base64 | Maybe = UNSET
    session_id: SessionIdText | Maybe = UNSET
    ttl_ms: Ttl | Maybe = UNSET

    def part(self) -> CellOperation:
        """Return the part of the transaction. Raises ProblemError."""
        keys = (self.put_key, self.delete_key, self.get_key)
        if sum([key is not UNSET for key in keys]) != 1:
            raise invalid("operation: give exactly one of put, delete, get")
        if self.put_key is not UNSET:
            value = _value(self.value, self.value_base64)
            return _put(self.put_key, value, self.session_id, self.ttl_ms)
        if any(x is not UNSET for x in (self.value, self.value_base64, self.session_id, self.ttl_ms)):
            raise invalid("operation: only put takes value, value_base64, session_id and ttl_ms")
        if self.delete_key is not UNSET:
            return DeleteOperation(self.delete_key.encode())
        assert self.get_key is not UNSET
        return GetOperation(self.get_key.encode())


class TransactRequest(Write, kw_only=True):
    """Compare, and do all of `then` if everything is true, else all of `else`."""

    compare: tuple[CompareRequest, ...] = ()
    then: tuple[OperationRequest, ...] = ()
    otherwise: tuple[OperationRequest, ...] = msgspec.field(default=(), name="else")

    def command(self) -> TransactCells:
        """Return the command. Raises ProblemError."""
        command = TransactCells(
            tuple([compare.part() for compare in self.compare]),
            tuple([operation.part() for operation in self.then]),
            tuple([operation.part() for operation in self.otherwise]),
            self.checked_id(),
        )
        check(check_transaction(command))
        return command


def transaction(compares: tuple[Compare, ...], then: tuple[Operation, ...]) -> TransactCells:
    """Return the command that does something if all compares are true. Raises ProblemError."""
    command = TransactCells(compares, then)
    check(check_transaction(command))
    return command
