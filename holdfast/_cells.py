"""Cells: small values that the cluster keeps beside the locks, for either client."""

from collections.abc import AsyncGenerator, Iterator, Sequence

from holdfast import _cell_operations
from holdfast._cell_values import (
    Cell,
    CellCompare,
    CellOperation,
    CellPage,
    CellPut,
    CellWritten,
    Keeper,
    Transacted,
    Value,
)
from holdfast._durations import Seconds
from holdfast._errors import Refused
from holdfast._names import Name, to_name
from holdfast._portal import Call
from holdfast._transport import Transport


class Cells:
    """The cells of a cluster. Keys are texts, or tuples of parts; values are texts or bytes.

    With `if_version` or `if_mod_revision` a cell is changed only while it is as it was read, 0 meaning that
    there is none; otherwise CellChanged is raised.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def get(self, key: Name, *, is_stale: bool = False) -> Cell | None:
        """Read a cell; None if there is none. `is_stale` allows the node's own, older view."""
        try:
            return await self._transport.call(_cell_operations.get(to_name(key), is_stale=is_stale))
        except Refused as error:
            if error.code == "cell-not-found":
                return None
            raise

    async def put(
        self,
        key: Name,
        value: Value,
        *,
        session: Keeper | None = None,
        ttl: Seconds | None = None,
        if_version: int | None = None,
        if_mod_revision: int | None = None,
    ) -> CellWritten:
        """Write a cell. It lives with `session`, for `ttl` after its last write, or until it is deleted."""
        put = CellPut(to_name(key), value, session, ttl)
        operation = _cell_operations.put(put, if_version=if_version, if_mod_revision=if_mod_revision)
        return await self._transport.call(operation)

    async def delete(
        self, key: Name, *, if_version: int | None = None, if_mod_revision: int | None = None
    ) -> bool:
        """Delete a cell; return whether it was there."""
        operation = _cell_operations.delete(
            to_name(key), if_version=if_version, if_mod_revision=if_mod_revision
        )
        return await self._transport.call(operation)

    async def list(self, prefix: str = "", *, is_stale: bool = False) -> AsyncGenerator[Cell]:
        """Yield the cells whose keys begin with `prefix`, in order of key, a page at a time."""
        after: str | None = ""
        while after is not None:
            page = await self.list_page(prefix, after=after, is_stale=is_stale)
            for cell in page.cells:
                yield cell
            after = page.next

    async def list_page(
        self, prefix: str = "", *, limit: int = 100, after: str = "", is_stale: bool = False
    ) -> CellPage:
        """Read a page of the cells with this prefix; `after` is the `next` of the page before."""
        operation = _cell_operations.list_page(prefix, limit, after, is_stale=is_stale)
        return await self._transport.call(operation)

    async def delete_prefix(self, prefix: str) -> int:
        """Delete all cells whose keys begin with `prefix`, a thousand in each step; return how many."""
        count, is_more = 0, True
        while is_more:
            deleted, is_more = await self._transport.call(_cell_operations.delete_some(prefix))
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
        return await self._transport.call(_cell_operations.transact(compare, then, otherwise))


class SyncCells:
    """The cells of a cluster, for threads. See `Cells`."""

    def __init__(self, twin: Cells) -> None:
        self._twin = twin

    def get(self, key: Name, *, is_stale: bool = False) -> Cell | None:
        """Read a cell; None if there is none. `is_stale` allows the node's own, older view."""
        return Call(lambda: self._twin.get(key, is_stale=is_stale)).run()

    def put(
        self,
        key: Name,
        value: Value,
        *,
        session: Keeper | None = None,
        ttl: Seconds | None = None,
        if_version: int | None = None,
        if_mod_revision: int | None = None,
    ) -> CellWritten:
        """Write a cell. It lives with `session`, for `ttl` after its last write, or until it is deleted."""
        return Call(
            lambda: self._twin.put(
                key,
                value,
                session=session,
                ttl=ttl,
                if_version=if_version,
                if_mod_revision=if_mod_revision,
            )
        ).run()

    def delete(self, key: Name, *, if_version: int | None = None, if_mod_revision: int | None = None) -> bool:
        """Delete a cell; return whether it was there."""
        return Call(
            lambda: self._twin.delete(key, if_version=if_version, if_mod_revision=if_mod_revision)
        ).run()

    def list(self, prefix: str = "", *, is_stale: bool = False) -> Iterator[Cell]:
        """Yield the cells whose keys begin with `prefix`, in order of key, a page at a time."""
        after: str | None = ""
        while after is not None:
            page = self.list_page(prefix, after=after, is_stale=is_stale)
            yield from page.cells
            after = page.next

    def list_page(
        self, prefix: str = "", *, limit: int = 100, after: str = "", is_stale: bool = False
    ) -> CellPage:
        """Read a page of the cells with this prefix; `after` is the `next` of the page before."""
        return Call(lambda: self._twin.list_page(prefix, limit=limit, after=after, is_stale=is_stale)).run()

    def delete_prefix(self, prefix: str) -> int:
        """Delete all cells whose keys begin with `prefix`, a thousand in each step; return how many."""
        return Call(lambda: self._twin.delete_prefix(prefix)).run()

    def transact(
        self,
        *,
        compare: Sequence[CellCompare] = (),
        then: Sequence[CellOperation] = (),
        otherwise: Sequence[CellOperation] = (),
    ) -> Transacted:
        """Do all of `then` if everything in `compare` is true, and all of `otherwise` if not, in one step."""
        return Call(lambda: self._twin.transact(compare=compare, then=then, otherwise=otherwise)).run()
