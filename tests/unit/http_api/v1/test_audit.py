"""The audit over HTTP."""

from typing import Any

from holdfast import wire
from tests.support import http_contract
from tests.unit.http_api.serving import Served, serving


async def _events(served: Served, path: str = wire.AUDIT) -> list[dict[str, Any]]:
    got = await served.call("GET", path)
    assert got.status == 200
    assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"GET {wire.AUDIT}"]
    events: list[dict[str, Any]] = got.body["events"]
    return events


async def test_what_happened_is_told_newest_first() -> None:
    """Every grant and end of a hold is there, with its owner, time and reason, and without a secret."""
    async with serving() as served:
        hold = await served.acquire("a", owner="ann", mode="shared")
        await served.post(wire.LOCK_FORCE_RELEASE, name="a", reason="it hangs")
        forced, granted = await _events(served)
        assert set(granted) == {*http_contract.AUDIT_FIELDS, "kind", "mode", "scope", "token"}
        assert (granted["event"], granted["name"], granted["owner"]) == ("granted", "a", "ann")
        assert (granted["kind"], granted["mode"], granted["scope"]) == ("lock", "shared", "node")
        assert granted["token"] == hold.body["token"]
        assert granted["revision"] == hold.body["revision"] < forced["revision"]
        assert (forced["event"], forced["reason"], granted["reason"]) == ("forced", "it hangs", "")
        assert forced["lasted_ms"] == forced["at_ms"] - granted["at_ms"] >= 0
        assert hold.body["hold_id"] not in str((granted, forced))


async def test_who_gave_no_owner_is_called_the_same_everywhere() -> None:
    """A hold without an owner has the name in the audit that a read of its lock shows, and no secret."""
    async with serving() as served:
        hold = await served.acquire("a")
        (holder,) = (await served.call("GET", "/v1/locks/a")).body["holders"]
        (granted,) = await _events(served)
        assert granted["owner"] == holder["owner"] != ""
        assert hold.body["hold_id"] not in granted["owner"]


async def test_one_name_is_asked_for() -> None:
    """With a name only what happened to it is shown, and with a limit only the last of that."""
    async with serving() as served:
        for name in ("a", "a/b", "a"):
            got = await served.acquire(name)
            await served.post(wire.LOCK_RELEASE, hold_id=got.body["hold_id"])
        told = await _events(served, f"{wire.AUDIT}?name=a")
        assert [event["event"] for event in told] == ["released", "granted"] * 2
        assert {event["name"] for event in told} == {"a"}
        assert await _events(served, f"{wire.AUDIT}?name=a&limit=1") == told[:1]
        assert [event["name"] for event in await _events(served, f"{wire.AUDIT}?name=a%2Fb")] == ["a/b"] * 2
        assert await _events(served, f"{wire.AUDIT}?name=c") == []


async def test_a_session_is_asked_for() -> None:
    """The id of a session, or of a hold without one, shows what it did, also when it is over."""
    async with serving() as served:
        session_id = await served.session()
        await served.acquire("a", session_id=session_id)
        alone = await served.acquire("b")
        await served.post(wire.SEMAPHORE_ACQUIRE, name="s", limit=2, permits=2, session_id=session_id)
        await served.post(wire.ELECTION_CAMPAIGN, name="e", value="here", session_id=session_id)
        await served.call("DELETE", wire.SESSION.format(session_id=session_id))
        told = await _events(served, wire.SESSION_AUDIT.format(session_id=session_id))
        assert [(event["event"], event["name"]) for event in told] == [
            ("resigned", "e"),
            ("released", "s"),
            ("released", "a"),
            ("elected", "e"),
            ("granted", "s"),
            ("granted", "a"),
        ]
        elected, permits = told[3], told[4]
        assert (elected["kind"], elected["value"]) == ("election", "here")
        assert (permits["kind"], permits["permits"]) == ("semaphore", 2)
        assert "mode" not in elected
        assert "value" not in permits
        assert session_id not in str(told)
        (granted,) = await _events(served, wire.SESSION_AUDIT.format(session_id=alone.body["hold_id"]))
        assert granted["name"] == "b"
        assert await _events(served, wire.SESSION_AUDIT.format(session_id="nobody")) == []


async def test_the_end_of_a_session_is_about_no_lock() -> None:
    """An expired session is shown with its owner, without kind, mode and token."""
    async with serving() as served:
        session_id = await served.session(ttl_ms=50)
        path = wire.SESSION_AUDIT.format(session_id=session_id)
        while not (told := await _events(served, path)):
            """Its time is not over yet."""
        assert set(told[0]) == {*http_contract.AUDIT_FIELDS}
        assert (told[0]["event"], told[0]["name"]) == ("session-expired", "")


async def test_an_old_audit_says_so() -> None:
    """A stale read carries revision and lag."""
    async with serving() as served:
        got = await served.call("GET", f"{wire.AUDIT}?consistency=stale")
        assert got.body.pop("lag_ms") >= 7
        assert got.body == {"events": [], "now_ms": served.node.machine.now_ms} | {
            "revision": served.node.machine.revision
        }


async def test_what_came_behind_a_record_is_asked_for() -> None:
    """The oldest first, of all or of one name, up to the limit: each with the hash of the one before it."""
    async with serving() as served:
        for name in ("a", "b", "a"):
            got = await served.acquire(name)
            await served.post(wire.LOCK_RELEASE, hold_id=got.body["hold_id"])
        told = await _events(served, f"{wire.AUDIT}?behind=0")
        assert [event["number"] for event in told] == [1, 2, 3, 4, 5, 6]
        assert [event["previous"] for event in told[1:]] == [event["hash"] for event in told[:-1]]
        assert told == (await _events(served))[::-1]
        assert await _events(served, f"{wire.AUDIT}?behind=2&limit=2") == told[2:4]
        assert await _events(served, f"{wire.AUDIT}?behind=1&name=a") == [told[1], *told[4:]]
        assert await _events(served, f"{wire.AUDIT}?behind=6") == []
        got = await served.call("GET", f"{wire.AUDIT}?behind=-1")
        assert (got.status, got.body["code"]) == (400, "invalid-request")


async def test_what_operators_did_is_asked_for() -> None:
    """Only that, of all names or of one, in both orders; what a holder did itself is left out."""
    async with serving() as served:
        for name in ("a", "b"):
            await served.acquire(name, owner="ann")
            await served.post(wire.LOCK_FORCE_RELEASE, name=name, reason="it hangs")
        mine = await served.acquire("a", owner="bob")
        await served.post(wire.LOCK_RELEASE, hold_id=mine.body["hold_id"])
        path = f"{wire.AUDIT}?by_operators=true"
        told = await _events(served, path)
        assert [(event["event"], event["name"]) for event in told] == [("forced", "b"), ("forced", "a")]
        assert await _events(served, f"{path}&behind=0") == told[::-1]
        assert await _events(served, f"{path}&name=a&limit=5") == told[1:]
        assert len(await _events(served, f"{wire.AUDIT}?by_operators=false")) == 6
        got = await served.call("GET", f"{wire.AUDIT}?by_operators=1")
        assert (got.status, got.body["code"]) == (400, "invalid-request")
