"""Locks of other modes and scopes, several at once, conversion and addition, over HTTP."""

import asyncio

from holdfast import wire
from tests.support import http_contract
from tests.unit.http_api.serving import Served, check_problem, serving, until

SEVERAL = [
    {"name": "a", "mode": "shared"},
    {"name": "b"},
    {"name": "c/d", "mode": "update", "scope": "subtree"},
]


async def _several(served: Served) -> str:
    got = await served.post(wire.LOCK_ACQUIRE, locks=SEVERAL, ttl_ms=60_000)
    return str(got.body["hold_id"])


async def _until_queued(served: Served, name: str, count: int) -> None:
    await until(lambda: len(served.node.machine.lock(name).queue) == count)


async def test_a_subtree_is_locked_as_a_whole() -> None:
    """A lock of a subtree says so, covers what lies below, and is named in the refusals that it causes."""
    async with serving() as served:
        got = await served.acquire("db", scope="subtree", owner="migration")
        assert tuple(got.body) == (*http_contract.ANSWER_FIELDS[f"POST {wire.LOCK_ACQUIRE}"], "scope")
        assert got.body["scope"] == "subtree"
        refused = await served.acquire("db/users")
        check_problem(refused, 409, "lock-held")
        (holder,) = refused.body["holders"]
        assert tuple(holder) == http_contract.HOLDER_FIELDS
        assert (holder["name"], holder["scope"], holder["owner"]) == ("db", "subtree", "migration")
        shown = (await served.call("GET", "/v1/locks/db/users")).body
        assert (shown["state"], shown["holders"][0]["name"]) == ("held", "db")
        assert (await served.acquire("dbx")).status == 200


async def test_several_locks_are_one_hold() -> None:
    """Several locks come with one id and one token, in the order asked for, and block one by one."""
    async with serving() as served:
        got = await served.post(wire.LOCK_ACQUIRE, locks=SEVERAL, ttl_ms=60_000, owner="w")
        assert got.status == 200
        assert tuple(got.body) == http_contract.SEVERAL_FIELDS
        assert all(tuple(lock) == http_contract.LOCK_FIELDS for lock in got.body["locks"])
        assert got.body["locks"] == [{"mode": "exclusive", "scope": "node", **lock} for lock in SEVERAL]
        for name, mode, scope in (("a", "shared", "node"), ("c/d", "update", "subtree")):
            (holder,) = (await served.call("GET", f"/v1/locks/{name}")).body["holders"]
            assert (holder["token"], holder["mode"], holder["scope"]) == (got.body["token"], mode, scope)
        refused = await served.post(
            wire.LOCK_ACQUIRE, locks=[{"name": "x"}, {"name": "c/d/e"}], ttl_ms=60_000
        )
        check_problem(refused, 409, "lock-held")
        assert refused.body["holders"][0]["name"] == "c/d"
        assert (await served.acquire("x")).status == 200


async def test_several_locks_wait_for_the_last_of_them() -> None:
    """A request for several locks waits holding none of them, and gets all at once."""
    async with serving() as served:
        hold = await served.acquire("b")
        locks = [{"name": "a"}, {"name": "b"}]
        waiting = asyncio.ensure_future(
            served.post(wire.LOCK_ACQUIRE, locks=locks, ttl_ms=60_000, wait_ms=60_000)
        )
        await _until_queued(served, "a", 1)
        assert (await served.call("GET", "/v1/locks/a")).body["state"] == "free"
        await served.post(wire.LOCK_RELEASE, hold_id=hold.body["hold_id"])
        got = await waiting
        assert [lock["name"] for lock in got.body["locks"]] == ["a", "b"]


async def test_a_part_of_a_hold_is_given_back() -> None:
    """A release of some names answers with what is left; the rest goes with the last of them."""
    async with serving() as served:
        hold_id = await _several(served)
        got = await served.post(wire.LOCK_RELEASE, hold_id=hold_id, names=["b", "a"])
        assert tuple(got.body) == (
            *http_contract.ANSWER_FIELDS[f"POST {wire.LOCK_RELEASE}"],
            "locks",
        )
        assert got.body["released"] is True
        assert got.body["locks"] == [SEVERAL[2]]
        assert (await served.acquire("b")).status == 200
        check_problem(await served.acquire("c/d"), 409, "lock-held")
        refused = await served.post(wire.LOCK_RELEASE, hold_id=hold_id, names=["c/d", "b"])
        check_problem(refused, 409, "not-holder")
        last = await served.post(wire.LOCK_RELEASE, hold_id=hold_id, names=["c/d"])
        assert tuple(last.body) == http_contract.ANSWER_FIELDS[f"POST {wire.LOCK_RELEASE}"]
        check_problem(await served.post(wire.LOCK_RENEW, hold_id=hold_id), 410, "lease-expired")


async def test_conversion_down_is_at_once() -> None:
    """A writer becomes a reader under the same token, and lets other readers in."""
    async with serving() as served:
        hold = await served.acquire("a")
        got = await served.post(wire.LOCK_CONVERT, hold_id=hold.body["hold_id"], mode="shared")
        assert got.status == 200
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {wire.LOCK_CONVERT}"]
        assert got.body["mode"] == "shared"
        assert (got.body["hold_id"], got.body["token"]) == (hold.body["hold_id"], hold.body["token"])
        assert (await served.acquire("a", mode="shared")).status == 200


async def test_conversion_up_waits_ahead_of_the_queue() -> None:
    """A reader that wants to write is first in the queue, marked as a conversion, and gets a new token."""
    async with serving() as served:
        mine = await served.acquire("a", mode="update", owner="me")
        other = await served.acquire("a", mode="shared", owner="other")
        hold_id = mine.body["hold_id"]
        refused = await served.post(wire.LOCK_CONVERT, hold_id=hold_id, mode="exclusive")
        check_problem(refused, 409, "lock-held")
        assert [holder["owner"] for holder in refused.body["holders"]] == ["other"]

        queued = asyncio.ensure_future(served.acquire("a", wait_ms=60_000, owner="queued"))
        await _until_queued(served, "a", 1)
        converting = asyncio.ensure_future(
            served.post(wire.LOCK_CONVERT, hold_id=hold_id, mode="exclusive", wait_ms=60_000)
        )
        await _until_queued(served, "a", 2)
        first, second = (await served.call("GET", "/v1/locks/a")).body["queue"]
        assert tuple(first) == (*http_contract.WAITER_FIELDS, "conversion")
        assert (first["owner"], first["conversion"], first["mode"]) == ("me", True, "exclusive")
        assert tuple(second) == http_contract.WAITER_FIELDS
        await served.post(wire.LOCK_RELEASE, hold_id=other.body["hold_id"])
        got = await converting
        assert (got.status, got.body["hold_id"], got.body["mode"]) == (200, hold_id, "exclusive")
        assert got.body["token"] > other.body["token"]
        queued.cancel()


async def test_several_locks_are_converted_together() -> None:
    """A conversion applies to every lock of the hold and answers like their acquire."""
    async with serving() as served:
        hold_id = await _several(served)
        got = await served.post(wire.LOCK_CONVERT, hold_id=hold_id, mode="shared")
        assert tuple(got.body) == http_contract.SEVERAL_FIELDS
        assert {lock["mode"] for lock in got.body["locks"]} == {"shared"}


async def test_a_conversion_that_is_given_up_leaves_the_hold() -> None:
    """Closing the connection cancels the wait of a conversion and not what is held."""
    async with serving() as served:
        mine = await served.acquire("a", mode="shared", ttl_ms=60_000)
        await served.acquire("a", mode="shared")
        hold_id = mine.body["hold_id"]
        converting = asyncio.ensure_future(
            served.post(wire.LOCK_CONVERT, hold_id=hold_id, mode="exclusive", wait_ms=60_000)
        )
        await _until_queued(served, "a", 1)
        converting.cancel()
        await asyncio.wait_for(served.node.cancelled.wait(), 10)
        shown = (await served.call("GET", "/v1/locks/a")).body
        assert (len(shown["holders"]), shown["queue"]) == (2, [])
        assert (await served.post(wire.LOCK_RENEW, hold_id=hold_id)).status == 200


async def test_only_locks_are_converted() -> None:
    """The hold of a semaphore has no mode to change, and one that is over has none left."""
    async with serving() as served:
        permits = await served.post(wire.SEMAPHORE_ACQUIRE, name="s", limit=1, ttl_ms=60_000)
        got = await served.post(wire.LOCK_CONVERT, hold_id=permits.body["hold_id"], mode="shared")
        check_problem(got, 400, "invalid-request")
        got = await served.post(wire.LOCK_CONVERT, hold_id="gone", mode="shared")
        check_problem(got, 410, "lease-expired")


async def test_one_request_id_converts_once() -> None:
    """A repeated conversion gets the outcome of the first one; other content under its id is refused."""
    async with serving() as served:
        hold = await served.acquire("a", mode="shared")
        body = {"hold_id": hold.body["hold_id"], "mode": "exclusive", "request_id": "conversion-number-1"}
        first = await served.post(wire.LOCK_CONVERT, **body)
        again = await served.post(wire.LOCK_CONVERT, **body)
        assert first.body["token"] == again.body["token"] > hold.body["token"]
        got = await served.post(wire.LOCK_CONVERT, **{**body, "mode": "shared"})
        check_problem(got, 400, "invalid-request")


async def test_locks_are_added_to_a_hold() -> None:
    """All or none; the answer is that of several locks, with a new token; the same again changes nothing."""
    async with serving() as served:
        mine = await served.acquire("a", ttl_ms=60_000, owner="me")
        other = await served.acquire("b", ttl_ms=60_000, owner="other")
        hold_id, more = mine.body["hold_id"], [{"name": "b"}, {"name": "c/d", "scope": "subtree"}]
        refused = await served.post(wire.LOCK_ADD, hold_id=hold_id, locks=more)
        check_problem(refused, 409, "lock-held")
        assert [holder["owner"] for holder in refused.body["holders"]] == ["other"]
        adding = asyncio.ensure_future(
            served.post(wire.LOCK_ADD, hold_id=hold_id, locks=more, wait_ms=60_000)
        )
        await _until_queued(served, "b", 1)
        [waiter] = (await served.call("GET", "/v1/locks/b")).body["queue"]
        assert tuple(waiter) == http_contract.WAITER_FIELDS
        check_problem(
            await served.post(wire.LOCK_ADD, hold_id=other.body["hold_id"], locks=[{"name": "a"}], wait_ms=9),
            409,
            "deadlock",
        )
        check_problem(await served.post(wire.LOCK_ADD, hold_id=hold_id, locks=more), 400, "invalid-request")
        await served.post(wire.LOCK_RELEASE, hold_id=other.body["hold_id"])
        got = await adding
        assert tuple(got.body) == http_contract.SEVERAL_FIELDS
        assert [lock["name"] for lock in got.body["locks"]] == ["a", "b", "c/d"]
        assert got.body["token"] > other.body["token"]
        again = await served.post(wire.LOCK_ADD, hold_id=hold_id, locks=more)
        assert again.body["token"] == got.body["token"]
        check_problem(await served.acquire("c/d/e"), 409, "lock-held")


async def test_an_addition_that_is_given_up_leaves_the_hold() -> None:
    """Closing the connection ends the wait, and not what is held."""
    async with serving() as served:
        mine = await served.acquire("a", ttl_ms=60_000)
        await served.acquire("b", ttl_ms=60_000)
        adding = asyncio.ensure_future(
            served.post(wire.LOCK_ADD, hold_id=mine.body["hold_id"], locks=[{"name": "b"}], wait_ms=60_000)
        )
        await _until_queued(served, "b", 1)
        adding.cancel()
        await asyncio.wait_for(served.node.cancelled.wait(), 10)
        assert (await served.call("GET", "/v1/locks/b")).body["queue"] == []
        renewed = await served.post(wire.LOCK_RENEW, hold_id=mine.body["hold_id"])
        assert (renewed.status, renewed.body["token"]) == (200, mine.body["token"])


async def test_what_cannot_be_added_is_said() -> None:
    """No locks, names that are none, one that the hold has in another mode, and a hold that is gone."""
    async with serving() as served:
        mine = (await served.acquire("a")).body["hold_id"]
        for hold_id, locks, status, code in (
            (mine, [], 400, "invalid-request"),
            (mine, [{"name": "/"}], 400, "invalid-request"),
            (mine, [{"name": "b"}, {"name": "b", "mode": "shared"}], 400, "invalid-request"),
            (mine, [{"name": "a", "mode": "shared"}], 400, "invalid-request"),
            (mine, [{"name": "n" * 513}], 400, "name-too-long"),
            ("gone", [{"name": "b"}], 410, "lease-expired"),
        ):
            check_problem(await served.post(wire.LOCK_ADD, hold_id=hold_id, locks=locks), status, code)
        permits = await served.post(wire.SEMAPHORE_ACQUIRE, name="s", limit=1, ttl_ms=60_000)
        got = await served.post(wire.LOCK_ADD, hold_id=permits.body["hold_id"], locks=[{"name": "b"}])
        check_problem(got, 400, "invalid-request")
