"""Concurrent reads and writes over HTTP: acquired, converted, and not before every node knows them."""

import pytest

from holdfast import wire
from tests.unit.http_api.serving import check_problem, serving

READ, WRITE = {"mode": "concurrent-read"}, {"mode": "concurrent-write"}


async def test_beside_whom_they_stand() -> None:
    """Two write beside each other and one who reads; a protected reader is told who is in the way."""
    async with serving() as served:
        modes = ("concurrent-write", "concurrent-write", "concurrent-read")
        held = [(await served.acquire("a", mode=mode)).body for mode in modes]
        assert [one["mode"] for one in held] == list(modes)
        got = await served.acquire("a", mode="shared")
        check_problem(got, 409, "lock-held")
        assert [holder["mode"] for holder in got.body["holders"]] == ["concurrent-write"] * 2
        seen = (await served.call("GET", f"{wire.LOCKS}/a")).body
        assert [holder["mode"] for holder in seen["holders"]] == list(modes)


async def test_a_conversion_between_modes_that_are_not_ordered() -> None:
    """From shared to concurrent-write: with a new token, and not while another one reads."""
    async with serving() as served:
        hold_id = (await served.acquire("a", mode="shared")).body["hold_id"]
        other = (await served.acquire("a", mode="shared")).body["hold_id"]
        check_problem(await served.post(wire.LOCK_CONVERT, hold_id=hold_id, **WRITE), 409, "lock-held")
        await served.post(wire.LOCK_RELEASE, hold_id=other)
        got = (await served.post(wire.LOCK_CONVERT, hold_id=hold_id, **WRITE)).body
        assert (got["mode"], got["token"]) == ("concurrent-write", 3)
        got = (await served.post(wire.LOCK_CONVERT, hold_id=hold_id, **READ)).body
        assert (got["mode"], got["token"]) == ("concurrent-read", 3)


@pytest.mark.parametrize("mode", ["concurrent", "CR", ""])
async def test_another_word_is_no_mode(mode: str) -> None:
    """It is refused with the name of the field."""
    async with serving() as served:
        got = await served.acquire("a", mode=mode)
        check_problem(got, 400, "invalid-request")
        assert got.body["detail"].startswith("mode")
