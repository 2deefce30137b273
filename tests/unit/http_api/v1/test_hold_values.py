"""Values of holds over HTTP: who is told them, and what is done by name and value."""

import asyncio
import logging
from typing import Any

import pytest

from holdfast import wire
from tests.unit.http_api.serving import Served, bearer, check_problem, serving, token_line

ME, READER, ALL = "m" * 32, "r" * 32, "a" * 32
LINES = token_line("me", ME, "acquire@mine read") + token_line("reader", READER, "read")
SECRET = "hunter2-" + "x" * 40


async def holders(served: Served, path: str) -> list[dict[str, object]]:
    """Return the holders that a read shows."""
    found = (await served.call("GET", path)).body["holders"]
    assert isinstance(found, list)
    return found


async def test_a_value_is_shown_wherever_the_hold_is() -> None:
    """To its holder, in reads and listings, and in the audit; a refusal does not name it."""
    async with serving() as served:
        got = await served.acquire("a", value="worker-7")
        assert got.body["value"] == "worker-7"
        assert (await holders(served, "/v1/locks/a"))[0]["value"] == "worker-7"
        listed = (await served.call("GET", wire.LOCKS)).body["locks"]
        assert listed[0]["holders"][0]["value"] == "worker-7"
        held = (await served.call("GET", wire.HOLDS)).body["holds"]
        assert held[0]["value"] == "worker-7"
        refused = await served.acquire("a")
        check_problem(refused, 409, "lock-held")
        assert "value" not in refused.body["holders"][0]
        await served.post(wire.LOCK_RELEASE, name="a", value="worker-7")
        told = (await served.call("GET", f"{wire.AUDIT}?name=a")).body["events"]
        assert [(one["event"], one["value"]) for one in told] == [
            ("released", "worker-7"),
            ("granted", "worker-7"),
        ]


async def test_nobody_but_its_holder_is_told_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    """Not by any call, event, metric or line of the log, whatever becomes of the hold."""
    caplog.set_level(logging.DEBUG)
    async with serving() as served:
        session = await served.session()
        secret = {"value": SECRET, "value_secret": True}
        first = await served.acquire("a", session_id=session, **secret)
        assert first.body["value"] == SECRET
        again = await served.acquire("a", session_id=session)
        assert (again.body["value"], again.body["already_held"]) == (SECRET, True)
        waiting = asyncio.ensure_future(served.acquire("a", wait_ms=60_000, **secret))
        while not (await served.call("GET", "/v1/locks/a")).body["queue"]:
            pass
        permits = await served.post(wire.SEMAPHORE_ACQUIRE, name="q", limit=1, ttl_ms=9000, **secret)
        assert permits.body["value"] == SECRET
        several = await served.post(
            wire.LOCK_ACQUIRE, locks=[{"name": "b"}, {"name": "c"}], ttl_ms=9000, **secret
        )
        assert several.body["value"] == SECRET
        wrong = await served.post(wire.LOCK_RELEASE, name="a", value="hunter2")
        seen = [
            await served.acquire("a"),
            wrong,
            *[
                await served.call("GET", path)
                for path in ("/v1/locks/a", "/v1/semaphores/q", wire.LOCKS, wire.SEMAPHORES, wire.HOLDS)
            ],
            await served.call("GET", wire.SESSION.format(session_id=session)),
            await served.post(wire.LOCK_REVOKE, name="a", reason="x"),
            await served.post(wire.SESSION_KEEPALIVE.format(session_id=session)),
            await served.post(wire.LOCK_FORCE_RELEASE, name="a", reason="x"),
            await served.post(wire.LOCK_FORCE_RELEASE, name="b", reason="x"),
            await served.post(wire.SEMAPHORE_FORCE_RELEASE, name="q", reason="x"),
        ]
        assert (await waiting).body["value"] == SECRET
        seen += [await served.call("GET", path) for path in (f"{wire.AUDIT}?limit=100", wire.METRICS)]
        assert all(got.status in (200, 409) for got in seen)
        assert not any("hunter2" in str(got.body) for got in seen)
    assert not any(SECRET in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("is_secret", [False, True])
async def test_a_hold_is_renewed_and_released_by_its_value(is_secret: bool) -> None:  # noqa: FBT001 - a case
    """As by its id; another value, or a second time, is told only that nobody holds it so."""
    async with serving() as served:
        await served.acquire("a", value="v", value_secret=is_secret)
        renewed = await served.post(wire.LOCK_RENEW, name="a", value="v", ttl_ms=90_000)
        assert 80_000 < renewed.body["expires_in_ms"] <= 90_000
        for path in (wire.LOCK_RENEW, wire.LOCK_RELEASE, wire.SEMAPHORE_RELEASE, wire.SEMAPHORE_RENEW):
            refused = await served.post(path, name="a", value="V")
            check_problem(refused, 409, "not-holder")
            assert refused.body["detail"] == "nobody holds it with this value"
        request_id = "0123456789abcdef"
        released = await served.post(wire.LOCK_RELEASE, name="a", value="v", request_id=request_id)
        assert released.body["released"] is True
        check_problem(await served.post(wire.LOCK_RELEASE, name="a", value="v"), 409, "not-holder")
        again = await served.post(wire.LOCK_RELEASE, name="a", value="v", request_id=request_id)
        assert again.body["repeated"] is True


@pytest.mark.parametrize(
    ("acquire", "renew"),
    [(wire.LOCK_ACQUIRE, wire.LOCK_RENEW), (wire.SEMAPHORE_ACQUIRE, wire.SEMAPHORE_RENEW)],
)
@pytest.mark.parametrize("is_by_value", [False, True])
async def test_a_repeated_renewal_of_what_is_over_says_so(
    acquire: str,
    renew: str,
    is_by_value: bool,  # noqa: FBT001 - a case
) -> None:
    """Whoever has it by then, with the same value or not: the caller must stop."""
    async with serving() as served:
        ask: dict[str, Any] = {"name": "a", "ttl_ms": 60_000, "value": "v"}
        ask |= {"limit": 1} if acquire == wire.SEMAPHORE_ACQUIRE else {}
        hold = {"hold_id": (await served.post(acquire, **ask)).body["hold_id"]}
        body = {"request_id": "request-number-01", **({"name": "a", "value": "v"} if is_by_value else hold)}
        first, second = [(await served.post(renew, **body)).body for _ in range(2)]
        assert (first["token"], second["token"], second["repeated"]) == (1, 1, True)
        await served.post(renew.replace("renew", "release"), **hold)
        assert (await served.post(acquire, **ask)).status == 200
        check_problem(await served.post(renew, **body), 410, "lease-expired")


async def test_permits_are_renewed_and_released_by_their_value() -> None:
    """Of two with the same, those that were granted first."""
    async with serving() as served:
        ask = {"name": "q", "limit": 2, "ttl_ms": 60_000, "value": "v"}
        first = (await served.post(wire.SEMAPHORE_ACQUIRE, **ask)).body
        second = (await served.post(wire.SEMAPHORE_ACQUIRE, **ask)).body
        renewed = await served.post(wire.SEMAPHORE_RENEW, name="q", value="v")
        assert renewed.body["token"] == first["token"]
        await served.post(wire.SEMAPHORE_RELEASE, name="q", value="v")
        assert [one["token"] for one in await holders(served, "/v1/semaphores/q")] == [second["token"]]


async def test_a_value_is_taken_by_another_acquire() -> None:
    """With what it says about a hold that is there already."""
    async with serving() as served:
        session = await served.session()
        await served.acquire("a", session_id=session, value="v")
        again = await served.acquire("a", session_id=session, value="w", if_held="count")
        assert (again.body["value"], again.body["depth"]) == ("w", 2)
        released = await served.post(wire.LOCK_RELEASE, name="a", value="w")
        assert (released.body["released"], released.body["depth"]) == (False, 1)
        check_problem(
            await served.acquire("a", session_id=session, value="v", if_held="refuse"), 409, "already-held"
        )


async def test_the_right_to_acquire_the_name_is_needed() -> None:
    """By name and value as by an acquire: another name is nobody's business."""
    async with serving(tokens=LINES) as served:
        mine = {"headers": bearer(ME)}
        acquired = {"name": "mine/a", "ttl_ms": 60_000, "value": "v"}
        assert (await served.call("POST", wire.LOCK_ACQUIRE, acquired, **mine)).status == 200
        for path in (wire.LOCK_RENEW, wire.LOCK_RELEASE, wire.SEMAPHORE_RENEW, wire.SEMAPHORE_RELEASE):
            theirs = await served.call("POST", path, {"name": "other", "value": "v"}, **mine)
            check_problem(theirs, 403, "forbidden")
            reader = await served.call("POST", path, {"name": "mine/a", "value": "v"}, headers=bearer(READER))
            check_problem(reader, 403, "forbidden")
        body = {"name": "mine/a", "value": "v"}
        assert (await served.call("POST", wire.LOCK_RELEASE, body, **mine)).status == 200


async def test_who_may_use_one_name_does_not_end_several() -> None:
    """A hold of several locks is not found by its value, for all of it would end."""
    async with serving(tokens=LINES + token_line("all", ALL, "read,acquire")) as served:
        locks = [{"name": "mine/a"}, {"name": "other"}]
        several = {"locks": locks, "ttl_ms": 60_000, "value": "v"}
        held = await served.call("POST", wire.LOCK_ACQUIRE, several, headers=bearer(ALL))
        assert held.status == 200
        for path in (wire.LOCK_RENEW, wire.LOCK_RELEASE):
            got = await served.call("POST", path, {"name": "mine/a", "value": "v"}, headers=bearer(ME))
            check_problem(got, 409, "not-holder")
        assert [holder.token for holder in served.node.machine.lock("other").holders] == [held.body["token"]]
