"""Cells: small values that the cluster keeps beside the locks, for either client."""

from collections.abc import Sequence

from holdfast.client import cell_operations
from holdfast.client.cell_watch import CellWatch, SyncCellWatch
from holdfast.client.listings import Listing, listing
from holdfast.client.twins import ForThreads, waiting
from holdfast.client.watch import Watch
from holdfast.transport.transport import Transport
from holdfast.values.cells import (
    Cell,
    CellCompare,
    CellOperation,
    CellPut,
    CellValue,
    Keeper,
    Transacted,
)
from holdfast.values.durations import Seconds
from holdfast.values.errors import Refused
from holdfast.values.names import Name, to_name
from holdfast.values.other_words import Suggesting
from holdfast.wire.cells import CellWritten


class Cells(Suggesting):
    """The cells of a cluster. Keys are texts, or tuples of parts; values are texts or bytes.

    With `if_version` or `if_mod_revision` a cell is changed only while it is as it was read (0: while it does
    not exist); otherwise CellChanged is raised.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def get(self, key: Name, *, is_stale: bool = False) -> Cell | None:
        """Read a cell; None if there is none. `is_stale` allows the node's own, older view."""
        try:
            return await self._transport.call(cell_operations.get(to_name(key), is_stale=is_stale))
        except Refused as error:
            if error.code == "cell-not-found":
                return None
            raise

    async def put(
        self,
        key: Name,
        value: CellValue,
        *,
        session: Keeper | None = None,
        ttl: Seconds | None = None,
        if_version: int | None = None,
        if_mod_revision: int | None = None,
    ) -> CellWritten:
        """Write a cell. It lives with `session`, for `ttl` after its last write, or until it is deleted."""
        put = CellPut(to_name(key), value, session, ttl)
        operation = cell_operations.put(put, if_version=if_version, if_mod_revision=if_mod_revision)
        return await self._transport.call(operation)

    async def delete(
        self, key: Name, *, if_version: int | None = None, if_mod_revision: int | None = None
    ) -> bool:
        """Delete a cell; return whether it was there."""
        operation = cell_operations.delete(
            to_name(key), if_version=if_version, if_mod_revision=if_mod_revision
        )
        return await self._transport.call(operation)

    def list(self, prefix: str = "", *, is_stale: bool = False) -> Listing[Cell]:
        """Return the cells whose keys begin with `prefix`, in order of key."""
        return Listing(
            self._transport,
            lambda limit, after: cell_operations.list_page(prefix, limit, after, is_stale=is_stale),
        )

    def watch(self, prefix: str = "") -> CellWatch:
        """Return an iterator of the cells with this prefix, and then of each change, as `CellChange`."""
        return CellWatch(self, prefix, lambda: Watch(self._transport, prefix))

    async def delete_prefix(self, prefix: str) -> int:
        """Delete all cells whose keys begin with `prefix`, a thousand in each step; return how many.

        An empty prefix is refused: `delete_all` deletes all cells.
        """
        if not prefix:
            raise ValueError("the prefix is empty; delete_all() deletes all cells")
        return await self._delete(prefix)

    async def delete_all(self) -> int:
        """Delete all cells, a thousand in each step; return how many."""
        return await self._delete(None)

    async def _delete(self, prefix: str | None) -> int:
        count, is_more = 0, True
        while is_more:
            deleted, is_more = await self._transport.call(cell_operations.delete_some(prefix))
            count += deleted
        return count

    async def transact(
        self,
        *,
        compare: Sequence[CellCompare] = (),
        then: Sequence[CellOperation] = (),
        otherwise: Sequence[CellOperation] = (),
    ) -> Transacted:
        """Do all of `then` if everything in `compare` is true, and all of `otherwise` if not, in one step."""
        return await self._transport.call(cell_operations.transact(compare, then, otherwise))


class SyncCells(ForThreads[Cells]):
    """The cells of a cluster, for threads. See `Cells`."""

    get = waiting(Cells.get)
    put = waiting(Cells.put)
    delete = waiting(Cells.delete)
    list = listing(Cells.list)

    def watch(self, prefix: str = "") -> SyncCellWatch:
        """Return an iterator of the cells with this prefix, and then of each change, as `CellChange`."""
        return SyncCellWatch(self._twin.watch(prefix))

    delete_prefix = waiting(Cells.delete_prefix)
    delete_all = waiting(Cells.delete_all)
    transact = waiting(Cells.transact)
