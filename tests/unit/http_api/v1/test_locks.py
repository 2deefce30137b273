"""Locks over HTTP: a real server, real sockets, a real state machine behind them."""

import asyncio
from urllib.parse import quote

from holdfast import wire
from tests.support import http_contract
from tests.unit.http_api.serving import Served, check_problem, serving, until


async def test_acquire_and_release() -> None:
    """A free lock is granted with exactly the documented fields, and given back once."""
    async with serving() as served:
        got = await served.acquire("db/migrate", owner="worker-7")
        assert got.status == 200
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {wire.LOCK_ACQUIRE}"]
        assert (got.body["name"], got.body["mode"], got.body["token"]) == ("db/migrate", "exclusive", 1)
        assert got.body["expires_in_ms"] == 60_000

        hold = {"hold_id": got.body["hold_id"]}
        released = await served.call("POST", wire.LOCK_RELEASE, hold)
        assert released.status == 200
        assert released.body["released"] is True
        assert released.body["revision"] > got.body["revision"]
        again = await served.call("POST", wire.LOCK_RELEASE, hold)
        assert (again.status, again.body["code"]) == (410, "lease-expired")


async def test_a_held_lock_is_refused_with_its_holders() -> None:
    """A refusal names holders, queue length and when to try again, and no secret."""
    async with serving() as served:
        first = await served.acquire("a", owner="one", note="nightly")
        got = await served.acquire("a", owner="two")
        assert (got.status, got.body["code"], got.body["outcome"]) == (409, "lock-held", "not-applied")
        (holder,) = got.body["holders"]
        assert tuple(holder) == http_contract.HOLDER_FIELDS
        assert (holder["owner"], holder["token"], holder["note"]) == ("one", 1, "nightly")
        assert got.body["queue_length"] == 0
        assert 500 <= got.body["retry_after_ms"] <= 1000
        assert got.headers["Retry-After"] == "1"
        assert first.body["hold_id"] not in str(got)


async def test_renew_starts_the_lease_anew() -> None:
    """A renewal keeps the token and may change the ttl."""
    async with serving() as served:
        hold = await served.acquire("a", ttl_ms=30_000)
        body = {"hold_id": hold.body["hold_id"], "ttl_ms": 90_000}
        got = await served.call("POST", wire.LOCK_RENEW, body)
        assert got.status == 200
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {wire.LOCK_RENEW}"]
        assert (got.body["token"], got.body["expires_in_ms"]) == (hold.body["token"], 90_000)


async def test_an_exact_renewal_may_end_the_lease_earlier() -> None:
    """A shorter ttl counts from the next renewal on, unless it is exact; which it cannot be without a ttl."""
    async with serving() as served:
        hold_id = (await served.acquire("a", ttl_ms=90_000, value="v")).body["hold_id"]
        kept = await served.post(wire.LOCK_RENEW, hold_id=hold_id, ttl_ms=30_000)
        assert kept.body["expires_in_ms"] > 80_000
        exact = await served.post(wire.LOCK_RENEW, hold_id=hold_id, ttl_ms=30_000, exact=True)
        assert exact.body["expires_in_ms"] == 30_000
        by_value = await served.post(wire.LOCK_RENEW, name="a", value="v", ttl_ms=20_000, exact=True)
        assert by_value.body["expires_in_ms"] == 20_000
        for meant in ({"hold_id": hold_id}, {"name": "a", "value": "v"}):
            refused = await served.post(wire.LOCK_RENEW, **meant, exact=True)
            check_problem(refused, 400, "invalid-request")
            assert refused.body["detail"] == "exact: needs a ttl_ms"


async def test_force_release_tells_what_it_ended() -> None:
    """Force ends a hold whoever has it; the holder then finds its lease expired."""
    async with serving() as served:
        hold = await served.acquire("a", owner="stuck")
        got = await served.call("POST", wire.LOCK_FORCE_RELEASE, {"name": "a", "reason": "it hangs"})
        assert got.status == 200
        assert [holder["owner"] for holder in got.body["forced"]] == ["stuck"]
        renewed = await served.call("POST", wire.LOCK_RENEW, {"hold_id": hold.body["hold_id"]})
        assert (renewed.status, renewed.body["code"]) == (410, "lease-expired")


async def test_the_same_request_id_gets_the_same_outcome() -> None:
    """A repeated request gets the first hold again; other content under the same id is refused."""
    async with serving() as served:
        first = await served.acquire("a", request_id="request-number-01", ttl_ms=60_000)
        again = await served.acquire("a", request_id="request-number-01", ttl_ms=60_000)
        assert again.status == 200
        assert (again.body["hold_id"], again.body["token"]) == (first.body["hold_id"], first.body["token"])
        assert "repeated" not in first.body
        assert again.body["repeated"] is True
        other = await served.acquire("b", request_id="request-number-01", ttl_ms=60_000)
        assert (other.status, other.body["code"]) == (400, "invalid-request")
        assert other.body["request_id"] == "request-number-01"


async def test_a_refused_request_is_tried_again_under_its_id() -> None:
    """A refusal that changed nothing is not kept; one that ended a wait is, and says so when repeated."""
    async with serving() as served:
        held = await served.acquire("a", ttl_ms=60_000)
        ask = {"ttl_ms": 60_000, "request_id": "request-number-02"}
        for _ in range(2):
            refused = await served.acquire("a", **ask)
            assert (refused.status, refused.body["code"], "repeated" in refused.body) == (
                409,
                "lock-held",
                False,
            )
        wait = {**ask, "wait_ms": 50, "request_id": "request-number-03"}
        for is_repeated in (False, True):
            refused = await served.acquire("a", **wait)
            assert (refused.body["code"], "repeated" in refused.body) == ("lock-held", is_repeated)
        await served.call("POST", wire.LOCK_RELEASE, {"hold_id": held.body["hold_id"]})
        assert (await served.acquire("a", **ask)).status == 200


async def test_what_a_session_holds_already_is_told() -> None:
    """It is renewed, counted or refused, as the request says; a count takes as many releases."""
    async with serving() as served:
        session = await served.session()
        first = await served.acquire("a", session_id=session)
        assert {"already_held", "depth"} & set(first.body) == set()
        again = await served.acquire("a", session_id=session, if_held="renew")
        assert (again.body["token"], again.body["already_held"]) == (first.body["token"], True)
        assert "depth" not in again.body
        counted = await served.acquire("a", session_id=session, if_held="count")
        assert (counted.body["already_held"], counted.body["depth"]) == (True, 2)
        refused = await served.acquire("a", session_id=session, if_held="refuse")
        check_problem(refused, 409, "already-held")
        told = []
        for _ in range(3):
            got = await served.post(wire.LOCK_RELEASE, hold_id=first.body["hold_id"])
            told.append((got.status, got.body.get("released"), got.body.get("depth")))
        assert told == [(200, False, 1), (200, True, None), (410, None, None)]


async def test_an_election_that_is_led_already_says_so() -> None:
    """So does a hold of several locks; permits are taken anew each time."""
    async with serving() as served:
        ask = {"session_id": await served.session()}
        path = {"name": "boss", "value": "v"} | ask
        told = [await served.post(wire.ELECTION_CAMPAIGN, **path) for _ in range(2)]
        assert [got.body.get("already_held") for got in told] == [None, True]
        several = {"locks": [{"name": "a"}, {"name": "b"}], "if_held": "count"} | ask
        told = [await served.post(wire.LOCK_ACQUIRE, **several) for _ in range(2)]
        assert [got.body.get("depth") for got in told] == [None, 2]
        permits = {"name": "pool", "limit": 3, "permits": 1} | ask
        told = [await served.post(wire.SEMAPHORE_ACQUIRE, **permits) for _ in range(2)]
        assert [got.body["available"] for got in told] == [2, 1]


async def test_if_held_needs_a_session() -> None:
    """Leases of their own are never one another's, so there is nothing to be held already."""
    async with serving() as served:
        got = await served.acquire("a", if_held="count")
        check_problem(got, 400, "invalid-request")
        assert got.body["detail"].startswith("if_held:")


async def test_a_waiter_gets_the_lock_when_it_is_released() -> None:
    """A waiting acquire is answered by the release of the holder."""
    async with serving() as served:
        hold = await served.acquire("a")
        waiting = asyncio.ensure_future(served.acquire("a", wait_ms=30_000, owner="next"))
        await _until_queued(served, "a", 1)
        await served.call("POST", wire.LOCK_RELEASE, {"hold_id": hold.body["hold_id"]})
        got = await waiting
        assert (got.status, got.body["token"]) == (200, 2)


async def test_a_wait_that_ends_in_vain_is_lock_held() -> None:
    """When `wait_ms` is over, the waiter hears who still holds the lock."""
    async with serving() as served:
        await served.acquire("a", owner="one")
        got = await served.acquire("a", wait_ms=60)
        assert (got.status, got.body["code"]) == (409, "lock-held")
        assert got.body["holders"][0]["owner"] == "one"


async def test_closing_the_connection_cancels_the_wait() -> None:
    """A client that goes away while it waits leaves the queue."""
    async with serving() as served:
        await served.acquire("a")
        body = b'{"name":"a","ttl_ms":60000,"wait_ms":60000}'
        head = b"POST /v1/locks/acquire HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(head + body)
        await _until_queued(served, "a", 1)
        writer.close()
        await asyncio.wait_for(served.node.cancelled.wait(), 10)
        assert (await served.call("GET", "/v1/locks/a")).body["queue"] == []


async def test_a_lock_is_read_with_its_queue() -> None:
    """A read shows state, holders and queue, and none of their secrets."""
    async with serving() as served:
        session = await served.call("POST", wire.SESSIONS, {"ttl_ms": 60_000})
        secret = session.body["session_id"]
        hold = await served.acquire("a/b", session_id=secret, owner="one", mode="shared")
        waiting = asyncio.ensure_future(served.acquire("a/b", wait_ms=30_000, owner="two"))
        await _until_queued(served, "a/b", 1)
        for path in ("/v1/locks/a/b", "/v1/locks/a%2Fb", f"/v1/locks/{quote('a/b', safe='')}"):
            got = await served.call("GET", path)
            assert got.status == 200
            assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"GET {wire.LOCK}"]
            assert (got.body["name"], got.body["state"]) == ("a/b", "held")
            assert tuple(got.body["holders"][0]) == (
                *http_contract.HOLDER_FIELDS,
                *http_contract.HOLDER_READ_FIELDS,
            )
            assert tuple(got.body["queue"][0]) == http_contract.WAITER_FIELDS
            assert (got.body["queue"][0]["owner"], got.body["queue"][0]["position"]) == ("two", 1)
            assert secret not in str(got)
            assert hold.body["hold_id"] not in str(got)
        waiting.cancel()


async def test_a_name_may_be_any_printable_text() -> None:
    """Names with spaces, percent signs, question marks and letters of any script are read back by path."""
    async with serving() as served:
        for name in ("a b", "100%", "what?", "schlüssel/锁", "acquired", "a+b", "#1"):
            assert (await served.acquire(name)).status == 200
            got = await served.call("GET", f"/v1/locks/{quote(name, safe='/')}", params=None)
            assert (got.status, got.body["name"], got.body["state"]) == (200, name, "held")


async def test_a_lock_that_nobody_holds_is_free() -> None:
    """An unknown name is not an error: it is a free lock."""
    async with serving() as served:
        got = await served.call("GET", "/v1/locks/never/seen")
        assert got.body == {"name": "never/seen", "state": "free", "holders": [], "queue": []}


async def test_listing_goes_page_by_page() -> None:
    """Pages are in order of name, of one prefix, and `next` leads on to the last."""
    async with serving() as served:
        for name in ("db/3", "db/1", "web/1", "db/2"):
            await served.acquire(name)
        first = await served.call("GET", "/v1/locks?prefix=db/&limit=2")
        assert [lock["name"] for lock in first.body["locks"]] == ["db/1", "db/2"]
        assert first.body["next"] == "db/2"
        rest = await served.call("GET", "/v1/locks?prefix=db%2F&limit=2&after=db/2")
        assert [lock["name"] for lock in rest.body["locks"]] == ["db/3"]
        assert rest.body["next"] is None
        assert len((await served.call("GET", "/v1/locks")).body["locks"]) == 4


async def test_stale_reads_say_how_old_they_are() -> None:
    """A stale read carries revision and lag; a linearizable one goes through the node."""
    async with serving() as served:
        await served.acquire("a")
        reads_count = len(served.node.timeouts_s)
        for path in ("/v1/locks/a", "/v1/locks"):
            stale = await served.call("GET", f"{path}?consistency=stale")
            assert stale.body["revision"] == served.node.machine.revision
            assert stale.body["lag_ms"] >= 7
        assert len(served.node.timeouts_s) == reads_count
        fresh = await served.call("GET", "/v1/locks/a?consistency=linearizable")
        assert "lag_ms" not in fresh.body
        assert len(served.node.timeouts_s) == reads_count + 1


async def _until_queued(served: Served, name: str, count: int) -> None:
    """Wait until `count` requests are in the queue of a lock."""
    await until(lambda: len(served.node.machine.lock(name).queue) == count)
