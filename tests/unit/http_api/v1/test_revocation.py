"""Asking for what others hold, over HTTP: who hears of it, how it is put off, and how it ends."""

import asyncio

import pytest

from holdfast import wire
from tests.support import http_contract
from tests.unit.http_api.serving import Served, check_problem, serving

WHY = {"reason": "maintenance"}
KINDS = ("lock", "semaphore", "election")
REVOKE = dict(zip(KINDS, (wire.LOCK_REVOKE, wire.SEMAPHORE_REVOKE, wire.ELECTION_REVOKE), strict=True))
WITHDRAW = dict(
    zip(KINDS, (wire.LOCK_WITHDRAW, wire.SEMAPHORE_WITHDRAW, wire.ELECTION_WITHDRAW), strict=True)
)
PUT_OFF = dict(zip(KINDS, (wire.LOCK_PUT_OFF, wire.SEMAPHORE_PUT_OFF, wire.ELECTION_PUT_OFF), strict=True))


async def hold(served: Served, kind: str) -> tuple[str, str]:
    """Hold "a" in a session; return the ids of the hold and of the session."""
    session = await served.session()
    calls: dict[str, tuple[str, dict[str, object]]] = {
        "lock": (wire.LOCK_ACQUIRE, {}),
        "semaphore": (wire.SEMAPHORE_ACQUIRE, {"limit": 2}),
        "election": (wire.ELECTION_CAMPAIGN, {"value": "v"}),
    }
    path, more = calls[kind]
    got = await served.post(path, name="a", session_id=session, **more)
    assert got.status == 200
    return got.body["hold_id"], session


@pytest.mark.parametrize("kind", KINDS)
async def test_a_holder_of_any_kind_is_asked_and_hears_of_it(kind: str) -> None:
    """In the answer to its keepalive, and in reads; it puts it off once, and then is ended as by force."""
    async with serving() as served:
        hold_id, session = await hold(served, kind)
        check_problem(await served.post(PUT_OFF[kind], hold_id=hold_id), 409, "not-revoked")
        got = await served.post(REVOKE[kind], name="a", grace_ms=60_000, **WHY)
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {REVOKE[kind]}"]
        (holder,) = got.body["revoked"]
        revocation = holder["revocation"]
        assert (revocation["reason"], revocation["put_off"]) == ("maintenance", False)
        assert 55_000 < revocation["ends_in_ms"] <= 60_000
        assert "ticket" not in revocation
        kept = (await served.post(wire.SESSION_KEEPALIVE.format(session_id=session))).body
        assert [one["revocation"]["reason"] for one in kept["revoked"]] == ["maintenance"]
        put_off = await served.post(PUT_OFF[kind], hold_id=hold_id)
        assert tuple(put_off.body) == http_contract.ANSWER_FIELDS[f"POST {PUT_OFF[kind]}"]
        assert 115_000 < put_off.body["ends_in_ms"] <= 120_000
        seen = (await served.call("GET", wire.SESSION.format(session_id=session))).body
        assert seen["holds"][0]["revocation"]["put_off"] is True
        check_problem(await served.post(PUT_OFF[kind], hold_id=hold_id), 409, "not-revoked")
        await served.post(REVOKE[kind], name="a", grace_ms=0, **WHY)
        while "revoked" in (await served.post(wire.SESSION_KEEPALIVE.format(session_id=session))).body:
            pass
        told = (await served.call("GET", f"{wire.AUDIT}?name=a&limit=4")).body["events"]
        assert [one["event"] for one in told] == ["forced", "revoked", "put-off", "revoked"]
        assert told[0]["reason"] == "maintenance"
        assert [("ends_in_ms" in one) for one in told] == [False, True, True, True]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_asked_of_a_holder_of_any_kind_is_withdrawn(kind: str) -> None:
    """Neither keepalives nor reads mention it any more, a watch tells it, and the audit says why."""
    async with serving() as served:
        _, session = await hold(served, kind)
        await served.post(REVOKE[kind], name="a", **WHY)
        why = {"reason": "the disk is fine", "request_id": "0123456789abcdef"}
        got = await served.post(WITHDRAW[kind], name="a", **why)
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {WITHDRAW[kind]}"]
        assert (got.body["withdrawn"], got.body["left"]) == (1, 0)
        again = await served.post(WITHDRAW[kind], name="a", **why)
        assert (again.body["withdrawn"], again.body["repeated"]) == (1, True)
        assert (await served.post(WITHDRAW[kind], name="a", **WHY)).body["withdrawn"] == 0
        assert "revoked" not in (await served.post(wire.SESSION_KEEPALIVE.format(session_id=session))).body
        seen = (await served.call("GET", wire.SESSION.format(session_id=session))).body
        assert "revocation" not in seen["holds"][0]
        (told,) = (await served.call("GET", f"{wire.AUDIT}?name=a&limit=1")).body["events"]
        assert (told["event"], told["reason"], told["kind"]) == (
            "revocation-withdrawn",
            "the disk is fine",
            kind,
        )
        assert "ends_in_ms" not in told
        others = {"lock": "election", "semaphore": "lock", "election": "semaphore"}
        wrong = await served.post(WITHDRAW[others[kind]], name="a", **WHY)
        check_problem(wrong, 400, "wrong-kind")
        assert f"use POST {WITHDRAW[kind]}" in wrong.body["detail"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "a", "token": 0}, 400, "invalid-request"),
        ({"name": "a", "ticket": 0}, 400, "invalid-request"),
        ({"name": ""}, 400, "invalid-request"),
        ({"name": "a", "token": 99}, 409, "not-holder"),
        ({"name": "a", "grace_ms": 5}, 400, "invalid-request"),
    ],
)
async def test_what_is_wrong_takes_nothing_back(body: dict[str, object], status: int, code: str) -> None:
    """The holder is still to give up."""
    async with serving() as served:
        held = (await served.acquire("a")).body
        await served.post(wire.LOCK_REVOKE, name="a", **WHY)
        check_problem(await served.post(wire.LOCK_WITHDRAW, **WHY | body), status, code)
        renewed = (await served.post(wire.LOCK_RENEW, hold_id=held["hold_id"])).body
        assert len(renewed["revocations"]) == 1


async def test_a_renewal_says_it_too() -> None:
    """Of a hold with a lease of its own; one that nobody asked for says nothing of it."""
    async with serving() as served:
        held = (await served.acquire("a")).body
        renewed = (await served.post(wire.LOCK_RENEW, hold_id=held["hold_id"])).body
        assert "revocations" not in renewed
        await served.post(wire.LOCK_REVOKE, name="a", token=held["token"], **WHY)
        renewed = (await served.post(wire.LOCK_RENEW, hold_id=held["hold_id"])).body
        (revocation,) = renewed["revocations"]
        assert revocation["name"] == "a"
        assert 25_000 < revocation["ends_in_ms"] <= 30_000
        (holder,) = (await served.call("GET", wire.LOCK.format(name="a"))).body["holders"]
        assert holder["revocation"]["reason"] == "maintenance"


async def test_of_several_names_each_is_asked_for_by_itself() -> None:
    """A holder that gives one up in time is asked for the other only, and keeps what nobody asked for."""
    async with serving() as served:
        locks = [{"name": name} for name in ("a", "b", "c")]
        held = (await served.post(wire.LOCK_ACQUIRE, locks=locks, ttl_ms=60_000)).body
        for name in ("a", "b"):
            await served.post(wire.LOCK_REVOKE, name=name, **WHY)
        renewed = (await served.post(wire.LOCK_RENEW, hold_id=held["hold_id"])).body
        assert [one["name"] for one in renewed["revocations"]] == ["a", "b"]
        await served.post(wire.LOCK_RELEASE, hold_id=held["hold_id"], names=["a"])
        renewed = (await served.post(wire.LOCK_RENEW, hold_id=held["hold_id"])).body
        assert [one["name"] for one in renewed["revocations"]] == ["b"]
        (holder,) = (await served.call("GET", wire.LOCK.format(name="c"))).body["holders"]
        assert "revocation" not in holder
        await served.post(wire.LOCK_RELEASE, hold_id=held["hold_id"], names=["b"])
        renewed = (await served.post(wire.LOCK_RENEW, hold_id=held["hold_id"])).body
        assert "revocations" not in renewed


async def test_for_whom_it_is_asked_is_shown() -> None:
    """By the number of the wait, which the queue shows; one that does not wait for it is refused."""
    async with serving() as served:
        await served.acquire("a")
        waiting = asyncio.ensure_future(served.acquire("a", wait_ms=60_000))
        while not (queue := (await served.call("GET", wire.LOCK.format(name="a"))).body["queue"]):
            pass
        ticket = queue[0]["ticket"]
        refused = await served.post(wire.LOCK_REVOKE, name="a", ticket=ticket + 1, **WHY)
        check_problem(refused, 400, "invalid-request")
        got = await served.post(wire.LOCK_REVOKE, name="a", ticket=ticket, grace_ms=0, **WHY)
        assert got.body["revoked"][0]["revocation"]["ticket"] == ticket
        assert (await waiting).status == 200


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "a", "grace_ms": 3_600_001}, 400, "invalid-request"),
        ({"name": "a", "grace_ms": -1}, 400, "invalid-request"),
        ({"name": "a", "token": 0}, 400, "invalid-request"),
        ({"name": "a", "ticket": 0}, 400, "invalid-request"),
        ({"name": "", "grace_ms": 1}, 400, "invalid-request"),
        ({"name": "a", "token": 99}, 409, "not-holder"),
        ({"name": "a", "kind": "lock"}, 400, "invalid-request"),
    ],
)
async def test_what_is_wrong_asks_nobody(body: dict[str, object], status: int, code: str) -> None:
    """And says which field it is."""
    async with serving() as served:
        held = (await served.acquire("a")).body
        check_problem(await served.post(wire.LOCK_REVOKE, **WHY | body), status, code)
        renewed = (await served.post(wire.LOCK_RENEW, hold_id=held["hold_id"])).body
        assert "revocations" not in renewed


async def test_a_wrong_kind_names_the_right_one() -> None:
    """To who asks, and to who puts off."""
    async with serving() as served:
        held = (await served.acquire("a")).body
        check_problem(await served.post(wire.ELECTION_REVOKE, name="a", **WHY), 400, "wrong-kind")
        got = await served.post(wire.SEMAPHORE_PUT_OFF, hold_id=held["hold_id"])
        check_problem(got, 400, "wrong-kind")


async def test_nobody_holds_anything() -> None:
    """Then nobody is asked, and that is fine."""
    async with serving() as served:
        assert (await served.post(wire.LOCK_REVOKE, name="a", **WHY)).body["revoked"] == []
        check_problem(await served.post(wire.LOCK_PUT_OFF, hold_id="h-none"), 410, "lease-expired")


async def test_a_limit_is_only_needed_by_who_comes_first() -> None:
    """Later it may be left out, and another one counts only for who is strict."""
    async with serving() as served:
        ask = {"name": "q", "ttl_ms": 60_000}
        refused = await served.post(wire.SEMAPHORE_ACQUIRE, **ask)
        check_problem(refused, 409, "limit-mismatch")
        assert (await served.post(wire.SEMAPHORE_ACQUIRE, **ask, limit=3)).body["limit"] == 3
        assert (await served.post(wire.SEMAPHORE_ACQUIRE, **ask)).body["limit"] == 3
        assert (await served.post(wire.SEMAPHORE_ACQUIRE, **ask, limit=9)).body["limit"] == 3
        strict = await served.post(wire.SEMAPHORE_ACQUIRE, **ask, limit=9, strict=True)
        check_problem(strict, 409, "limit-mismatch")
        assert strict.body["limit"] == 3
        unsaid = await served.post(wire.SEMAPHORE_ACQUIRE, **ask, strict=True)
        check_problem(unsaid, 400, "invalid-request")
