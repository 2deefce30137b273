"""Sessions over HTTP."""

from holdfast import wire
from tests.support import http_contract
from tests.unit.http_api.serving import Served, check_problem, serving


async def _open(served: Served, **fields: object) -> str:
    got = await served.call("POST", wire.SESSIONS, {"ttl_ms": 60_000, **fields})
    assert got.status == 201
    assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {wire.SESSIONS}"]
    return str(got.body["session_id"])


async def test_session_ids_are_long_and_never_the_same() -> None:
    """A session id has 128 random bits."""
    async with serving() as served:
        one, two = await _open(served), await _open(served)
        assert len(bytes.fromhex(one)) == 16
        assert one != two


async def test_a_session_is_kept_alive() -> None:
    """A keepalive, with no body or an empty object, starts the ttl anew."""
    async with serving() as served:
        session_id = await _open(served)
        path = wire.SESSION_KEEPALIVE.format(session_id=session_id)
        bodies: tuple[dict[str, str] | None, ...] = (None, {})
        for body in bodies:
            got = await served.call("POST", path, body)
            assert got.status == 200
            assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {wire.SESSION_KEEPALIVE}"]
            assert (got.body["session_id"], got.body["expires_in_ms"]) == (session_id, 60_000)


async def test_a_session_shows_its_holds_without_secrets() -> None:
    """The id of a session shows labels and holds with their names, and neither session id nor hold id."""
    async with serving() as served:
        session_id = await _open(served, labels={"app": "billing"})
        hold = await served.acquire("a", session_id=session_id, owner="w")
        for consistency in ("linearizable", "stale"):
            path = f"{wire.SESSION.format(session_id=session_id)}?consistency={consistency}"
            got = await served.call("GET", path)
            assert got.status == 200
            assert tuple(got.body)[:7] == http_contract.ANSWER_FIELDS[f"GET {wire.SESSION}"]
            assert got.body["labels"] == {"app": "billing"}
            assert [(held["name"], held["owner"]) for held in got.body["holds"]] == [("a", "w")]
            assert ("revision" in got.body) == (consistency == "stale")
            assert session_id not in str(got)
            assert hold.body["hold_id"] not in str(got)


async def test_a_stale_read_that_finds_no_session_says_how_old_it_is() -> None:
    """Where a node may only not have seen a session yet, its 410 says so, with revision and lag."""
    async with serving() as served:
        await _open(served)
        path = wire.SESSION.format(session_id="0" * 32)
        stale = await served.call("GET", f"{path}?consistency=stale")
        check_problem(stale, 410, "session-expired")
        assert (stale.body["revision"], stale.body["lag_ms"]) == (served.node.machine.revision, 7)
        assert "this node has not seen it yet" in stale.body["detail"]
        sure = await served.call("GET", path)
        check_problem(sure, 410, "session-expired")
        assert not {"revision", "lag_ms"} & set(sure.body)
        assert "this node" not in sure.body["detail"]


async def test_closing_a_session_releases_its_locks() -> None:
    """The answer names the released locks; afterwards the session is unknown to every call."""
    async with serving() as served:
        session_id = await _open(served)
        for name in ("a", "b"):
            await served.acquire(name, session_id=session_id)
        path = wire.SESSION.format(session_id=session_id)
        closed = await served.call("DELETE", path)
        assert (closed.status, closed.body["names"]) == (200, ["a", "b"])
        assert (await served.call("GET", "/v1/locks/a")).body["state"] == "free"
        for method, gone in (("DELETE", path), ("GET", path), ("POST", f"{path}/keepalive")):
            got = await served.call(method, gone)
            assert (got.status, got.body["code"], got.body["outcome"]) == (
                410,
                "session-expired",
                "not-applied",
            )
        got = await served.acquire("a", session_id=session_id)
        assert (got.status, got.body["code"]) == (410, "session-expired")


async def test_closing_twice_with_one_request_id_is_closing_once() -> None:
    """The repetition of a close gets its first outcome."""
    async with serving() as served:
        path = wire.SESSION.format(session_id=await _open(served))
        first = await served.call("DELETE", path, {"request_id": "closing-number-1"})
        again = await served.call("DELETE", path, {"request_id": "closing-number-1"})
        assert (first.status, again.status) == (200, 200)
