"""Semaphores over HTTP."""

import asyncio
from typing import Any

from holdfast import wire
from tests.support import http_contract
from tests.unit.http_api.serving import Got, Served, check_problem, serving, until


async def _acquire(served: Served, **fields: Any) -> Got:
    owned = {} if "session_id" in fields else {"ttl_ms": 60_000}
    return await served.post(wire.SEMAPHORE_ACQUIRE, **{"name": "pool", "limit": 3, **owned, **fields})


async def test_permits_are_granted_and_given_back() -> None:
    """An acquire says how many permits it got and how many are left; a release gives them back once."""
    async with serving() as served:
        got = await _acquire(served, permits=2)
        assert got.status == 200
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {wire.SEMAPHORE_ACQUIRE}"]
        assert (got.body["name"], got.body["permits"], got.body["available"]) == ("pool", 2, 1)
        assert (await _acquire(served)).body["available"] == 0
        hold = {"hold_id": got.body["hold_id"]}
        released = await served.post(wire.SEMAPHORE_RELEASE, **hold)
        assert (released.status, released.body["released"]) == (200, True)
        check_problem(await served.post(wire.SEMAPHORE_RELEASE, **hold), 410, "lease-expired")
        assert (await served.call("GET", "/v1/semaphores/pool")).body["available"] == 2


async def test_one_permit_is_the_default() -> None:
    """A request that does not say how many gets one."""
    async with serving() as served:
        assert (await _acquire(served)).body["permits"] == 1


async def test_when_there_are_too_few_who_has_them_is_told() -> None:
    """A refusal names holders with their permits, what is available, the limit, and no secret."""
    async with serving() as served:
        hold = await _acquire(served, permits=2, owner="one", note="nightly")
        got = await _acquire(served, permits=2)
        check_problem(got, 409, "no-permits")
        (holder,) = got.body["holders"]
        assert tuple(holder) == http_contract.PERMITS_HOLDER_FIELDS
        assert (holder["owner"], holder["permits"], holder["note"]) == ("one", 2, "nightly")
        assert (got.body["available"], got.body["limit"], got.body["queue_length"]) == (1, 3, 0)
        assert got.headers["Retry-After"] == "1", "half to all of a second"
        assert hold.body["hold_id"] not in str(got)


async def test_all_agree_on_the_limit() -> None:
    """Another limit than the semaphore's is refused, to who insists on it, with the one that it has."""
    async with serving() as served:
        await _acquire(served)
        got = await _acquire(served, limit=4, strict=True)
        check_problem(got, 409, "limit-mismatch")
        assert got.body["limit"] == 3


async def test_waiters_get_permits_in_order() -> None:
    """A waiter is shown with what it wants, and answered when enough came back."""
    async with serving() as served:
        hold = await _acquire(served, permits=3)
        waiting = asyncio.ensure_future(_acquire(served, permits=2, wait_ms=60_000, owner="next"))
        await until(lambda: served.node.machine.semaphore("pool").queue)
        shown = (await served.call("GET", "/v1/semaphores/pool")).body
        (waiter,) = shown["queue"]
        assert tuple(waiter) == http_contract.PERMITS_WAITER_FIELDS
        assert (waiter["owner"], waiter["position"], waiter["permits"]) == ("next", 1, 2)
        await served.post(wire.SEMAPHORE_RELEASE, hold_id=hold.body["hold_id"])
        got = await waiting
        assert (got.status, got.body["permits"], got.body["available"]) == (200, 2, 1)


async def test_closing_the_connection_cancels_the_wait() -> None:
    """A client that goes away while it waits for permits leaves the queue."""
    async with serving() as served:
        await _acquire(served, permits=3)
        waiting = asyncio.ensure_future(_acquire(served, wait_ms=60_000))
        await until(lambda: served.node.machine.semaphore("pool").queue)
        waiting.cancel()
        await asyncio.wait_for(served.node.cancelled.wait(), 10)
        assert (await served.call("GET", "/v1/semaphores/pool")).body["queue"] == []


async def test_renew_starts_the_lease_anew() -> None:
    """A renewal keeps the token and may change the ttl."""
    async with serving() as served:
        hold = await _acquire(served)
        got = await served.post(wire.SEMAPHORE_RENEW, hold_id=hold.body["hold_id"], ttl_ms=90_000)
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {wire.SEMAPHORE_RENEW}"]
        assert (got.body["token"], got.body["expires_in_ms"]) == (hold.body["token"], 90_000)


async def test_a_semaphore_is_resized_live() -> None:
    """A smaller limit takes nothing from holders: what is available may be below zero for a while."""
    async with serving() as served:
        await _acquire(served, permits=3)
        got = await served.post(wire.SEMAPHORE_RESIZE, name="pool", limit=1, reason="by hand")
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {wire.SEMAPHORE_RESIZE}"]
        assert (got.body["name"], got.body["limit"], got.body["available"]) == ("pool", 1, -2)
        refused = await _acquire(served, limit=1)
        check_problem(refused, 409, "no-permits")
        assert refused.body["available"] == 0
        check_problem(
            await served.post(wire.SEMAPHORE_RESIZE, name="x", limit=1, reason="by hand"), 409, "not-holder"
        )


async def test_a_wait_for_more_than_the_new_limit_ends() -> None:
    """A client that waits for more permits than there will ever be hears the new limit at once."""
    async with serving() as served:
        await _acquire(served)
        waiting = asyncio.ensure_future(_acquire(served, permits=3, wait_ms=60_000))
        await until(lambda: served.node.machine.semaphore("pool").queue)
        await served.post(wire.SEMAPHORE_RESIZE, name="pool", limit=2, reason="by hand")
        got = await waiting
        check_problem(got, 409, "limit-mismatch")
        assert got.body["limit"] == 2


async def test_a_semaphore_is_read() -> None:
    """A read shows limit, permits and holders without secrets; one that nobody uses has no limit yet."""
    async with serving() as served:
        hold = await _acquire(served, name="a/b", owner="one")
        for path in ("/v1/semaphores/a/b", "/v1/semaphores/a%2Fb"):
            got = await served.call("GET", path)
            assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"GET {wire.SEMAPHORE}"]
            assert (got.body["name"], got.body["limit"], got.body["available"]) == ("a/b", 3, 2)
            holder = got.body["holders"][0]
            assert tuple(holder) == (*http_contract.PERMITS_HOLDER_FIELDS, "since_ms")
            assert hold.body["hold_id"] not in str(got)
        stale = await served.call("GET", "/v1/semaphores/a/b?consistency=stale")
        assert (stale.body["revision"], stale.body["lag_ms"]) == (served.node.machine.revision, 7)
        assert (await served.call("GET", "/v1/semaphores/none")).body == {
            "name": "none", "limit": 0, "available": 0, "holders": [], "queue": [],
        }  # fmt: skip


async def test_a_session_has_permits_and_acquires_more() -> None:
    """A session shows its permits, gets others each time it asks, and releases them all at its end."""
    async with serving() as served:
        session_id = await served.session()
        first = await _acquire(served, session_id=session_id, permits=2)
        again = await _acquire(served, session_id=session_id, permits=1)
        assert first.body["hold_id"] != again.body["hold_id"]
        assert first.body["token"] < again.body["token"]
        held, more = (await served.call("GET", f"/v1/sessions/{session_id}")).body["holds"]
        assert more["permits"] == 1
        of_reads = http_contract.HOLDER_READ_FIELDS
        assert tuple(held) == (*http_contract.PERMITS_HOLDER_FIELDS, *of_reads, "kind")
        assert (held["kind"], held["name"], held["permits"]) == ("semaphore", "pool", 2)
        await served.call("DELETE", f"/v1/sessions/{session_id}")
        assert (await served.call("GET", "/v1/semaphores/pool")).body["limit"] == 0
