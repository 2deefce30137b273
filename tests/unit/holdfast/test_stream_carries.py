"""What a stream carries besides acquire, renew and release: the same as over HTTP, and in doubt not twice."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.client import cell_operations
from holdfast.operations import hold_operations, primitive_operations
from holdfast.operations.operation import Operation
from holdfast.operations.stream_refusals import NotTaken
from holdfast.stream import stream_commands
from holdfast.stream.stream_calls import Asking, read
from holdfast.stream.stream_messages import heard
from holdfast.wire.stream import Results
from lockstate.words.commands.streams import Numbered
from tests.support.both_clients import take
from tests.unit.holdfast.conftest import a_node
from tests.unit.holdfast.test_streams import Way, on_the_way
from tests.unit.http_api.serving import until


async def _convert(client: holdfast.Client) -> object:
    hold = await client.lock("a", mode="update").acquire()
    await hold.convert("exclusive")
    await hold.convert("exclusive")
    await hold.convert("shared")
    count = await _token(client)
    await hold.release()
    return hold.mode, hold.token - count


async def _token(client: holdfast.Client) -> int:
    """Return the token of a new hold, to count from."""
    hold = await client.lock("count").acquire()
    await hold.release()
    return hold.token


async def _proclaim(client: holdfast.Client) -> object:
    async with client.election("primary", value="a") as leadership:
        await leadership.proclaim("b")
        leader = await client.election("primary").leader()
        return leader and leader.value


async def _take(client: holdfast.Client) -> object:
    limiter = client.rate_limiter("mail", limit=3, per=3600, algorithm="gcra")
    taken = [await limiter.take(), await limiter.take(2, wait=0), await limiter.try_take()]
    return [None if each is None else (each.allowed, each.remaining, each.retry_after_ms) for each in taken]


async def _advance(client: holdfast.Client) -> object:
    fence = client.fence("disk")
    return await fence.advance(3), await fence.advance(3), await fence.advance(9)


async def _write(client: holdfast.Client) -> object:
    written = [await client.cells.put("k", "v"), await client.cells.put(("k", "ö/1"), b"\xff\x00", ttl=60)]
    written.append(await client.cells.put("k", ""))
    session = await client.session(ttl=60, renew=False).open()
    written.append(await client.cells.put("with", "v", session=session))
    cells = [cell async for cell in client.cells.list()]
    await session.close()
    shown = [(cell.key, cell.value, cell.version, cell.expires_in_ms is None) for cell in cells]
    return written, shown, [cell.key async for cell in client.cells.list()]


async def _delete(client: holdfast.Client) -> object:
    await client.cells.put("k", "v")
    return await client.cells.delete("k"), await client.cells.delete("k")


CARRIED: dict[str, tuple[int, Callable[[holdfast.Client], Awaitable[object]]]] = {
    "convert": (3, _convert),
    "proclaim": (1, _proclaim),
    "take": (2, _take),
    "advance": (3, _advance),
    "write cells": (4, _write),
    "delete cells": (2, _delete),
}
"""What a stream carries, and how many of its calls do something there."""


@pytest.mark.parametrize("what", CARRIED)
async def test_it_does_the_same_as_over_http(what: str) -> None:
    """The same values come of it, and every command of it is a number of the stream."""
    count, call = CARRIED[what]
    told = []
    for way in ("http", "stream"):
        async with a_node() as (served, url), holdfast.Client(url) as client:
            await take(client, way)
            served.draw(9)
            begun = len(served.node.begun)
            told.append(await call(client))
            commands = [command for command, _ in served.node.begun[begun:]]
            numbered = [command for command in commands if isinstance(command, Numbered)]
            assert len(numbered) >= (count if way == "stream" else 0)
            own = {type(each).__name__ for frame in numbered for each in frame.commands}
            alone = {type(command).__name__ for command in commands} - {"Numbered"}
            assert not own & alone or what == "take"
    assert told[0] == told[1]


async def _convert_in_vain(client: holdfast.Client) -> None:
    hold = await client.lock("shared", mode="shared").acquire()
    await hold.convert("exclusive", wait=0)


async def _proclaim_too_late(client: holdfast.Client) -> None:
    leadership = await client.election("primary").acquire()
    await client._transport.call(hold_operations.release("election", leadership.hold_id))
    await leadership.proclaim("b")


REFUSED: dict[str, Callable[[holdfast.Client], Awaitable[object]]] = {
    "convert a shared one": _convert_in_vain,
    "convert what is gone": lambda client: client._transport.call(
        hold_operations.convert("0" * 32, "shared", 0)
    ),
    "convert to nonsense": lambda client: client._transport.call(hold_operations.convert("0" * 32, "x", 0)),
    "proclaim without leading": _proclaim_too_late,
    "stale token": lambda client: client.fence("disk").advance(3),
    "bad token": lambda client: client.fence("disk").advance(-1),
    "unknown token": lambda client: client.fence("disk").advance(2**53 - 1),
    "no limit": lambda client: client.rate_limiter("a", limit=0, per=1).take(wait=0),
    "too much": lambda client: client.rate_limiter("a", limit=1, per=1).take(2, wait=0),
    "bad algorithm": lambda client: client.rate_limiter("a", limit=1, per=1, algorithm=cast("Any", "x")).take(
        wait=0
    ),
    "rate taken": lambda client: client.rate_limiter("mail", limit=1, per=3600).take(wait=0),
    "a key too long": lambda client: client.cells.put("k" * 513, "v"),
    "a value too long": lambda client: client.cells.put("k", "v" * 5000),
    "no ttl": lambda client: client.cells.put("k", "v", ttl=0),
    "an unknown session": lambda client: client.cells.put("k", "v", session=_Keeper()),
}
"""What is refused where others hold "shared" in that mode, have used up "mail", and have shown "disk" a 9."""


class _Keeper:
    session_id = "0" * 32


_VARYING = ("request_id", "instance", "retry_after_ms")


@pytest.mark.parametrize("what", REFUSED)
async def test_refusals_are_the_same_as_over_http(what: str) -> None:
    """The same exception, code, words and problem document; and the stream goes on."""
    told: list[Any] = []
    for way in ("http", "stream"):
        async with a_node() as (served, url), holdfast.Client(url) as first, holdfast.Client(url) as client:
            await first.lock("shared", mode="shared", ttl=3600, renew=False).acquire()
            served.draw(9)
            await first.rate_limiter("mail", limit=1, per=3600).take()
            await first.fence("disk").advance(9)
            await take(client, way)
            with pytest.raises(holdfast.Refused) as caught:
                await REFUSED[what](client)
            error = caught.value
            problem = {key: value for key, value in error.problem.items() if key not in _VARYING}
            for holder in problem.get("holders", ()):  # type: ignore[attr-defined]
                holder.pop("expires_in_ms")
            told.append((type(error), error.code, error.detail.split(" in ")[0], problem))
            if way == "stream":
                async with client.lock("b"):
                    assert client._transport.streams is not None
                    assert client._transport.streams._link is not None
                    assert client._transport.streams._link.is_ready
    assert told[0] == told[1]


async def test_who_may_wait_for_a_rate_limit_does_so_over_http() -> None:
    """One try over the stream, which takes nothing; then the place is reserved, and comes at its moment."""
    async with on_the_way() as way:
        limiter = way.client.rate_limiter("mail", limit=1, per=0.2)
        for _ in range(3):
            assert (await limiter.take(wait=5)).allowed
        assert way.http_calls() == 2


OPERATIONS: list[Operation[Any]] = [
    hold_operations.convert("0" * 32, "shared", 5),
    primitive_operations.proclaim("0" * 32, "v"),
    primitive_operations.take("a", limit=2, window_ms=10, algorithm="gcra", cost=1, wait_ms=5),
    primitive_operations.advance("a", 3),
    cell_operations.put(holdfast.CellPut("k", "v")),
    cell_operations.delete("k"),
]
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=3)
    | st.binary(max_size=3)
)
_RESULTS = st.lists(_SCALARS | st.lists(_SCALARS, max_size=3), max_size=8)


@given(st.sampled_from(OPERATIONS), st.sampled_from([4, 10, 11, 13, 14, 15, 40, 41]) | _SCALARS, _RESULTS)
def test_whatever_a_node_says_has_a_meaning(operation: Operation[Any], kind: Any, fields: list[Any]) -> None:
    """A result that is none leaves the outcome open; nothing else than what callers know is raised."""
    form = operation.numbered
    assert form is not None
    loop = asyncio.new_event_loop()
    try:
        message = heard(msgspec.msgpack.encode([2, 1, 9, [[kind, *fields]]]))
        assert isinstance(message, Results)
        (result,) = message.results
        asking = Asking(stream_commands.encoded(form.command), operation, 0.0, 1.0, loop.create_future())
        with contextlib.suppress(holdfast.Refused, holdfast.OutcomeUnknown, NotTaken):
            if isinstance(result, holdfast.OutcomeUnknown):
                raise result
            read(asking, result)
    finally:
        loop.close()


# -- in doubt ---------------------------------------------------------------------------------------------


async def _doubt(way: Way, calling: Awaitable[Any], is_done: Callable[[], object]) -> "asyncio.Task[Any]":
    """Let something be done over the stream, and its answer and the session be lost."""
    way.tap.stall("acceptor")
    task = asyncio.ensure_future(calling)
    await until(is_done)
    await way.end_session()
    way.tap.cut()
    return task


async def test_what_is_done_once_is_not_asked_for_again() -> None:
    """A place of a rate limit and a write of a cell: nobody knows, and nothing is done twice."""
    async with on_the_way() as way:
        limiter = way.client.rate_limiter("mail", limit=9, per=3600)
        begun = len(way.served.node.begun)
        taking = await _doubt(way, limiter.take(wait=0), lambda: len(way.served.node.begun) > begun)
        with pytest.raises(holdfast.OutcomeUnknown):
            await taking
        assert (await limiter.peek()).remaining == 8
    async with on_the_way() as way:
        cells, begun = way.client.cells, len(way.served.node.begun)
        writing = await _doubt(way, cells.put("k", "v"), lambda: len(way.served.node.begun) > begun)
        with pytest.raises(holdfast.OutcomeUnknown):
            await writing
        cell = await cells.get("k")
        assert cell is not None
        assert cell.version == 1


async def test_what_changes_nothing_more_is_asked_for_again() -> None:
    """A token shown to a fence, a mode and a proclaimed value: told as if nothing had been lost."""
    async with on_the_way() as way:
        way.served.draw(7)
        fence = way.client.fence("disk")
        assert await (await _doubt(way, fence.advance(7), lambda: way.state.fences)) == 7
    async with on_the_way() as way:
        hold = await way.client.lock("a", mode="shared").acquire()
        converting = await _doubt(way, hold.convert("exclusive"), lambda: way.tokens != [hold.token])
        await converting
        assert way.tokens == [hold.token] == [2]
    async with on_the_way() as way:
        session = await way.client.session(ttl=60, renew=False).open()
        leadership = await way.client.election("primary", value="a", session=session).acquire()
        begun = len(way.served.node.begun)
        proclaiming = await _doubt(way, leadership.proclaim("b"), lambda: len(way.served.node.begun) > begun)
        await proclaiming
        leader = await way.client.election("primary").leader()
        assert leader is not None
        assert leader.value == "b"


async def test_a_write_that_was_cancelled_is_not_sent_again_behind_a_newer_one() -> None:
    """Its user may have done anything since: it is done where it was on its way, or not at all."""
    async with on_the_way() as way:
        cells = way.client.cells
        await cells.put("k", "v0")
        way.tap.stall("dialer")
        first = asyncio.create_task(cells.put("k", "v1"))
        await until(lambda: list(way.link._numbers.unanswered))
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        link = way.link
        link.is_ready = False  # as between the break and the next welcome
        await cells.put("k", "v2")
        way.tap.cut()
        assert link._task is not None
        await asyncio.wait({link._task}, timeout=10)
        cell = await cells.get("k")
        assert cell is not None
        assert cell.text == "v2"
