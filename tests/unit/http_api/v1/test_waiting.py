"""Calls that may wait: asked in slices, asked again on another connection, withdrawn."""

import asyncio
import contextlib
from typing import Any

import pytest

from cluster.commands import kept_waits
from holdfast import wire
from tests.unit.http_api.serving import Served, check_problem, serving, until

REQUEST_ID = "request-number-01"
LONG_MS = 60_000
LEASED = {"ttl_ms": LONG_MS}

CALLS = [
    (wire.LOCK_ACQUIRE, {"name": "a", **LEASED}),
    (wire.SEMAPHORE_ACQUIRE, {"name": "a", "limit": 1, **LEASED}),
    (
        wire.ACQUIRE,
        {"locks": [{"name": "a"}], "permits": [{"name": "p", "limit": 1}], **LEASED},
    ),
]
"""Calls that wait if they are made twice."""


async def _kept(served: Served, path: str, fields: dict[str, Any]) -> None:
    """Let a request wait, and its connection end."""
    with contextlib.suppress(asyncio.CancelledError):
        waiting = asyncio.create_task(served.post(path, **fields))
        await until(lambda: served.node.machine.state.tickets)
        waiting.cancel()
        await waiting
    await until(lambda: len(served.node._kept))


@pytest.mark.parametrize(("path", "fields"), CALLS)
async def test_a_wait_can_be_asked_for_in_slices(path: str, fields: dict[str, Any]) -> None:
    """After `poll_ms` the answer says where the request stands; asked again it goes on, and is granted."""
    wait = {**fields, "wait_ms": LONG_MS, "request_id": REQUEST_ID}
    async with serving() as served:
        held = await served.post(path, **fields)
        for poll_ms in (0, 20):
            told = await served.post(path, **wait, poll_ms=poll_ms)
            assert told.status == 202
            number, waited_ms = told.body["ticket"], told.body["waited_ms"]
            assert told.body == {
                "ticket": number,
                "position": 1,
                "estimate_ms": None,
                "waited_ms": waited_ms,
                "ends_in_ms": LONG_MS - waited_ms,
                "kept_ms": wire.WAIT_KEPT_MS,
                "revision": told.body["revision"],
            }
        assert len(served.node.machine.state.tickets) == 1
        waiting = asyncio.create_task(served.post(path, **wait, poll_ms=LONG_MS))
        await until(lambda: not len(served.node._kept))
        release = wire.SEMAPHORE_RELEASE if path == wire.SEMAPHORE_ACQUIRE else wire.LOCK_RELEASE
        await served.post(release, hold_id=held.body["hold_id"])
        granted = await waiting
        assert (granted.status, granted.body["repeated"]) == (200, True)
        assert granted.body["token"] > held.body["token"]


async def test_elections_conversions_and_additions_wait_in_slices() -> None:
    """As all that waits in a queue does."""
    async with serving() as served:
        session = await served.session()
        await served.post(wire.ELECTION_CAMPAIGN, name="e", session_id=session, value="1")
        other = await served.session()
        first, _ = [await served.acquire("a", mode="shared") for _ in range(2)]
        await served.acquire("b")
        change = {"hold_id": first.body["hold_id"], "wait_ms": LONG_MS, "poll_ms": 0}
        for path, fields in (
            (wire.ELECTION_CAMPAIGN, {"name": "e", "session_id": other, "value": "2", "wait_ms": LONG_MS}),
            (wire.LOCK_CONVERT, {**change, "mode": "exclusive"}),
        ):
            told = await served.post(path, **{**fields, "poll_ms": 0, "request_id": REQUEST_ID})
            assert (told.status, told.body["position"]) == (202, 1)
        scope = {"hold_id": first.body["hold_id"]}
        assert (await served.post(wire.WAITS_WITHDRAW, request_id=REQUEST_ID, **scope)).body["withdrawn"]
        told = await served.post(wire.LOCK_ADD, **change, locks=[{"name": "b"}], request_id=f"{REQUEST_ID}+")
        assert (told.status, told.body["position"]) == (202, 1)


async def test_a_reserved_moment_is_waited_for_in_slices() -> None:
    """Of a rate limit, and of several kinds once all else is free; there is no ticket any more."""
    rate = {"name": "r", "limit": 1, "window_ms": 300}
    wait = {"wait_ms": LONG_MS, "request_id": REQUEST_ID}
    several = {"locks": [{"name": "a"}], "rate_limits": [rate], **LEASED, **wait}
    async with serving() as served:
        for path, fields in ((wire.RATE_TAKE, {**rate, **wait}), (wire.ACQUIRE, several)):
            await served.post(wire.RATE_TAKE, **rate)
            told = await served.post(path, **fields, poll_ms=0)
            assert (told.status, told.body["ticket"], told.body["position"]) == (202, None, 0)
            assert 0 < told.body["estimate_ms"] <= 900
            granted = await served.post(path, **fields, poll_ms=LONG_MS)
            assert (granted.status, granted.body["repeated"]) == (200, True)


async def test_slices_need_an_id() -> None:
    """Nobody could ask for the same request again; and they have the bounds of waits."""
    async with serving() as served:
        got = await served.acquire("a", wait_ms=10, poll_ms=10)
        check_problem(got, 400, "invalid-request")
        assert got.body["detail"].startswith("poll_ms: needs a request_id")
        got = await served.acquire("a", wait_ms=10, poll_ms=-1, request_id=REQUEST_ID)
        assert got.body["detail"].startswith("poll_ms: -1; must be 0 to")


async def test_a_slice_that_is_longer_than_the_wait_ends_with_it() -> None:
    """The refusal comes as without slices, and is remembered as that of every wait."""
    async with serving() as served:
        await served.acquire("a")
        wait = {"wait_ms": 20, "poll_ms": LONG_MS, "request_id": REQUEST_ID}
        check_problem(await served.acquire("a", **wait), 409, "lock-held")
        assert (await served.acquire("a", **wait)).body["repeated"]


async def test_a_connection_that_ends_keeps_the_place() -> None:
    """The same request asked again goes on ahead of those that came meanwhile."""
    wait = {"name": "a", **LEASED, "wait_ms": LONG_MS}
    async with serving() as served:
        held = await served.acquire("a")
        await _kept(served, wire.LOCK_ACQUIRE, {**wait, "request_id": REQUEST_ID})
        later = asyncio.create_task(served.acquire("a", wait_ms=LONG_MS))
        await until(lambda: len(served.node.machine.state.tickets) == 2)
        again = asyncio.create_task(served.post(wire.LOCK_ACQUIRE, **wait, request_id=REQUEST_ID))
        await until(lambda: not len(served.node._kept))
        await served.post(wire.LOCK_RELEASE, hold_id=held.body["hold_id"])
        granted = await again
        assert not later.done()
        await served.post(wire.LOCK_RELEASE, hold_id=granted.body["hold_id"])
        assert (await later).body["token"] > granted.body["token"]


async def test_a_place_that_nobody_asks_for_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the grace the request is gone from the queue, or its hold is released: nobody heard of it."""
    monkeypatch.setattr(kept_waits, "KEEP_S", 0.05)
    wait = {"name": "a", **LEASED, "wait_ms": LONG_MS, "request_id": REQUEST_ID}
    async with serving() as served:
        held = await served.acquire("a")
        await _kept(served, wire.LOCK_ACQUIRE, wait)
        await until(lambda: not served.node.machine.state.tickets)
        monkeypatch.setattr(kept_waits, "KEEP_S", 0.2)
        await _kept(served, wire.LOCK_ACQUIRE, wait)
        await served.post(wire.LOCK_RELEASE, hold_id=held.body["hold_id"])
        assert served.node.machine.state.holds
        await until(lambda: not served.node.machine.state.holds)


async def test_a_request_is_withdrawn_wherever_it_waits() -> None:
    """Its connection is told that it got nothing; a grant is taken back; an unknown one is not refused."""
    wait = {"owner": "ann", "wait_ms": LONG_MS, "request_id": REQUEST_ID}
    withdrawal = {"owner": "ann", "request_id": REQUEST_ID}
    async with serving() as served:
        assert (await served.post(wire.WAITS_WITHDRAW, **withdrawal)).body["withdrawn"] is False
        held = await served.acquire("a")
        waiting = asyncio.create_task(served.acquire("a", **wait))
        await until(lambda: served.node.machine.state.tickets)
        withdrawn = await served.post(wire.WAITS_WITHDRAW, **withdrawal)
        assert withdrawn.body == {"withdrawn": True, "revision": withdrawn.body["revision"]}
        check_problem(await waiting, 409, "lock-held")
        await served.post(wire.LOCK_RELEASE, hold_id=held.body["hold_id"])
        assert (await served.acquire("a", **wait)).status == 200
        assert (await served.post(wire.WAITS_WITHDRAW, **withdrawal)).body["withdrawn"] is True
        assert not served.node.machine.state.holds


async def test_what_a_session_had_before_is_not_withdrawn() -> None:
    """A request that found its session's own hold has got nothing that could be taken back."""
    async with serving() as served:
        session = await served.session()
        await served.acquire("a", session_id=session, request_id=REQUEST_ID)
        second = f"{REQUEST_ID}+"
        assert (await served.acquire("a", session_id=session, request_id=second)).body["already_held"]
        for request_id in (REQUEST_ID, second):
            got = await served.post(wire.WAITS_WITHDRAW, session_id=session, request_id=request_id)
            assert got.body["withdrawn"] is False
        assert served.node.machine.state.holds


async def test_a_withdrawal_says_what_the_id_counts_within() -> None:
    """A hold goes with nothing else, and an id has as many characters as any other."""
    async with serving() as served:
        got = await served.post(wire.WAITS_WITHDRAW, request_id=REQUEST_ID, hold_id="h", owner="o")
        check_problem(got, 400, "invalid-request")
        check_problem(await served.post(wire.WAITS_WITHDRAW, request_id=""), 400, "invalid-request")
