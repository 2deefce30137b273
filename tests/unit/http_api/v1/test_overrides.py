"""What operators do to what others have, over HTTP, and a session with another ttl."""

import asyncio

import pytest

from holdfast import wire
from lockstate.words import limits
from tests.support import http_contract
from tests.unit.http_api.serving import Got, Served, check_problem, serving, until

WHY = {"reason": "it hangs"}


async def _name_of_only_session(served: Served) -> str:
    (row,) = (await served.call("GET", wire.SESSIONS)).body["sessions"]
    name: str = row["session_name"]
    return name


async def test_a_session_is_ended_by_its_public_name() -> None:
    """The answer says whose it was and what it held; audit and watchers hear why; a repetition is told."""
    async with serving() as served:
        session = await served.session()
        await served.acquire("a", session_id=session)
        name = await _name_of_only_session(served)
        got = await served.post(
            wire.SESSION_FORCE_CLOSE, session_name=name, request_id="end-this-session", **WHY
        )
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {wire.SESSION_FORCE_CLOSE}"]
        assert (got.body["session_name"], got.body["names"]) == (name, ["a"])
        told = (await served.call("GET", wire.AUDIT)).body["events"][:2]
        assert [(one["event"], one["name"], one["reason"]) for one in told] == [
            ("session-forced", "", "it hangs"),
            ("forced", "a", "it hangs"),
        ]
        assert told[0]["owner"] == got.body["owner"]
        assert "kind" not in told[0]
        assert session not in str(told)
        again = await served.post(
            wire.SESSION_FORCE_CLOSE, session_name=name, request_id="end-this-session", **WHY
        )
        assert again.body["repeated"] is True
        gone = await served.post(wire.SESSION_KEEPALIVE.format(session_id=session))
        check_problem(gone, 410, "session-expired")
        late = await served.post(wire.SESSION_FORCE_CLOSE, session_name=name, **WHY)
        check_problem(late, 410, "session-expired")


async def test_the_secret_id_of_a_session_is_not_its_name() -> None:
    """Who knows only the id closes the session as its client does."""
    async with serving() as served:
        session = await served.session()
        got = await served.post(wire.SESSION_FORCE_CLOSE, session_name=session, **WHY)
        check_problem(got, 410, "session-expired")
        assert (await served.post(wire.SESSION_KEEPALIVE.format(session_id=session))).status == 200


async def test_waits_are_ended() -> None:
    """The answer shows them, their clients are told why, and the audit says so; all of a name, or one."""
    async with serving() as served:
        await served.acquire("a")
        waiting = [asyncio.ensure_future(served.acquire("a", owner=owner, wait_ms=60_000)) for owner in "bcd"]
        await until(lambda: len(served.node.machine.lock("a").queue) == len(waiting))
        tickets: dict[str, int] = {one.owner: one.ticket for one in served.node.machine.lock("a").queue}
        got = await served.post(wire.WAITS_FORCE_END, name="a", ticket=tickets["c"], **WHY)
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {wire.WAITS_FORCE_END}"]
        assert [one["owner"] for one in got.body["ended"]] == ["c"]
        ended = await waiting[1]
        check_problem(ended, 410, "ticket-ended")
        assert ended.body["detail"] == "an operator ended the wait: it hangs"
        (told,) = (await served.call("GET", f"{wire.AUDIT}?name=a&limit=1")).body["events"]
        assert (told["event"], told["owner"], told["ticket"]) == ("wait-forced", "c", tickets["c"])
        assert told["reason"] == "it hangs"
        late = await served.post(wire.WAITS_FORCE_END, name="a", ticket=tickets["c"], **WHY)
        check_problem(late, 410, "ticket-ended")
        got = await served.post(wire.WAITS_FORCE_END, name="a", **WHY)
        assert ([one["owner"] for one in got.body["ended"]], got.body["left"]) == (["b", "d"], 0)
        for one in (waiting[0], waiting[2]):
            check_problem(await one, 410, "ticket-ended")
        nobody = await served.post(wire.WAITS_FORCE_END, name="a", kind="semaphore", **WHY)
        assert nobody.body["ended"] == []


@pytest.mark.parametrize(
    ("path", "event_kind"), [(wire.LOCK_LIFT_DELAY, "lock"), (wire.SEMAPHORE_LIFT_DELAY, "semaphore")]
)
async def test_a_delay_is_lifted(path: str, event_kind: str) -> None:
    """What was delayed is free at once; that there is nothing to lift is fine."""
    async with serving() as served:
        if event_kind == "lock":
            await served.acquire("a")
            await served.post(wire.LOCK_FORCE_RELEASE, name="a", lock_delay_ms=60_000, **WHY)
        else:
            await served.post(wire.SEMAPHORE_ACQUIRE, name="a", limit=1, ttl_ms=60_000)
            await served.post(wire.SEMAPHORE_FORCE_RELEASE, name="a", lock_delay_ms=60_000, **WHY)
        got = await served.post(path, name="a", reason="all is well")
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {path}"]
        assert got.body["lifted"] == 1
        assert 55_000 < got.body["left_ms"] <= 60_000
        (told,) = (await served.call("GET", f"{wire.AUDIT}?name=a&limit=1")).body["events"]
        assert (told["event"], told["kind"], told["reason"]) == ("delay-lifted", event_kind, "all is well")
        assert told["owner"] == ""
        assert {"token", "mode"}.isdisjoint(told)
        assert ("permits" in told) == (event_kind == "semaphore")
        again = (await served.post(path, name="a", reason="all is well")).body
        assert (again["lifted"], again["left_ms"]) == (0, 0)
        assert (await served.acquire("a")).status == 200


async def test_a_fence_is_forgotten() -> None:
    """It accepts a lower token again; what was never seen is told as such."""
    async with serving() as served:
        served.draw(9)
        await served.post(wire.FENCE_ADVANCE, name="a", token=9)
        got = await served.post(wire.FENCE_FORGET, name="a", **WHY)
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {wire.FENCE_FORGET}"]
        assert (got.body["forgotten"], got.body["highest_token"]) == (True, 9)
        (told,) = (await served.call("GET", f"{wire.AUDIT}?name=a&limit=1")).body["events"]
        assert (told["event"], told["token"], told["reason"]) == ("fence-forgotten", 9, "it hangs")
        assert "kind" not in told
        again = (await served.post(wire.FENCE_FORGET, name="a", **WHY)).body
        assert (again["forgotten"], again["highest_token"]) == (False, None)
        assert (await served.post(wire.FENCE_ADVANCE, name="a", token=1)).status == 200


async def _take(served: Served, name: str, wait_ms: int = 0) -> Got:
    return await served.post(wire.RATE_TAKE, name=name, limit=1, window_ms=3_600_000, wait_ms=wait_ms)


async def test_a_rate_limit_is_forgotten() -> None:
    """It is as new; who waits for a place goes on waiting, and the audit says why."""
    async with serving() as served:
        await _take(served, "mail/7")
        waiting = asyncio.create_task(_take(served, "mail/7", 24 * 3_600_000))
        await until(lambda: served.node.machine.state.rates.places)
        path = wire.RATE.format(name="mail/7")
        got = await served.call("DELETE", path, {**WHY, "request_id": "forget-this-limit"})
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"DELETE {wire.RATE}"]
        assert (got.body["forgotten"], got.body["more"]) == (1, False)
        assert (await _take(served, "mail/7")).body["allowed"] is True
        assert not waiting.done()
        waiting.cancel()
        (told,) = (await served.call("GET", f"{wire.AUDIT}?name=mail/7")).body["events"]
        assert (told["event"], told["name"], told["reason"]) == ("rate-limit-forgotten", "mail/7", "it hangs")
        assert told["owner"] == ""
        assert {"kind", "token", "mode"}.isdisjoint(told)
        again = await served.call("DELETE", path, {**WHY, "request_id": "forget-this-limit"})
        assert (again.body["forgotten"], again.body["repeated"]) == (1, True)


async def test_rate_limits_are_forgotten_by_their_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limited number at a time; that all are meant has to be said."""
    monkeypatch.setattr(limits, "RATES_FORGOTTEN_MAX", 2)
    async with serving() as served:
        for name in ("a/1", "a/2", "a/3", "b"):
            await _take(served, name)
        got = await served.call("DELETE", f"{wire.RATES}?prefix=a/", WHY)
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"DELETE {wire.RATES}"]
        assert (got.body["forgotten"], got.body["more"]) == (2, True)
        got = await served.call("DELETE", f"{wire.RATES}?prefix=a/", WHY)
        assert (got.body["forgotten"], got.body["more"]) == (1, False)
        for query in ("", "?prefix=", "?prefix=b&all=true", "?prefix=" + "b" * 513):
            check_problem(await served.call("DELETE", wire.RATES + query, WHY), 400, "invalid-request")
        assert (await served.call("DELETE", f"{wire.RATES}?all=true", WHY)).body["forgotten"] == 1
        assert (await served.call("GET", wire.RATES)).body["rate_limits"] == []


@pytest.mark.parametrize("path", [wire.RATE.format(name="a"), f"{wire.RATES}?prefix=a"])
async def test_to_forget_a_rate_limit_takes_a_reason(path: str) -> None:
    """Without one nothing is forgotten."""
    async with serving() as served:
        await _take(served, "a")
        for body in ({}, {"reason": ""}, {"reason": "a\nb"}):
            got = await served.call("DELETE", path, body)
            check_problem(got, 400, "invalid-request")
            assert "reason" in got.body["detail"]
        assert (await _take(served, "a")).body["allowed"] is False


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (wire.SESSION_FORCE_CLOSE, {"session_name": "s-1"}),
        (wire.WAITS_FORCE_END, {"name": "a"}),
        (wire.LOCK_LIFT_DELAY, {"name": "a"}),
        (wire.SEMAPHORE_LIFT_DELAY, {"name": "a"}),
        (wire.FENCE_FORGET, {"name": "a"}),
        (wire.LOCK_REVOKE, {"name": "a"}),
        (wire.SEMAPHORE_REVOKE, {"name": "a"}),
        (wire.ELECTION_REVOKE, {"name": "a"}),
        (wire.LOCK_WITHDRAW, {"name": "a"}),
        (wire.SEMAPHORE_WITHDRAW, {"name": "a"}),
        (wire.ELECTION_WITHDRAW, {"name": "a"}),
    ],
)
async def test_a_reason_is_required(path: str, body: dict[str, str]) -> None:
    """Without one, or with an empty one, nothing is done; nor before all nodes know the call."""
    async with serving() as served:
        for reason in ({}, {"reason": ""}, {"reason": "a\nb"}, {"reason": "x" * 1025}):
            got = await served.post(path, **body, **reason)
            check_problem(got, 400, "invalid-request")
            assert "reason" in got.body["detail"]


async def test_a_keepalive_changes_the_ttl() -> None:
    """The session lives by it from then on; out of range it changes nothing, nor before all nodes know it."""
    async with serving() as served:
        session = await served.session()
        path = wire.SESSION_KEEPALIVE.format(session_id=session)
        assert (await served.post(path, ttl_ms=90_000)).body["expires_in_ms"] == 90_000
        got = (await served.call("GET", wire.SESSION.format(session_id=session))).body
        assert got["ttl_ms"] == 90_000
        check_problem(await served.post(path, ttl_ms=1), 400, "ttl-out-of-range")
        assert (await served.post(path)).status == 200
