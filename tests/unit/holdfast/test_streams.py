"""A busy client and its stream: what breaks is neither lost nor done twice, and users see nothing of it."""

import asyncio
import contextlib
import gc
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from cluster.config import Address
from cluster.errors import OutcomeUnknown
from holdfast.operations.exchange import Attempt
from holdfast.operations.sending import NoAnswer, Sending
from holdfast.stream import stream_commands, stream_link
from holdfast.stream import streams as _streams
from holdfast.stream.stream_link import StreamLink
from holdfast.stream.stream_socket import REFUSED_PAUSE_S
from lockstate.words.commands.sessions import CloseSession
from lockstate.words.commands.streams import Numbered
from lockstate.words.ids import HoldId
from tests.support.both_clients import take
from tests.support.tap import Tap, tapped
from tests.unit.holdfast.conftest import a_node, sessions_of
from tests.unit.holdfast.test_loops_and_forks import exit_code
from tests.unit.http_api.serving import Served, serving, token_line, until


class Way:
    """A client whose stream goes through somebody who holds back and cuts."""

    def __init__(self, served: Served, tap: Tap, client: holdfast.Client) -> None:
        self.served, self.tap, self.client = served, tap, client
        self.state = served.node.machine.state

    @property
    def link(self) -> StreamLink:
        """The stream."""
        streams = self.client._transport.streams
        assert streams is not None
        assert streams._link is not None
        return streams._link

    async def end_session(self) -> None:
        """End the session of the stream, as its ttl would."""
        path = f"/v1/sessions/{self.link._numbers.session_id}"
        assert (await self.served.call("DELETE", path)).status == 200

    def http_calls(self) -> int:
        """Return how many calls went over HTTP."""
        return bytes(self.tap.seen).count(b"POST /v1/")

    @property
    def tokens(self) -> list[int]:
        """The tokens of what is held at the node."""
        return [hold.token for hold in self.state.holds.values()]


@contextlib.asynccontextmanager
async def on_the_way(timeout_s: float = 10.0) -> AsyncIterator[Way]:
    """Give a client with an open stream to a node."""
    async with (
        a_node() as (served, _),
        tapped(Address("127.0.0.1", served.port)) as (tap, address),
        holdfast.Client(f"http://127.0.0.1:{address.port}", timeout=timeout_s, owner="me") as client,
    ):
        await take(client, "stream")
        yield Way(served, tap, client)


# -- when there is one ------------------------------------------------------------------------------------


async def _cycles(client: holdfast.Client, count: int) -> None:
    for _ in range(count):
        async with client.lock("a"):
            """Held."""


async def test_a_busy_client_opens_a_stream_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven calls go over HTTP and leave no session; with the eighth there is a stream, until closed."""
    monkeypatch.setattr(_streams, "BUSY_S", 60.0)  # a slow machine may need more than a second for eight
    async with a_node() as (served, url), holdfast.Client(url) as client:
        streams = client._transport.streams
        assert streams is not None
        await _cycles(client, 3)
        async with client.lock("a"):
            assert streams._link is None
            assert not served.node.machine.state.sessions
        await until(lambda: streams._link is not None and streams._link.is_ready)
        (session,) = served.node.machine.state.sessions.values()
        assert (session.labels, session.ttl_ms) == ({"purpose": "stream of a client"}, 60_000)
        begun = len(served.node.begun)
        await _cycles(client, 1)
        assert {type(command).__name__ for command, _ in served.node.begun[begun:]} == {"Numbered"}
    assert not served.node.machine.state.sessions


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("value", ["", "0", "false", "1", "True"])
async def test_a_stream_can_be_switched_off(
    monkeypatch: pytest.MonkeyPatch, value: str, *, stream: bool
) -> None:
    """By who writes the program, and by who runs it."""
    monkeypatch.setenv("HOLDFAST_NO_STREAM", value)
    is_off = not stream or value in ("1", "True")
    async with a_node() as (served, url), holdfast.Client(url, stream=stream) as client:
        await _cycles(client, 2 * _streams.BUSY_COUNT)
        if is_off:
            assert not served.node.machine.state.sessions
        else:
            await until(lambda: bool(served.node.machine.state.sessions))
    blocking = holdfast.SyncClient(url, stream=stream)
    assert (blocking._twin._transport.streams is None) == is_off


def test_a_switch_that_says_neither_yes_nor_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who meant to switch streams off must not find them on."""
    monkeypatch.setenv("HOLDFAST_NO_STREAM", "off")
    with pytest.raises(ValueError, match="HOLDFAST_NO_STREAM: 'off' is neither 1"):
        holdfast.Client()


def test_pauses_are_those_of_the_manual() -> None:
    """docs/sdk.md: 30 s without a call, a minute after a refusal, two seconds to a minute after a failure."""
    assert _streams.BUSY_S == 1
    assert stream_link.IDLE_S == 30
    assert (REFUSED_PAUSE_S, stream_link.FAILED_PAUSE_S, _streams.PAUSE_S_MAX) == (60, 2, 60)


async def test_days_without_a_stream_are_counted() -> None:
    """After more failures than a float has exponents a stream is still asked for once a minute."""
    async with holdfast.Client("127.0.0.1:1") as client:
        streams = client._transport.streams
        assert streams is not None
        streams._failures = 5000
        now_s = time.monotonic()
        link = streams.open()
        await until(lambda: streams._link is not link)
        assert streams._not_before_s >= now_s + _streams.PAUSE_S_MAX


async def test_a_stream_counts_in_a_quota_of_sessions() -> None:
    """Who may have no session gets no stream, and all its calls go over HTTP."""
    token = TOKENS["first"]
    async with (
        serving(tokens=token_line("worker", token, "read,acquire,admin")) as served,
        holdfast.Client(f"http://127.0.0.1:{served.port}", token=token) as client,
    ):
        await client.admin.set_quota("worker", sessions=0, reason="by hand")
        streams = client._transport.streams
        assert streams is not None
        await _cycles(client, 4)
        await until(lambda: streams._failures > 0)
        await _cycles(client, 4)
        assert streams._link is None
        assert not served.node.machine.state.sessions


async def test_a_stream_that_is_not_used_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with its session; calls go on, and busy ones open another one."""
    async with on_the_way() as way:
        monkeypatch.setattr(stream_link, "IDLE_S", 0.0)
        await until(lambda: not way.state.sessions)
        monkeypatch.undo()
        async with asyncio.timeout(10):
            while not way.state.sessions:
                await _cycles(way.client, 1)
        assert not way.tokens


REFUSALS = {
    "an older node": b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    "a proxy that forbids": b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno",
    "a proxy without upgrades": b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n",
    "a gateway": b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
    "a page": b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
    "a redirection": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "a liar": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    "nobody": b"",
    "silence": None,
}
"""What something in between answers to a request for a WebSocket."""


@contextlib.asynccontextmanager
async def refusing(port: int, refusal: bytes | None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Run a proxy that lets everything pass but upgrades; give its URL, and those that it saw."""
    upgrades: list[bytes] = []
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        answers, there = await asyncio.open_connection("127.0.0.1", port)
        back = asyncio.create_task(_carry(answers, writer))
        try:
            while request := await reader.read(65_536):
                if b"websocket" not in request:
                    there.write(request)
                    continue
                upgrades.append(request)
                if refusal is not None:
                    writer.write(refusal)
                    break
        finally:
            back.cancel()
            there.close()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", upgrades
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65_536):
        sink.write(data)


@pytest.mark.parametrize("who", REFUSALS)
async def test_without_a_stream_all_goes_over_http(who: str) -> None:
    """Whatever refuses it, no call fails or waits for it, and it is not asked for again and again."""
    async with (
        a_node() as (served, _),
        refusing(served.port, REFUSALS[who]) as (url, upgrades),
        holdfast.Client(url, timeout=2) as client,
    ):
        for _ in range(4):
            async with asyncio.timeout(10):
                await _cycles(client, _streams.BUSY_COUNT)
            streams = client._transport.streams
            assert streams is not None
            await until(lambda: upgrades)
        # Whoever breaks a connection without a word is asked once more, by aiohttp.
        assert len(upgrades) == (2 if who == "nobody" else 1)
        assert not served.node.machine.state.holds


# -- what breaks ------------------------------------------------------------------------------------------


async def test_a_lost_answer_is_asked_for_again() -> None:
    """The lock was granted, and the connection breaks before the answer: it is told, and granted once."""
    async with on_the_way() as way:
        way.tap.stall("acceptor")
        acquiring = asyncio.create_task(way.client.lock("a").acquire())
        await until(lambda: way.tokens)
        way.tap.cut()
        hold = await acquiring
        assert way.tokens == [hold.token] == [1]
        way.tap.stall("acceptor")
        releasing = asyncio.create_task(hold.release())
        await until(lambda: not way.tokens)
        way.tap.cut()
        await releasing
        assert way.http_calls() == 0
        assert way.tap.connections == 3


async def test_a_lost_request_is_sent_again() -> None:
    """It did not arrive: a new connection is told so, and it is done under a number that is free."""
    async with on_the_way() as way:
        way.tap.stall("dialer")
        acquiring = asyncio.create_task(way.client.lock("a").acquire())
        await until(lambda: not list(way.link._numbers.unsent))
        way.tap.cut()
        hold = await acquiring
        assert way.tokens == [hold.token] == [1]
        assert way.http_calls() == 0


async def test_a_node_that_hangs_is_left() -> None:
    """It is silent with its connection open: after its share of the time another connection is made."""
    async with on_the_way(timeout_s=4.0) as way:
        way.tap.stall("acceptor")
        hold = await way.client.lock("a").acquire()
        assert way.tokens == [hold.token] == [1]
        assert way.tap.connections == 2


async def test_a_lease_counts_from_before_it_was_asked_for() -> None:
    """Also if its answer comes late, and over another connection."""
    async with on_the_way() as way:
        began_s = way.client._transport.clock.now_s()
        way.tap.stall("acceptor")
        acquiring = asyncio.create_task(way.client.acquire("a", ttl=30, wait=0, renew=False))
        await until(lambda: way.tokens)
        cut_s = way.client._transport.clock.now_s()
        way.tap.cut()
        hold = await acquiring
        assert began_s <= hold.lease.asked_at_s < cut_s
        renewed_s = way.client._transport.clock.now_s()
        way.tap.stall("acceptor")
        renewing = asyncio.create_task(hold.renew())
        await until(lambda: list(way.link._numbers.unanswered))
        cut_s = way.client._transport.clock.now_s()
        way.tap.cut()
        await renewing
        assert renewed_s <= hold.lease.asked_at_s < cut_s
        assert hold.lease.valid_until_s <= hold.lease.asked_at_s + 30


async def test_calls_go_over_http_while_a_stream_is_not_connected() -> None:
    """Nobody waits for a connection but those whose answer is on it."""
    async with on_the_way() as way:
        way.tap.stall("dialer")
        first = asyncio.create_task(way.client.lock("a").acquire())
        await until(lambda: list(way.link._numbers.unanswered))
        way.link.is_ready = False
        async with way.client.lock("b"):
            assert way.http_calls() == 1
        way.tap.cut()
        assert (await first).is_valid


async def test_what_is_contended_is_not_tried_in_vain_each_time() -> None:
    """The first wait tries the stream first; those right after it wait at once, and 0 always only tries."""
    async with on_the_way() as way, holdfast.Client(f"http://127.0.0.1:{way.served.port}") as other:
        await other.acquire("a", renew=False)
        begun = len(way.served.node.begun)

        def tries() -> int:
            commands = [command for command, _ in way.served.node.begun[begun:]]
            return sum(isinstance(command, Numbered) for command in commands)

        for _ in range(3):
            with pytest.raises(holdfast.LockTimeout):
                await way.client.acquire("a", wait=0.01, renew=False)
        assert tries() == 1
        for _ in range(3):
            with pytest.raises(holdfast.LockTimeout):
                await way.client.acquire("a", wait=0, renew=False)
        assert tries() == 4


# -- the session is over ----------------------------------------------------------------------------------


async def test_a_session_that_had_ended_costs_nobody_a_call() -> None:
    """The node says so in its place: what it did not do goes over HTTP."""
    async with on_the_way() as way:
        hold = await way.client.lock("a").acquire()
        await way.end_session()
        assert len(way.tokens) == 1  # a hold never lives by the session of a stream
        await hold.release()
        assert not way.tokens
        assert way.http_calls() == 1


async def test_a_grant_in_doubt_is_taken_back_and_asked_for_anew() -> None:
    """The session is over and with it the answer: what it gave is released, and acquired over HTTP."""
    async with on_the_way() as way:
        way.tap.stall("acceptor")
        acquiring = asyncio.create_task(way.client.lock("a").acquire())
        await until(lambda: way.tokens)
        await way.end_session()
        way.tap.cut()
        hold = await acquiring
        assert way.tokens == [hold.token] == [2]


async def test_a_release_in_doubt_is_said_to_be_unknown() -> None:
    """Nobody can tell any more whether it was released or lost: neither is claimed. A renewal is repeated."""
    async with on_the_way() as way:
        hold, other = (
            await way.client.acquire("a", wait=0, renew=False),
            await way.client.acquire("b", wait=0, renew=False),
        )
        way.tap.stall("acceptor")
        releasing = asyncio.create_task(hold.release())
        renewing = asyncio.create_task(other.renew())
        await until(lambda: len(way.tokens) == 1)
        await way.end_session()
        way.tap.cut()
        with pytest.raises(holdfast.OutcomeUnknown):
            await releasing
        await renewing
        assert other.is_valid


@pytest.mark.parametrize("end", ["forbidden", "gone"])
async def test_what_cannot_be_asked_again_stays_unknown(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """A release is in doubt with its session: who is refused then, or finds no node, is not told no."""
    async with on_the_way(timeout_s=1.0) as way:
        hold = await way.client.acquire("a", wait=0, renew=False)
        way.tap.stall("acceptor")
        releasing = asyncio.create_task(hold.release())
        await until(lambda: not way.tokens)
        await way.end_session()
        answered = {"forbidden": refuse_all, "gone": find_nobody}[end]
        monkeypatch.setattr(way.client._transport, "_send", answered)
        way.tap.cut()
        with pytest.raises(holdfast.OutcomeUnknown):
            await releasing


async def refuse_all(attempt: Attempt, sending: Sending) -> tuple[int, bytes]:
    """Answer as a node does to somebody without the right."""
    del attempt, sending
    return 403, b'{"code":"forbidden","detail":"no right","outcome":"not-applied"}'


async def find_nobody(attempt: Attempt, sending: Sending) -> tuple[int, bytes]:
    """Fail to connect."""
    del sending
    raise NoAnswer(f"node {attempt.node}: no connection")


async def test_the_end_of_a_session_does_not_say_what_was_done_before() -> None:
    """A node says that it is over while the answer to an earlier frame is lost: that is taken back first."""
    async with on_the_way() as way:
        node, begin = way.served.node, way.served.node.begin
        frames: list[Any] = []

        def lose_the_first(command: Any, timeout_s: float, principal: str = "", lane: str = "") -> Any:
            begun = begin(command, timeout_s, principal, lane)
            if isinstance(command, Numbered):
                frames.append(begun)
                if len(frames) == 1:
                    return asyncio.get_running_loop().create_future()
            return begun

        node.begin = lose_the_first  # type: ignore[method-assign]
        permits = way.client.semaphore("gpu", limit=5)
        first = asyncio.create_task(permits.acquire())
        await until(lambda: way.tokens)
        await way.end_session()
        holds = [await permits.acquire(), await first]
        assert sorted(way.tokens) == sorted(hold.token for hold in holds)


async def test_what_is_on_its_way_is_not_overtaken() -> None:
    """The stream has ended, not its session, and a node still has a frame: it grants nothing any more."""
    async with on_the_way() as way:
        node, begin = way.served.node, way.served.node.begin
        late: list[tuple[Any, float, str]] = []

        def hold_back(command: Any, timeout_s: float, principal: str = "", lane: str = "") -> Any:
            if not isinstance(command, Numbered):
                return begin(command, timeout_s, principal, lane)
            late.append((command, timeout_s, principal))
            return asyncio.get_running_loop().create_future()

        node.begin = hold_back  # type: ignore[method-assign]
        acquiring = asyncio.create_task(way.client.semaphore("gpu", limit=5).acquire())
        await until(lambda: late)
        assert way.link._task is not None
        way.link._task.cancel()  # as does the end of its loop, and that of the client after a while
        hold = await acquiring
        for frame in late:
            begin(*frame)
        assert way.tokens == [hold.token]


def _in_doubt_for_good(way: Way, monkeypatch: pytest.MonkeyPatch) -> "asyncio.Task[holdfast.Hold]":
    """Ask over a stream that ends before the answer, and let nobody answer that its session has ended."""
    node, begin = way.served.node, way.served.node.begin

    def lose(command: Any, timeout_s: float, principal: str = "", lane: str = "") -> Any:
        begun = begin(command, timeout_s, principal, lane)
        if not isinstance(command, Numbered):
            return begun
        assert way.link._task is not None
        way.link._task.cancel()
        return asyncio.get_running_loop().create_future()

    async def hang(command: Any, timeout_s: float, _principal: str = "") -> Any:
        assert isinstance(command, CloseSession)
        await asyncio.sleep(timeout_s)
        raise OutcomeUnknown("no answer of a majority")

    monkeypatch.setattr(node, "begin", lose)
    monkeypatch.setattr(node, "submit", hang)
    return asyncio.create_task(way.client.acquire("a", wait=0, renew=False))


async def test_without_an_answer_about_the_session_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may live on, and do later what it was sent: that is not asked for anew, and said at the deadline."""
    async with on_the_way(timeout_s=1.0) as way:
        with pytest.raises(holdfast.OutcomeUnknown, match=r"may live on; last: it may have been done"):
            await _in_doubt_for_good(way, monkeypatch)
        assert len(way.tokens) == 1


@pytest.mark.parametrize("has_begun", [True, False])
async def test_nobody_waits_for_what_was_interrupted(
    monkeypatch: pytest.MonkeyPatch, *, has_begun: bool
) -> None:
    """The end of the session is asked for by a task of its own; when that is ended, callers are told."""
    async with on_the_way() as way:
        begin = way.client._transport.begin
        ending: list[asyncio.Task[Any]] = []

        def begun(coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
            task = begin(coroutine)
            if "_end_session" in repr(coroutine):
                ending.append(task)
                if not has_begun:
                    task.cancel()
            return task

        monkeypatch.setattr(way.client._transport, "begin", begun)
        acquiring = _in_doubt_for_good(way, monkeypatch)
        await until(lambda: ending)
        await asyncio.sleep(0)
        ending[0].cancel()
        async with asyncio.timeout(5):
            with pytest.raises(holdfast.OutcomeUnknown, match="last: interrupted"):
                await acquiring


async def test_a_command_that_ends_the_stream_harms_nobody_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that cannot take it ends the stream: what is in doubt is taken back, and all goes over HTTP."""
    monkeypatch.setattr(stream_commands, "encoded", msgspec.msgpack.encode)  # unchecked
    async with on_the_way() as way:
        locks = [way.client.lock("a"), way.client.lock("b", mode="unheard-of"), way.client.lock("c")]  # type: ignore[arg-type]
        told = await asyncio.gather(*(lock.acquire() for lock in locks), return_exceptions=True)
        assert [type(each) for each in told] == [holdfast.Hold, holdfast.InvalidRequest, holdfast.Hold]
        assert len(way.tokens) == 2
        assert "a node refuses our stream" in caplog.text


async def test_a_release_that_was_not_done_is_done_over_http() -> None:
    """The session has ended with the release on its way: the lock is free all the same."""
    async with on_the_way() as way:
        hold = await way.client.acquire("a", wait=0, renew=False)
        way.tap.stall("dialer")
        releasing = asyncio.create_task(hold.release())
        await until(lambda: list(way.link._numbers.unanswered))
        await way.end_session()
        way.tap.cut()
        await releasing
        assert not way.tokens


# -- cancellation and deadlines ---------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["dialer", "acceptor"])
@pytest.mark.parametrize("end", ["cut", "go_on"])
async def test_a_cancelled_acquire_leaves_nothing_held(side: str, end: str) -> None:
    """Its request or its answer was on the way; it is undone when it is known what came of it."""
    async with on_the_way() as way:
        way.tap.stall(side)
        acquiring = asyncio.create_task(way.client.lock("a").acquire())
        await until(lambda: way.tokens if side == "acceptor" else list(way.link._numbers.unanswered))
        acquiring.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        getattr(way.tap, end)()
        with pytest.raises(asyncio.CancelledError):
            await acquiring
        assert not way.tokens
        assert (await way.client.acquire("a", wait=0, renew=False)).is_valid


async def test_what_was_cancelled_before_it_was_sent_is_not_sent() -> None:
    """It leaves neither a hold nor a gap in the numbers."""
    async with on_the_way() as way:
        numbers = way.link._numbers
        window, numbers._window = numbers._window, 0
        acquiring = asyncio.create_task(way.client.lock("a").acquire())
        await until(lambda: list(numbers.unsent))
        acquiring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await acquiring
        numbers._window = window
        hold = await way.client.lock("b").acquire()
        assert way.tokens == [hold.token] == [1]
        assert way.http_calls() == 0


async def test_a_release_goes_on_when_its_caller_is_cancelled() -> None:
    """The end of a block is reached by a cancellation: the lock is free soon all the same."""
    async with on_the_way() as way:
        hold = await way.client.lock("a").acquire()
        way.tap.stall("dialer")
        releasing = asyncio.create_task(hold.release())
        await until(lambda: list(way.link._numbers.unanswered))
        releasing.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        way.tap.cut()
        with pytest.raises(asyncio.CancelledError):
            await releasing
        assert not way.tokens


@contextlib.asynccontextmanager
async def a_node_in_a_thread() -> AsyncIterator[str]:
    """Give the URL of a node that runs on a loop of its own."""
    loop, (started, ended) = asyncio.get_running_loop(), (asyncio.Event(), threading.Event())
    urls: list[str] = []

    async def run() -> None:
        async with a_node() as (_, url):
            urls.append(url)
            loop.call_soon_threadsafe(started.set)
            await asyncio.to_thread(ended.wait)

    running = loop.run_in_executor(None, asyncio.run, run())
    await started.wait()
    try:
        yield urls[0]
    finally:
        ended.set()
        await running


@pytest.mark.parametrize("renew", [True, False])
async def test_closing_waits_for_calls_under_way(*, renew: bool) -> None:
    """They get their answer. What they are given is let go of, but for what is not renewed: that stays."""
    async with on_the_way() as way:
        way.tap.stall("acceptor")
        acquiring = asyncio.create_task(way.client.acquire("a", wait=0, renew=renew))
        await until(lambda: way.tokens)
        closing = asyncio.create_task(way.client.close())
        for _ in range(3):
            await asyncio.sleep(0)
        way.tap.go_on()
        hold = await acquiring
        await closing
        assert not way.state.sessions
        assert bool(way.state.holds) != renew
        if renew:
            await hold.release()
        else:
            with pytest.raises(RuntimeError, match="this client is closed"):
                await hold.release()


async def _acquire_while_the_loop_stands_still(client: holdfast.Client) -> holdfast.Hold:
    """Block the loop for longer than the deadline when an acquire was just sent."""
    await take(client, "stream")
    streams = client._transport.streams
    assert streams is not None
    link = streams._link
    assert link is not None
    acquiring = asyncio.create_task(client.acquire("a", wait=0, renew=False))
    while not list(link._numbers.unanswered):  # noqa: ASYNC110 - it is to stand still just then
        await asyncio.sleep(0)
    end_s = time.monotonic() + 2.5
    while time.monotonic() < end_s:
        time.sleep(0.1)  # noqa: ASYNC251 - the loop is to stand still
    return await acquiring


async def test_a_loop_that_stood_still_hears_first_what_came_meanwhile() -> None:
    """A program that blocks its loop for longer than any deadline gets the answers that are there."""
    async with a_node_in_a_thread() as url, holdfast.Client(url, timeout=1) as client:
        hold = await _acquire_while_the_loop_stands_still(client)
        await hold.renew()


async def test_an_answer_at_the_deadline_is_given_or_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes in the turn of the loop in which its caller is told that nobody knows: that alone counts."""
    monkeypatch.setattr(stream_link, "LATE_S", 1e9)
    async with a_node_in_a_thread() as url, holdfast.Client(url, timeout=1) as client:
        with pytest.raises(holdfast.OutcomeUnknown):
            await _acquire_while_the_loop_stands_still(client)
        async with client.lock("a", wait=5):
            """It was given back, long before its lease would have ended."""


async def test_a_grant_that_comes_too_late_is_released(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller was told that nobody knows; when the answer comes after all, it is given back."""
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(stream_link, "GRACE_S", 60.0)  # it stays with a node that hangs
    async with on_the_way(timeout_s=1) as way:
        way.tap.stall("acceptor")
        with pytest.raises(holdfast.OutcomeUnknown):
            await way.client.lock("a").acquire()
        await until(lambda: len(way.tokens) == 1)
        way.tap.go_on()
        await until(lambda: not way.tokens)


# -- the same answers -------------------------------------------------------------------------------------


async def _release_permits_as_a_lock(client: holdfast.Client) -> None:
    hold = await client.semaphore("other", limit=1).acquire()
    await client.release(hold.hold_id)


REFUSED: dict[str, Callable[[holdfast.Client], Awaitable[object]]] = {
    "lock": lambda client: client.lock("held").acquire(wait=0),
    "permits": lambda client: client.semaphore("gpu", limit=2, permits=2).acquire(wait=0),
    "gone": lambda client: client.release("0" * 32),
    "bad hold id": lambda client: client.release("x"),
    "bad mode": lambda client: client.lock("a", mode="unheard-of").acquire(),  # type: ignore[arg-type]
    "bad name": lambda client: client.lock("a" * 5000).acquire(),
    "too long a ttl": lambda client: client.acquire("a", ttl=10**9, wait=0, renew=False),
    "no ttl": lambda client: client.acquire("a", ttl=0, wait=0, renew=False),
    "too few permits": lambda client: client.semaphore("gpu", limit=0).acquire(wait=0),
    "wrong kind": _release_permits_as_a_lock,
    "priority": lambda client: client.lock("a", priority=7).acquire(),
    "asking": lambda client: client.lock("a", ask_after=1).acquire(wait=5),
}
"""What is refused by a node where others hold "held" and one of two permits of "gpu"."""
_VARYING = ("request_id", "instance", "retry_after_ms")


@pytest.mark.parametrize("what", REFUSED)
async def test_refusals_are_the_same_as_over_http(what: str) -> None:
    """The same exception, code, words and problem document; only ids of requests and pauses differ."""
    told: list[Any] = []
    async with a_node() as (_, url), holdfast.Client(url, owner="first") as first:
        await first.lock("held", ttl=3600, note="why", renew=False).acquire()
        await first.semaphore("gpu", limit=2, ttl=3600, renew=False).acquire()
        for way in ("http", "stream"):
            async with holdfast.Client(url) as client:
                await take(client, way)
                with pytest.raises(holdfast.Refused) as caught:
                    await REFUSED[what](client)
                error = caught.value
                if way == "stream":
                    assert client._transport.streams is not None
                    assert client._transport.streams._link is not None
                    assert client._transport.streams._link.is_ready
                problem = {**error.problem}
                varying = {name for name in _VARYING if problem.pop(name, None) is not None}
                for holder in problem.get("holders", ()):  # type: ignore[attr-defined]
                    assert 3_500_000 < holder.pop("expires_in_ms") <= 3_600_000
                told.append((type(error), error.code, error.detail, problem, varying))
    assert told[0] == told[1]


async def test_a_hold_of_a_stream_has_its_own_lease() -> None:
    """It lives neither by the session of the stream nor by its connection; that of a user is the user's."""
    async with on_the_way() as way:
        own = await way.client.lock("own", ttl=20).acquire()
        permits = await way.client.semaphore("gpu", limit=2, ttl=20).acquire()
        async with way.client.session(ttl=15) as session:
            theirs = await way.client.lock("theirs", session=session).acquire()
            by_id = {hold.hold_id: hold for hold in way.state.holds.values()}
            assert [by_id[HoldId(hold.hold_id)].session_id for hold in (own, permits, theirs)] == [
                "",
                "",
                session.session_id,
            ]
            assert by_id[HoldId(own.hold_id)].ttl_ms == 20_000
        assert len(way.tokens) == 2
        assert sessions_of(way.served) == []
        await own.release()
        await permits.release()
        assert way.http_calls() == 1  # to open the session


# -- who calls, and from where ----------------------------------------------------------------------------

TOKENS = {name: f"hft_{name}".ljust(47, name[0]) for name in ("first", "second")}


async def test_what_is_forbidden_is_refused_alone() -> None:
    """A node refuses all that comes in one message with it; the others are done all the same."""
    line = token_line("worker", TOKENS["first"], "read,acquire@a")
    async with (
        serving(tokens=line) as served,
        holdfast.Client(f"http://127.0.0.1:{served.port}", token=TOKENS["first"]) as client,
    ):
        await take(client, "stream")
        names = ["a/1", "b", "a/2", "c", "a/3"]
        told = await asyncio.gather(*(client.lock(name).acquire() for name in names), return_exceptions=True)
        assert [type(each) for each in told] == [
            holdfast.Hold,
            holdfast.AccessDenied,
            holdfast.Hold,
            holdfast.AccessDenied,
            holdfast.Hold,
        ]
        assert len(served.node.machine.state.holds) == 3


async def test_a_token_is_exchanged_under_a_stream(tmp_path: Path) -> None:
    """The one before ends; the file has another one, and no call fails."""
    path = tmp_path / "token"
    path.write_text(TOKENS["first"])
    async with (
        serving(tokens=token_line("worker", TOKENS["first"], "read,acquire")) as served,
        holdfast.Client(f"http://127.0.0.1:{served.port}", token_file=path) as client,
    ):
        await take(client, "stream")
        hold = await client.lock("a").acquire()
        path.write_text(TOKENS["second"])
        served.know(token_line("worker", TOKENS["second"], "read,acquire"))
        await hold.renew()
        await hold.release()
        assert {type(command).__name__ for command, _ in served.node.begun[-2:]} == {"Numbered"}


@pytest.mark.filterwarnings("error")
def test_each_loop_has_a_stream_of_its_own() -> None:
    """A client that is used in one `asyncio.run` after the other goes on, and leaves nothing open behind."""
    client = holdfast.Client("127.0.0.1:1")

    async def main() -> None:
        async with a_node() as (served, url):
            client._transport.nodes = (url,)
            await take(client, "stream")
            async with client.lock("a") as hold:
                assert hold.token == 1
            assert not served.node.machine.state.holds

    for _ in range(3):
        asyncio.run(main())
    asyncio.run(client.close())
    gc.collect()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_a_forked_child_has_a_stream_of_its_own() -> None:
    """Neither numbers for the other, and the child's end does not end the parent's."""
    async with on_the_way() as way:
        hold = await way.client.lock("a").acquire()

        def check() -> None:
            async def use() -> None:
                await take(way.client, "stream")
                async with way.client.lock("b") as own:
                    assert own.token == 2
                await way.client.close()

            assert hold.reason == "forked"
            asyncio.run(use())
            gc.collect()

        assert await exit_code(check) == 0
        gc.collect()
        await hold.release()
        async with way.client.lock("a") as again:
            assert again.token == 3
        assert way.http_calls() == 0
