"""Calls on a stream: requests of the HTTP API that wait, over one connection."""

import contextlib
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cluster.commands import kept_waits
from holdfast import wire
from http_api.v1 import stream_calls
from lockstate.machine import LockMachine
from tests.support.stream_client import Closed, Stream
from tests.unit.http_api.serving import token_line, until
from tests.unit.http_api.v1.streaming import streamed

TTL_MS = 60_000
WAIT_MS = 60_000


def lock(request_id: str, wait_ms: int = WAIT_MS, **fields: Any) -> dict[str, Any]:
    """Return the body of a request for one and the same lock."""
    return {
        "name": "a",
        "ttl_ms": TTL_MS,
        "wait_ms": wait_ms,
        "request_id": f"request-{request_id:0>9}",
        **fields,
    }


def call(client: Stream, *calls: tuple[int, str, dict[str, Any]], timeout_ms: int = 0) -> None:
    """Make calls in one message."""
    client.send(
        [6, timeout_ms, [[number, path, msgspec.json.encode(body).decode()] for number, path, body in calls]]
    )


async def answer(client: Stream) -> tuple[int, int, dict[str, Any]]:
    """Return number, status and body of the next answer."""
    kind, number, status, body = await client.receive()
    assert kind == 10
    return number, status, msgspec.json.decode(body)


@contextlib.asynccontextmanager
async def unbound(client: Stream) -> AsyncIterator[Stream]:
    """Begin a stream without a session, and drop it in the end."""
    await client.connect()
    try:
        await client.greet(ttl_ms=0)
        yield client
    finally:
        await client.drop()


async def queued(machine: LockMachine, count: int) -> None:
    """Wait until as many wait."""
    await until(lambda: len(machine.state.tickets) == count)


@pytest.mark.parametrize("form", ["msgpack", "json"])
async def test_calls_are_answered_as_over_http(tmp_path: Path, form: str) -> None:
    """Each with the status and the body that it has there, and in the order in which they can be answered."""
    async with streamed(tmp_path) as served, unbound(served.stream(form)) as client:
        assert client.welcome[1:6] == ["", 0, 0, 256 * 1024, "n1"]
        requests = [(number, wire.LOCK_ACQUIRE, lock(str(number))) for number in (7, 8, 9)]
        call(client, *requests, (10, "/v1/nothing", {}), (11, wire.LOCK_ACQUIRE, {"name": ""}))
        answers = {
            number: (status, body) for number, status, body in [await answer(client) for _ in range(3)]
        }
        assert {number: status for number, (status, _) in answers.items()} == {7: 200, 10: 404, 11: 400}
        assert answers[11][1]["code"] == "invalid-request"
        for number in (8, 9):
            holds = served.node.machine.state.holds
            served_hold = next(iter(holds))
            withdrawal = {"request_id": holds[served_hold].request[1]}  # type: ignore[index]
            call(client, (20 + number, wire.WAITS_WITHDRAW, withdrawal))
            told = {found[0]: found[1:] for found in [await answer(client) for _ in range(2)]}
            assert told[20 + number][1]["withdrawn"] is True
            assert told[number][0] == 200


async def test_the_end_of_the_connection_keeps_the_places(tmp_path: Path) -> None:
    """Asked again on another connection they go on, in the old order whatever the new one."""
    async with streamed(tmp_path) as served:
        machine, kept = served.node.machine, served.node.parts.requests._kept
        async with unbound(served.stream()) as first:
            call(first, *[(number, wire.LOCK_ACQUIRE, lock(str(number))) for number in range(4)])
            await answer(first)
            await queued(machine, 3)
        await until(lambda: len(kept) == 3)
        async with unbound(served.stream()) as second:
            call(second, *[(number, wire.LOCK_ACQUIRE, lock(str(number))) for number in (2, 1)])
            await until(lambda: len(kept) == 1)
            call(second, (9, wire.WAITS_WITHDRAW, {"request_id": lock("0")["request_id"]}))
            answers = [await answer(second) for _ in range(2)]
            assert {(number, status) for number, status, _ in answers} == {(9, 200), (1, 200)}
        await until(lambda: len(kept) == 2)


async def test_a_stream_without_a_session_takes_no_numbers(tmp_path: Path) -> None:
    """There is nothing that could remember them; with a session a stream takes both."""
    async with streamed(tmp_path) as served, served.stream() as both:
        call(both, (1, wire.LOCK_ACQUIRE, lock("1")))
        assert (await answer(both))[1] == 200
        assert (await both.acquire("b"))[0] == 4
        async with unbound(served.stream()) as client:
            client.ask([4, "c"])
            with pytest.raises(Closed) as closed:
                await client.receive()
        assert closed.value.code == 4000


async def test_a_bye_ends_it(tmp_path: Path) -> None:
    """There is no session to end."""
    async with streamed(tmp_path) as served, unbound(served.stream()) as client:
        client.send([5])
        with pytest.raises(Closed) as closed:
            await client.receive()
        assert closed.value.code == 1000


async def test_a_caller_has_so_many_calls_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one connection, and of all together; what is one too many is refused and does not wait."""
    monkeypatch.setattr(stream_calls, "CALLS_COUNT_MAX", 3)
    monkeypatch.setattr(stream_calls, "CALLS_OF_NODE_MAX", 8)
    async with (
        streamed(tmp_path) as served,
        unbound(served.stream()) as first,
        unbound(served.stream()) as second,
    ):
        clients = first, second
        for index, client in enumerate(clients):
            call(client, *[(number, wire.LOCK_ACQUIRE, lock(f"{index}{number}")) for number in range(5)])
        found = [await answer(clients[0]) for _ in range(3)]
        assert sorted(status for _, status, _ in found) == [200, 429, 429]
        found = [await answer(clients[1]) for _ in range(3)]
        assert {body["code"] for _, _, body in found} == {"overloaded"}


async def test_a_call_needs_the_right_for_its_name(tmp_path: Path) -> None:
    """As over HTTP: each call by itself."""
    token = "t" * 40
    async with (
        streamed(tmp_path, token_line("ann", token, "acquire@a")) as served,
        unbound(served.stream(token=token)) as client,
    ):
        call(client, (1, wire.LOCK_ACQUIRE, lock("1")), (2, wire.LOCK_ACQUIRE, lock("2", name="b")))
        found = {number: status for number, status, _ in [await answer(client) for _ in range(2)]}
        assert found == {1: 200, 2: 403}


async def test_time_for_calls_has_bounds(tmp_path: Path) -> None:
    """As the header has over HTTP."""
    async with streamed(tmp_path) as served, unbound(served.stream()) as client:
        call(client, timeout_ms=60_001)
        with pytest.raises(Closed) as closed:
            await client.receive()
        assert (closed.value.code, str(closed.value)) == (4000, "4000: timeout_ms: 60001; must be 0 to 60000")


async def test_a_reserved_moment_that_nobody_asks_for_again_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many slices its client has waited: after the grace the lock is free, long before its moment."""
    rate = {"name": "r", "limit": 1, "window_ms": WAIT_MS}
    wait = {"wait_ms": WAIT_MS, "request_id": "request-number-01", "poll_ms": 0}
    several = {"locks": [{"name": "a"}], "rate_limits": [rate], "ttl_ms": TTL_MS, **wait}
    async with streamed(tmp_path) as served, unbound(served.stream()) as client:
        call(client, (1, wire.RATE_TAKE, rate))
        assert (await answer(client))[1] == 200
        for number in range(2, 5):
            call(client, (number, wire.ACQUIRE, several))
            assert (await answer(client))[1] == 202
        assert served.node.machine.state.holds
        monkeypatch.setattr(kept_waits, "KEEP_S", 0.05)
        call(client, (5, wire.ACQUIRE, several))
        assert (await answer(client))[1] == 202
        await until(lambda: not served.node.machine.state.holds)


async def test_a_message_has_so_many_calls(tmp_path: Path) -> None:
    """More would keep the node from all else for a second."""
    async with streamed(tmp_path) as served, unbound(served.stream()) as client:
        client.send([6, 0, [[number, "", ""] for number in range(stream_calls.CALLS_IN_MESSAGE_MAX + 1)]])
        with pytest.raises(Closed) as closed:
            await client.receive()
        assert str(closed.value) == "4000: calls: 1025; at most 1024 are allowed"


async def test_the_text_of_a_call_is_not_kept_while_it_waits(tmp_path: Path) -> None:
    """Only what it asks for is: thousands may wait, and a body may have any number of blanks."""
    blanks = " " * 200_000
    async with streamed(tmp_path) as served, unbound(served.stream()) as client:
        tracemalloc.start()
        try:
            for number in range(20):
                body = msgspec.json.encode(lock(str(number))).decode() + blanks
                client.send([6, 0, [[number, wire.LOCK_ACQUIRE, body]]])
                await queued(served.node.machine, number)
            assert tracemalloc.get_traced_memory()[0] < 10 * len(blanks)
        finally:
            tracemalloc.stop()


async def test_many_waits_take_one_connection(tmp_path: Path) -> None:
    """A thousand calls wait on it, in the order in which they were made."""
    async with streamed(tmp_path) as served, unbound(served.stream()) as client:
        for begin in range(0, 1_000, 250):
            call(
                client,
                *[(number, wire.LOCK_ACQUIRE, lock(str(number))) for number in range(begin, begin + 250)],
            )
        await queued(served.node.machine, 999)
        for number in range(50):
            told = [await answer(client)]
            call(
                client,
                (10_000 + number, wire.WAITS_WITHDRAW, {"request_id": lock(str(number))["request_id"]}),
            )
            told.append(await answer(client))
            assert {found[0] for found in told} <= {number, number + 1, 10_000 + number, 10_000 + number - 1}
