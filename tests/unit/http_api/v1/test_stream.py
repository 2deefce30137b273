"""GET /v1/stream of a real node over real sockets, spoken by a client that knows only the document."""

import asyncio
import contextlib
import gc
import logging
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cluster.errors import ClusterError, NoLeader, OutcomeUnknown, WaitCutOff
from http_api.v1 import open_streams, stream, stream_out
from lockapi.gateway import Gateway
from lockapi.requests.stream import closing, resuming
from lockstate.words.ids import SessionId
from lockstate.words.results import SessionClosed, StreamResumed
from tests.support.stream_client import (
    DONE,
    END_WAIT,
    GRANTED,
    PUT_CELL,
    QUEUED,
    REFUSED,
    RELEASE,
    RELEASED,
    RENEW,
    RENEWED,
    Closed,
    Stream,
    acquire,
)
from tests.unit.http_api.serving import principals_of, token_line, until
from tests.unit.http_api.v1.streaming import TIMEOUT_S, streamed

CELL_WRITTEN = 40
_READ = [42, [], [[3, b"c"]]]
"""A transaction that reads 4 KiB."""


@pytest.mark.parametrize("form", ["msgpack", "json"])
async def test_commands_have_results_in_order(tmp_path: Path, form: str) -> None:
    """A client acquires, renews and releases, in one message, and hears of each."""
    async with streamed(tmp_path) as served, served.stream(form) as client:
        assert client.welcome[3:6] == [1024, 256 * 1024, "n1"]
        assert client.welcome[8:] == [0, 0]
        granted = await client.acquire("a")
        assert granted[0] == GRANTED
        first = client.ask([RENEW, granted[1]], [RELEASE, granted[1]], [RELEASE, granted[1]])
        results = [await client.answer(number) for number in range(first, first + 3)]
        assert [result[0] for result in results] == [RENEWED, RELEASED, REFUSED]
        assert results[2][1] == "lease-expired"


async def test_a_frame_that_comes_again_is_answered_as_before(tmp_path: Path) -> None:
    """Over a new connection a client asks for what it does not know, and nothing is done twice."""
    async with streamed(tmp_path) as served, served.stream() as client:
        granted = await client.acquire("a")
        await client.drop()
        async with served.again(client) as again:
            assert again.last == 1
            again.ask(acquire("a"), acquire("b"), first=1)
            assert (await again.answer(1))[1:3] == granted[1:3]
            assert (await again.answer(2))[0] == GRANTED


async def test_a_wait_is_told_to_who_comes_back(tmp_path: Path) -> None:
    """The end of a wait goes to the connection that asked last."""
    async with streamed(tmp_path) as served, served.stream() as holder, served.stream() as waiter:
        held = await holder.acquire("a")
        assert (await waiter.acquire("a", 60_000))[0] == QUEUED
        async with served.again(waiter) as again:
            again.ask(acquire("a", 60_000), first=1)
            assert (await again.answer(1))[0] == QUEUED
            await holder.call(RELEASE, held[1])
            assert (await again.answer(1))[0] == GRANTED


async def test_a_wait_can_be_ended(tmp_path: Path) -> None:
    """It is told as refused under its own number."""
    async with streamed(tmp_path) as served, served.stream() as holder, served.stream() as waiter:
        await holder.acquire("a")
        assert (await waiter.acquire("a", 60_000))[0] == QUEUED
        assert (await waiter.call(END_WAIT, 1))[0] == DONE
        assert (await waiter.answer(1))[:2] == [REFUSED, "lock-held"]


async def test_the_newest_connection_counts(tmp_path: Path) -> None:
    """Commands over an older one have no effect, and end it."""
    async with streamed(tmp_path) as served, served.stream() as client, served.again(client) as again:
        client.ask(acquire("a"))
        with pytest.raises(Closed) as closed:
            await client.answer(1)
        assert (closed.value.code, closed.value.reason) == (stream.REPLACED, "replaced")
        assert (await again.acquire("b"))[0] == GRANTED
        assert served.node.machine.lock("a").state == "free"


async def test_a_newer_connection_ends_the_older_one_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that says nothing; the one before that is dropped, though it has not answered yet."""
    monkeypatch.setattr(stream, "CLOSING_S", 3_600.0)
    async with streamed(tmp_path) as served, served.stream() as first, served.again(first) as second:
        await _until_replaced(first)
        async with served.again(first) as third:
            await _until_replaced(second)
            assert await first.receive_rest() == b""
            assert (await third.acquire("a"))[0] == GRANTED


@pytest.mark.parametrize("form", ["msgpack", "json"])
async def test_a_stream_that_was_resumed_over_another_node_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """All nodes apply that it has a newer epoch; those that have none are left alone."""
    monkeypatch.setattr(open_streams, "LOOK_S", 0.02)
    async with streamed(tmp_path) as served, served.stream(form) as client, served.stream() as other:
        session_id = SessionId(client.session_id)
        await Gateway(served.node).submit(resuming(session_id), StreamResumed, TIMEOUT_S)
        await _until_replaced(client)
        assert (await other.acquire("a"))[0] == GRANTED


async def test_the_end_of_its_session_ends_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its client says nothing."""
    monkeypatch.setattr(open_streams, "LOOK_S", 0.02)
    async with streamed(tmp_path) as served, served.stream() as client:
        await Gateway(served.node).submit(closing(SessionId(client.session_id)), SessionClosed, TIMEOUT_S)
        with pytest.raises(Closed) as closed:
            await client.receive()
        assert (closed.value.code, closed.value.reason) == (stream.EXPIRED, "session-expired")


async def _until_replaced(client: Stream) -> None:
    with pytest.raises(Closed) as closed:
        await client.receive()
    assert (closed.value.code, closed.value.reason) == (stream.REPLACED, "replaced")


async def test_a_gap_is_told_and_can_be_filled(tmp_path: Path) -> None:
    """Nothing behind it is applied."""
    async with streamed(tmp_path) as served, served.stream() as client:
        client.ask(acquire("b"), first=2)
        assert (await client.answer(2))[2] == "gap"
        client.ask(acquire("a"), acquire("b"), first=1)
        assert [(await client.answer(number))[0] for number in (1, 2)] == [GRANTED, GRANTED]


async def test_acknowledged_numbers_are_forgotten(tmp_path: Path) -> None:
    """A client says what it has seen with its next commands."""
    async with streamed(tmp_path) as served, served.stream() as client:
        granted = await client.acquire("a")
        client.acked = [(1, 1)]
        await client.call(RENEW, granted[1])
        view = served.node.machine.stream(client.session_id)  # type: ignore[arg-type]
        assert view is not None
        assert (view.last, view.kept_count) == (2, 1)


async def test_a_lease_of_its_own_outlives_the_stream(tmp_path: Path) -> None:
    """With a ttl a hold is not the session's; goodbye ends only what is."""
    async with streamed(tmp_path) as served, served.stream() as client:
        client.ask(acquire("a"), acquire("b", ttl_ms=60_000))
        assert (await client.answer(2))[0] == GRANTED
        client.send([5])
        with pytest.raises(Closed, match="1000: bye"):
            await client.receive()
        assert served.node.machine.lock("a").state == "free"
        assert served.node.machine.lock("b").state == "held"
        again = served.again(client)
        await again.connect()
        again.send([1, 1, client.session_id, 60_000, {}])
        assert (await again.receive())[2] == "session-expired"
        with pytest.raises(Closed) as closed:
            await again.receive()
        assert closed.value.code == stream.EXPIRED
        await again.drop()


async def test_a_ping_is_answered(tmp_path: Path) -> None:
    """Whether the node is there costs no entry."""
    async with streamed(tmp_path) as served, served.stream() as client:
        revision = served.node.machine.revision
        client.send([4])
        assert await client.receive() == [9]
        assert served.node.machine.revision == revision


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ([1, 1, "", 60_000, {}], "one hello"),
        ([7], "not a message"),
        ("text", "not a message"),
        ([2, 0, [], 0, []], "first: 0"),
        ([2, 1, [[0, 1]], 0, []], "acked: 0 to 1"),
        ([2, 1, [[1, 1 << 40]] * 2, 0, []], "acked: 1 to 1099511627776 after 1099511627776"),
        ([2, 1, [[1, 1]] * 65, 0, []], "acked: 65 ranges"),
        ([2, 1, [], -1, []], "timeout_ms: -1"),
        ([2, 1, [], 0, [[2, "s"]]], "not a message"),
        ([2, 1, [], 0, [[7, "x" * 32, [], "lock", 1]]], "at most length 3"),
        ([2, 1, [], 0, [[16, "mail", 5, 1000, "gcra", 1, 50]]], "at most length 5"),
        ([2, 1, [], 0, [], "more"], "at most length 4"),
        ([2, 1, [], 0, [[72, 1]] * 1025], "1024"),
    ],
)
async def test_a_wrong_message_ends_the_stream_with_a_reason(
    tmp_path: Path, message: Any, reason: str
) -> None:
    """Nothing of it is applied; the session lives on."""
    async with streamed(tmp_path) as served, served.stream() as client:
        client.send(message)
        with pytest.raises(Closed, match=reason) as closed:
            await client.receive()
        assert closed.value.code in (stream.INVALID, stream.FLOW_CONTROL)
        async with served.again(client) as again:
            assert (await again.acquire("a"))[0] == GRANTED


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ([4, "a", "exclusive", "x" * 32], "hold_id: must be 32"),
        ([4, "a", "exclusive", "a" * 31], "hold_id: must be 32"),
        (
            [4, "a", "exclusive", "", "", 60_000, "", 0, 0, "", "node", [], "renew"],
            "if_held: needs a session",
        ),
        ([PUT_CELL, b"\xff", b""], "key: must be UTF-8"),
        ([41, b"\xff"], "key: must be UTF-8"),
        ([41, b"\xff", True], "key: must be UTF-8"),
        ([42, [], [[3, b"\xff"]]], "key: must be UTF-8"),
        ([42, [[1, b"\xff", "version"]]], "key: must be UTF-8"),
        ([41, b"", True], "prefix: give one"),
        ([41, b"a", False, True], "prefix: give one"),
    ],
)
async def test_what_nobody_can_mean_is_refused_with_its_message(
    tmp_path: Path, command: list[Any], reason: str
) -> None:
    """The stream goes on, and the numbers are free."""
    async with streamed(tmp_path) as served, served.stream() as client:
        client.ask([PUT_CELL, b"kept", b""], command)
        refused = await client.answer(1)
        assert refused[:3] == [4, 1, "invalid-request"]
        assert reason in refused[3]
        client.ask([PUT_CELL, b"kept", b""], first=1)
        assert (await client.answer(1))[0] == CELL_WRITTEN
        assert len(served.node.machine.state.cells) == 1


async def test_what_a_client_sent_does_not_get_into_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a secret in the wrong place, or very long; streams that end so have few lines a minute."""
    monkeypatch.setattr(stream, "LINES_A_MINUTE", 2)
    caplog.set_level(logging.INFO)
    secret = "c" * 32
    async with streamed(tmp_path) as served:
        for text in (secret, "x" + "\u00e9" * 5_000, secret, secret):
            async with served.stream() as client:
                client.send([2, 1, [], 0, [[4, "a", text]]])
                with pytest.raises(Closed, match="not a message") as closed:
                    await client.receive()
                assert closed.value.code == stream.INVALID
    lines = [line for line in caplog.text.splitlines() if "event=stream-closed" in line]
    assert [line.rpartition(" ")[2] for line in lines] == [f"code={stream.INVALID}"] * 2
    assert secret not in caplog.text
    assert "\u00e9" not in caplog.text


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("number", [5 * 10**40, -5 * 10**40])
async def test_a_number_that_no_log_can_have_ends_the_stream(
    tmp_path: Path, number: int, *, is_first: bool
) -> None:
    """JSON can write it, in a command and in the first message: the client is told, and nothing waits."""
    async with streamed(tmp_path) as served:
        client = served.stream("json")
        await client.connect()
        client.send_frame(1, b'[1,1,"",%d,{}]' % (number if is_first else 60_000))
        if not is_first:
            await client.receive()
            client.send_frame(1, b'[2,1,[],0,[[4,"a","exclusive","","",%d]]]' % number)
        with pytest.raises(Closed, match="64 bits") as closed:
            await client.receive()
        assert closed.value.code == stream.INVALID
        assert not served.node.machine.state.holds
        await client.drop()


@pytest.mark.parametrize(("form", "opcode", "kind"), [("msgpack", 1, "binary"), ("json", 2, "text")])
async def test_a_message_of_the_other_kind_ends_the_stream(
    tmp_path: Path, form: str, opcode: int, kind: str
) -> None:
    """Text on a stream of MessagePack, bytes on one of JSON: told, and nothing breaks."""
    async with streamed(tmp_path) as served, served.stream(form) as client:
        client.send_frame(opcode, b"[4]")
        with pytest.raises(Closed, match=kind) as closed:
            await client.receive()
        assert closed.value.code == stream.INVALID


async def test_a_message_that_is_too_long_ends_the_stream(tmp_path: Path) -> None:
    """No more is read than the welcome said."""
    async with streamed(tmp_path) as served, served.stream() as client:
        client.send_frame(2, bytes(stream.MESSAGE_BYTES_MAX + 1))
        with pytest.raises(Closed):
            await client.receive()


@pytest.mark.parametrize(
    "hello", [[1, 2, "", 60_000, {}], [4], [1, 1, "", 1, {}], [1, 1, "nobody", 60_000, {}]]
)
async def test_a_wrong_hello_is_refused(tmp_path: Path, hello: list[Any]) -> None:
    """Another version, no hello at all, an impossible ttl, a session that never was."""
    async with streamed(tmp_path) as served:
        client = served.stream()
        await client.connect()
        client.send(hello)
        with pytest.raises(Closed) as closed:
            await client.answer(1)
        assert closed.value.code in (stream.INVALID, stream.EXPIRED, stream.UNAVAILABLE)
        await client.drop()


async def test_a_client_without_a_hello_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that say nothing keep no place."""
    monkeypatch.setattr(stream, "HELLO_S", 0.05)
    async with streamed(tmp_path) as served:
        client = served.stream()
        await client.connect()
        with pytest.raises(Closed, match="no hello"):
            await client.receive()
        await client.drop()


async def test_what_is_no_websocket_is_a_problem(tmp_path: Path) -> None:
    """A plain call, and one for another subprotocol."""
    async with streamed(tmp_path) as served, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{served.port}/v1/stream"
        async with session.get(url) as response:
            assert response.status == 400
            assert (await response.json(content_type=None))["code"] == "invalid-request"
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(url, protocols=("other",))


async def test_a_stopping_node_says_so(tmp_path: Path) -> None:
    """Clients go on elsewhere at once."""
    async with streamed(tmp_path) as served, served.stream() as client:
        served.node.begin_shutdown()
        assert await client.receive() == [6, 0]
        with pytest.raises(Closed) as closed:
            await client.receive()
        assert closed.value.code == aiohttp.WSCloseCode.GOING_AWAY


@pytest.mark.parametrize("error", [NoLeader("none"), OutcomeUnknown("who knows")])
async def test_failures_of_the_cluster_are_told(tmp_path: Path, error: ClusterError) -> None:
    """What was not applied can be sent again; where nobody knows, the client has to ask by resuming."""
    async with streamed(tmp_path) as served, served.stream() as client:
        with pytest.MonkeyPatch.context() as patch:
            failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            patch.setattr(served.node.parts.requests, "begin", lambda *_: failed)
            client.ask(acquire("a"))
            assert (await client.answer(1))[2] == error.code
        if isinstance(error, OutcomeUnknown):
            with pytest.raises(Closed) as closed:
                await client.receive()
            assert closed.value.code == stream.RESUME
        else:
            client.ask(acquire("a"), first=1)
            assert (await client.answer(1))[0] == GRANTED


async def test_a_wait_out_of_sight_has_to_be_asked_for_again(tmp_path: Path) -> None:
    """A node that lost its leader cannot tell how a wait ends; what became of it is kept."""
    async with streamed(tmp_path) as served, served.stream() as holder, served.stream() as waiter:
        await holder.acquire("a")
        assert (await waiter.acquire("a", 60_000))[0] == QUEUED
        served.node.parts.waiters.fail_all(WaitCutOff("lost"))
        with pytest.raises(Closed) as closed:
            await waiter.answer(1)
        assert closed.value.code == stream.RESUME


WORKER, BOSS = "w" * 40, "b" * 40
TOKENS = token_line("worker", WORKER, "acquire@mine") + token_line("boss", BOSS, "read,acquire")


def _acquire_as(
    name: str, *, value: str = "", is_secret: bool = False, is_endless: bool = False
) -> list[Any]:
    """Return the command that asks for a lock with what only few holds have."""
    plain = [name, "exclusive", "", "", 0, "", 0, 0, "", "node", []]
    return [4, *plain, None if is_endless else "renew", value, is_secret, 5, is_endless]


async def test_holds_carry_values(tmp_path: Path) -> None:
    """The stream gives its session, and release and renewal by value are numbered like all else."""
    async with streamed(tmp_path) as served, served.stream() as client:
        granted = await client.call(*_acquire_as("a", value="v", is_secret=True))
        assert (granted[0], granted[-1]) == (GRANTED, "v")
        again = await client.acquire("a")
        assert (again[0], again[-3:]) == (GRANTED, [1, 0, "v"])
        permits = ["q", 2, 1, "", "", 0, "", 0, 0, "", False, "w"]
        assert (await client.call(12, *permits))[-2:] == [2, "w"]
        assert (await client.call(80, "a", "v"))[0] == RENEWED
        assert (await client.call(79, "a", "x"))[:2] == [REFUSED, "not-holder"]
        assert (await client.call(79, "a", "v"))[0] == RELEASED
        assert (await client.call(79, "q", "w", "semaphore"))[0] == RELEASED
        assert not served.node.machine.state.holds


async def test_a_hold_without_a_deadline_needs_leave_on_a_stream_too(tmp_path: Path) -> None:
    """Otherwise it is refused, alone of its frame. Where it is allowed, the hold outlives the session."""
    async with streamed(tmp_path) as served:
        async with served.stream() as client:
            granted = await client.call(*_acquire_as("batch/a", is_endless=True))
            assert (granted[0], granted[5]) == (4, None)
            client.send([5])
            with pytest.raises(Closed):
                await client.receive()
        assert served.node.machine.lock("batch/a").state == "held"
        async with served.stream() as client:
            client.ask(acquire("b"), _acquire_as("a", is_endless=True))
            assert (await client.answer(1))[0] == GRANTED
            refused = await client.answer(2)
            assert (refused[0], refused[1]) == (11, "invalid-request")
            assert served.node.machine.lock("b").state == "held"


async def test_rights_count_for_each_command(tmp_path: Path) -> None:
    """A message with a command without a right is refused as a whole; who may not read sees no holders."""
    async with (
        streamed(tmp_path, TOKENS) as served,
        served.stream(token=BOSS) as boss,
        served.stream(token=WORKER) as worker,
    ):
        assert (await boss.acquire("mine/a"))[0] == GRANTED
        refused = await worker.acquire("mine/a")
        assert (refused[1], refused[3]) == ("lock-held", [])
        assert "boss" not in str(refused)
        first = worker.ask(acquire("mine/b"), acquire("other/b"))
        assert (await worker.answer(first))[2] == "forbidden"
        (traced,) = served.authentication.trace.newest(10).refusals
        assert (traced.code, traced.principal, traced.route) == ("forbidden", "worker", "/v1/stream")
        assert served.node.machine.lock("mine/b").state == "free"
        assert (await boss.acquire("other/b"))[0] == GRANTED


async def test_the_end_of_a_wait_shows_no_holders_either(tmp_path: Path) -> None:
    """What is told later is told to the same client."""
    async with (
        streamed(tmp_path, TOKENS) as served,
        served.stream(token=BOSS) as boss,
        served.stream(token=WORKER) as worker,
    ):
        await boss.acquire("mine/a")
        assert (await worker.acquire("mine/a", 60_000))[0] == QUEUED
        assert (await worker.call(END_WAIT, 1))[0] == DONE
        ended = await worker.answer(1)
        assert (ended[1], ended[3]) == ("lock-held", [])


async def test_a_client_that_shows_no_life_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection whose other end is gone keeps no place; one that answers pings stays."""
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.2)
    async with streamed(tmp_path) as served, served.stream() as alive, served.stream() as gone:
        gone.stop_reading()
        alive.send([4])
        assert await alive.receive() == [9]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await alive.receive()
        assert (await alive.acquire("a"))[0] == GRANTED
        with pytest.raises(ConnectionError):
            await _ask_on(gone, [4])


async def test_a_token_that_is_taken_away_ends_the_stream(tmp_path: Path) -> None:
    """It is looked at with every message of commands."""
    async with streamed(tmp_path, TOKENS) as served, served.stream(token=WORKER) as worker:
        assert (await worker.acquire("mine/a"))[0] == GRANTED
        boss_only = token_line("boss", BOSS, "read,acquire")
        served.authentication.principals = principals_of(served.authentication, boss_only)
        worker.ask(acquire("mine/b"))
        with pytest.raises(Closed) as closed:
            await worker.answer(2)
        assert closed.value.code == stream.UNAUTHENTICATED
        assert served.node.machine.lock("mine/b").state == "free"


async def test_a_connection_that_is_lost_leaves_nothing_behind(tmp_path: Path) -> None:
    """Neither a wait that was answered before, nor one that is answered when the client is gone already."""
    async with streamed(tmp_path) as served, served.stream() as holder:
        await holder.acquire("a")
        waiter = served.stream()
        async with waiter:
            assert (await waiter.acquire("a", 60_000))[0] == QUEUED
            waiter.ask(acquire("a", 60_000), first=1)
            waiter.ask(acquire("a", 60_000), first=2)
            await waiter.drain()
        waiters = served.node.parts.waiters
        await until(lambda: len(waiters) == 0)
        async with served.again(waiter) as again:
            again.ask(acquire("a", 60_000), acquire("a", 60_000), first=1)
            assert [(await again.answer(number))[0] for number in (1, 2)] == [QUEUED, QUEUED]
        await until(lambda: len(waiters) == 0)


async def test_a_client_that_leaves_as_its_stream_ends_leaves_no_error_behind(tmp_path: Path) -> None:
    """The node was about to say why; nobody is there to hear it, and its log shows no failure of its own."""
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    await _leave_as_it_ends(tmp_path)
    gc.collect()
    assert failures == []


async def _leave_as_it_ends(tmp_path: Path) -> None:
    """Let the node drop the call of a stream in the turn of the loop in which it wants to end the stream."""
    async with streamed(tmp_path) as served, served.stream() as client:
        begun: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(served.node.parts.requests, "begin", lambda *_: begun)
            client.ask(acquire("a"))
            await until(lambda: begun._callbacks)
        talking = [task for task in asyncio.all_tasks() if "RequestHandler.start" in repr(task)]
        assert talking
        begun.set_exception(OutcomeUnknown("who knows"))
        for task in talking:
            task.cancel()
        await asyncio.wait(talking)


async def test_messages_without_commands_have_a_window_too(tmp_path: Path) -> None:
    """Each is an entry of the log: a client cannot send more of them than are answered."""
    async with streamed(tmp_path) as served, served.stream() as client:
        for _ in range(2000):
            client.send([2, 1, [], 0, []])
        with pytest.raises(Closed) as closed:
            await client.answer(1)
        assert closed.value.code == stream.FLOW_CONTROL


async def test_a_slow_reader_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not read its answers is not read any more, and then closed; its session lives on."""
    monkeypatch.setattr(stream_out, "UNREAD_BYTES_MAX", 0)
    monkeypatch.setattr(stream_out, "UNREAD_S", 0.1)
    monkeypatch.setattr(stream, "CLOSING_S", 0.1)
    async with streamed(tmp_path) as served, served.stream() as client:
        client.ask([PUT_CELL, b"c", b"v" * 4096], *[_READ] * 30)
        assert (await client.answer(1))[0] != REFUSED
        client.stop_reading()
        with pytest.raises(ConnectionError):
            await _ask_on(client, [2, 2, [], 0, [_READ] * 30])
        async with served.again(client) as again:
            assert again.last >= 1


async def _ask_on(client: Stream, message: list[Any]) -> None:
    """Ask for more and more, and read nothing, until the node has enough."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            client.send(message)
            await client.drain()
            await asyncio.sleep(0.001)
