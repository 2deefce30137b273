"""Over HTTP, too, what belongs to another principal never was: both lanes, the stream, and what is read."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from cluster.observing.event_log import Position
from holdfast import wire
from holdfast.wire.stream import JSON, VERSION
from http_api.v1.event_feeds import EventFeeds
from http_api.v1.event_text import OfSession
from http_api.v1.stream import EXPIRED
from http_api.v1.watch import SessionStream
from lockapi.gateway import Gateway
from lockapi.problems import ProblemError
from lockapi.rights import EVERYTHING, Principal
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.ids import SessionId
from tests.unit.http_api.serving import Got, Served, bearer, serving, token_line, until

TOKENS = {name: f"token-of-{name}-".ljust(40, "x") for name in ("ann", "bob", "ops")}
LINES = b"".join(
    [
        token_line("ann", TOKENS["ann"], "read,acquire"),
        token_line("bob", TOKENS["bob"], "read,acquire"),
        token_line("ops", TOKENS["ops"], "read,acquire,force,admin,metrics"),
    ]
)
REQUEST_ID = "0123456789abcdef"


async def by(served: Served, who: str, method: str, path: str, **body: Any) -> Got:
    """Make a call as somebody."""
    return await served.call(method, path, body or None, headers=bearer(TOKENS[who]))


async def opened(served: Served, who: str) -> str:
    """Open a session as somebody; return its id."""
    return str((await by(served, who, "POST", wire.SESSIONS, ttl_ms=60_000)).body["session_id"])


async def acquired(served: Served, who: str, name: str, **fields: Any) -> Got:
    """Acquire a lock as somebody."""
    lease = {} if "session_id" in fields else {"ttl_ms": 60_000}
    return await by(served, who, "POST", wire.LOCK_ACQUIRE, name=name, **lease, **fields)


@pytest.mark.parametrize("fast_lane", [True, False])
async def test_the_session_and_the_holds_of_another(fast_lane: bool) -> None:  # noqa: FBT001 - a parameter
    """Bob knows Ann's ids, and is answered as if he had made them up."""
    async with serving(tokens=LINES, fast_lane=fast_lane) as served:
        session = await opened(served, "ann")
        own = (await acquired(served, "ann", "a")).body["hold_id"]
        in_session = (await acquired(served, "ann", "b", session_id=session)).body["hold_id"]
        for hold_id in (own, in_session):
            for path in (wire.LOCK_RENEW, wire.LOCK_RELEASE):
                got = await by(served, "bob", "POST", path, hold_id=hold_id)
                made_up = await by(served, "bob", "POST", path, hold_id="f" * 32)
                assert (got.status, got.body["code"]) == (410, "lease-expired")
                assert got.body["detail"] == made_up.body["detail"]
        for method, path in (
            ("GET", f"/v1/sessions/{session}"),
            ("POST", f"/v1/sessions/{session}/keepalive"),
            ("GET", f"/v1/sessions/{session}/watch"),
            ("DELETE", f"/v1/sessions/{session}"),
        ):
            got = await by(served, "bob", method, path)
            assert (got.status, got.body["code"]) == (410, "session-expired"), path
            assert got.body["detail"] == "the session has expired or never existed"
        assert (await acquired(served, "bob", "c", session_id=session)).body["code"] == "session-expired"
        assert served.node.machine.counts()["holds"] == 2
        got = await by(served, "ann", "GET", f"/v1/sessions/{session}")
        assert [hold["name"] for hold in got.body["holds"]] == ["b"]
        assert (await by(served, "ann", "POST", wire.LOCK_RELEASE, hold_id=own)).body["released"] is True


@pytest.mark.parametrize("fast_lane", [True, False])
@pytest.mark.parametrize(
    ("path", "asked"),
    [
        (wire.LOCK_ACQUIRE, {"name": "a"}),
        (wire.LOCK_ACQUIRE, {"name": "a", "wait_ms": 1000, "request_id": REQUEST_ID}),
        (wire.LOCK_ACQUIRE, {"locks": [{"name": "a"}, {"name": "b"}]}),
        (wire.ACQUIRE, {"locks": [{"name": "a"}], "permits": [{"name": "q", "limit": 2}]}),
        (wire.SEMAPHORE_ACQUIRE, {"name": "q", "limit": 2}),
    ],
)
async def test_a_hold_is_of_who_asked(fast_lane: bool, path: str, asked: dict[str, Any]) -> None:  # noqa: FBT001 - a parameter
    """Whatever it is of, and by whichever lane."""
    async with serving(tokens=LINES, fast_lane=fast_lane) as served:
        got = await by(served, "ann", "POST", path, ttl_ms=60_000, **asked)
        assert got.status == 200, got.body
        assert served.node.machine.state.principals.rows == {got.body["hold_id"]: "ann"}


async def test_the_audit_of_the_session_of_another() -> None:
    """It is empty, as that of a session that never was, also when the session is over."""
    async with serving(tokens=LINES) as served:
        session = await opened(served, "ann")
        await acquired(served, "ann", "a", session_id=session)
        path = f"/v1/sessions/{session}/audit"
        for _ in range(2):
            assert (await by(served, "bob", "GET", path)).body["events"] == []
            events = (await by(served, "ann", "GET", path)).body["events"]
            assert {event["principal"] for event in events} == {"ann"}
            await by(served, "ann", "DELETE", f"/v1/sessions/{session}")


async def test_a_watch_of_a_session_ends_when_its_token_is_somebody_elses() -> None:
    """Also one that is open: what the session does is not told to another principal."""
    async with serving(tokens=LINES) as served:
        session_id = SessionId(await opened(served, "ann"))
        feeds = EventFeeds(served.node.events)
        stream = SessionStream(served.node, feeds, OfSession(session_id), Position(0), "ann")

        def check(name: str) -> None:
            principal = Principal(name, EVERYTHING)
            stream._check(Gateway(served.node, principal))

        check("ann")
        with pytest.raises(ProblemError, match="never existed"):
            check("carol")


async def test_request_ids_are_each_ones_own() -> None:
    """The request id of one does not give another its hold."""
    async with serving(tokens=LINES) as served:
        first = await acquired(served, "ann", "a", owner="w", request_id=REQUEST_ID)
        other = await acquired(served, "bob", "a", owner="w", request_id=REQUEST_ID)
        assert (other.status, other.body["code"]) == (409, "lock-held")
        again = await acquired(served, "ann", "a", owner="w", request_id=REQUEST_ID)
        assert again.body["hold_id"] == first.body["hold_id"]
        assert again.body["repeated"] is True


async def test_a_stream_of_the_session_of_another() -> None:
    """It does not begin; a stream of one's own does not reach what is somebody else's."""
    async with serving(tokens=LINES) as served, aiohttp.ClientSession() as client:
        session = await opened(served, "ann")
        hold_id = (await acquired(served, "ann", "a")).body["hold_id"]
        url = f"http://127.0.0.1:{served.port}{wire.STREAM}"
        headers = bearer(TOKENS["bob"])
        async with client.ws_connect(url, protocols=(JSON,), headers=headers) as socket:
            await socket.send_str(json.dumps([1, VERSION, session, 0]))
            refused = json.loads((await socket.receive()).data)
            assert refused[:3] == [4, 0, "session-expired"]
            await socket.receive()
            assert socket.close_code == EXPIRED
        async with client.ws_connect(url, protocols=(JSON,), headers=headers) as socket:
            await socket.send_str(json.dumps([1, VERSION, "", 60_000]))
            welcome = json.loads((await socket.receive()).data)
            release, renew = 7, 6
            frame = [
                2,
                1,
                [],
                0,
                [[release, hold_id], [renew, hold_id], [4, "b", "exclusive", "", "", 9000]],
            ]
            await socket.send_str(json.dumps(frame))
            results = json.loads((await socket.receive()).data)[3]
            assert [result[1] for result in results[:2]] == ["lease-expired", "lease-expired"]
            of_bob = results[2][1]
            rows = served.node.machine.state.principals.rows
            assert (rows[welcome[1]], rows[of_bob], rows[hold_id]) == ("bob", "bob", "ann")


async def test_a_hold_of_another_without_a_deadline_is_not_told_of() -> None:
    """Names that such a hold may not have are refused to its holder; to others the hold never was."""
    async with serving(tokens=LINES, allow_no_deadline=("batch",)) as served:
        got = await by(served, "ann", "POST", wire.LOCK_ACQUIRE, name="batch/1", no_deadline=True)
        for hold_id in (got.body["hold_id"], "f" * 32):
            asked = await by(served, "bob", "POST", wire.LOCK_ADD, hold_id=hold_id, locks=[{"name": "b"}])
            assert (asked.status, asked.body["code"]) == (410, "lease-expired")
        own = {"hold_id": got.body["hold_id"], "locks": [{"name": "b"}]}
        assert (await by(served, "ann", "POST", wire.LOCK_ADD, **own)).body["code"] == "invalid-request"


async def test_operators_are_named_in_the_audit() -> None:
    """A force says whose hold it ended, and who did that."""
    async with serving(tokens=LINES) as served:
        await acquired(served, "ann", "a")
        await by(served, "ops", "POST", wire.LOCK_FORCE_RELEASE, name="a", reason="stuck")
        newest, granted = (await by(served, "ops", "GET", f"{wire.AUDIT}?name=a")).body["events"]
        assert (newest["event"], newest["principal"], newest["by"]) == ("forced", "ann", "ops")
        assert (granted["event"], granted["principal"]) == ("granted", "ann")
        assert "by" not in granted


async def test_without_principals_nothing_is_said_of_them() -> None:
    """A node that knows none makes what is nobody's."""
    async with serving() as served:
        await served.acquire("a")
        (event,) = (await served.call("GET", f"{wire.AUDIT}?name=a")).body["events"]
        assert not {"principal", "by"} & event.keys()


# -- quotas --------------------------------------------------------------------------------------------------


async def test_a_quota_from_end_to_end() -> None:
    """It is set, told, reached, told with numbers, and taken away."""
    async with serving(tokens=LINES) as served:
        got = await by(served, "ops", "PUT", "/v1/quotas/ann", holds=1, sessions=2, reason="by hand")
        unbounded = dict.fromkeys(("waits", "cells", "fences", "rate_limits", "bytes"))
        assert got.body["quota"] == {"sessions": 2, "holds": 1} | unbounded
        await acquired(served, "ann", "a")
        refused = await acquired(served, "ann", "b")
        assert refused.status == 409
        told = {key: refused.body[key] for key in ("code", "quota", "limit", "used", "outcome")}
        assert told == {
            "code": "quota-exceeded", "quota": "holds", "limit": 1, "used": 1, "outcome": "not-applied",
        }  # fmt: skip
        assert int(refused.headers["Retry-After"]) >= 1
        (row,) = (await by(served, "ops", "GET", wire.QUOTAS)).body["quotas"]
        assert row["principal"] == "ann"
        assert row["used"] == {
            "sessions": 0,
            "holds": 1,
            "waits": 0,
            "cells": 0,
            "fences": 0,
            "rate_limits": 0,
            "bytes": 1,
        }
        assert (await by(served, "ops", "DELETE", "/v1/quotas/ann", reason="by hand")).body["quota"] is None
        assert (await acquired(served, "ann", "b")).status == 200


async def test_quotas_of_cells_fences_and_bytes() -> None:
    """Whatever would make them more is refused, and told with numbers."""
    async with serving(tokens=LINES) as served:
        session = await opened(served, "ann")
        leads = await by(
            served, "ann", "POST", wire.ELECTION_CAMPAIGN, name="e", session_id=session, value="a"
        )
        await by(served, "ann", "PUT", "/v1/cells/a", value="12345")
        await by(served, "ann", "POST", wire.FENCE_ADVANCE, name="disk/1", token=1)
        await by(served, "ops", "PUT", "/v1/quotas/ann", cells=1, fences=1, bytes=15, reason="by hand")
        (row,) = (await by(served, "ops", "GET", wire.QUOTAS)).body["quotas"]
        assert (row["used"]["cells"], row["used"]["fences"], row["used"]["bytes"]) == (1, 1, 14)
        two = [{"put": "b", "value": ""}, {"put": "c", "value": ""}]
        refusals: list[tuple[str, str, str, dict[str, Any]]] = [
            ("cells", "PUT", "/v1/cells/b", {"value": ""}),
            ("cells", "POST", wire.CELLS_TRANSACT, {"then": two}),
            ("bytes", "PUT", "/v1/cells/a", {"value": "1234567"}),
            ("bytes", "POST", wire.ELECTION_PROCLAIM, {"hold_id": leads.body["hold_id"], "value": "abc"}),
            ("fences", "POST", wire.FENCE_ADVANCE, {"name": "disk/2", "token": 1}),
            ("bytes", "POST", wire.SESSIONS, {"ttl_ms": 1000, "labels": {"a": "b"}}),
            ("bytes", "POST", wire.LOCK_ACQUIRE, {"name": "x", "ttl_ms": 1000, "note": "no room"}),
        ]
        for quota, method, path, body in refusals:
            got = await by(served, "ann", method, path, **body)
            assert (got.status, got.body["code"], got.body.get("quota")) == (409, "quota-exceeded", quota)
        assert (await by(served, "bob", "PUT", "/v1/cells/b", value="")).status == 200


async def test_the_quota_of_all_others() -> None:
    """A star stands for each one without a quota of its own."""
    async with serving(tokens=LINES) as served:
        await by(served, "ops", "PUT", "/v1/quotas/%2A", holds=0, reason="by hand")
        await by(served, "ops", "PUT", "/v1/quotas/ann", sessions=9, reason="by hand")
        assert (await acquired(served, "ann", "a")).status == 200
        assert (await acquired(served, "bob", "b")).body["code"] == "quota-exceeded"
        rows = (await by(served, "ops", "GET", wire.QUOTAS)).body["quotas"]
        assert [row["principal"] for row in rows] == ["*", "ann"]


async def test_quotas_come_in_pages() -> None:
    """Each page says where the next one begins, and the last one does not."""
    async with serving(tokens=LINES) as served:
        for name in ("a", "b", "c"):
            await by(served, "ops", "PUT", f"/v1/quotas/{name}", holds=5, reason="by hand")
        found: list[str] = []
        after: str | None = ""
        while after is not None:
            page = (await by(served, "ops", "GET", f"{wire.QUOTAS}?limit=2&after={after}")).body
            found += [row["principal"] for row in page["quotas"]]
            after = page["next"]
        assert found == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/quotas/ann", {}, "one of them is required"),
        ("/v1/quotas/ann", {"holds": -1}, "holds: -1"),
        ("/v1/quotas/ann", {"holds": "many"}, "holds"),
        (f"/v1/quotas/{'x' * 65}", {"holds": 1}, "principal: 65 bytes"),
        ("/v1/quotas/ann", {"bytes": 1_000_000_001}, "bytes: 1000000001"),
        ("/v1/quotas/ann", {"permits": 1}, "permits"),
    ],
)
async def test_quotas_that_mean_nothing(path: str, body: dict[str, Any], said: str) -> None:
    """They are refused with what is wrong, and change nothing."""
    async with serving(tokens=LINES) as served:
        got = await served.call("PUT", path, {**body, "reason": "r"}, headers=bearer(TOKENS["ops"]))
        assert (got.status, got.body["code"]) == (400, "invalid-request")
        assert said in got.body["detail"]
        assert served.node.machine.state.principals.quotas == {}


async def test_a_stream_of_a_session_of_nobody() -> None:
    """It goes on, and who sends its frames reaches no more by them than by other calls."""
    async with serving(tokens=LINES) as served, aiohttp.ClientSession() as client:
        session = SessionId("s" * 32)
        await served.node.submit(OpenSession(session, 60_000), 10.0)
        url = f"http://127.0.0.1:{served.port}{wire.STREAM}"
        async with client.ws_connect(url, protocols=(JSON,), headers=bearer(TOKENS["bob"])) as socket:
            await socket.send_str(json.dumps([1, VERSION, session, 0]))
            await socket.receive()
            hold_id = (await acquired(served, "ann", "a")).body["hold_id"]
            own = [4, "b", "exclusive", "", "", 9000]
            await socket.send_str(json.dumps([2, 1, [], 0, [[7, hold_id], own]]))
            released, granted = json.loads((await socket.receive()).data)[3]
            assert released[1] == "lease-expired"
            assert served.node.machine.state.principals.rows == {hold_id: "ann", granted[1]: "bob"}


async def test_an_operator_finds_what_a_principal_has() -> None:
    """Sessions, holds and waits say whose they are, and are found by it, if their names may be read."""
    async with serving(tokens=LINES) as served:
        session = await opened(served, "ann")
        await acquired(served, "ann", "a", session_id=session)
        await acquired(served, "ann", "b")
        await acquired(served, "bob", "c")
        waiting = asyncio.ensure_future(acquired(served, "bob", "a", wait_ms=60_000))
        await until(lambda: served.node.machine.lock("a").queue)
        (row,) = (await by(served, "ops", "GET", f"{wire.SESSIONS}?principal=ann")).body["sessions"]
        assert row["principal"] == "ann"
        assert (await by(served, "ops", "GET", f"{wire.SESSIONS}?principal=bob")).body["sessions"] == []
        got = (await by(served, "ops", "GET", f"{wire.HOLDS}?principal=ann")).body
        assert [(hold["name"], hold["principal"]) for hold in got["holds"]] == [("a", "ann"), ("b", "ann")]
        assert got["tickets"] == []
        got = (await by(served, "ops", "GET", f"{wire.HOLDS}?principal=bob")).body
        assert [hold["name"] for hold in got["holds"]] == ["c"]
        (wait,) = got["tickets"]
        assert (wait["name"], wait["principal"]) == ("a", "bob")
        lock = (await by(served, "ops", "GET", "/v1/locks/a")).body
        assert [lock["holders"][0]["principal"], lock["queue"][0]["principal"]] == ["ann", "bob"]
        ticket = (await by(served, "ops", "GET", f"/v1/tickets/{wait['ticket']}")).body
        assert ticket["principal"] == "bob"
        served.know(LINES + token_line("few", "f" * 40, "read@c"))
        few = await served.call("GET", f"{wire.HOLDS}?principal=ann", None, headers=bearer("f" * 40))
        assert (few.body["holds"], few.body["tickets"]) == ([], [])
        waiting.cancel()


async def test_without_principals_no_row_has_one() -> None:
    """Where nodes know none, rows have no such field, and a search for one finds nothing."""
    async with serving() as served:
        session = await served.session()
        await served.acquire("a", session_id=session)
        (row,) = (await served.call("GET", wire.SESSIONS)).body["sessions"]
        (hold,) = (await served.call("GET", wire.HOLDS)).body["holds"]
        assert "principal" not in row
        assert "principal" not in hold
        assert (await served.call("GET", f"{wire.HOLDS}?principal=ann")).body["holds"] == []
