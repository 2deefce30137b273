"""Every bound of what may be asked over HTTP: the last value that is allowed, and the first that is not."""

from typing import Any, NamedTuple

import pytest

from holdfast import wire
from lockstate.words import limits
from tests.unit.http_api.serving import Served, check_problem, serving

HUGE = 10**30
DAY_MS = 24 * 3600 * 1000


class Bound(NamedTuple):
    """One field of one call. Of `good` and `bad` values each is sent for itself."""

    path: str
    body: dict[str, Any]
    field: str
    good: tuple[Any, ...]
    bad: tuple[Any, ...]
    code: str = "invalid-request"


LOCK = {"name": "a", "ttl_ms": 1000}
PERMITS = {"name": "a", "ttl_ms": 1000, "limit": 1000}
RATE = {"name": "a", "limit": 10, "window_ms": 1000}
CAMPAIGN = {"name": "a", "value": ""}
HELD = "a hold"
SESSION = "a session"
"""Stand for ids that exist when the call is made."""


def _texts(bytes_max: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return texts that are just short enough, in bytes, and just too long."""
    return ("", "x" * bytes_max, "ü" * (bytes_max // 2)), ("x" * (bytes_max + 1), "ü" * (bytes_max // 2 + 1))


def _locks(count: int) -> list[dict[str, str]]:
    return [{"name": f"lock-{number}"} for number in range(count)]


TOO_LONG = "name-too-long"
TTL = "ttl-out-of-range"
WAITS = (0, DAY_MS), (-1, DAY_MS + 1, HUGE)
CONVERT = {"hold_id": HELD, "mode": "shared"}
CANDIDATE = {**CAMPAIGN, "session_id": SESSION}

BOUNDS = [
    Bound(wire.LOCK_ACQUIRE, LOCK, "name", ("x", "x" * 512, "ü" * 256), ("x" * 513, "ü" * 257), TOO_LONG),
    Bound(wire.LOCK_ACQUIRE, LOCK, "ttl_ms", (50, DAY_MS), (49, 0, -1, DAY_MS + 1, HUGE), TTL),
    Bound(wire.LOCK_ACQUIRE, LOCK, "wait_ms", *WAITS),
    Bound(wire.LOCK_ACQUIRE, LOCK, "lock_delay_ms", (0, 3_600_000), (-1, 3_600_001, HUGE)),
    Bound(wire.LOCK_ACQUIRE, LOCK, "owner", *_texts(256)),
    Bound(wire.LOCK_ACQUIRE, LOCK, "note", *_texts(1024)),
    Bound(wire.LOCK_ACQUIRE, LOCK, "request_id", ("x" * 16, "x" * 64), ("", "x" * 15, "x" * 65)),
    Bound(wire.LOCK_ACQUIRE, {"ttl_ms": 1000}, "locks", (_locks(1), _locks(64)), ([], _locks(65))),
    Bound(wire.LOCK_RENEW, {"hold_id": HELD}, "ttl_ms", (50, DAY_MS), (49, DAY_MS + 1, HUGE), TTL),
    Bound(wire.LOCK_RELEASE, {"hold_id": HELD}, "names", (["held"],), ([], [f"n{n}" for n in range(65)])),
    Bound(wire.LOCK_CONVERT, CONVERT, "wait_ms", *WAITS),
    Bound(wire.LOCK_FORCE_RELEASE, {"name": "a"}, "reason", ("x", "x" * 1024), ("", "x" * 1025)),
    Bound(wire.SEMAPHORE_ACQUIRE, PERMITS, "name", ("x" * 512,), ("x" * 513,), TOO_LONG),
    Bound(wire.SEMAPHORE_ACQUIRE, PERMITS, "limit", (1, 1_000_000), (0, -1, 1_000_001, HUGE)),
    Bound(wire.SEMAPHORE_ACQUIRE, PERMITS, "permits", (1, 1000), (0, -1, 1001, HUGE)),
    Bound(wire.SEMAPHORE_ACQUIRE, PERMITS, "wait_ms", *WAITS),
    Bound(wire.SEMAPHORE_ACQUIRE, PERMITS, "ttl_ms", (50, DAY_MS), (49, DAY_MS + 1), TTL),
    Bound(wire.SEMAPHORE_ACQUIRE, PERMITS, "note", *_texts(1024)),
    Bound(wire.RATE_TAKE, RATE, "limit", (1, 1_000_000), (0, -1, 1_000_001, HUGE)),
    Bound(wire.RATE_TAKE, RATE, "window_ms", (10, 31 * DAY_MS), (9, 0, 31 * DAY_MS + 1, HUGE)),
    Bound(wire.RATE_TAKE, RATE, "cost", (1, 10), (0, -1, 11, HUGE)),
    Bound(wire.RATE_TAKE, RATE, "wait_ms", *WAITS),
    Bound(wire.FENCE_CHECK, {"name": "a"}, "token", (0, 2**53 - 1), (-1, 2**53, HUGE)),
    Bound(wire.FENCE_ADVANCE, {"name": "a"}, "token", (0, 2**53 - 1), (-1, 2**53, HUGE)),
    Bound(wire.FENCE_ADVANCE, {"token": 1}, "name", ("x" * 512,), ("x" * 513,), TOO_LONG),
    Bound(wire.ELECTION_CAMPAIGN, CANDIDATE, "value", *_texts(1024)),
    Bound(wire.ELECTION_CAMPAIGN, CANDIDATE, "owner", *_texts(256)),
    Bound(wire.ELECTION_CAMPAIGN, CANDIDATE, "wait_ms", *WAITS),
    Bound(wire.SESSIONS, {}, "ttl_ms", (50, DAY_MS), (49, DAY_MS + 1, HUGE), TTL),
]  # fmt: skip


async def _filled(served: Served, bound: Bound, value: Any) -> dict[str, Any]:
    """Return a body with `value` in the field, and ids of what is there now."""
    body = {**bound.body, bound.field: value}
    if body.get("hold_id") == HELD:
        body["hold_id"] = (await served.acquire("held")).body["hold_id"]
    if body.get("session_id") == SESSION:
        body["session_id"] = await served.session()
    return body


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: f"{bound.path}-{bound.field}")
async def test_bounds(bound: Bound) -> None:
    """Values within the bounds are applied; others are refused by the name of the field, and not applied."""
    for value in bound.good:
        async with serving() as served:
            if bound.path == wire.FENCE_ADVANCE:
                served.draw(limits.TOKEN_MAX)
            got = await served.call("POST", bound.path, await _filled(served, bound, value))
            assert got.status in {200, 201}, got.body
    async with serving() as served:
        for value in bound.bad:
            body = await _filled(served, bound, value)
            revision = served.node.machine.revision
            got = await served.call("POST", bound.path, body)
            check_problem(got, 400, bound.code)
            assert got.body["detail"].startswith(f"{bound.field}")
            assert served.node.machine.revision == revision
            await served.call("POST", wire.LOCK_FORCE_RELEASE, {"name": "held", "reason": "next"})


async def test_listings_have_bounds() -> None:
    """A page of locks or of the audit has 1 to 1000 entries, 100 when nothing is said."""
    async with serving() as served:
        for number in range(101):
            await served.acquire(f"{number:03}")
        for path, many in ((wire.LOCKS, "locks"), (wire.AUDIT, "events")):
            for query, count in (("", 100), ("?limit=1", 1), ("?limit=101", 101), ("?limit=1000", 101)):
                got = await served.call("GET", path + query)
                assert len(got.body[many]) == count
            for wrong in ("0", "1001", "-1", "x", "1" * 20):
                check_problem(await served.call("GET", f"{path}?limit={wrong}"), 400, "invalid-request")
    assert (limits.LIST_LIMIT_MAX, limits.AUDIT_LIMIT_MAX) == (1000, 1000)
