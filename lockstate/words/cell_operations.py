"""The parts of a transaction over cells and locks: what is compared first, and what is done then."""

import enum

from lockstate.words.ids import NO_HOLD, NO_OWNER, NO_SESSION, HoldId, OwnerName, SessionId
from lockstate.words.shape import Array


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


class _Part(Array, frozen=True):
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


class LockCompare(_Part, frozen=True, tag=3):
    """True if this hold, and no other one, holds exactly this name; or, without a `hold_id`, if it is free.

    Free is a name that is not held or delayed, nor lies below a subtree that is. Neither a freeze nor clients
    that wait for it make it less free, though they keep it from being taken. Whose the hold is does not
    matter.
    """

    name: str
    hold_id: HoldId = NO_HOLD


class PutOperation(_Part, frozen=True, tag=1):
    """Write a cell, which lives with a session, for `ttl_ms`, or until it is deleted: at most one of them.

    With `keeps_lease` and neither of them, a cell that is there lives on as it did.
    """

    key: bytes
    value: bytes
    session_id: SessionId = NO_SESSION
    ttl_ms: int = 0
    keeps_lease: bool = False


class DeleteOperation(_Part, frozen=True, tag=2):
    """Delete a cell, if it is there."""

    key: bytes


class GetOperation(_Part, frozen=True, tag=3):
    """Read a cell as it is at this place of the transaction."""

    key: bytes


class TakeOperation(_Part, frozen=True, tag=4):
    """Acquire a lock, exclusively and without waiting: `ttl_ms` 0 asks for a hold without a deadline."""

    name: str
    hold_id: HoldId
    value: str = ""
    owner: OwnerName = NO_OWNER
    ttl_ms: int = 0


class EndOperation(_Part, frozen=True, tag=5):
    """Release a hold, as a whole; with a `reason`, end it by force, whoever has it.

    A forced end stands in `then`, and one of the compares is that the hold has a name: who asks needs the
    right to force that.
    """

    hold_id: HoldId
    reason: str = ""


class RenewOperation(_Part, frozen=True, tag=6):
    """Let the lease of a hold end `ttl_ms` from now, also if it was to last longer."""

    hold_id: HoldId
    ttl_ms: int


Compare = CellCompare | HoldCompare | LockCompare
CellOperation = PutOperation | DeleteOperation | GetOperation
LockOperation = TakeOperation | EndOperation | RenewOperation
Operation = CellOperation | LockOperation
