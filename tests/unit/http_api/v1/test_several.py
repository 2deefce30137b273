"""Several kinds at once, over HTTP: one hold of all, refusals, reserved moments, and who may ask for it."""

import asyncio
from typing import Any

import pytest

from holdfast import wire
from tests.support import http_contract
from tests.unit.http_api.serving import Got, Served, bearer, check_problem, serving, token_line, until

MAIL = {"name": "mail", "limit": 1, "window_ms": 86_400_000}


async def ask(served: Served, **more: Any) -> Got:
    """Ask for a lock, permits and a place of a rate limit, unless `more` says otherwise."""
    body: dict[str, Any] = {
        "locks": [{"name": "a"}],
        "permits": [{"name": "q", "limit": 3, "permits": 2}],
        "ttl_ms": 60_000,
    }
    return await served.post(wire.ACQUIRE, **body | more)


async def test_all_of_it_is_one_hold() -> None:
    """It is renewed and released as a hold of locks; every part shows it with its token."""
    async with serving() as served:
        got = await ask(served, rate_limits=[MAIL])
        assert got.status == 200
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {wire.ACQUIRE}"]
        assert got.body["locks"] == [{"name": "a", "mode": "exclusive", "scope": "node"}]
        assert got.body["permits"] == [{"name": "q", "permits": 2, "available": 1, "limit": 3}]
        (rate,) = got.body["rate_limits"]
        assert (rate["name"], rate["remaining"]) == ("mail", 0)
        hold_id, token = got.body["hold_id"], got.body["token"]
        (holder,) = (await served.call("GET", wire.LOCK.format(name="a"))).body["holders"]
        assert (holder["token"], "permits" in holder) == (token, False)
        (holder,) = (await served.call("GET", wire.SEMAPHORE.format(name="q"))).body["holders"]
        assert (holder["token"], holder["permits"]) == (token, 2)
        for name in ("a", "q"):
            checked = await served.post(wire.FENCE_CHECK, name=name, token=token)
            assert checked.body["valid"]
        holds = (await served.call("GET", wire.HOLDS)).body["holds"]
        assert [(one["kind"], one["name"]) for one in holds] == [("lock", "a"), ("semaphore", "q")]
        assert (await served.post(wire.LOCK_RENEW, hold_id=hold_id)).body["token"] == token
        wrong = await served.post(wire.SEMAPHORE_RELEASE, hold_id=hold_id)
        check_problem(wrong, 400, "wrong-kind")
        assert wire.LOCK_RELEASE in wrong.body["detail"]
        part = await served.post(wire.LOCK_RELEASE, hold_id=hold_id, names=["a"])
        check_problem(part, 400, "invalid-request")
        assert (await served.post(wire.LOCK_RELEASE, hold_id=hold_id)).body["released"]
        told = (await served.call("GET", f"{wire.AUDIT}?limit=4")).body["events"]
        assert [(one["event"], one["name"], one.get("permits")) for one in told] == [
            ("released", "q", 2),
            ("released", "a", None),
            ("granted", "q", 2),
            ("granted", "a", None),
        ]


async def test_what_is_missing_is_told() -> None:
    """Of a lock, of permits, of a limit, and of a rate limit; then nothing is had."""
    async with serving() as served:
        held = (await served.acquire("a")).body
        check_problem(await ask(served), 409, "lock-held")
        await served.post(wire.LOCK_RELEASE, hold_id=held["hold_id"])
        refused = await ask(served, permits=[{"name": "q"}])
        check_problem(refused, 409, "limit-mismatch")
        assert (await ask(served, locks=[{"name": "b"}])).status == 200
        check_problem(await ask(served), 409, "no-permits")
        await served.post(wire.RATE_TAKE, **MAIL)
        refused = await ask(served, permits=[{"name": "q"}], rate_limits=[MAIL])
        check_problem(refused, 409, "rate-limited")
        assert (refused.body["limit"], refused.body["remaining"]) == (1, 0)
        assert refused.body["retry_after_ms"] > 0
        assert int(refused.headers["Retry-After"]) > 0
        assert (await served.call("GET", wire.LOCK.format(name="a"))).body["state"] == "free"


async def test_it_waits_in_all_queues() -> None:
    """And goes when everything is free."""
    async with serving() as served:
        held = (await served.acquire("a")).body
        waiting = asyncio.ensure_future(ask(served, wait_ms=60_000))
        await until(lambda: served.node.machine.semaphore("q").queue)
        check_problem(await served.post(wire.SEMAPHORE_ACQUIRE, name="q", ttl_ms=1000), 409, "no-permits")
        await served.post(wire.LOCK_RELEASE, hold_id=held["hold_id"])
        assert (await waiting).status == 200


async def test_the_answer_comes_at_the_reserved_moment() -> None:
    """Its lease counts from then on."""
    async with serving() as served:
        soon = {"name": "soon", "limit": 1, "window_ms": 200, "algorithm": "sliding-window"}
        await served.post(wire.RATE_TAKE, **soon)
        loop = asyncio.get_running_loop()
        began = loop.time()
        got = await ask(served, rate_limits=[soon], wait_ms=10_000)
        assert got.status == 200
        assert loop.time() - began > 0.05
        assert got.body["expires_in_ms"] > 59_000


async def test_a_client_that_leaves_before_the_moment_gives_it_back() -> None:
    """A hold that nobody would hear of ends; what was taken of the rate is used up."""
    async with serving() as served:
        await served.post(wire.RATE_TAKE, **MAIL)
        waiting = asyncio.ensure_future(ask(served, rate_limits=[MAIL], wait_ms=86_400_000))
        await until(lambda: served.node.machine.lock("a").holders)
        waiting.cancel()
        await until(lambda: not served.node.machine.lock("a").holders)
        check_problem(await ask(served, rate_limits=[MAIL]), 409, "rate-limited")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"locks": [], "permits": []}, "permits, rate_limits"),
        ({"permits": []}, "permits, rate_limits"),
        ({"locks": [], "permits": [], "rate_limits": [MAIL, MAIL | {"name": "post"}]}, "locks, permits"),
        ({"locks": []}, "permits"),
        ({"locks": [{"name": ""}]}, "locks[0].name"),
        ({"locks": [{"name": "a"}, {"name": "a"}]}, "locks"),
        ({"permits": [{"name": "q"}, {"name": "q"}]}, "permits"),
        ({"permits": [{"name": "q", "limit": 0}]}, "permits[0].limit"),
        ({"permits": [{"name": "q", "limit": -1}]}, "permits"),
        ({"permits": [{"name": "q", "limit": 1, "permits": 2}]}, "permits"),
        ({"permits": [{"name": f"q{n}", "limit": 1} for n in range(17)]}, "permits"),
        ({"rate_limits": [MAIL | {"cost": 2}]}, "rate_limits"),
        ({"rate_limits": [MAIL, MAIL]}, "rate_limits"),
        ({"rate_limits": [MAIL | {"name": "/"}]}, "rate_limits[0].name"),
        ({"rate_limits": [MAIL | {"window_ms": 1}]}, "rate_limits[0].window_ms"),
        ({"wait_ms": -1}, "wait_ms"),
        ({"session_id": "s"}, "session_id and ttl_ms"),
    ],
)
async def test_what_is_wrong_is_refused(body: dict[str, Any], field: str) -> None:
    """And says which field it is."""
    async with serving() as served:
        got = await ask(served, **body)
        check_problem(got, 400, "invalid-request")
        assert got.body["detail"].startswith(f"{field}: ")


@pytest.mark.parametrize("missing", ["locks", "permits", "rate_limits"])
async def test_each_part_needs_the_right(missing: str) -> None:
    """One that may not be acquired refuses all."""
    async with serving() as served:
        token = "t" * 40
        served.know(token_line("worker", token, "acquire@in"))
        body: dict[str, Any] = {
            "locks": [{"name": "in/a"}],
            "permits": [{"name": "in/q", "limit": 1}],
            "rate_limits": [MAIL | {"name": "in/mail"}],
            "ttl_ms": 1000,
        }
        assert (await served.call("POST", wire.ACQUIRE, body, headers=bearer(token))).status == 200
        body[missing] = [body[missing][0] | {"name": "out"}]
        got = await served.call("POST", wire.ACQUIRE, body, headers=bearer(token))
        check_problem(got, 403, "forbidden")
