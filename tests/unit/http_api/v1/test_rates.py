"""Rate limits over HTTP."""

import asyncio
from typing import Any

import pytest

from cluster.commands import kept_waits
from holdfast import wire
from tests.support import http_contract
from tests.unit.http_api.serving import Got, Served, check_problem, serving, until


async def _take(served: Served, **fields: Any) -> Got:
    body = {"name": "mail", "limit": 2, "window_ms": 60_000, "algorithm": "sliding-window", **fields}
    return await served.post(wire.RATE_TAKE, **body)


async def test_so_many_are_allowed_in_a_window() -> None:
    """An answer says whether it is allowed; if not, that is not an error, and it says when to come again."""
    async with serving() as served:
        first = await _take(served)
        assert first.status == 200
        assert tuple(first.body) == http_contract.ANSWER_FIELDS[f"POST {wire.RATE_TAKE}"]
        assert (first.body["allowed"], first.body["remaining"]) == (True, 1)
        assert first.body["retry_after_ms"] == 0
        assert (await _take(served)).body["remaining"] == 0
        got = await _take(served)
        assert (got.status, got.body["allowed"], got.body["remaining"]) == (200, False, 0)
        assert 59_000 < got.body["retry_after_ms"] <= 60_000
        assert got.body["retry_after_ms"] <= got.body["reset_in_ms"] <= 60_001
        assert (await _take(served, name="other")).body["allowed"] is True


@pytest.mark.parametrize("algorithm", http_contract.ALGORITHMS)
async def test_every_algorithm_is_served(algorithm: str) -> None:
    """Each way of counting takes a cost and keeps what is left."""
    async with serving() as served:
        got = await _take(served, algorithm=algorithm, limit=10, cost=4)
        assert (got.body["allowed"], got.body["remaining"]) == (True, 6)


async def test_the_fixed_window_is_the_default() -> None:
    """Without an algorithm in the request, the windows are fixed, the same for all."""
    async with serving() as served:
        body = {"name": "a", "limit": 1, "window_ms": 3_600_000}
        assert (await served.post(wire.RATE_TAKE, **body)).body["allowed"] is True
        fixed = await served.post(wire.RATE_TAKE, **body, algorithm="fixed-window")
        assert fixed.body["allowed"] is False


async def test_answers_carry_the_fields_of_the_draft() -> None:
    """RateLimit-Policy and RateLimit are structured fields that count whole seconds, rounded up."""
    async with serving() as served:
        got = await _take(served, limit=100, window_ms=10_000)
        assert got.headers[wire.HEADER_RATE_POLICY] == '"default";q=100;w=10'
        assert got.headers[wire.HEADER_RATE] == '"default";r=99;t=10'
        got = await _take(served, name="fast", limit=5, window_ms=1_001, cost=5)
        assert got.headers[wire.HEADER_RATE_POLICY] == '"default";q=5;w=2'
        assert got.headers[wire.HEADER_RATE] == '"default";r=0;t=2'
        assert "Retry-After" not in got.headers


async def test_the_answer_is_held_until_the_reserved_moment() -> None:
    """A client that is willing to wait gets the next place, and the answer when its moment has come."""
    async with serving() as served:
        loop = asyncio.get_running_loop()
        await _take(served, limit=1, window_ms=200, algorithm="gcra")
        began_s = loop.time()
        got = await _take(served, limit=1, window_ms=200, algorithm="gcra", wait_ms=60_000)
        assert (got.status, got.body["allowed"]) == (200, True)
        assert loop.time() - began_s >= 0.15
        assert got.body["reset_in_ms"] <= 250


async def test_a_place_that_is_too_far_away_is_refused_at_once() -> None:
    """A wait that would not be enough is not begun; `retry_after_ms` says when it would be."""
    async with serving() as served:
        await _take(served, limit=1, algorithm="gcra")
        got = await _take(served, limit=1, algorithm="gcra", wait_ms=20_000)
        assert (got.status, got.body["allowed"]) == (200, False)
        assert 39_000 < got.body["retry_after_ms"] <= 40_000


async def test_a_node_that_stops_does_not_let_anybody_go_early() -> None:
    """A client that still waits hears that the outcome is unknown, and gets it elsewhere by the same id."""
    async with serving() as served:
        await _take(served, limit=1, algorithm="gcra")
        waiting = asyncio.ensure_future(
            _take(served, limit=1, algorithm="gcra", wait_ms=60_000, request_id="request-number-01")
        )
        await until(lambda: len(served.node.timeouts_s) == 2)
        served.node.begin_shutdown()
        got = await waiting
        check_problem(got, 504, "outcome-unknown", "unknown")
        assert "request_id" in got.body["detail"]


async def _waits(served: Served, **fields: Any) -> "asyncio.Task[Got]":
    """Let a client wait for a place."""
    places = served.node.machine.state.rates.places
    waiting = asyncio.create_task(_take(served, limit=1, wait_ms=60_000, **fields))
    await until(lambda: places)
    return waiting


async def test_a_client_that_goes_away_gives_its_place_back() -> None:
    """At once, if it has no `request_id`: nobody could ask for the same again."""
    async with serving() as served:
        places = served.node.machine.state.rates.places
        await _take(served, limit=1)
        for _ in range(3):
            waiting = await _waits(served)
            waiting.cancel()
            await until(lambda: not places)
        assert (await _take(served, limit=1)).body["retry_after_ms"] <= 60_000


async def test_a_place_with_a_request_id_is_kept_for_a_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for again it goes on; if nobody does, it is given back, and a later request begins anew."""
    named = {"request_id": "request-number-01"}
    async with serving() as served:
        places = served.node.machine.state.rates.places
        await _take(served, limit=1)
        (await _waits(served, **named)).cancel()
        await until(lambda: len(served.node._kept))
        (place,) = places.values()
        again = await _waits(served, **named)
        await until(lambda: len(place.ids) == 2)
        assert len(places) == 1
        monkeypatch.setattr(kept_waits, "KEEP_S", 0.01)
        again.cancel()
        await until(lambda: not places)
        polled = await _take(served, limit=1, wait_ms=60_000, poll_ms=1, **named)
        assert polled.status == 202
        assert len(places) == 1
        await until(lambda: not places)


async def test_the_same_request_id_takes_once() -> None:
    """A repeated take gets the first outcome and costs nothing."""
    async with serving() as served:
        for _ in range(3):
            assert (await _take(served, request_id="request-number-01")).body["remaining"] == 1
        assert (await _take(served)).body["remaining"] == 0


async def test_what_a_namespace_sets_may_be_left_out() -> None:
    """The header fields tell it; something else is refused, and so is nothing where nothing is set."""
    async with serving() as served:
        rate = {"limit": 3, "window_ms": 60_000, "algorithm": "gcra"}
        got = await served.call("PUT", "/v1/namespaces/mail", {"rate": rate, "reason": "by hand"})
        assert got.body["settings"]["rate"] == rate
        got = await served.post(wire.RATE_TAKE, name="mail/ann", cost=2)
        assert (got.body["remaining"], got.headers[wire.HEADER_RATE_POLICY]) == (1, '"default";q=3;w=60')
        assert (await served.post(wire.RATE_PEEK, name="mail/ann")).body["remaining"] == 1
        got = await served.post(wire.RATE_TAKE, name="mail/ann", limit=4)
        check_problem(got, 409, "limit-mismatch")
        told = {field: got.body[field] for field in ("namespace", "limit", "window_ms")}
        assert told == {"namespace": "mail", "limit": 3, "window_ms": 60_000}
        check_problem(await served.post(wire.RATE_TAKE, name="post"), 409, "limit-mismatch")
        await served.call(
            "PUT", "/v1/namespaces/mail", {"rate": {**rate, "window_ms": 120_000}, "reason": "by hand"}
        )
        assert (await served.post(wire.RATE_TAKE, name="mail/ann", cost=2)).body["allowed"] is False
        several = {"locks": [{"name": "a"}], "rate_limits": [{"name": "mail/ann"}], "ttl_ms": 1000}
        assert (await served.post(wire.ACQUIRE, **several)).status == 200
        got = await served.call(
            "PUT", "/v1/namespaces/mail", {"rate": {**rate, "limit": 0}, "reason": "by hand"}
        )
        check_problem(got, 400, "invalid-request")
