"""Every problem code of the API, brought about over real HTTP: one way to it for each."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

import pytest

from cluster import errors
from holdfast import wire
from http_api.server import tls_gate
from http_api.server.request_rates import RequestRates
from lockstate.words import limits
from lockstate.words.refusals import Reason
from lockstate.words.versions import RULES, Rules
from tests.support import http_contract
from tests.unit.http_api.serving import Got, Served, bearer, check_problem, serving, token_line, until

Way = Callable[[Served], Awaitable[Got]]


def _call(method: str, path: str, body: Any = None) -> Way:
    """Return a call that is refused whatever the state."""
    return lambda served: served.call(method, path, body)


def _failing(error: Exception) -> Way:
    """Return a call of a node that fails."""

    async def way(served: Served) -> Got:
        served.node.failure = error
        return await served.acquire("a")

    return way


async def _held(served: Served) -> Got:
    await served.acquire("a")
    return await served.acquire("a")


async def _held_already(served: Served) -> Got:
    session = await served.session()
    await served.acquire("a", session_id=session)
    return await served.acquire("a", session_id=session, if_held="refuse")


async def _not_ready(served: Served) -> Got:
    served.node.is_ready = False
    return await served.call("GET", wire.READYZ)


async def _shutting_down(served: Served) -> Got:
    served.node.begin_shutdown()
    return await served.acquire("a")


async def _unknown(served: Served) -> Got:
    """Reserve a place in a rate limit on a node that stops before it is reached."""
    body = {"name": "a", "limit": 1, "window_ms": 60_000, "algorithm": "gcra", "wait_ms": 60_000}
    await served.post(wire.RATE_TAKE, **body)
    waiting = asyncio.ensure_future(served.post(wire.RATE_TAKE, **body, request_id="request-number-01"))
    await until(lambda: len(served.node.timeouts_s) == 2)
    served.node.begin_shutdown()
    return await waiting


async def _deadlock(served: Served) -> Got:
    """Let two sessions each wait for what the other one has."""
    one, two = await served.session(), await served.session()
    await served.acquire("a", session_id=one)
    await served.acquire("b", session_id=two)
    waiting = asyncio.ensure_future(served.acquire("b", session_id=one, wait_ms=60_000))
    await until(lambda: served.node.machine.lock("b").queue)
    got = await served.acquire("a", session_id=two, wait_ms=60_000)
    waiting.cancel()
    return got


async def _conversion_deadlock(served: Served) -> Got:
    """Let two readers each wait for the other to leave."""
    sessions = [await served.session() for _ in range(2)]
    held = [await served.acquire("a", session_id=session, mode="shared") for session in sessions]
    one, two = [got.body["hold_id"] for got in held]
    waiting = asyncio.ensure_future(
        served.post(wire.LOCK_CONVERT, hold_id=one, mode="exclusive", wait_ms=60_000)
    )
    await until(lambda: served.node.machine.lock("a").queue)
    got = await served.post(wire.LOCK_CONVERT, hold_id=two, mode="exclusive")
    waiting.cancel()
    return got


async def _permits(served: Served, limit: int) -> Got:
    await served.post(wire.SEMAPHORE_ACQUIRE, name="a", limit=1, ttl_ms=60_000)
    return await served.post(wire.SEMAPHORE_ACQUIRE, name="a", limit=limit, ttl_ms=60_000, strict=True)


async def _wrong_kind(served: Served) -> Got:
    got = await served.acquire("a")
    return await served.post(wire.SEMAPHORE_RELEASE, hold_id=got.body["hold_id"])


async def _rate_limited(served: Served) -> Got:
    rate = {"name": "a", "limit": 1, "window_ms": 86_400_000}
    await served.post(wire.RATE_TAKE, **rate)
    return await served.post(wire.ACQUIRE, locks=[{"name": "a"}], rate_limits=[rate], ttl_ms=1000)


async def _frozen(served: Served) -> Got:
    await served.call("PUT", "/v1/freezes/a", {"reason": "the disk is moved"})
    return await served.acquire("a/b")


async def _not_revoked(served: Served) -> Got:
    got = await served.acquire("a")
    return await served.post(wire.LOCK_PUT_OFF, hold_id=got.body["hold_id"])


async def _stale_token(served: Served) -> Got:
    served.draw(8)
    await served.post(wire.FENCE_ADVANCE, name="a", token=8)
    return await served.post(wire.FENCE_ADVANCE, name="a", token=7)


async def _queue_full(served: Served) -> Got:
    await served.acquire("a")
    waiting = asyncio.ensure_future(served.acquire("a", wait_ms=60_000))
    await until(lambda: served.node.machine.lock("a").queue)
    got = await served.acquire("a", wait_ms=60_000)
    waiting.cancel()
    return got


async def _overloaded(served: Served) -> Got:
    """Ask for more than one session may have: each part of a path counts."""
    return await served.acquire("/".join("abcdef"), session_id=await served.session())


async def _expecting(served: Served) -> Got:
    """Ask for what no node does. The client library sends no such thing, so these are bytes."""
    return _parsed(await served.raw(b"GET /livez HTTP/1.1\r\nHost: x\r\nExpect: 200-ok\r\n\r\n"))


async def _without_tls(served: Served) -> Got:
    """Speak plain HTTP to a port that speaks only TLS."""
    del served
    return _parsed(tls_gate._plain_answer())


def _parsed(raw: bytes) -> Got:
    """Return an answer of which the bytes are known."""
    head, _, body = raw.decode().partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    return Got(int(status.split()[1]), json.loads(body), dict(line.split(": ") for line in lines))


async def _compacted(served: Served) -> Got:
    served.node.events.restart(9)
    return await served.call("GET", f"{wire.WATCH}?since=0")


async def _upgrade_pending(served: Served) -> Got:
    """Ask for a cell while the cluster follows rules that know none."""
    served.node.machine.state.rules = 0
    with patch.dict(RULES, {0: Rules(0, 1, "Sessions can be opened.")}):
        return await served.call("PUT", "/v1/cells/a", {"value": ""})


async def _with_token(served: Served, *rights: bytes) -> Got:
    """Ask for a lock as somebody who may do what `rights` say, or as a stranger."""
    token = "t" * 40
    served.know(token_line("somebody", token, "metrics") + b"".join(rights))
    return await served.call(
        "POST", wire.LOCK_ACQUIRE, {"name": "a", "ttl_ms": 1000}, headers=bearer(token) if not rights else {}
    )


async def _quota_exceeded(served: Served) -> Got:
    """Ask for a lock as somebody who may hold none."""
    token = "t" * 40
    served.know(token_line("somebody", token, "acquire,admin"))
    await served.call("PUT", "/v1/quotas/somebody", {"holds": 0, "reason": "by hand"}, headers=bearer(token))
    body = {"name": "a", "ttl_ms": 1000}
    return await served.call("POST", wire.LOCK_ACQUIRE, body, headers=bearer(token))


async def _too_many_requests(_: Served) -> Got:
    """Ask twice where time stands still and one request a second is taken."""
    async with serving(rates=RequestRates(1, lambda: 0.0)) as bounded:
        await bounded.acquire("a")
        return await bounded.acquire("b")


WAYS: dict[str, Way] = {
    "too-many-requests": _too_many_requests,
    "quota-exceeded": _quota_exceeded,
    "unauthenticated": lambda served: _with_token(served, b"other cert:x read\n"),
    "forbidden": _with_token,
    "already-held": _held_already,
    "not-revoked": _not_revoked,
    "rate-limited": _rate_limited,
    "frozen": _frozen,
    "invalid-request": _call("POST", wire.LOCK_ACQUIRE, {}),
    "name-too-long": _call("GET", f"/v1/locks/{'x' * 513}"),
    "ttl-out-of-range": _call("POST", wire.SESSIONS, {"ttl_ms": 1}),
    "wrong-kind": _wrong_kind,
    "not-found": _call("GET", "/nothing"),
    "member-not-found": _call("DELETE", f"{wire.CLUSTER_MEMBERS}?id=n9&reason=x"),
    "cell-not-found": _call("GET", "/v1/cells/a"),
    "namespace-not-found": _call("GET", "/v1/namespaces/a"),
    "method-not-allowed": _call("PUT", wire.LOCK_ACQUIRE),
    "lock-held": _held,
    "deadlock": _deadlock,
    "conversion-deadlock": _conversion_deadlock,
    "not-holder": _call("POST", wire.SEMAPHORE_RESIZE, {"name": "a", "limit": 1, "reason": "by hand"}),
    "no-permits": lambda served: _permits(served, 1),
    "limit-mismatch": lambda served: _permits(served, 2),
    "stale-token": _stale_token,
    "cell-changed": _call("PUT", "/v1/cells/a", {"value": "", "if_version": 1}),
    "member-change-refused": _failing(errors.MemberChangeRefused("no")),
    "member-change-pending": _failing(errors.MemberChangePending("later")),
    "session-expired": _call("DELETE", "/v1/sessions/nobody"),
    "lease-expired": _call("POST", wire.LOCK_RENEW, {"hold_id": "nothing"}),
    "ticket-ended": _call("GET", "/v1/tickets/1"),
    "compacted": _compacted,
    "payload-too-large": _call("POST", wire.LOCK_ACQUIRE, {"name": "x" * wire.BODY_BYTES_MAX}),
    "forbidden-host": lambda served: served.call("GET", wire.LIVEZ, headers={"Host": "evil.example"}),
    "forbidden-origin": lambda served: served.call(
        "GET", wire.LIVEZ, headers={"Origin": "https://evil.example"}
    ),
    "unsupported-encoding": lambda served: served.call(
        "GET", wire.LIVEZ, headers={"Content-Encoding": "gzip"}
    ),
    "expectation-failed": _expecting,
    "tls-required": _without_tls,
    "queue-full": _queue_full,
    "overloaded": _overloaded,
    "internal": _failing(RuntimeError("a bug")),
    "no-leader": _failing(errors.NoLeader("nobody")),
    "shutting-down": _shutting_down,
    "not-ready": _not_ready,
    "upgrade-pending": _upgrade_pending,
    "transfer-failed": _failing(errors.TransferFailed("no")),
    "outcome-unknown": _unknown,
}


@pytest.mark.parametrize("code", wire.PROBLEMS)
async def test_every_code_is_answered(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each code comes with the status and the outcome of the table, whatever its cause."""
    monkeypatch.setattr(limits, "QUEUE_LENGTH_MAX", 1)
    monkeypatch.setattr(limits, "SESSION_CLAIMS_MAX", 5)
    kind = wire.PROBLEMS[code]
    async with serving() as served:
        check_problem(await WAYS[code](served), kind.status, code, kind.outcome)


def test_the_table_has_every_code_and_no_other() -> None:
    """Every code and outcome of a refusal or failure is in the table, and none of the table is unused."""
    assert set(WAYS) == set(wire.PROBLEMS)
    assert {reason.value for reason in Reason} <= set(wire.PROBLEMS)
    for kind in errors.ClusterError.__subclasses__():
        assert wire.PROBLEMS[kind.code].outcome == kind.outcome


async def test_a_deadlock_is_told_step_by_step() -> None:
    """The cycle begins with the asker; each step waits for what the next one has, and no secret is named."""
    async with serving() as served:
        one = await served.session()
        two = await served.session()
        await served.acquire("a", session_id=one, owner="ann")
        await served.acquire("b", session_id=two, owner="bob")
        waiting = asyncio.ensure_future(served.acquire("b", session_id=one, owner="ann", wait_ms=60_000))
        await until(lambda: served.node.machine.lock("b").queue)
        got = await served.acquire("a", session_id=two, owner="bob", wait_ms=60_000)
        assert got.body["cycle"] == [
            {"owner": "bob", "name": "a", "kind": "lock"},
            {"owner": "ann", "name": "b", "kind": "lock"},
        ]
        assert all(tuple(step) == http_contract.CYCLE_FIELDS for step in got.body["cycle"])
        assert "holders" not in got.body
        waiting.cancel()


async def test_numbers_that_belong_to_a_code_stand_beside_it() -> None:
    """What is available, the limit, the highest token and the oldest event are members of the document."""
    async with serving() as served:
        got = await _permits(served, 1)
        assert (got.body["available"], got.body["limit"]) == (0, 1)
        assert (got.body["queue_length"], len(got.body["holders"])) == (0, 1)
        assert 500 <= got.body["retry_after_ms"] <= 1000
        assert (await _permits(served, 3)).body["limit"] == 1
        assert (await _stale_token(served)).body["highest_token"] == 8
        assert (await _compacted(served)).body["oldest"] == 9
