"""Priorities over HTTP: where they are allowed, what they do to a queue, and what is shown of them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import wire
from lockapi.allowed_names import AllowedNames
from tests.unit.http_api.serving import Served, check_problem, serving, until
from tests.unit.http_api.v1.streaming import streamed

PATHS = [wire.LOCK_ACQUIRE, wire.SEMAPHORE_ACQUIRE]
LEASE = {"ttl_ms": 60_000}


def body(path: str, **fields: Any) -> dict[str, Any]:
    """Return what is asked for "a", a lock or permits of a semaphore."""
    return {"name": "a", **LEASE, **({"limit": 1} if path == wire.SEMAPHORE_ACQUIRE else {}), **fields}


async def queue(served: Served, path: str) -> list[dict[str, Any]]:
    """Return who waits for "a"."""
    read = wire.LOCK if path == wire.LOCK_ACQUIRE else wire.SEMAPHORE
    found: list[dict[str, Any]] = (await served.call("GET", read.format(name="a"))).body["queue"]
    return found


@pytest.mark.parametrize("path", PATHS)
async def test_a_queue_is_in_order_of_priorities(path: str) -> None:
    """Reads show a priority where it is not the default, and the highest goes first."""
    async with serving(allow_priority=["*"]) as served:
        held = (await served.post(path, **body(path))).body
        waits: dict[str, asyncio.Task[Any]] = {}
        for owner, fields in (("low", {"priority": 0}), ("usual", {}), ("high", {"priority": 9})):
            asked = served.post(path, **body(path, wait_ms=60_000, owner=owner, **fields))
            waits[owner] = asyncio.create_task(asked)
            await until(lambda: len(served.node.machine.state.tickets) == len(waits))
        shown = await queue(served, path)
        assert [(one["owner"], one["position"]) for one in shown] == [("high", 1), ("usual", 2), ("low", 3)]
        assert [one.get("priority") for one in shown] == [9, None, 0]
        ticket = (await served.call("GET", wire.TICKET.format(ticket=shown[0]["ticket"]))).body
        assert (ticket["position"], ticket["priority"]) == (1, 9)
        usual = (await served.call("GET", wire.TICKET.format(ticket=shown[1]["ticket"]))).body
        assert "priority" not in usual
        release = wire.LOCK_RELEASE if path == wire.LOCK_ACQUIRE else wire.SEMAPHORE_RELEASE
        for owner in ("high", "usual", "low"):
            await served.post(release, hold_id=held["hold_id"])
            got = await waits[owner]
            assert got.status == 200
            held = got.body


@pytest.mark.parametrize("path", PATHS)
async def test_a_priority_must_be_allowed(path: str) -> None:
    """By default it is nowhere; the refusal names the field and the setting. The default needs no leave."""
    async with serving() as served:
        refused = await served.post(path, **body(path, priority=6))
        check_problem(refused, 400, "invalid-request")
        assert refused.body["detail"].startswith("priority: 6")
        assert "--allow-priority" in refused.body["detail"]
        assert (await served.post(path, **body(path, priority=5))).status == 200


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("priority", [-1, 10])
async def test_a_priority_out_of_range(path: str, priority: int) -> None:
    """It is refused before anything else is asked."""
    async with serving() as served:
        refused = await served.post(path, **body(path, priority=priority))
        check_problem(refused, 400, "invalid-request")
        assert refused.body["detail"] == f"priority: {priority}; must be 0 to 9"


@pytest.mark.parametrize(
    ("prefixes", "name", "is_allowed"),
    [
        ([], "a", False),
        (["*"], "a", True),
        (["jobs"], "jobs", True),
        (["jobs"], "jobs/7/x", True),
        (["jobs"], "jobs2", False),
        (["jobs/7", "db"], "jobs", False),
        (["jobs/7", "db"], "db/a", True),
    ],
)
def test_prefixes_cover_whole_parts(prefixes: list[str], name: str, is_allowed: bool) -> None:  # noqa: FBT001
    """As those of rights do."""
    assert AllowedNames(prefixes).covers(name) is is_allowed


async def test_all_of_several_locks_must_be_covered() -> None:
    """One that is not is named."""
    async with serving(allow_priority=["jobs"]) as served:
        wanted = [{"name": "jobs/1"}, {"name": "other"}]
        refused = await served.post(wire.LOCK_ACQUIRE, locks=wanted, priority=9, **LEASE)
        check_problem(refused, 400, "invalid-request")
        assert "'other'" in refused.body["detail"]
        granted = await served.post(wire.LOCK_ACQUIRE, locks=wanted[:1], priority=9, **LEASE)
        assert granted.status == 200


async def test_a_priority_goes_with_what_a_second_acquire_does() -> None:
    """A session that counts its acquires may ask with a priority, too."""
    async with serving(allow_priority=["a"]) as served:
        session = await served.session()
        fields = {"name": "a", "session_id": session, "if_held": "count", "priority": 7}
        assert (await served.post(wire.LOCK_ACQUIRE, **fields)).status == 200
        again = await served.post(wire.LOCK_ACQUIRE, **fields)
        assert again.body["depth"] == 2
        shown = (await served.call("GET", wire.SESSION.format(session_id=session))).body
        assert "priority" not in shown["holds"][0]


async def test_on_a_stream(tmp_path: Path) -> None:
    """A priority where none is allowed is refused, and nothing else of its frame."""
    async with streamed(tmp_path) as served, served.stream() as client:
        rare = [4, "a", "exclusive", "", "", 0, "", 0, 0, "", "node", [], "renew", "", False, 9]
        refused = await client.call(*rare)
        assert (refused[0], refused[1]) == (11, "invalid-request")
        assert refused[2].startswith("priority: 9: ")
        assert served.node.machine.lock("a").state == "free"
