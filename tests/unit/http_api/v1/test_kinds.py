"""Calls for the wrong kind, and force for every kind, over HTTP."""

from typing import Any

import pytest

from holdfast import wire
from tests.support import http_contract
from tests.unit.http_api.serving import Got, Served, check_problem, serving

KINDS = http_contract.KINDS
RELEASES = {
    "lock": wire.LOCK_RELEASE,
    "semaphore": wire.SEMAPHORE_RELEASE,
    "election": wire.ELECTION_RESIGN,
}
RENEWALS = {"lock": wire.LOCK_RENEW, "semaphore": wire.SEMAPHORE_RENEW}
RENEWED_BY = {**RENEWALS, "election": wire.SESSION_KEEPALIVE}
FORCES = {
    "lock": wire.LOCK_FORCE_RELEASE,
    "semaphore": wire.SEMAPHORE_FORCE_RELEASE,
    "election": wire.ELECTION_DEPOSE,
}


async def _take(served: Served, kind: str, name: str = "a", **fields: Any) -> Got:
    """Take a lock, permits or an election."""
    fields = {"session_id": await served.session(), **fields}
    if kind == "lock":
        return await served.acquire(name, **fields)
    if kind == "semaphore":
        return await served.post(wire.SEMAPHORE_ACQUIRE, name=name, limit=3, **fields)
    return await served.post(wire.ELECTION_CAMPAIGN, name=name, value="here", **fields)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("called", KINDS)
async def test_a_release_by_the_call_of_another_kind_is_told(kind: str, called: str) -> None:
    """The hold stays, and the answer names its kind and the right call, which then releases it."""
    async with serving() as served:
        hold_id = (await _take(served, kind)).body["hold_id"]
        got = await served.post(RELEASES[called], hold_id=hold_id, request_id="the-right-release")
        if kind == called:
            assert got.status == 200
            return
        check_problem(got, 400, "wrong-kind")
        assert got.body["detail"] == (f"hold_id: its kind is {kind}, not {called}: use POST {RELEASES[kind]}")
        right = await served.post(RELEASES[kind], hold_id=hold_id, request_id="the-right-release")
        assert right.status == 200, "the corrected call may have the same request id"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("called", RENEWALS)
async def test_a_renewal_by_the_call_of_another_kind_is_told(kind: str, called: str) -> None:
    """A leader is told to keep its session alive."""
    async with serving() as served:
        hold_id = (await _take(served, kind)).body["hold_id"]
        got = await served.post(RENEWALS[called], hold_id=hold_id)
        if kind == called:
            assert got.status == 200
            return
        check_problem(got, 400, "wrong-kind")
        assert got.body["detail"] == (
            f"hold_id: its kind is {kind}, not {called}: use POST {RENEWED_BY[kind]}"
        )


@pytest.mark.parametrize("kind", KINDS)
async def test_force_is_there_for_every_kind(kind: str) -> None:
    """It says what it ended, watchers and the audit hear why, and the call of another kind is told."""
    async with serving() as served:
        held = (await _take(served, kind, owner="ann")).body
        for other in KINDS:
            if other != kind:
                got = await served.post(FORCES[other], name="a", reason="x")
                check_problem(got, 400, "wrong-kind")
                assert got.body["detail"].endswith(f"but the {kind} is: use POST {FORCES[kind]}")
        late = await served.post(FORCES[kind], name="a", reason="it hangs", token=held["token"] + 1)
        check_problem(late, 409, "not-holder")
        got = await served.post(FORCES[kind], name="a", reason="it hangs", token=held["token"])
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {FORCES[kind]}"]
        assert [(one["owner"], one["token"]) for one in got.body["forced"]] == [("ann", held["token"])]
        gone = await served.post(RELEASES[kind], hold_id=held["hold_id"])
        check_problem(gone, 410, "lease-expired")
        (event,) = (await served.call("GET", f"{wire.AUDIT}?name=a&limit=1")).body["events"]
        assert (event["event"], event["kind"], event["reason"]) == ("forced", kind, "it hangs")
        again = await served.post(FORCES[kind], name="a", reason="it hangs")
        assert again.body["forced"] == []


async def test_force_ends_all_permits_or_those_of_one_token() -> None:
    """Without a token all holds of the semaphore end, and a delay withholds their permits."""
    async with serving() as served:
        tokens = [(await _take(served, "semaphore")).body["token"] for _ in range(3)]
        got = await served.post(FORCES["semaphore"], name="a", reason="x", token=tokens[1])
        assert [one["token"] for one in got.body["forced"]] == [tokens[1]]
        got = await served.post(FORCES["semaphore"], name="a", reason="x", lock_delay_ms=60_000)
        assert [one["token"] for one in got.body["forced"]] == [tokens[0], tokens[2]]
        assert (await served.call("GET", "/v1/semaphores/a")).body["available"] == 1
