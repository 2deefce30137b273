"""GET /v1/sessions/{session_id}/watch: who watches its session hears of each loss, and of the end."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from cluster.observing.event_log import WatchCut
from http_api.v1 import event_feeds, watch
from lockstate.words.commands.holds import Release
from lockstate.words.commands.overrides import ForceCloseSession, ForceRelease, Revoke
from lockstate.words.commands.sessions import CloseSession, OpenSession
from lockstate.words.ids import SessionId
from tests.support.event_source import EventSource
from tests.unit.http_api.serving import principals_of, token_line
from tests.unit.http_api.v1.streaming import streamed
from tests.unit.http_api.v1.test_watch import TIMEOUT_S, Watched, names, watched

MINE, OTHER = SessionId("session-of-mine"), SessionId("session-of-another")


async def open_sessions(served: Watched, ttl_ms: int = 60_000) -> None:
    """Open both sessions."""
    for session_id in (MINE, OTHER):
        await served.node.submit(OpenSession(session_id, ttl_ms), TIMEOUT_S)


async def watch_of(served: Watched, lease_id: str = MINE, last_id: str = "", **query: str) -> EventSource:
    """Watch a session, or a hold that has none."""
    url = f"http://127.0.0.1:{served.port}/v1/sessions/{lease_id}/watch"
    return await EventSource.open(served.session, url, last_id, **query)


async def refused(served: Watched, lease_id: str, **query: str) -> tuple[int, str]:
    """Ask for a watch that is refused; return status and code."""
    url = f"http://127.0.0.1:{served.port}/v1/sessions/{lease_id}/watch"
    async with served.session.get(url, params=query) as response:
        return response.status, json.loads(await response.read())["code"]


async def test_only_what_belongs_to_the_session_is_told(tmp_path: Path) -> None:
    """What others hold of the same names is not; a force, a revocation and a wait of its own are."""
    async with watched(tmp_path) as served:
        await open_sessions(served)
        source = await watch_of(served)
        await served.acquire("a", session_id=MINE)
        await served.acquire("b", session_id=OTHER)
        await served.cycle("c")
        await served.node.submit(Revoke("a", "please", 60_000), TIMEOUT_S)
        await served.node.submit(ForceRelease("b", "why"), TIMEOUT_S)
        await served.node.submit(ForceRelease("a", "because"), TIMEOUT_S)
        told = await source.take(3)
        assert names(told) == [("granted", "a"), ("revoked", "a"), ("forced", "a")]
        assert told[2].data["reason"] == "because"
        assert MINE not in json.dumps([event.data for event in told])
        source.close()


@pytest.mark.parametrize("is_forced", [True, False])
async def test_the_end_of_the_session_ends_the_stream(tmp_path: Path, is_forced: bool) -> None:  # noqa: FBT001 - a parameter
    """By force or by time, the last event says so, and nothing comes behind it."""
    async with watched(tmp_path) as served:
        await open_sessions(served, ttl_ms=60_000 if is_forced else 300)
        source = await watch_of(served)
        await served.acquire("a", session_id=MINE)
        if is_forced:
            await served.node.submit(ForceCloseSession("s-1", "because"), TIMEOUT_S)
        told = await source.take(3)
        kinds = ("forced", "session-forced") if is_forced else ("expired", "session-expired")
        assert [event.event for event in told] == ["granted", *kinds]
        assert await source.next() is None
        assert await refused(served, MINE) == (410, "session-expired")


async def test_a_session_that_its_client_closes(tmp_path: Path) -> None:
    """No event tells of that but those of its holds: the cut says why a stream ends."""
    async with watched(tmp_path) as served:
        await open_sessions(served)
        mine, others = await watch_of(served, MINE), await watch_of(served, OTHER)
        await served.acquire("a", session_id=MINE)
        for session_id in (MINE, OTHER):
            await served.node.submit(CloseSession(session_id), TIMEOUT_S)
        assert [event.event for event in await mine.take(3)] == ["granted", "released", "cut"]
        (cut,) = await others.take(1)
        assert (cut.event, cut.data) == ("cut", {"reason": "session-closed"})
        assert await mine.next() is await others.next() is None
        assert served.node.events.cuts[WatchCut.SESSION_CLOSED] == 2


async def test_a_hold_without_a_session_is_watched_by_its_own_id(tmp_path: Path) -> None:
    """It ends with the hold; the id of a hold that lives with a session is not that of one."""
    async with watched(tmp_path) as served:
        await open_sessions(served)
        alone = await served.acquire("a")
        within = await served.acquire("b", session_id=MINE)
        source = await watch_of(served, alone.hold_id)
        await served.cycle("c")
        await served.node.submit(Release(alone.hold_id), TIMEOUT_S)
        assert [event.event for event in await source.take(2)] == ["released", "cut"]
        assert await refused(served, within.hold_id) == (410, "session-expired")


async def test_a_watch_goes_on_where_it_was(tmp_path: Path) -> None:
    """Behind the last id, or from the beginning of the log; what is not a place is refused."""
    async with watched(tmp_path) as served:
        await open_sessions(served)
        for name in ("a", "b", "c"):
            await served.acquire(name, session_id=MINE)
        first = await watch_of(served, since="1")
        (told, *_) = await first.take(3)
        again = await watch_of(served, last_id=told.id)
        assert names(await again.take(2)) == [("granted", "b"), ("granted", "c")]
        assert await refused(served, MINE, since="x") == (400, "invalid-request")
        assert await refused(served, MINE, since="99999") == (410, "compacted")
        assert await refused(served, "x" * 65) == (400, "invalid-request")
        assert await refused(served, "never-was") == (410, "session-expired")
        for source in (first, again):
            source.close()


async def test_it_is_fed_beside_others(tmp_path: Path) -> None:
    """Watches of names and of sessions get each their own, also when much happens at once."""
    async with watched(tmp_path) as served:
        await open_sessions(served)
        sources = [await watch_of(served), await watch_of(served, OTHER), await served.watch(prefix="x")]
        turns = [
            (f"{name}{number}", who) for number in range(20) for name, who in (("x", MINE), ("y", OTHER))
        ]
        await asyncio.gather(*(served.acquire(name, session_id=who) for name, who in turns))
        told = [sorted(event.data["name"] for event in await source.take(20)) for source in sources]
        assert told[0] == told[2] == sorted(f"x{number}" for number in range(20))
        assert told[1] == sorted(f"y{number}" for number in range(20))
        for source in sources:
            source.close()


async def test_a_session_that_ends_while_its_watch_catches_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is told before the end."""
    monkeypatch.setattr(watch, "FED_COUNT_MAX", 1)
    async with watched(tmp_path) as served:
        await open_sessions(served)
        source = await watch_of(served, since="1")
        for number in range(5):
            await served.acquire(f"a{number}", session_id=MINE)
        await served.node.submit(CloseSession(MINE), TIMEOUT_S)
        told = await source.take(11)
        assert [event.event for event in told] == ["granted"] * 5 + ["released"] * 5 + ["cut"]


async def test_nobody_looks_when_no_session_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The looks end with the last watch of a session, and begin again with the next."""
    monkeypatch.setattr(event_feeds, "LOOK_S", 0.01)
    async with watched(tmp_path) as served:
        await open_sessions(served)
        for _ in range(2):
            source = await watch_of(served)
            await asyncio.sleep(0.05)
            source.close()
            await asyncio.sleep(0.05)
        source = await watch_of(served)
        await served.node.submit(CloseSession(MINE), TIMEOUT_S)
        assert [event.event for event in await source.take(1)] == ["cut"]


async def test_the_id_is_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither that of the session, nor by its path."""
    caplog.set_level(logging.DEBUG)
    async with watched(tmp_path) as served:
        await open_sessions(served)
        source = await watch_of(served)
        await served.node.submit(CloseSession(MINE), TIMEOUT_S)
        await source.take(1)
        assert await source.next() is None
    assert "event=watch-cut" in caplog.text
    assert MINE not in caplog.text


async def test_a_caller_that_loses_its_rights_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may acquire somewhere may watch what it has; it is asked again with every heartbeat."""
    monkeypatch.setattr(watch, "HEARTBEAT_S", 0.05)
    secret = "a" * 43
    async with streamed(tmp_path, token_line("me", secret, "acquire@mine")) as served:
        await served.node.submit(OpenSession(MINE, 60_000), TIMEOUT_S)
        head = f"GET /v1/sessions/{MINE}/watch HTTP/1.1\r\nHost: n1\r\nAuthorization: Bearer {secret}\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(head.encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        others = token_line("you", "b" * 43, "acquire@mine")
        served.authentication.principals = principals_of(served.authentication, others)
        assert b'"reason":"forbidden"' in await reader.read()
        writer.close()
