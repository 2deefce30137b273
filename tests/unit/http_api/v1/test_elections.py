"""Elections over HTTP."""

import asyncio
from typing import Any

from holdfast import wire
from tests.support import http_contract
from tests.unit.http_api.serving import Got, Served, check_problem, serving, until


async def _campaign(served: Served, session_id: str, value: str = "http://a", **fields: Any) -> Got:
    body = {"name": "scheduler", "session_id": session_id, "value": value, **fields}
    return await served.post(wire.ELECTION_CAMPAIGN, **body)


async def test_the_first_candidate_leads() -> None:
    """A campaign that is won names the leader; everybody sees the leader, and nobody its secrets."""
    async with serving() as served:
        session_id = await served.session()
        got = await _campaign(served, session_id, owner="ann")
        assert got.status == 200
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {wire.ELECTION_CAMPAIGN}"]
        assert tuple(got.body["leader"]) == http_contract.LEADER_FIELDS
        leader = {"owner": "ann", "value": "http://a", "token": got.body["token"]}
        assert got.body["leader"] == leader
        assert 59_000 < got.body["expires_in_ms"] <= 60_000
        shown = await served.call("GET", "/v1/elections/scheduler")
        assert tuple(shown.body) == http_contract.ANSWER_FIELDS[f"GET {wire.ELECTION}"]
        read_fields = (*http_contract.LEADER_FIELDS, *http_contract.HOLDER_READ_FIELDS)
        assert tuple(shown.body["leader"]) == read_fields
        assert shown.body["leader"].items() >= leader.items()
        assert shown.body["queue"] == []
        assert session_id not in str(shown)
        assert got.body["hold_id"] not in str(shown)


async def test_nobody_leads_at_first() -> None:
    """An election without candidates has no leader, which is not an error."""
    async with serving() as served:
        got = await served.call("GET", "/v1/elections/none")
        assert got.body == {"name": "none", "leader": None, "queue": []}
        stale = await served.call("GET", "/v1/elections/none?consistency=stale")
        assert (stale.body["leader"], stale.body["lag_ms"]) == (None, 7)


async def test_a_candidate_waits_until_the_leader_resigns() -> None:
    """A resignation makes the next candidate lead, with its own value and a higher token."""
    async with serving() as served:
        first = await _campaign(served, await served.session(), owner="ann")
        refused = await _campaign(served, await served.session())
        check_problem(refused, 409, "lock-held")
        (holder,) = refused.body["holders"]
        assert set(holder) == {"owner", "token", "expires_in_ms", "note", "name"}
        assert holder["owner"] == "ann"
        waiting = asyncio.ensure_future(
            _campaign(served, await served.session(), "http://b", owner="bob", wait_ms=60_000)
        )
        await until(lambda: served.node.machine.election("scheduler").queue)
        (candidate,) = (await served.call("GET", "/v1/elections/scheduler")).body["queue"]
        assert tuple(candidate) == (*http_contract.CANDIDATE_FIELDS, "session_name")
        assert (candidate["owner"], candidate["position"]) == ("bob", 1)
        resigned = await served.post(wire.ELECTION_RESIGN, hold_id=first.body["hold_id"])
        assert tuple(resigned.body) == http_contract.ANSWER_FIELDS[f"POST {wire.ELECTION_RESIGN}"]
        got = await waiting
        token = got.body["token"]
        assert got.body["leader"] == {"owner": "bob", "value": "http://b", "token": token}
        assert token > first.body["token"]
        again = await served.post(wire.ELECTION_RESIGN, hold_id=first.body["hold_id"])
        check_problem(again, 410, "lease-expired")


async def test_a_leader_proclaims() -> None:
    """The leader's value changes under the same token; other candidates cannot proclaim."""
    async with serving() as served:
        led = await _campaign(served, await served.session())
        got = await served.post(wire.ELECTION_PROCLAIM, hold_id=led.body["hold_id"], value="http://c")
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {wire.ELECTION_PROCLAIM}"]
        assert got.body["token"] == led.body["token"]
        leader = (await served.call("GET", "/v1/elections/scheduler")).body["leader"]
        assert leader["value"] == "http://c"
        lock = await served.acquire("a")
        got = await served.post(wire.ELECTION_PROCLAIM, hold_id=lock.body["hold_id"], value="x")
        check_problem(got, 400, "invalid-request")
        got = await served.post(wire.ELECTION_PROCLAIM, hold_id="gone", value="x")
        check_problem(got, 410, "lease-expired")


async def test_a_leader_ends_with_its_session() -> None:
    """When the session of a leader is closed nobody leads; a session that is over does not campaign."""
    async with serving() as served:
        session_id = await served.session()
        await _campaign(served, session_id)
        (held,) = (await served.call("GET", f"/v1/sessions/{session_id}")).body["holds"]
        assert (held["kind"], held["name"]) == ("election", "scheduler")
        assert not {"mode", "scope", "permits"} & set(held)
        await served.call("DELETE", f"/v1/sessions/{session_id}")
        assert (await served.call("GET", "/v1/elections/scheduler")).body["leader"] is None
        check_problem(await _campaign(served, session_id), 410, "session-expired")
