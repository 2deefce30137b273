"""GET /v1/watch of a real node over real sockets: what is told, resumed, refused, cut."""

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from cluster.config import load
from cluster.node import Node
from cluster.observing.event_log import WatchCut
from http_api.app import build_server
from http_api.v1 import event_feeds, watch
from lockstate.words.commands.holds import Acquire, AcquirePermits, Campaign, Convert, Proclaim, Release
from lockstate.words.commands.overrides import ForceRelease
from lockstate.words.commands.sessions import CloseSession, OpenSession
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.modes import Mode
from lockstate.words.results import Granted
from tests.support.event_source import EventSource, Told
from tests.unit.http_api.serving import until

TIMEOUT_S = 10.0
LONG = "x" * 400


class Watched:
    """A node behind its server, and what tests do to it."""

    def __init__(self, node: Node, port: int, session: aiohttp.ClientSession) -> None:
        self.node, self.port, self.session = node, port, session
        self.url = f"http://127.0.0.1:{port}/v1/watch"
        self._ids = itertools.count(1)

    async def watch(self, last_id: str = "", **query: str) -> EventSource:
        """Begin to watch."""
        return await EventSource.open(self.session, self.url, last_id, **query)

    async def refused(self, last_id: str = "", **query: str) -> tuple[int, dict[str, Any]]:
        """Make a call that is refused; return status and problem."""
        headers = {"Last-Event-ID": last_id} if last_id else {}
        async with self.session.get(self.url, params=query, headers=headers) as response:
            return response.status, json.loads(await response.read())

    async def acquire(self, name: str, **fields: Any) -> Granted:
        """Acquire a lock."""
        hold_id = f"hold-{next(self._ids)}"
        fields.setdefault("ttl_ms", 0 if "session_id" in fields else 60_000)
        answer = await self.node.acquire(
            Acquire(name, Mode.EXCLUSIVE, HoldId(hold_id), AttemptId(f"of-{hold_id}"), **fields), TIMEOUT_S
        )
        assert isinstance(answer.result, Granted)
        return answer.result

    async def cycle(self, *names: str) -> None:
        """Acquire locks, one after the other, and release them."""
        for name in names:
            await self.node.submit(Release((await self.acquire(name)).hold_id), TIMEOUT_S)

    async def flood(self, count: int) -> None:
        """Make so many events of about a kilobyte, many to an entry."""
        for first in range(0, count, 1000):
            names = [f"flood/{number}/{LONG}" for number in range(first, min(first + 1000, count))]
            await asyncio.gather(*(self.acquire(name, owner="o" * 250) for name in names))


@contextlib.asynccontextmanager
async def watched(directory: Path) -> AsyncIterator[Watched]:
    """Run a node of its own, and its HTTP server."""
    node = Node(load(["--data-dir", str(directory), "--http", "127.0.0.1:0", "--peer", "127.0.0.1:0"], {}))
    await node.start()
    runner = web.ServerRunner(build_server(node, 5_000), shutdown_timeout=3)
    try:
        await node.read(lambda machine: machine.revision, TIMEOUT_S)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            yield Watched(node, runner.addresses[0][1], session)
    finally:
        node.begin_shutdown()
        await runner.cleanup()
        await node.stop()


def names(events: list[Told]) -> list[tuple[str, str]]:
    """Return event and name."""
    return [(event.event, event.data["name"]) for event in events]


async def test_a_watch_begins_now(tmp_path: Path) -> None:
    """Without a place to begin, nothing older is sent, and everything after the answer's revision is."""
    async with watched(tmp_path) as served:
        await served.cycle("old")
        before = served.node.machine.revision
        source = await served.watch()
        revision = int(source.response.headers["Holdfast-Revision"])
        assert source.last_id == str(revision)
        assert before <= revision <= served.node.machine.revision
        assert source.response.headers["Content-Type"] == "text/event-stream"
        assert source.response.headers["Cache-Control"] == "no-store"
        assert source.response.headers["Holdfast-Request-Id"]
        await served.cycle("new")
        granted, released = await source.take(2)
        assert names([granted, released]) == [("granted", "new"), ("released", "new")]
        assert revision < granted.data["revision"] < released.data["revision"]
        assert granted.data["token"] == released.data["token"] == 2
        assert granted.id == str(granted.data["revision"])


async def test_no_secret_is_told(tmp_path: Path) -> None:
    """Neither the id of a session nor that of a hold is in the stream; owner and reason are."""
    async with watched(tmp_path) as served:
        source = await served.watch(since="0")
        await served.node.submit(OpenSession(SessionId("session-secret"), 60_000, {}), TIMEOUT_S)
        await served.acquire("a", session_id="session-secret", owner="me")
        await served.node.submit(CloseSession(SessionId("session-secret")), TIMEOUT_S)
        told = await source.take(2)
        assert names(told) == [("granted", "a"), ("released", "a")]
        assert told[0].data["owner"] == "me"
        text = json.dumps([event.data for event in told])
        assert "secret" not in text
        assert "hold-" not in text


async def test_every_id_resumes(tmp_path: Path) -> None:
    """From the id of any event, given either way, exactly the later ones come, in order."""
    async with watched(tmp_path) as served:
        await served.node.submit(OpenSession(SessionId("s"), 60_000, {}), TIMEOUT_S)
        for name in ("db/a", "db/b", "x", "db/c"):
            await served.acquire(name, session_id="s")
        await served.node.submit(CloseSession(SessionId("s")), TIMEOUT_S)
        await served.cycle("db/d")
        source = await served.watch(since="0", prefix="db/")
        whole = await source.take(8)
        assert [told.id.partition(".")[2] for told in whole] == ["", "", "", "1", "2", "", "", ""]
        for place, told in enumerate(whole):
            again = await served.watch(told.id, prefix="db/", since="0")
            assert await again.take(8 - place - 1) == whole[place + 1 :]
            other = await served.watch(since=told.id, prefix="db/")
            assert await other.take(8 - place - 1) == whole[place + 1 :]
            again.close()
            other.close()


async def test_every_kind_of_event(tmp_path: Path) -> None:
    """Events of locks, semaphores and elections have the fields of their kind."""
    async with watched(tmp_path) as served:
        source = await served.watch()
        for command in (
            OpenSession(SessionId("s"), 60_000),
            AcquirePermits(
                "p", 5, 2, HoldId("h1"), AttemptId("a1"), session_id=SessionId("s"), owner=OwnerName("me")
            ),
            Campaign("e", SessionId("s"), "first", HoldId("h2"), AttemptId("a2"), owner=OwnerName("me")),
            Proclaim(HoldId("h2"), "second"),
            Release(HoldId("h2")),
            Acquire(
                "l",
                Mode.EXCLUSIVE,
                HoldId("h3"),
                AttemptId("a3"),
                session_id=SessionId("s"),
                owner=OwnerName("me"),
            ),
            Acquire(
                "l",
                Mode.SHARED,
                HoldId("h4"),
                AttemptId("a4"),
                session_id=SessionId("s"),
                owner=OwnerName("you"),
                wait_ms=60_000,
            ),
            Convert(HoldId("h3"), Mode.SHARED, HoldId("t1"), AttemptId("a5")),
            ForceRelease("l", "by hand"),
        ):
            await served.node.submit(command, TIMEOUT_S)
        told = [{**event.data, "event": event.event} for event in await source.take(10)]
        shown = ("event", "kind", "name", "owner", "mode", "permits", "value", "token")
        assert [tuple(event.get(field, "") for field in shown) for event in told] == [
            ("granted", "semaphore", "p", "me", "", 2, "", 1),
            ("elected", "election", "e", "me", "", "", "first", 2),
            ("elected", "election", "e", "me", "", "", "second", 2),
            ("resigned", "election", "e", "me", "", "", "", 2),
            ("granted", "lock", "l", "me", "exclusive", "", "", 3),
            ("queued", "lock", "l", "you", "shared", "", "", 0),
            ("converted", "lock", "l", "me", "shared", "", "", 3),
            ("granted", "lock", "l", "you", "shared", "", "", 4),
            ("forced", "lock", "l", "me", "shared", "", "", 3),
            ("forced", "lock", "l", "you", "shared", "", "", 4),
        ]
        assert [event["reason"] for event in told[-2:]] == ["by hand", "by hand"]


async def test_prefixes(tmp_path: Path) -> None:
    """A prefix gets events of the names that begin with it; the end of a session has no name."""
    async with watched(tmp_path) as served:
        everything, below = await served.watch(prefix=""), await served.watch(prefix="db/")
        await served.node.submit(OpenSession(SessionId("s"), 50, {}), TIMEOUT_S)
        await served.acquire("db/a", session_id="s")
        await until(lambda: served.node.machine.lock("db/a").state == "free")
        await served.cycle("dbx", "db/b")
        told = await everything.take(7)
        assert sorted(names(told[:3])) == [("expired", "db/a"), ("granted", "db/a"), ("session-expired", "")]
        assert names(await below.take(4)) == [
            ("granted", "db/a"), ("expired", "db/a"), ("granted", "db/b"), ("released", "db/b"),
        ]  # fmt: skip


async def test_what_is_gone_is_said(tmp_path: Path) -> None:
    """A client that resumes before the history begins, or from what never happened, has to start over."""
    async with watched(tmp_path) as served:
        served.node.events._count_max = 3
        await served.cycle("a", "b", "c")
        oldest = served.node.events.oldest
        assert oldest > 0
        for query in ({"since": str(oldest - 1)}, {"since": f"{oldest}.1"}, {"since": "0"}):
            status, problem = await served.refused(**query)
            assert (status, problem["code"], problem["oldest"]) == (410, "compacted", oldest)
        status, problem = await served.refused("999999")
        assert (status, problem["code"], problem["oldest"]) == (410, "compacted", oldest)
        source = await served.watch(since=str(oldest))
        assert len(await source.take(len(served.node.events))) == 3


async def test_what_is_not_a_place_is_refused(tmp_path: Path) -> None:
    """A place that is not an id, an unknown parameter and a prefix longer than any name are invalid."""
    async with watched(tmp_path) as served:
        for query in ({"since": "x"}, {"since": ""}, {"since": "-1"}, {"until": "3"}, {"prefix": "p" * 513}):
            status, problem = await served.refused(**query)
            assert (status, problem["code"]) == (400, "invalid-request")
            assert next(iter(query)) in problem["detail"]
        status, problem = await served.refused("1.2.3", since="0")
        assert (status, problem["detail"].partition(":")[0]) == (400, "Last-Event-ID")


async def test_a_heartbeat_moves_the_place_to_resume_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watcher of what never happens learns how far history is, so that its place is not compacted."""
    monkeypatch.setattr(watch, "HEARTBEAT_S", 0.02)
    async with watched(tmp_path) as served:
        source = await served.watch(prefix="nothing")
        await served.cycle("a")
        await source.id_becomes(str(served.node.machine.revision))
        assert "heartbeat" in source.comments


async def test_a_client_that_pauses_misses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that reads late gets every event once, in order, and the node buffers little for it."""
    monkeypatch.setattr(watch, "HEARTBEAT_S", 1000)
    monkeypatch.setattr(watch, "STALLED_S", 1000)
    buffered: list[int] = []
    plain = watch.EventStream._write

    def write(stream: watch.EventStream, text: bytes) -> None:
        plain(stream, text)
        buffered.append(stream._transport.get_write_buffer_size())

    monkeypatch.setattr(watch.EventStream, "_write", write)
    async with watched(tmp_path) as served:
        late, quick = await served.watch(), await served.watch()
        reading = asyncio.create_task(quick.take(15_000))
        await served.flood(15_000)
        told = await reading
        assert await late.take(15_000) == told
        revisions = [event.data["revision"] for event in told]
        assert revisions == sorted(revisions)
        assert sorted(event.data["token"] for event in told) == list(range(1, 15_001))
        size_bytes = len(json.dumps(told[0].data)) + 100
        assert max(buffered) < watch.BUFFERED_BYTES_MAX + 2 * event_feeds.FED_COUNT_MAX * size_bytes


async def test_who_has_caught_up_is_fed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only in its next turn: where many catch up and much happens, there are news again by then."""
    async with watched(tmp_path) as served:
        await served.cycle("a")
        monkeypatch.setattr(watch, "PAUSE_FACTOR", 1e9)
        source = await served.watch(since="0")
        assert names(await source.take(2)) == [("granted", "a"), ("released", "a")]
        await served.cycle("b")
        assert names(await source.take(2)) == [("granted", "b"), ("released", "b")]


async def test_who_does_not_read_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that reads nothing for a while is cut; locks and other watchers go on."""
    monkeypatch.setattr(watch, "STALLED_S", 0.2)
    monkeypatch.setattr(watch, "CLOSING_S", 0.2)
    async with watched(tmp_path) as served:
        quick = await served.watch()
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, ("127.0.0.1", served.port))
            await loop.sock_sendall(client, b"GET /v1/watch HTTP/1.1\r\nHost: h\r\n\r\n")
            await until(lambda: served.node.events.watchers == 2)
            reading = asyncio.create_task(quick.take(12_000))
            await served.flood(12_000)
            assert len(await reading) == 12_000
            await until(lambda: served.node.events.watchers == 1)
        assert served.node.events.cuts[WatchCut.SLOW_READER] == 1
        await served.cycle("after")
        assert names(await quick.take(2)) == [("granted", "after"), ("released", "after")]


async def test_a_stopping_node_ends_its_watches(tmp_path: Path) -> None:
    """Watchers hear why the stream ends, keep their place, and new ones are sent elsewhere."""
    async with watched(tmp_path) as served:
        source = await served.watch()
        await served.cycle("a")
        told = await source.take(2)
        served.node.begin_shutdown()
        await served.node.wait_shutdown()
        last = await source.next()
        assert last is not None
        assert (last.event, last.data, last.id) == ("cut", {"reason": "shutting-down"}, told[-1].id)
        assert await source.next() is None
        for query in ({}, {"since": told[-1].id}):
            status, problem = await served.refused(**query)
            assert (status, problem["code"]) == (503, "shutting-down")
        await until(lambda: served.node.events.watchers == 0)


async def test_a_node_without_a_cluster_ends_its_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that is not ready for two heartbeats cuts its watchers: another node may know more."""
    monkeypatch.setattr(watch, "HEARTBEAT_S", 0.02)
    async with watched(tmp_path) as served:
        source = await served.watch()
        monkeypatch.setattr(Node, "_is_ready", lambda *_: False)
        last = await source.next()
        assert last is not None
        assert (last.event, last.data) == ("cut", {"reason": "no-leader"})


async def test_watchers_are_counted_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the largest number a watch is refused; one that ends makes room; metrics count them."""
    monkeypatch.setattr(event_feeds, "WATCHERS_COUNT_MAX", 2)
    async with watched(tmp_path) as served:
        first, _ = await served.watch(), await served.watch()
        status, problem = await served.refused()
        assert (status, problem["code"], problem["retry_after_ms"] > 0) == (429, "overloaded", True)
        samples = {sample[0]: sample[4] for sample in served.node.metrics.samples()}
        assert samples["holdfast_watchers"] == 2
        first.close()
        await until(lambda: served.node.events.watchers == 1)
        await served.watch()


async def test_old_clients_and_heads(tmp_path: Path) -> None:
    """HTTP/1.0 gets the same stream, ended by the connection; HEAD gets the head alone."""
    async with watched(tmp_path) as served:
        for request, length in ((b"GET /v1/watch?since=0 HTTP/1.0", 3), (b"HEAD /v1/watch HTTP/1.1", 1)):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(request + b"\r\nHost: h\r\n\r\n")
            parts = []
            async with asyncio.timeout(TIMEOUT_S):
                if length > 1:
                    await until(lambda: served.node.events.watchers == 1)
                    await served.cycle("a")
                    parts = [await reader.readuntil(b"\n\n") for _ in range(3)]
                    head, _, first = parts[0].partition(b"\r\n\r\n")
                    assert first == b"retry: 1000\nid: 0\n\n"
                    assert b"event: released\n" in parts[2]
                else:
                    head = (await reader.read()).removesuffix(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b"\r\nConnection: close" in head
            assert b"Content-Length" not in head
            assert b"Transfer-Encoding" not in head
            writer.close()
            await until(lambda: served.node.events.watchers == 0)
