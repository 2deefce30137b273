"""The parts of a transaction over cells: what is compared first, and what is done then."""

import enum

import msgspec

from lockstate.words.ids import NO_SESSION, HoldId, SessionId


class CellField(enum.StrEnum):
    """What of a cell is compared. The value is the word used in JSON."""

    VALUE = "value"
    VERSION = "version"
    CREATE_REVISION = "create_revision"
    MOD_REVISION = "mod_revision"

    __hash__ = str.__hash__  # that of Enum is a Python function, and slow


class Relation(enum.StrEnum):
    """How what a cell has must stand to what is given. The value is the sign used in JSON."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    GREATER = ">"

    __hash__ = str.__hash__


class _Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of the parts."""


class CellCompare(_Part, frozen=True, tag=1):
    """True if what the cell has stands in this relation to `number`, or to `value`.

    A cell that is not there has the version and the revisions 0, and no value: of a value only "!=" is true.
    """

    key: bytes
    of: CellField
    relation: Relation = Relation.EQUAL
    number: int = 0
    value: bytes = b""


class HoldCompare(_Part, frozen=True, tag=2):
    """True if this hold, of whatever kind, is still there and has this token; 0 stands for any token."""

    hold_id: HoldId
    token: int = 0


class PutOperation(_Part, frozen=True, tag=1):
    """Write a cell, which lives with a session, for `ttl_ms`, or until it is deleted: at most one of them."""

    key: bytes
    value: bytes
    session_id: SessionId = NO_SESSION
    ttl_ms: int = 0


class DeleteOperation(_Part, frozen=True, tag=2):
    """Delete a cell, if it is there."""

    key: bytes


class GetOperation(_Part, frozen=True, tag=3):
    """Read a cell as it is at this place of the transaction."""

    key: bytes


Compare = CellCompare | HoldCompare
CellOperation = PutOperation | DeleteOperation | GetOperation
