"""Fences over HTTP."""

from holdfast import wire
from tests.support import http_contract
from tests.unit.http_api.serving import check_problem, serving


async def test_a_token_is_good_while_its_holder_holds() -> None:
    """A check says whether the token is that of a current holder, and which is the highest of those."""
    async with serving() as served:
        hold = await served.acquire("a")
        token = hold.body["token"]
        got = await served.post(wire.FENCE_CHECK, name="a", token=token)
        assert got.status == 200
        assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {wire.FENCE_CHECK}"]
        assert got.body == {"valid": True, "current_token": token}
        got = await served.post(wire.FENCE_CHECK, name="a", token=token + 1)
        assert got.body == {"valid": False, "current_token": token}
        await served.post(wire.LOCK_RELEASE, hold_id=hold.body["hold_id"])
        got = await served.post(wire.FENCE_CHECK, name="a", token=token)
        assert got.body == {"valid": False, "current_token": 0}


async def test_a_check_is_a_read() -> None:
    """A check goes through the log unless a stale one is asked for, which says how old it is."""
    async with serving() as served:
        await served.acquire("a")
        reads_count = len(served.node.timeouts_s)
        stale = await served.post(f"{wire.FENCE_CHECK}?consistency=stale", name="a", token=1)
        assert stale.body == {
            "valid": True,
            "current_token": 1,
            "revision": served.node.machine.revision,
            "lag_ms": 7,
        }
        assert len(served.node.timeouts_s) == reads_count
        await served.post(wire.FENCE_CHECK, name="a", token=1)
        assert len(served.node.timeouts_s) == reads_count + 1


async def test_a_resource_accepts_no_smaller_token() -> None:
    """Equal and higher tokens are accepted; a smaller one is stale, and the answer has the highest."""
    async with serving() as served:
        served.draw(9)
        for token in (5, 5, 9):
            got = await served.post(wire.FENCE_ADVANCE, name="disk/1", token=token)
            assert got.status == 200
            assert tuple(got.body) == http_contract.ANSWER_FIELDS[f"POST {wire.FENCE_ADVANCE}"]
            assert (got.body["accepted"], got.body["highest_token"]) == (True, token)
        got = await served.post(wire.FENCE_ADVANCE, name="disk/1", token=8)
        check_problem(got, 409, "stale-token")
        assert got.body["highest_token"] == 9
        assert (await served.post(wire.FENCE_ADVANCE, name="disk/2", token=1)).status == 200
        unknown = await served.post(wire.FENCE_ADVANCE, name="disk/2", token=10)
        check_problem(unknown, 400, "invalid-request")
        assert unknown.body["detail"] == "token: 10; must be 0 to 9, the newest that was granted"
