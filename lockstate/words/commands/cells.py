"""The commands of cells, and the transaction over cells and locks."""

from lockstate.words.cell_operations import Compare, Operation
from lockstate.words.commands.base import WithRequestId
from lockstate.words.ids import NO_SESSION, SessionId


class PutCell(WithRequestId, frozen=True, tag=40):
    """Write a cell, whatever it had. It lives with a session, for `ttl_ms`, or until it is deleted."""

    key: bytes
    value: bytes
    session_id: SessionId = NO_SESSION
    ttl_ms: int = 0
    request_id: str = ""


class DeleteCells(WithRequestId, frozen=True, tag=41):
    """Delete the cell of a key, or a limited number of those whose keys begin with it, in order."""

    key: bytes
    is_prefix: bool = False
    request_id: str = ""


class TransactCells(WithRequestId, frozen=True, tag=42):
    """Do all of `then` if every compare is true, all of `otherwise` if not; or neither, if it is refused.

    Operations are done in order, and see what those before them did. Each of the two writes or deletes a key
    at most once, takes a name at most once, and does at most one thing with a hold. Clients that wait for
    what it releases are served after its last operation.

    HTTP and streams know only the parts about cells, and the compare with a hold; locks are for faces within
    the node. `endless_not_for` is as for an acquire.
    """

    compares: tuple[Compare, ...]
    then: tuple[Operation, ...] = ()
    otherwise: tuple[Operation, ...] = ()
    request_id: str = ""
    endless_not_for: tuple[str, ...] = ()
