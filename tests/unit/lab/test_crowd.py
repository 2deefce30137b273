"""Clients in the background of a benchmark: a real process, real sockets, and a node that is asked."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import wire
from lab.loads import holders
from lab.loads.crowd_members import DEEP_LOCKS, DEEP_PARTS
from lab.loads.crowd_process import CrowdFailure, CrowdProcess, Report
from lockstate.words.limits import LOCKS_COUNT_MAX, REQUEST_CLAIMS_MAX, TTL_MS_MAX
from tests.support.processes import processes_with
from tests.unit.http_api.serving import Served, serving

DEADLINE_S = 60.0


def url(served: Served) -> str:
    """Return where the node is asked."""
    return f"http://127.0.0.1:{served.port}"


async def counted(crowd: CrowdProcess, is_enough: Callable[[Report], bool]) -> Report:
    """Wait until a crowd has done enough, and return what it said."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_enough(report := await crowd.count()):
        assert time.monotonic() < deadline_s, report
        await asyncio.sleep(0.02)
    return report


async def listed(served: Served, path: str, what: str) -> list[Any]:
    """Return what a listing has."""
    got = await served.call("GET", path)
    assert got.status == 200
    found: list[Any] = got.body[what]
    return found


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ask", {"path": wire.METRICS}),
        ("cycle", {"prefix": "crowd/cycle"}),
        ("deep", {"prefix": "crowd/deep"}),
    ],
)
async def test_clients_work_and_end_in_good_order(kind: str, options: dict[str, Any]) -> None:
    """All clients get answers, none an error, and when they have ended nothing of theirs is held."""
    async with serving() as served:
        async with CrowdProcess.of([url(served)], kind, 3, **options) as crowd:
            report = await counted(crowd, lambda report: report.done >= 9)
            assert (report.errors_count, report.errors, report.present) == (0, [], 3)
            ended = await crowd.finish()
            assert (ended.errors_count, ended.present) == (0, 0)
            assert ended.done >= report.done
        assert await listed(served, wire.LOCKS, "locks") == []


async def test_deep_locks_are_deep_and_many() -> None:
    """One request has as many locks as one may have, each with a name of as many parts as promised."""
    async with serving() as served:
        async with CrowdProcess.of([url(served)], "deep", 1, prefix="crowd/deep") as crowd:
            await counted(crowd, lambda report: report.done >= 1)
            await crowd.finish()
        audit = await listed(served, f"{wire.AUDIT}?limit=1000", "events")
    names = [event["name"] for event in audit if event["event"] == "granted"]
    assert len(set(names)) >= DEEP_LOCKS
    assert {len(name.split("/")) for name in names} == {DEEP_PARTS}


async def test_sessions_are_kept_alive_and_closed() -> None:
    """Sessions outlive their ttl by their keepalives, and none is left at the end."""
    ttl_ms = 900
    async with serving() as served:
        crowd_of = CrowdProcess.of([url(served)], "keep", 2, sessions=5, ttl_ms=ttl_ms)
        async with crowd_of as crowd:
            began_s = time.monotonic()
            opened = {item["session_name"] for item in await listed(served, wire.SESSIONS, "sessions")}
            assert len(opened) == 5
            report = await counted(crowd, lambda _: time.monotonic() - began_s > 2 * ttl_ms / 1000)
            assert (report.errors, report.present) == ([], 2)
            assert report.done >= 15
            kept = {item["session_name"] for item in await listed(served, wire.SESSIONS, "sessions")}
            assert kept == opened
            assert (await crowd.finish()).errors == []
        assert await listed(served, wire.SESSIONS, "sessions") == []


async def test_a_lost_session_is_an_error() -> None:
    """When a session is over while it is kept alive, the report says so."""
    async with (
        serving() as served,
        CrowdProcess.of([url(served)], "keep", 1, sessions=1, ttl_ms=300) as crowd,
    ):
        (item,) = await listed(served, wire.SESSIONS, "sessions")
        body = {"session_name": item["session_name"], "reason": "a test"}
        assert (await served.call("POST", wire.SESSION_FORCE_CLOSE, body)).status == 200
        report = await counted(crowd, lambda report: report.errors_count > 0)
        assert "410" in report.errors[0]
        assert "session-" in report.errors[0]


async def test_watchers_hear_of_their_prefixes() -> None:
    """Each watcher gets the events of its prefix only, and is there until it is told to end."""
    async with serving() as served:
        prefixes = ["crowd-a-", "crowd-b-"]
        async with CrowdProcess.of([url(served)], "watch", 4, prefixes=prefixes) as crowd:
            assert (await crowd.count()).present == 4
            for name in ("crowd-a-1", "crowd-a-2", "crowd-c-1"):
                got = await served.call("POST", wire.LOCK_ACQUIRE, {"name": name, "ttl_ms": 60_000})
                assert got.status == 200
            report = await counted(crowd, lambda report: report.done >= 4)
            assert (report.done, report.errors_count, report.present) == (4, 0, 4)
            assert (await crowd.finish()).errors == []


async def test_a_watch_that_ends_is_an_error() -> None:
    """When the node ends a watch, the report has one watcher less, and what was heard last."""
    async with serving() as served, CrowdProcess.of([url(served)], "watch", 1, prefixes=["x"]) as crowd:
        served.node.begin_shutdown()
        report = await counted(crowd, lambda report: report.present == 0)
        assert report.errors_count == 1
        assert "shutting-down" in report.errors[0]


async def test_clients_that_cannot_begin_are_told() -> None:
    """Where no node listens the failure says so, and the process is gone."""
    with pytest.raises(CrowdFailure, match="Connection refused"):
        async with CrowdProcess.of(["http://127.0.0.1:1"], "ask", 1, path="/nobody-listens"):
            pass
    assert processes_with("/nobody-listens") == {}


async def test_refusals_are_errors_and_asked_again() -> None:
    """A client that gets a problem document counts it, and goes on."""
    async with (
        serving() as served,
        CrowdProcess.of([url(served)], "ask", 1, path="/v1/nothing-here") as crowd,
    ):
        report = await counted(crowd, lambda report: report.errors_count >= 2)
        assert (report.done, report.present) == (0, 1)
        assert report.errors[0].startswith("404 ")


async def test_locks_are_held_and_given_back() -> None:
    """All of the names are held for a day, by whoever asks over a stream, and none afterwards."""
    names = [f"holders/{number}" for number in range(700)]
    async with serving() as served:
        async with holders.held_locks(url(served), names):
            got = await listed(served, f"{wire.LOCKS}?limit=1000", "locks")
            assert sorted(lock["name"] for lock in got) == sorted(names)
            left_ms = {lock["holders"][0]["expires_in_ms"] for lock in got}
            assert min(left_ms) > TTL_MS_MAX - 60_000
        assert await listed(served, wire.LOCKS, "locks") == []


async def test_a_lock_of_somebody_else_is_told() -> None:
    """Where one of the names is held already, holding them fails and names the refusal."""
    async with serving() as served:
        body = {"name": "holders/1", "ttl_ms": 60_000}
        assert (await served.call("POST", wire.LOCK_ACQUIRE, body)).status == 200
        with pytest.raises(OSError, match="lock-held"):
            await holders.hold(url(served), ["holders/0", "holders/1"])


def test_deep_names_fit_into_one_request() -> None:
    """The claims of all deep locks are no more than one acquire may have."""
    assert DEEP_LOCKS <= LOCKS_COUNT_MAX
    assert DEEP_LOCKS * DEEP_PARTS <= REQUEST_CLAIMS_MAX
