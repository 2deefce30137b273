"""Lists of all kinds, what somebody holds and waits for, and questions that change nothing, over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import wire
from lockstate.reads import listings
from lockstate.words import limits
from tests.support import http_contract
from tests.unit.http_api.serving import Served, check_problem, serving, until

FIELDS = http_contract.ANSWER_FIELDS


async def _pages(served: Served, path: str, key: str, query: str = "") -> AsyncIterator[Any]:
    """Yield the things of all pages of one, as a client would ask for them."""
    after = ""
    while True:
        got = await served.call("GET", f"{path}?limit=1{query}" + (f"&after={after}" if after else ""))
        assert got.status == 200, got.body
        assert tuple(got.body) == FIELDS[f"GET {path}"]
        for item in got.body[key]:
            yield item
        if got.body["next"] is None:
            return
        after = got.body["next"]


async def _busy(served: Served) -> tuple[str, str]:
    """Let two sessions of two hosts hold things of all kinds; return their ids."""
    one = await served.session(labels={"owner": "ann", "host": "n1"})
    two = await served.session(labels={"owner": "bob", "host": "n2"})
    await served.acquire("db/a", session_id=one)
    await served.acquire("db/b", owner="eve")
    permits = {"name": "pool", "limit": 3, "session_id": one, "permits": 2}
    assert (await served.post(wire.SEMAPHORE_ACQUIRE, **permits)).status == 200
    await served.post(wire.SEMAPHORE_ACQUIRE, name="rooms", limit=1, ttl_ms=60_000)
    await served.post(wire.ELECTION_CAMPAIGN, name="boss", session_id=two, value="v")
    await served.post(wire.RATE_TAKE, name="mail", limit=5, window_ms=60_000, algorithm="gcra")
    await served.post(wire.RATE_TAKE, name="mail", limit=5, window_ms=60_000)
    await served.post(wire.FENCE_ADVANCE, name="disk/1", token=5)
    await served.post(wire.FENCE_ADVANCE, name="disk/2", token=0)
    return one, two


async def test_every_kind_has_a_list_in_pages() -> None:
    """The pages of each list have everything once, in order, with the published fields."""
    async with serving() as served:
        await _busy(served)
        semaphores = [row async for row in _pages(served, wire.SEMAPHORES, "semaphores")]
        assert [(row["name"], row["available"], row["holders_count"]) for row in semaphores] == [
            ("pool", 1, 1),
            ("rooms", 0, 1),
        ]
        assert tuple(semaphores[0]) == http_contract.SEMAPHORE_ROW_FIELDS
        (election,) = [row async for row in _pages(served, wire.ELECTIONS, "elections")]
        assert tuple(election) == http_contract.ELECTION_ROW_FIELDS
        leader = (*http_contract.LEADER_FIELDS, *http_contract.HOLDER_READ_FIELDS)
        assert tuple(election["leader"]) == leader
        rates = [row async for row in _pages(served, wire.RATES, "rate_limits")]
        assert [(row["name"], row["algorithm"]) for row in rates] == [
            ("mail", "fixed-window"),
            ("mail", "gcra"),
        ]
        assert tuple(rates[0]) == http_contract.RATE_ROW_FIELDS
        fences = [row async for row in _pages(served, wire.FENCES, "fences", "&prefix=disk/")]
        assert fences == [
            {"name": "disk/1", "highest_token": 5},
            {"name": "disk/2", "highest_token": 0},
        ]
        sessions = [row async for row in _pages(served, wire.SESSIONS, "sessions")]
        assert [(row["owner"], row["holds_count"]) for row in sessions] == [("ann", 2), ("bob", 1)]
        assert tuple(sessions[0]) == http_contract.SESSION_ROW_FIELDS


async def test_what_a_host_has_is_one_call() -> None:
    """By a label of the sessions, by owner, or by the public name of one session: holds and waits."""
    async with serving() as served:
        one, two = await _busy(served)
        waiting = asyncio.ensure_future(served.acquire("db/b", session_id=one, wait_ms=60_000))
        await until(lambda: served.node.machine.lock("db/b").queue)
        got = await served.call("GET", f"{wire.HOLDS}?label=host:n1")
        assert tuple(got.body) == FIELDS[f"GET {wire.HOLDS}"]
        assert [(hold["kind"], hold["name"]) for hold in got.body["holds"]] == [
            ("lock", "db/a"),
            ("semaphore", "pool"),
        ]
        (ticket,) = got.body["tickets"]
        assert (ticket["kind"], ticket["name"], ticket["position"]) == ("lock", "db/b", 1)
        name = got.body["holds"][0]["session_name"]
        assert got.body["holds"][0]["labels"] == {"owner": "ann", "host": "n1"}
        of_session = await served.call("GET", f"{wire.HOLDS}?session_name={name}")
        tokens = [hold["token"] for hold in got.body["holds"]]
        assert [hold["token"] for hold in of_session.body["holds"]] == tokens
        seen = await served.call("GET", f"/v1/sessions/{one}")
        assert seen.body["session_name"] == name
        assert tuple(seen.body) == FIELDS[f"GET {wire.SESSION}"]
        eves = await served.call("GET", f"{wire.HOLDS}?owner=eve")
        assert [hold["name"] for hold in eves.body["holds"]] == ["db/b"]
        assert "session_name" not in eves.body["holds"][0]
        for secret in (one, two):
            assert secret not in str([got.body, eves.body])
        waiting.cancel()


async def test_holdings_are_looked_through_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call goes on until it has what was asked for, a few names at a time, each slice a new read."""
    monkeypatch.setattr(limits, "LIST_ROWS_MAX", 2)
    async with serving() as served:
        for number in range(9):
            await served.acquire(f"job/{number}", owner="ann" if number in (1, 8) else "bob")
        reads_count = len(served.node.timeouts_s)
        got = await served.call("GET", f"{wire.HOLDS}?owner=ann")
        assert [hold["name"] for hold in got.body["holds"]] == ["job/1", "job/8"]
        assert got.body["next"] is None
        assert len(served.node.timeouts_s) > reads_count + 3
        found = [hold["name"] async for hold in _pages(served, wire.HOLDS, "holds", "&owner=ann")]
        assert found == ["job/1", "job/8"]
        stale = await served.call("GET", f"{wire.HOLDS}?owner=ann&consistency=stale")
        assert len(stale.body["holds"]) == 2
        assert stale.body["lag_ms"] >= 7


async def test_a_stale_answer_of_several_slices_says_how_old_the_first_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is taken while others are looked at may be missing, and is behind the revision that is said."""
    monkeypatch.setattr(limits, "LIST_ROWS_MAX", 2)
    async with serving() as served:
        for number in range(9):
            await served.acquire(f"job/{number}", owner="ann")
        before, find = served.node.machine.revision, listings.holdings
        taken: list[asyncio.Task[Any]] = []

        def holdings(*asked: Any) -> Any:
            found = find(*asked)
            if not taken:
                taken.append(asyncio.get_running_loop().create_task(served.acquire("a", owner="ann")))
            return found

        monkeypatch.setattr(listings, "holdings", holdings)
        stale = await served.call("GET", f"{wire.HOLDS}?owner=ann&consistency=stale")
        await taken[0]
        assert served.node.machine.revision > before
        assert (stale.body["revision"], len(stale.body["holds"])) == (before, 9)


async def test_what_is_held_for_long_is_found() -> None:
    """Locks, and holds of all kinds, can be asked for by how long they have been held."""
    async with serving() as served:
        await served.acquire("a")
        got = await served.call("GET", f"{wire.LOCKS}?held_longer_than_ms=3600000")
        assert got.body == {"locks": [], "next": None}
        got = await served.call("GET", f"{wire.HOLDS}?held_longer_than_ms=3600000")
        assert got.body == {"holds": [], "tickets": [], "next": None}
        got = await served.call("GET", f"{wire.LOCKS}?held_longer_than_ms=0")
        assert [lock["name"] for lock in got.body["locks"]] == ["a"]


async def test_a_waiter_can_ask_how_far_it_is() -> None:
    """Its number stands in the queue; when the wait is over, the number is told to be."""
    async with serving() as served:
        session = await served.session()
        await served.acquire("a", session_id=session)
        other = await served.session()
        waiting = asyncio.ensure_future(served.acquire("a", session_id=other, wait_ms=60_000))
        await until(lambda: served.node.machine.lock("a").queue)
        (ticket,) = (await served.call("GET", "/v1/locks/a")).body["queue"]
        got = await served.call("GET", f"/v1/tickets/{ticket['ticket']}")
        assert tuple(got.body) == (*FIELDS[f"GET {wire.TICKET}"], "session_name")
        assert (got.body["names"], got.body["position"], got.body["estimate_ms"]) == (["a"], 1, None)
        await served.call("DELETE", f"/v1/sessions/{session}")
        assert (await waiting).status == 200
        got = await served.call("GET", f"/v1/tickets/{ticket['ticket']}")
        check_problem(got, 410, "ticket-ended")


async def test_a_conversion_that_waits_says_so() -> None:
    """A ticket of a conversion is marked as one, also without a session."""
    async with serving() as served:
        held = await served.acquire("a", mode="shared")
        await served.acquire("a", mode="shared")
        fields = {"hold_id": held.body["hold_id"], "mode": "exclusive", "wait_ms": 60_000}
        waiting = asyncio.ensure_future(served.post(wire.LOCK_CONVERT, **fields))
        await until(lambda: served.node.machine.lock("a").queue)
        (ticket,) = (await served.call("GET", "/v1/locks/a")).body["queue"]
        got = await served.call("GET", f"/v1/tickets/{ticket['ticket']}")
        assert got.body["conversion"] is True
        assert "session_name" not in got.body
        waiting.cancel()


async def test_a_rate_limit_and_a_fence_can_be_looked_at() -> None:
    """A peek takes nothing; a fence that was never advanced has no token."""
    async with serving() as served:
        await _busy(served)
        body = {"name": "mail", "limit": 5, "window_ms": 60_000, "algorithm": "gcra", "cost": 5}
        for _ in range(2):
            got = await served.post(wire.RATE_PEEK, **body)
            assert tuple(got.body) == FIELDS[f"POST {wire.RATE_PEEK}"]
            assert (got.body["allowed"], got.body["remaining"]) == (False, 4)
        got = await served.post(wire.RATE_PEEK, name="new", limit=5, window_ms=1000)
        assert got.body == {"allowed": True, "remaining": 5, "retry_after_ms": 0, "reset_in_ms": 0}
        assert (await served.call("GET", "/v1/fences/disk/1")).body == {
            "name": "disk/1",
            "highest_token": 5,
        }
        assert (await served.call("GET", "/v1/fences/x")).body == {"name": "x", "highest_token": None}


async def test_a_check_knows_tokens_of_all_kinds() -> None:
    """Permits and leaders have tokens as locks have; `kind` asks for one of them only."""
    async with serving() as served:
        await _busy(served)
        machine = served.node.machine
        leader = machine.election("boss").leader
        assert leader is not None
        for name, token, kind in (
            ("pool", machine.semaphore("pool").holders[0].token, "semaphore"),
            ("boss", leader.token, "election"),
            ("db/a", machine.lock("db/a").holders[0].token, "lock"),
        ):
            got = await served.post(wire.FENCE_CHECK, name=name, token=token)
            assert got.body == {"valid": True, "current_token": token}
            got = await served.post(wire.FENCE_CHECK, name=name, token=token, kind=kind)
            assert got.body["valid"] is True
            others = {"lock", "semaphore", "election"} - {kind}
            for other in others:
                got = await served.post(wire.FENCE_CHECK, name=name, token=token, kind=other)
                assert got.body == {"valid": False, "current_token": 0}
        got = await served.post(wire.FENCE_CHECK, name="a", token=1, kind="mutex")
        check_problem(got, 400, "invalid-request")
        assert "election" in got.body["detail"]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (f"{wire.SEMAPHORES}?limit=0", "limit"),
        (f"{wire.FENCES}?limit=1001", "limit"),
        (f"{wire.ELECTIONS}?prefix=%00", "prefix"),
        (f"{wire.RATES}?after={'x' * 600}", "after"),
        (f"{wire.LOCKS}?held_longer_than_ms=-1", "held_longer_than_ms"),
        (f"{wire.LOCKS}?held_longer_than_ms=1e3", "held_longer_than_ms"),
        (f"{wire.HOLDS}?label=host", "label"),
        (f"{wire.HOLDS}?label=:n1", "label"),
        (f"{wire.HOLDS}?label=host:{'x' * 300}", "label"),
        (f"{wire.HOLDS}?owner={'x' * 300}", "owner"),
        (f"{wire.HOLDS}?principal={'x' * 65}", "principal"),
        (f"{wire.SESSIONS}?principal=a%00", "principal"),
        (f"{wire.HOLDS}?session_name=s-1&principal=ann", "session_name"),
        (f"{wire.HOLDS}?session_name=worker", "session_name"),
        (f"{wire.HOLDS}?session_name=s-1&owner=ann", "session_name"),
        (f"{wire.SESSIONS}?prefix=s", "prefix"),
        ("/v1/tickets/0", "ticket"),
        ("/v1/tickets/x", "ticket"),
    ],
)
async def test_bad_questions_name_the_field(path: str, field: str) -> None:
    """A wrong value is refused, and the answer begins with the parameter's name."""
    async with serving() as served:
        got = await served.call("GET", path)
        check_problem(got, 400, "invalid-request")
        assert got.body["detail"].startswith(f"{field}:")


async def test_a_session_that_is_gone_holds_nothing() -> None:
    """A public name outlives its session, and then finds none; a stale read may know it later."""
    async with serving() as served:
        got = await served.call("GET", f"{wire.HOLDS}?session_name=s-99")
        check_problem(got, 410, "session-expired")


async def test_a_bad_peek_is_refused_like_a_bad_request() -> None:
    """What a rate limit would refuse, a peek refuses."""
    async with serving() as served:
        got = await served.post(wire.RATE_PEEK, name="mail", limit=5, window_ms=1, cost=1)
        check_problem(got, 400, "invalid-request")
        got = await served.post(wire.RATE_PEEK, name="mail", limit=5, window_ms=1000, cost=6)
        check_problem(got, 400, "invalid-request")


LARGE = (
    wire.LOCKS,
    wire.SEMAPHORES,
    wire.ELECTIONS,
    wire.RATES,
    wire.FENCES,
    wire.CELLS,
    wire.SESSIONS,
    wire.HOLDS,
    wire.QUOTAS,
    wire.NAMESPACES,
    wire.FREEZES,
    wire.AUDIT,
    f"{wire.AUDIT}?name=a",
)


@pytest.mark.parametrize("path", LARGE)
async def test_large_answers_wait_for_their_turn(path: str) -> None:
    """While another one is made they wait, in vain if it takes too long; nothing else waits for them.

    Nor do metrics, which operators look at when there are too many.
    """
    async with serving() as served:
        deadline_s = asyncio.get_running_loop().time() + 60.0
        async with served.authentication.gateway._turns.turn(deadline_s):
            assert (await served.call("GET", wire.METRICS)).status == 200
            for query in ("", "consistency=stale"):
                asked = path + ("&" if "?" in path else "?") + query
                got = await served.call("GET", asked, headers={wire.HEADER_TIMEOUT_MS: "50"})
                check_problem(got, 429, "overloaded")
            assert (await served.call("GET", "/v1/locks/a")).status == 200
            assert (await served.post(wire.LOCK_ACQUIRE, name="a", ttl_ms=60_000)).status == 200
        assert (await served.call("GET", path)).status == 200
