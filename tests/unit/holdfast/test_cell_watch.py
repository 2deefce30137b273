"""Watches of cells: what there is, and then what becomes of it; at a real node, with both clients."""

import asyncio

import holdfast
from holdfast.client.cell_watch import CellWatch
from holdfast.client.watch import Watch
from tests.unit.holdfast.conftest import NewClient, a_node


async def _next(changes: holdfast.CellWatch) -> tuple[str, str | None, str]:
    change = await anext(changes)
    return change.key, None if change.cell is None else change.cell.text, change.event


async def test_cells_are_told_and_then_their_changes(new_client: NewClient) -> None:
    """In order of key, then as it happens; nothing of other prefixes, and nothing twice."""
    async with a_node() as (_, url), new_client(url) as client:
        cells = client.cells
        await cells.put("app/a", "1")
        await cells.put("app/b", "2")
        await cells.put("other", "0")
        async with cells.watch("app/") as changes:
            assert await _next(changes) == ("app/a", "1", "cell-put")
            assert await _next(changes) == ("app/b", "2", "cell-put")
            await cells.put("other", "1")
            async with client.lock("app/a"):
                await cells.put("app/c", "4")
            assert await _next(changes) == ("app/c", "4", "cell-put")
            await cells.delete("app/a")
            assert await _next(changes) == ("app/a", None, "cell-deleted")
            async with client.session() as session:
                await cells.put("app/d", "5", session=session)
                assert await _next(changes) == ("app/d", "5", "cell-put")
            assert await _next(changes) == ("app/d", None, "cell-deleted")


async def test_who_gave_up_waiting_misses_nothing() -> None:
    """A cancelled look at a change is taken up by the next one."""
    async with a_node() as (_, url), holdfast.Client(url) as client:
        slow = _Slow(client)
        async with CellWatch(slow, "", lambda: Watch(client._transport, "")) as changes:
            waiting = asyncio.ensure_future(anext(changes))
            while changes._listing is not None or not changes._has_looked:  # noqa: ASYNC110 - its only sign
                await asyncio.sleep(0.005)
            await client.cells.put("a", "1")
            await slow.is_asked.wait()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            slow.may_answer.set()
            assert await _next(changes) == ("a", "1", "cell-put")


class _Slow:
    """Cells whose reads take until somebody lets them."""

    def __init__(self, client: holdfast.Client) -> None:
        self._cells = client.cells
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.list = client.cells.list

    async def get(self, key: str) -> holdfast.Cell | None:
        self.is_asked.set()
        await self.may_answer.wait()
        return await self._cells.get(key)


async def test_a_watch_that_fell_behind_looks_again() -> None:
    """When events are gone it tells what is different: what was written, and what is no longer there."""
    async with a_node() as (_, url), holdfast.Client(url) as client:
        await client.cells.put("a", "1")
        await client.cells.put("b", "1")
        await client.cells.put("c", "1")
        watches = [_Behind(client._transport, ""), Watch(client._transport, "")]
        async with CellWatch(client.cells, "", lambda: watches.pop(0)) as changes:
            assert [(await _next(changes))[0] for _ in range(3)] == ["a", "b", "c"]
            await client.cells.put("b", "2")
            await client.cells.delete("c")
            assert await _next(changes) == ("b", "2", "cell-put")
            assert await _next(changes) == ("c", None, "cell-deleted")
            await client.cells.put("a", "3")
            assert await _next(changes) == ("a", "3", "cell-put")


class _Behind(Watch):
    """A watch whose next event is gone."""

    async def __anext__(self) -> holdfast.Event:
        raise holdfast.Compacted("compacted", "too late")
