"""The table of cells: small values beside the locks, each under a key. What commands do is in `transactions`.

The table has a revision of its own, which rises by one with every command, or end of a session or of a lease,
that changes any cell: what one transaction changes has one revision, and no two changes of a cell have the
same. (The revision of the state counts entries, and many commands share an entry.)
"""

from collections.abc import Iterator
from typing import Final

from lockstate.tables.deadlines import Deadlines, Lease
from lockstate.tables.ledger import Ledger
from lockstate.tables.records import NOTHING
from lockstate.tables.sorted_runs import SortedRuns
from lockstate.words.cell_operations import PutOperation
from lockstate.words.commands.cells import PutCell
from lockstate.words.ids import SessionId

_YOUNG_MAX: Final = 1024
"""Keys that may wait to be sorted in."""


class Cell(Lease, eq=False, gc=False, array_like=True):
    """One value. `version` counts the writes since it was created.

    It lives with a session, or has a lease of its own (`ttl_ms`), or neither. `order` and `expires_at_ms` are
    0 without a lease of its own.
    """

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    session_id: SessionId


def size_of(cell: Cell | PutCell | PutOperation) -> int:
    """Return the bytes of the key and the value of a cell, or of what is to be written."""
    return len(cell.key) + len(cell.value)


class CellTable:
    """All cells. The caller has checked that there is room, and that sessions live."""

    def __init__(self, deadlines: Deadlines, ledger: Ledger) -> None:
        self._deadlines = deadlines
        self._ledger = ledger
        self._cells: dict[bytes, Cell] = {}
        self._of_sessions: dict[SessionId, dict[bytes, Cell]] = {}
        self._sorted = SortedRuns[bytes]()
        self._young: dict[bytes, None] = {}
        self._coming: dict[bytes, None] = {}
        """Keys that are being sorted in, or were when memory was short: some of them are, others are not.

        Then some may be among the young ones as well.
        """
        self.revision = 0
        """How often any cell has been changed."""
        self.content_bytes = 0
        """Bytes of all keys and values."""

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._cells)

    def __contains__(self, key: bytes) -> bool:
        """Return whether there is a cell of this key."""
        return key in self._cells

    def get(self, key: bytes) -> Cell | None:
        """Return the cell of a key."""
        return self._cells.get(key)

    def of_session(self, session_id: SessionId) -> dict[bytes, Cell]:
        """Return the cells that live with a session, by key in no particular order."""
        return self._of_sessions.get(session_id, NOTHING)

    def write(self, put: PutCell | PutOperation, order: int, now_ms: int) -> Cell:
        """Write a cell at the present revision. `order` is its creation number if it gets a lease, else 0."""
        cell = self._cells.get(put.key)
        if cell is None:
            expires_at_ms, revision = now_ms + put.ttl_ms if put.ttl_ms else 0, self.revision
            cell = Cell(
                order, expires_at_ms, put.ttl_ms, put.key, put.value, revision, revision, 1, put.session_id
            )
            self.enter(cell)
            return cell
        self._ledger.change(cell)
        self.content_bytes += size_of(put) - size_of(cell)
        cell.value, cell.mod_revision = put.value, self.revision
        cell.version += 1
        if type(put) is PutOperation and put.keeps_lease:
            return cell
        if put.session_id != cell.session_id:
            self._leave_session(cell)
            cell.session_id = put.session_id
            self._join_session(cell)
        if put.ttl_ms or cell.ttl_ms:
            self._give_lease(cell, put.ttl_ms, order, now_ms)
        return cell

    def _give_lease(self, cell: Cell, ttl_ms: int, order: int, now_ms: int) -> None:
        """Start the lease of a cell anew, or take it away."""
        if cell.ttl_ms:
            self._deadlines.remove(cell)
        cell.ttl_ms, cell.order = ttl_ms, order
        cell.expires_at_ms = now_ms + ttl_ms if ttl_ms else 0
        if ttl_ms:
            self._deadlines.add(cell)

    def enter(self, cell: Cell) -> None:
        """Add a cell whose key is not there."""
        key = cell.key
        self._cells[key] = cell
        self._young[key] = None
        if len(self._young) > _YOUNG_MAX:
            self._sort_in()
        self._ledger.noted[cell] = 0
        self.content_bytes += size_of(cell)
        if cell.ttl_ms:
            self._deadlines.add(cell)
        self._join_session(cell)

    def remove(self, cell: Cell) -> None:
        """Take a cell out."""
        key = cell.key
        del self._cells[key]
        if key in self._coming or key not in self._young:
            self._sorted.remove((key,))
        self._coming.pop(key, None)
        self._young.pop(key, None)
        self._ledger.remove(cell)
        self.content_bytes -= size_of(cell)
        if cell.ttl_ms:
            self._deadlines.remove(cell)
        self._leave_session(cell)

    def _join_session(self, cell: Cell) -> None:
        if cell.session_id:
            self._of_sessions.setdefault(cell.session_id, {})[cell.key] = cell

    def _leave_session(self, cell: Cell) -> None:
        if cell.session_id:
            of_session = self._of_sessions[cell.session_id]
            del of_session[cell.key]
            if not of_session:
                del self._of_sessions[cell.session_id]

    # -- in order -------------------------------------------------------------------------------------------

    def below(self, prefix: bytes, after: bytes) -> Iterator[Cell]:
        """Yield the cells whose keys begin with `prefix` and follow `after`, in order. None may change."""
        self._sort_in()
        start, inclusive = (after, False) if after and after >= prefix else (prefix, True)
        for key in self._sorted.after(start, inclusive=inclusive):
            if not key.startswith(prefix):
                return
            yield self._cells[key]

    def _sort_in(self) -> None:
        self._coming |= self._young
        self._young = {}
        self._sorted.add(self._coming)
        self._coming = {}

    def all(self) -> list[Cell]:
        """Return all of them in the order of the table, which is the same on every node."""
        return list(self._cells.values())
