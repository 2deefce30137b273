"""Waits that ask by themselves, over HTTP: what they say, and who hears of it."""

import asyncio
from typing import Any

import pytest

from holdfast import wire
from tests.unit.http_api.serving import Served, check_problem, serving, until

PATHS = [wire.LOCK_ACQUIRE, wire.SEMAPHORE_ACQUIRE]
RELEASES = {wire.LOCK_ACQUIRE: wire.LOCK_RELEASE, wire.SEMAPHORE_ACQUIRE: wire.SEMAPHORE_RELEASE}
READS = {wire.LOCK_ACQUIRE: wire.LOCK, wire.SEMAPHORE_ACQUIRE: wire.SEMAPHORE}


def body(path: str, **fields: Any) -> dict[str, Any]:
    """Return what is asked for "a", a lock or permits of a semaphore."""
    limit = {"limit": 1} if path == wire.SEMAPHORE_ACQUIRE else {}
    return {"name": "a", "ttl_ms": 60_000, **limit, **fields}


async def let(served: Served, **settings: Any) -> None:
    """Set the namespace "a"."""
    got = await served.call("PUT", wire.NAMESPACE.format(name="a"), {"reason": "as agreed", **settings})
    assert got.status == 200
    assert {name: got.body["settings"][name] for name in settings} == settings


@pytest.mark.parametrize("path", PATHS)
async def test_a_wait_asks_and_gets_it(path: str) -> None:
    """The holder sees for which wait, and the audit tells it; the grace is the usual one if none is given."""
    async with serving() as served:
        await let(served, ask_after_ms_min=0)
        await served.post(path, **body(path))
        patient = asyncio.create_task(served.post(path, **body(path, wait_ms=60_000, ask_after_ms=1)))

        async def holder() -> dict[str, Any]:
            read = await served.call("GET", READS[path].format(name="a"))
            shown: dict[str, Any] = read.body["holders"][0]
            return shown

        while "revocation" not in (shown := await holder()):
            pass
        assert shown["revocation"]["reason"] == "a wait needs it"
        assert 25_000 < shown["revocation"]["ends_in_ms"] <= 30_000
        urgent = asyncio.create_task(
            served.post(path, **body(path, wait_ms=60_000, ask_after_ms=1, grace_ms=0))
        )
        got = await patient
        assert got.status == 200
        await until(lambda: len(served.node.machine.state.tickets) == 1)
        await served.post(RELEASES[path], hold_id=got.body["hold_id"])
        assert (await urgent).status == 200
        told = (await served.call("GET", f"{wire.AUDIT}?name=a")).body["events"]
        asked = [one for one in told if one["event"] == "revoked"]
        assert {"ticket" in one for one in asked} == {True}
        assert {"by" in one for one in asked} == {False}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"ask_after_ms": 5, "wait_ms": 5}, "ask_after_ms: 5; must be less than wait_ms"),
        ({"ask_after_ms": -1, "wait_ms": 5}, "ask_after_ms"),
        ({"ask_after_ms": 1, "wait_ms": 5, "grace_ms": 3_600_001}, "grace_ms"),
        ({"grace_ms": 5, "wait_ms": 5}, "grace_ms: needs ask_after_ms"),
        ({"ask_after_ms": 1, "wait_ms": 5}, "ask_after_ms: 1; must be at least 2 in the namespace 'a'"),
        ({"ask_after_ms": 2, "wait_ms": 5, "grace_ms": 2}, "grace_ms: 2; must be at least 3"),
        ({"ask_after_ms": 2, "wait_ms": 5, "name": "b"}, "no namespace allows it for 'b'"),
    ],
)
async def test_what_is_wrong_is_said(path: str, fields: dict[str, Any], said: str) -> None:
    """And nothing is held or waited for."""
    async with serving() as served:
        await let(served, ask_after_ms_min=2, grace_ms_min=3)
        refused = await served.post(path, **body(path, **fields))
        check_problem(refused, 400, "invalid-request")
        assert said in refused.body["detail"]
        assert not served.node.machine.state.holds


async def test_a_grace_without_a_time_is_no_setting() -> None:
    """The namespace would say nothing by it."""
    async with serving() as served:
        settings = {"reason": "as agreed", "grace_ms_min": 5}
        got = await served.call("PUT", wire.NAMESPACE.format(name="a"), settings)
        check_problem(got, 400, "invalid-request")
        assert "needs ask_after_ms_min" in got.body["detail"]
