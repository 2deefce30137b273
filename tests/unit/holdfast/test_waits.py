"""Requests that wait: one connection for many, in the order in which they were asked, behind any proxy."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

import holdfast
from holdfast.operations import exchange
from holdfast.operations.sending import NoAnswer
from holdfast.stream import wait_link, waits
from holdfast.stream.stream_socket import NotNow, SessionOver
from holdfast.stream.wait_link import WaitLink
from holdfast.stream.waits import Order
from holdfast.wire.stream import StreamCall
from tests.unit.holdfast.conftest import a_node
from tests.unit.http_api.serving import Served, until

DEADLINE_S = 60

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


# -- the order ----------------------------------------------------------------------------------------------


async def test_a_request_waits_for_those_before_it() -> None:
    """It goes when all that were asked before, for any of its names, stand in their queues."""
    order = Order()
    one, two = order.enter(["a"]), order.enter(["b"])
    both, later = order.enter(["a", "b"]), order.enter(["b"])
    assert [order.is_first(turn) for turn in (one, two, both, later)] == [True, True, False, False]
    assert order.has_others(one)
    waiting = asyncio.create_task(order.first(both))
    await asyncio.sleep(0)
    order.leave(one)
    await asyncio.sleep(0)
    assert not waiting.done()
    order.leave(two)
    await waiting
    order.leave(both)
    order.leave(both)
    await order.first(later)
    assert not order.has_others(later)


async def test_what_was_asked_before_holds_nobody_up_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be on its way to a node that hangs."""
    monkeypatch.setattr(waits, "PLACED_S", 0.01)
    order = Order()
    order.enter(["a"])
    await order.first(order.enter(["a"]))


async def test_a_loop_that_stood_still_changes_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked before has had no time to be placed, so what comes behind it waits on."""
    monkeypatch.setattr(waits, "PLACED_S", 0.05)
    order = Order()
    one, two = order.enter(["a"]), order.enter(["a"])
    waiting = asyncio.create_task(order.first(two))
    await asyncio.sleep(0)
    until_s = time.monotonic() + 0.05 + 2 * waits.LATE_S
    while time.monotonic() < until_s:
        """The loop stands still."""
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    order.leave(one)
    await waiting


async def test_who_stands_far_behind_waits_as_long_as_others_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a turn that does not end for long lets those behind it go on."""
    monkeypatch.setattr(waits, "PLACED_S", 0.1)
    order = Order()
    turns = [order.enter(["a"]) for _ in range(6)]
    last = asyncio.create_task(order.first(turns[-1]))
    for turn in turns[:-1]:
        await asyncio.sleep(0.04)
        assert not last.done()
        order.leave(turn)
    await last


# -- many waits ---------------------------------------------------------------------------------------------


def connections_count(served: Served) -> int:
    """Return how many connections a node has."""
    return len(served.runner.server.connections)  # type: ignore[union-attr]


async def _work(client: holdfast.Client, number: int, order: list[int]) -> None:
    async with client.lock("a"):
        order.append(number)


async def test_a_thousand_waits_take_few_connections_and_are_served_in_order() -> None:
    """Those that began over HTTP, too; nobody asks a node whether it lives."""
    order: list[int] = []
    async with a_node() as (served, url), holdfast.Client(url) as holder, holdfast.Client(url) as client:
        hold = await holder.acquire("a")
        async with asyncio.timeout(DEADLINE_S):
            tasks = [asyncio.create_task(_work(client, number, order)) for number in range(1_000)]
            await until(lambda: len(served.node.machine.state.tickets) == 1_000)
            assert connections_count(served) <= 10
            await hold.release()
            await asyncio.gather(*tasks)
    assert order == list(range(1_000))


async def test_a_cancelled_wait_leaves_the_queue_at_once() -> None:
    """Hundreds at the same time, over the connection on which they waited."""
    async with (
        a_node() as (served, url),
        holdfast.Client(url) as holder,
        holdfast.Client(url) as client,
        asyncio.timeout(DEADLINE_S),
        holder.lock("a"),
    ):
        tasks = [asyncio.create_task(_work(client, number, [])) for number in range(300)]
        await until(lambda: len(served.node.machine.state.tickets) == 300)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert not served.node.machine.state.tickets
        assert connections_count(served) <= 20


async def test_a_client_that_is_closed_waits_no_longer() -> None:
    """Every task that waits is told so, and no connection is made for any of them."""
    async with (
        a_node() as (served, url),
        holdfast.Client(url) as holder,
        asyncio.timeout(DEADLINE_S),
        holder.lock("a"),
    ):
        client = holdfast.Client(url)
        tasks = [asyncio.create_task(_work(client, number, [])) for number in range(50)]
        await until(lambda: len(served.node.machine.state.tickets) == 50)
        await client.close()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert {repr(each) for each in ended} == {"RuntimeError('this client is closed')"}
        await until(lambda: connections_count(served) <= 1)


async def test_many_waits_with_long_texts_share_a_connection() -> None:
    """No message is longer than a node takes, however many bytes the characters of its texts have."""
    note = "\N{CJK UNIFIED IDEOGRAPH-9501}" * 340
    async with (
        a_node() as (served, url),
        holdfast.Client(url) as holder,
        holdfast.Client(url, owner=note[:80]) as client,
        asyncio.timeout(DEADLINE_S),
        holder.lock("a"),
    ):
        tasks = [asyncio.create_task(client.lock("a", note=note).acquire()) for _ in range(400)]
        await until(lambda: len(served.node.machine.state.tickets) == 400)
        link = client._transport.waits._link
        assert link is not None
        assert not link.is_refused
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_a_connection_that_no_node_understands_is_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that closes it for what was said would do so again: the waits go over HTTP."""
    greetings = 0

    async def greet(*_: object) -> None:
        nonlocal greetings
        greetings += 1
        raise SessionOver("closed: 4000", pause_s=60.0)

    monkeypatch.setattr(WaitLink, "_greet", greet)
    async with (
        a_node() as (served, url),
        holdfast.Client(url) as holder,
        holdfast.Client(url) as client,
        asyncio.timeout(DEADLINE_S),
    ):
        order: list[int] = []
        hold = await holder.acquire("a")
        tasks = [asyncio.create_task(_work(client, number, order)) for number in range(8)]
        await until(lambda: len(served.node.machine.state.tickets) == 8)
        await hold.release()
        await asyncio.gather(*tasks)
    assert greetings == 1


async def test_connections_that_end_at_once_are_made_ever_more_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever greets and then hangs up, at any number of nodes, is asked again with pauses."""
    failures: list[int] = []

    async def talk_at(link: WaitLink, _url: str) -> None:
        link._is_open, link._opened_s = True, link.loop.time()
        raise NoAnswer("it hangs up")

    def backoff_s(count: int, *_: object) -> float:
        failures.append(count)
        return 0.001

    monkeypatch.setattr(WaitLink, "_talk_at", talk_at)
    monkeypatch.setattr(wait_link, "backoff_s", backoff_s)
    async with holdfast.Client(["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]) as client:
        link = WaitLink(client._transport)
        link.start()
        await until(lambda: len(failures) >= 5)
        await link.close()
    assert failures[:5] == [1, 2, 3, 4, 5]


async def test_a_loop_that_stood_still_asks_before_it_gives_a_node_up() -> None:
    """The node had nothing to say meanwhile; when it does not answer then, it hangs."""
    said: list[bytes] = []

    class Silent:
        async def send_bytes(self, data: bytes) -> None:
            said.append(data)

    async with holdfast.Client("127.0.0.1:1") as client:
        link = WaitLink(client._transport)
        link._ping_s = 0.001
        link._asked_s = link._heard_s = link.loop.time() - 30
        with pytest.raises(NoAnswer, match="the node hangs"):
            await link._say(Silent())  # type: ignore[arg-type]
    assert len(said) == 1


async def test_calls_that_go_on_do_not_hide_that_a_node_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy client asks whether its node lives as often as others, and notices when that reads nothing."""
    monkeypatch.setattr(wait_link, "SILENCE_S", 0.02)

    class Silent:
        reads = True

        async def send_bytes(self, _: bytes) -> None:
            if not self.reads:
                await asyncio.get_running_loop().create_future()

    async def call(link: WaitLink) -> None:
        while True:
            link._unsent.append(StreamCall(1, "/", ""))
            link._has_work.set()
            await asyncio.sleep(0.001)

    async with holdfast.Client("127.0.0.1:1") as client, asyncio.timeout(DEADLINE_S):
        link = WaitLink(client._transport)
        link._ping_s = 0.01
        calling = asyncio.create_task(call(link))
        with pytest.raises(NoAnswer, match="the node hangs"):
            await link._say(Silent())  # type: ignore[arg-type]
        Silent.reads = False
        with pytest.raises(TimeoutError):
            await link._say(Silent())  # type: ignore[arg-type]
        calling.cancel()


async def test_waits_go_over_http_when_one_node_is_down_and_the_other_refuses_their_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node that is down does not make the client forget the refusals: no wait is Unavailable for them."""

    async def refuse(*_: object) -> None:
        raise NotNow("overloaded: as many connections as there may be", 0.0)

    monkeypatch.setattr(WaitLink, "_greet", refuse)
    order: list[int] = []
    async with a_node() as (served, url), holdfast.Client(url) as holder:
        hold = await holder.acquire("a")
        async with (
            holdfast.Client(["127.0.0.1:1", url], timeout=3) as client,
            asyncio.timeout(DEADLINE_S),
            asyncio.TaskGroup() as tasks,
        ):
            for number in range(8):
                tasks.create_task(_work(client, number, order))
            await until(lambda: len(served.node.machine.state.tickets) == 8)
            await hold.release()
    assert sorted(order) == list(range(8))


async def test_without_streams_waits_are_placed_in_order() -> None:
    """One after the other over HTTP, where a proxy passes on no WebSockets."""
    order: list[int] = []
    async with (
        a_node() as (served, url),
        holdfast.Client(url) as holder,
        holdfast.Client(url, stream=False) as client,
        asyncio.timeout(DEADLINE_S),
    ):
        hold = await holder.acquire("a")
        tasks = [asyncio.create_task(_work(client, number, order)) for number in range(30)]
        await until(lambda: len(served.node.machine.state.tickets) == 30)
        await hold.release()
        await asyncio.gather(*tasks)
    assert order == list(range(30))


# -- what lies in between -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def between(url: str, cut_s: float, *, is_telling: bool, has_upgrades: bool) -> AsyncIterator[str]:
    """Run a proxy that ends what was silent for `cut_s`, with a 504 if it `is_telling`."""
    port = int(url.rpartition(":")[2])
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, up = await asyncio.open_connection("127.0.0.1", port)
        is_asked = False

        async def pass_on() -> None:
            nonlocal is_asked
            while data := await reader.read(65536):
                is_asked = True
                if not has_upgrades and b"Upgrade: websocket" in data:
                    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                    continue
                up.write(data)

        task = asyncio.create_task(pass_on())
        tasks.add(task)
        try:
            while data := await asyncio.wait_for(answers.read(65536), cut_s):
                is_asked = False
                writer.write(data)
        except TimeoutError:
            if is_asked and is_telling:
                writer.write(b"HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\n\r\n")
        finally:
            task.cancel()
            up.close()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("count", [1, 6])
@pytest.mark.parametrize("has_upgrades", [True, False])
@pytest.mark.parametrize("is_telling", [True, False])
async def test_a_proxy_without_patience_takes_nobodys_place(
    *, count: int, is_telling: bool, has_upgrades: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that it cuts off go on in their places, and wait for longer than the client is patient."""
    monkeypatch.setattr(exchange, "CUT_S_MIN", 0.05)
    order: list[int] = []
    async with (
        a_node() as (served, url),
        between(url, 0.2, is_telling=is_telling, has_upgrades=has_upgrades) as proxy,
        holdfast.Client(url) as direct,
        holdfast.Client(proxy, timeout=1.0) as client,
        asyncio.timeout(DEADLINE_S),
    ):
        hold = await direct.acquire("a")
        tasks = [asyncio.create_task(_work(client, number, order)) for number in range(count)]
        await until(lambda: len(served.node.machine.state.tickets) == count)
        tasks.append(asyncio.create_task(_work(direct, count, order)))
        await until(lambda: len(served.node.machine.state.tickets) == count + 1)
        done, _ = await asyncio.wait(tasks, timeout=2.5)
        assert not done
        await hold.release()
        await asyncio.gather(*tasks)
    assert order == list(range(count + 1))


async def test_a_withdrawal_is_by_the_id_of_the_request() -> None:
    """It says what the id counts within, as the request did."""
    async with (
        a_node() as (served, url),
        holdfast.Client(url) as holder,
        holdfast.Client(url) as client,
        holder.lock("a"),
        client.session() as session,
    ):
        waiting = asyncio.create_task(client.lock("a", session=session).acquire())
        await until(lambda: served.node.machine.state.tickets)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert not served.node.machine.state.tickets
