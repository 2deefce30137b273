"""Holds without a deadline over HTTP: where a node allows them, and what they say in place of their end."""

import pytest

from holdfast import wire
from tests.unit.http_api.serving import check_problem, serving

ENDLESS = {"no_deadline": True}


async def test_it_says_so_wherever_its_end_would_stand() -> None:
    """In grants, renewals, reads, listings and refusals; its holder can still give it back."""
    async with serving() as served:
        granted = (await served.post(wire.LOCK_ACQUIRE, name="batch/a", **ENDLESS)).body
        renewed = (await served.post(wire.LOCK_RENEW, hold_id=granted["hold_id"])).body
        several = await served.post(wire.LOCK_ACQUIRE, locks=[{"name": "batch/b"}], **ENDLESS)
        permits = await served.post(wire.SEMAPHORE_ACQUIRE, name="batch", limit=1, **ENDLESS)
        holder = (await served.call("GET", "/v1/locks/batch/a")).body["holders"][0]
        refused = await served.acquire("batch/a")
        check_problem(refused, 409, "lock-held")
        for shown in (granted, renewed, several.body, permits.body, holder, refused.body["holders"][0]):
            assert shown["no_deadline"] is True
            assert "expires_in_ms" not in shown
        assert (await served.post(wire.LOCK_RELEASE, hold_id=granted["hold_id"])).body["released"] is True
        usual = (await served.acquire("batch/a")).body
        assert "no_deadline" not in usual


async def test_it_is_allowed_where_the_node_allows_it() -> None:
    """By whole parts of names, for each of several; the refusal names the setting."""
    async with serving() as served:
        for body in (
            {"name": "batch2"},
            {"name": "other/batch"},
            {"locks": [{"name": "batch/a"}, {"name": "b"}]},
        ):
            got = await served.post(wire.LOCK_ACQUIRE, **body, **ENDLESS)
            check_problem(got, 400, "invalid-request")
            assert got.body["detail"].startswith("no_deadline: ")
            assert "--allow-no-deadline" in got.body["detail"]
        check_problem(
            await served.post(wire.SEMAPHORE_ACQUIRE, name="q", limit=1, **ENDLESS), 400, "invalid-request"
        )
    async with serving(allow_no_deadline=["x", "*"]) as served:
        assert (await served.post(wire.LOCK_ACQUIRE, name="batch2", **ENDLESS)).status == 200


async def test_a_hold_without_a_deadline_gets_no_name_for_which_that_is_not_allowed() -> None:
    """It would be held without one just the same; of a hold that ends any name is had."""
    async with serving() as served:
        endless = (await served.post(wire.LOCK_ACQUIRE, name="batch/a", **ENDLESS)).body["hold_id"]
        got = await served.post(wire.LOCK_ADD, hold_id=endless, locks=[{"name": "batch/b"}, {"name": "b"}])
        check_problem(got, 400, "invalid-request")
        assert got.body["detail"].startswith("no_deadline: ")
        assert (await served.call("GET", "/v1/locks/b")).body["state"] == "free"
        added = await served.post(wire.LOCK_ADD, hold_id=endless, locks=[{"name": "batch/b"}])
        assert (added.status, added.body["no_deadline"]) == (200, True)
        usual = (await served.acquire("batch/c")).body["hold_id"]
        assert (await served.post(wire.LOCK_ADD, hold_id=usual, locks=[{"name": "b"}])).status == 200


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"ttl_ms": 1000}, "no_deadline and ttl_ms"),
        ({"session_id": "s"}, "no_deadline and session_id"),
        ({"no_deadline": 1}, "no_deadline"),
    ],
)
async def test_nothing_else_to_live_by_goes_with_it(more: dict[str, object], field: str) -> None:
    """It is one of the three."""
    async with serving() as served:
        for path, body in ((wire.LOCK_ACQUIRE, {}), (wire.SEMAPHORE_ACQUIRE, {"limit": 1})):
            got = await served.post(path, **{"name": "batch/a", **body, **ENDLESS, **more})
            check_problem(got, 400, "invalid-request")
            assert got.body["detail"].partition(":")[0] == field


async def test_it_can_be_listed_and_counted() -> None:
    """So that nothing is held for ever unseen."""
    async with serving() as served:
        await served.acquire("batch/a")
        await served.post(wire.LOCK_ACQUIRE, name="batch/b", **ENDLESS)
        await served.post(wire.SEMAPHORE_ACQUIRE, name="batch", limit=1, **ENDLESS)
        found = (await served.call("GET", f"{wire.HOLDS}?no_deadline=true")).body["holds"]
        assert [(one["kind"], one["name"]) for one in found] == [("lock", "batch/b"), ("semaphore", "batch")]
        others = (await served.call("GET", f"{wire.HOLDS}?no_deadline=false")).body["holds"]
        assert [(one["kind"], one["name"]) for one in others] == [("lock", "batch/a")]
        assert len((await served.call("GET", wire.HOLDS)).body["holds"]) == 3
        check_problem(await served.call("GET", f"{wire.HOLDS}?no_deadline=yes"), 400, "invalid-request")
        both = f"{wire.HOLDS}?no_deadline=true&session_name=s-1"
        check_problem(await served.call("GET", both), 400, "invalid-request")
