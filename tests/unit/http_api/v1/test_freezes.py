"""Freezes over HTTP: who may freeze what, what others are told, and what is left below."""

import asyncio
from typing import Final

from holdfast import wire
from tests.support import http_contract
from tests.unit.http_api.serving import Got, bearer, check_problem, serving, token_line, until

WHY: Final = {"reason": "the disk is moved"}
DB: Final = wire.FREEZE.format(name="db")


async def test_a_prefix_is_frozen_read_and_thawed() -> None:
    """Answers say what is left; who does not wait is told why, who waits is granted by the thaw."""
    async with serving() as served:
        await served.acquire("db/1")
        got = await served.call("PUT", DB, {**WHY, "for_ms": 600_000, "request_id": "freeze-the-database"})
        assert set(got.body) == {*http_contract.ANSWER_FIELDS[f"PUT {wire.FREEZE}"], "ends_in_ms"}
        assert (got.body["left"], got.body["ends_in_ms"]) == ({"holds": 1, "waits": 0}, 600_000)
        refused = await served.acquire("db/2")
        check_problem(refused, 409, "frozen")
        assert refused.body["detail"] == "'db' is frozen: the disk is moved"
        assert 0 < refused.body["retry_after_ms"] <= 1000
        waiting = asyncio.ensure_future(served.acquire("db/2", wait_ms=60_000))
        await until(lambda: served.node.machine.lock("db/2").queue)
        read = (await served.call("GET", DB)).body
        assert (read["frozen"], read["reason"], read["left"]) == (
            True,
            WHY["reason"],
            {"holds": 1, "waits": 1},
        )
        assert 0 < read["ends_in_ms"] <= 600_000
        (row,) = (await served.call("GET", wire.FREEZES)).body["freezes"]
        assert (row["prefix"], row["frozen"], "left" in row) == ("db", True, False)
        ended = await served.call("DELETE", DB, {"reason": "it is moved"})
        assert (ended.body["prefix"], ended.body["thawed"]) == ("db", True)
        assert (await waiting).status == 200
        again = await served.call("DELETE", DB, {"reason": "it is moved"})
        assert again.body["thawed"] is False
        told = (await served.call("GET", f"{wire.AUDIT}?name=db")).body["events"]
        assert [(one["event"], one["reason"], one["owner"]) for one in told] == [
            ("thawed", "it is moved", ""),
            ("frozen", "the disk is moved", ""),
        ]
        assert all({"kind", "mode", "token"}.isdisjoint(one) for one in told)


async def test_what_is_not_frozen_is_read_as_such() -> None:
    """With what is there, so that it is known before; very much is counted in part."""
    async with serving() as served:
        await served.acquire("db/1")
        got = (await served.call("GET", DB)).body
        assert tuple(got) == http_contract.ANSWER_FIELDS[f"GET {wire.FREEZE}"]
        assert (got["frozen"], got["left"]) == (False, {"holds": 1, "waits": 0})


async def test_freezing_takes_a_reason_and_a_time_that_can_be() -> None:
    """And a name that is spelled as people see it."""
    async with serving() as served:
        wrong: tuple[dict[str, object], ...] = ({"reason": ""}, {**WHY, "for_ms": 0}, {**WHY, "for": 1}, {})
        for body in wrong:
            check_problem(await served.call("PUT", DB, body), 400, "invalid-request")
        check_problem(await served.call("DELETE", DB, {}), 400, "invalid-request")
        check_problem(await served.call("PUT", "/v1/freezes/db%20/1", WHY), 400, "invalid-request")
        assert (await served.call("GET", wire.FREEZES)).body["freezes"] == []


TOKENS: Final = {who: f"hft_{who}".ljust(47, "t") for who in ("part", "ops")}


async def test_it_takes_force_for_all_below() -> None:
    """An exception below is one: who may not force that may not freeze it. To read takes read."""
    lines = token_line("part", TOKENS["part"], "read,force read@db/secret force@db/hidden") + token_line(
        "ops", TOKENS["ops"], "read,force"
    )
    async with serving(tokens=lines) as served:

        async def by(who: str, method: str, path: str) -> Got:
            body = None if method == "GET" else WHY
            return await served.call(method, path, body, headers=bearer(TOKENS[who]))

        refused = await by("part", "PUT", DB)
        check_problem(refused, 403, "forbidden")
        assert "db/secret" in refused.body["detail"]
        assert (await by("part", "PUT", f"{DB}/open")).status == 200
        assert (await by("ops", "PUT", DB)).status == 200
        check_problem(await by("part", "GET", DB), 403, "forbidden")
        (told,) = (await by("ops", "GET", f"{wire.AUDIT}?name=db")).body["events"]
        assert told["by"] == "ops"
