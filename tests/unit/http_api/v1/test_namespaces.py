"""Namespaces over HTTP: who may set which, who sees which, and how their refusals are told."""

from pathlib import Path
from typing import Any

import pytest

from holdfast import wire
from lockstate.words.commands.admin import SetNamespace
from lockstate.words.settings import NamespaceSettings
from tests.support import http_contract
from tests.support.stream_client import acquire
from tests.unit.http_api.serving import Got, Served, bearer, check_problem, serving, token_line
from tests.unit.http_api.v1.streaming import streamed

TOKENS = {name: f"token-of-{name}-".ljust(40, "x") for name in ("ops", "tenant", "worker", "part")}
LINES = b"".join(
    [
        token_line("ops", TOKENS["ops"], "read,acquire,force,admin,metrics none@jobs/secret"),
        token_line("tenant", TOKENS["tenant"], "acquire admin@jobs"),
        token_line("worker", TOKENS["worker"], "read@jobs acquire@other"),
        token_line("part", TOKENS["part"], "admin@jobs read@jobs/payroll"),
    ]
)
OPEN = dict.fromkeys(http_contract.NAMESPACE_FIELDS)


async def by(served: Served, who: str, method: str, path: str, **body: Any) -> Got:
    """Make a call as somebody."""
    return await served.call(method, path, body or None, headers=bearer(TOKENS[who]))


async def prefixes(served: Served, who: str, query: str = "") -> tuple[list[str], int]:
    """Return which namespaces somebody sees, and how many are left out."""
    page = (await by(served, who, "GET", f"{wire.NAMESPACES}{query}")).body
    return [row["prefix"] for row in page["namespaces"]], page.get("hidden", 0)


async def test_a_namespace_from_end_to_end() -> None:
    """It is set, told, reached, told with numbers, changed and removed."""
    async with serving() as served:
        path = "/v1/namespaces/jobs/night"
        rules = {"holds": 1, "ttl_ms_max": 1000, "priority": False}
        got = await served.call("PUT", path, {**rules, "reason": "r"})
        assert got.body["prefix"] == "jobs/night"
        assert got.body["settings"] == OPEN | rules
        assert (await served.acquire("jobs/night/1", ttl_ms=1000)).status == 200
        refused = await served.acquire("jobs/night/2", ttl_ms=1000)
        assert (refused.status, int(refused.headers["Retry-After"])) == (409, 1)
        told = {key: refused.body[key] for key in ("code", "namespace", "quota", "limit", "used", "outcome")}
        assert told == {
            "code": "quota-exceeded", "namespace": "jobs/night", "quota": "holds", "limit": 1, "used": 1,
            "outcome": "not-applied",
        }  # fmt: skip
        short = await served.acquire("jobs/night/2", ttl_ms=1001)
        assert (short.status, short.body["code"], short.body["namespace"]) == (
            400, "ttl-out-of-range", "jobs/night",
        )  # fmt: skip
        assert "quota" not in short.body
        (row,) = (await served.call("GET", wire.NAMESPACES)).body["namespaces"]
        assert row["used"] == {"holds": 1, "waits": 0, "cells": 0, "fences": 0, "rate_limits": 0, "bytes": 12}
        assert row["settings"]["holds"] == 1
        gone = await served.call("DELETE", f"{path}?reason=over")
        assert (gone.status, gone.body["settings"]) == (200, None)
        assert (await served.acquire("jobs/night/2", ttl_ms=1001)).status == 200
        assert (await served.call("GET", wire.NAMESPACES)).body["namespaces"] == []


async def test_what_an_acquire_means_that_does_not_say_it() -> None:
    """Below such a namespace nobody shares a hold unless it says so; who waits is told when it would."""
    async with serving() as served:
        for if_held in ("count", "wait"):
            got = await served.call("PUT", "/v1/namespaces/jobs", {"if_held": if_held, "reason": "by hand"})
            assert (got.status, got.body["code"]) == (400, "invalid-request")
            assert got.body["detail"].startswith("if_held")
        got = await served.call("PUT", "/v1/namespaces/jobs", {"if_held": "refuse", "reason": "by hand"})
        assert got.body["settings"] == OPEN | {"if_held": "refuse"}
        session = await served.session()
        for fields in ({}, {"value": "v"}):
            assert (await served.acquire("jobs/1", session_id=session, **fields)).status in (200, 409)
            again = await served.acquire("jobs/1", session_id=session, **fields)
            assert (again.status, again.body["code"]) == (409, "already-held")
            for said in ("renew", "count"):
                shared = await served.acquire("jobs/1", session_id=session, if_held=said, **fields)
                assert (shared.status, shared.body["already_held"]) == (200, True)
        assert (await served.acquire("other", session_id=session)).status == 200
        assert (await served.acquire("other", session_id=session)).status == 200


async def test_bytes_in_a_namespace() -> None:
    """Names, notes, values and cells count, of whomever; what has no room is refused whole."""
    async with serving() as served:
        assert (
            await served.call("PUT", "/v1/namespaces/jobs", {"bytes": 16, "reason": "by hand"})
        ).status == 200
        assert (await served.acquire("jobs/1", note="12345")).status == 200
        assert (await served.acquire("other", note="123456")).status == 200
        refused = await served.acquire("jobs/2", note="123456")
        told = {key: refused.body[key] for key in ("code", "namespace", "quota", "limit", "used")}
        assert (refused.status, told) == (
            409,
            {"code": "quota-exceeded", "namespace": "jobs", "quota": "bytes", "limit": 16, "used": 11},
        )
        assert (await served.call("PUT", "/v1/cells/jobs", {"value": "1"})).status == 200
        assert (await served.call("PUT", "/v1/cells/jobs", {"value": "12"})).status == 409
        assert (await served.call("PUT", "/v1/cells/jobs", {"value": ""})).status == 200
        (row,) = (await served.call("GET", wire.NAMESPACES)).body["namespaces"]
        assert row["used"] == {"holds": 1, "waits": 0, "cells": 1, "fences": 0, "rate_limits": 0, "bytes": 15}


async def test_changes_are_told_with_their_reasons() -> None:
    """In the audit, which has what was set; a removal may say why in the query."""
    async with serving() as served:
        await served.call("PUT", "/v1/namespaces/jobs", {"holds": 1, "reason": "as agreed"})
        missing = await served.call("DELETE", "/v1/namespaces/jobs")
        check_problem(missing, 400, "invalid-request")
        assert "reason: is required, in the body or the query" in missing.body["detail"]
        twice = await served.call("DELETE", "/v1/namespaces/jobs?reason=a", {"reason": "b"})
        assert "reason: is given twice" in twice.body["detail"]
        check_problem(
            await served.call("DELETE", "/v1/namespaces/jobs", {"reason": ""}), 400, "invalid-request"
        )
        await served.call("DELETE", "/v1/namespaces/jobs?reason=over")
        (removed, was_set) = (await served.call("GET", f"{wire.AUDIT}?name=jobs")).body["events"]
        assert (removed["event"], removed["reason"]) == ("namespace-removed", "over")
        assert "value" not in removed
        assert (was_set["event"], was_set["reason"]) == ("namespace-set", "as agreed")
        assert (was_set["value"], was_set["owner"]) == ('{"holds":1}', "")
        assert not {"kind", "mode", "token"} & was_set.keys()


async def test_who_may_set_which() -> None:
    """With a prefix the right counts at and below it, where nothing takes it away; and for nothing else."""
    async with serving(tokens=LINES) as served:
        tries = [
            ("tenant", "jobs", 200),
            ("tenant", "jobs/7", 200),
            ("tenant", "jobs2", 403),
            ("tenant", "job", 403),
            ("part", "jobs", 403),
            ("part", "jobs/payroll", 403),
            ("part", "jobs/other", 200),
            ("worker", "jobs", 403),
            ("ops", "jobs/secret/1", 200),
            ("ops", "any", 200),
        ]
        for who, prefix, status in tries:
            for method, body in (("PUT", {"holds": 5, "reason": "r"}), ("DELETE", {"reason": "r"})):
                got = await by(served, who, method, f"/v1/namespaces/{prefix}", **body)
                assert (who, prefix, got.status) == (who, prefix, status)
        for method, path in (
            ("GET", wire.QUOTAS), ("PUT", "/v1/quotas/ann"), ("DELETE", "/v1/quotas/ann"),
            ("GET", wire.REFUSALS), ("POST", wire.CLUSTER_MEMBERS), ("PATCH", wire.CLUSTER_MEMBERS),
            ("DELETE", wire.CLUSTER_MEMBERS), ("POST", wire.CLUSTER_TRANSFER_LEADERSHIP),
        ):  # fmt: skip
            assert (await by(served, "tenant", method, path)).status == 403


async def test_who_sees_which() -> None:
    """Whoever may read the prefix, and whoever may set it; the others are counted."""
    async with serving(tokens=LINES) as served:
        for prefix in ("jobs", "jobs/payroll", "jobs/secret", "other"):
            await by(served, "ops", "PUT", f"/v1/namespaces/{prefix}", holds=5, reason="by hand")
        every = ["jobs", "jobs/payroll", "jobs/secret", "other"]
        assert await prefixes(served, "ops") == (every, 0)
        assert await prefixes(served, "tenant") == (every[:3], 1)
        assert await prefixes(served, "worker") == (every[:3], 1)
        assert await prefixes(served, "worker", "?prefix=jobs/") == (every[1:3], 0)
        assert (await by(served, "part", "GET", f"{wire.NAMESPACES}?prefix=jobs")).status == 200


async def test_one_is_read_by_its_prefix() -> None:
    """By those who see it in a listing, as it stands there; one that was not set is not found."""
    async with serving(tokens=LINES) as served:
        await by(served, "ops", "PUT", "/v1/namespaces/jobs/secret", holds=5, reason="by hand")
        (listed,) = (await by(served, "ops", "GET", wire.NAMESPACES)).body["namespaces"]
        for who in ("ops", "tenant", "worker"):
            got = await by(served, who, "GET", "/v1/namespaces/jobs/secret")
            assert (got.status, got.body) == (200, listed)
            check_problem(await by(served, who, "GET", "/v1/namespaces/jobs"), 404, "namespace-not-found")
        for who in ("tenant", "worker"):
            check_problem(await by(served, who, "GET", "/v1/namespaces/other"), 403, "forbidden")


async def test_namespaces_come_in_pages() -> None:
    """Each page says where the next one begins, and the last one does not."""
    async with serving() as served:
        for name in ("a", "a/b", "c"):
            await served.call("PUT", f"/v1/namespaces/{name}", {"holds": 5, "reason": "by hand"})
        found: list[str] = []
        after: str | None = ""
        while after is not None:
            page = (await served.call("GET", f"{wire.NAMESPACES}?limit=2&after={after}")).body
            found += [row["prefix"] for row in page["namespaces"]]
            after = page["next"]
        assert found == ["a", "a/b", "c"]


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("jobs", {}, "one of them is required"),
        ("jobs", {"holds": -1}, "holds: -1"),
        ("jobs", {"ttl_ms_min": 2000, "ttl_ms_max": 1000}, "ttl_ms_min: 2000"),
        ("jobs", {"ttl_ms_max": 1}, "ttl_ms_max: 1"),
        ("jobs", {"lock_delay_ms_min": 3_600_001}, "lock_delay_ms_min: 3600001"),
        ("jobs", {"held_ms_max": 49}, "held_ms_max: 49"),
        ("jobs", {"no_deadline": 1}, "no_deadline"),
        ("jobs", {"sessions": 1}, "sessions"),
        ("jobs%2F", {"holds": 1}, "prefix: leave out the '/' at its end: 'jobs' covers all below it, too"),
        ("jobs//a", {"holds": 1}, "no part between two '/' may be empty"),
    ],
)
async def test_namespaces_that_mean_nothing(path: str, body: dict[str, Any], said: str) -> None:
    """They are refused with what is wrong, and change nothing."""
    async with serving() as served:
        got = await served.call("PUT", f"/v1/namespaces/{path}", {**body, "reason": "r"})
        assert (got.status, got.body["code"]) == (400, "invalid-request")
        assert said in got.body["detail"]
        assert served.node.machine.state.spaces == {}


async def test_a_namespace_in_the_place_of_the_nodes_settings() -> None:
    """It allows what this node does not, and forbids what it does; also for what is added to a hold."""
    async with serving(allow_no_deadline=["b"], allow_priority=["b"]) as served:
        await served.call(
            "PUT", "/v1/namespaces/a", {"no_deadline": True, "priority": True, "reason": "by hand"}
        )
        await served.call(
            "PUT", "/v1/namespaces/b", {"no_deadline": False, "priority": False, "reason": "by hand"}
        )
        for name, status in (("a", 200), ("b", 400), ("c", 400)):
            for rare in ({"no_deadline": True}, {"ttl_ms": 1000, "priority": 7}):
                got = await served.post(wire.SEMAPHORE_ACQUIRE, name=name, limit=9, **rare)
                assert (name, got.status, got.body.get("namespace")) == (
                    name, status, "b" if name == "b" else None,
                )  # fmt: skip
        held = (await served.post(wire.LOCK_ACQUIRE, name="a/1", no_deadline=True)).body["hold_id"]
        added = [
            (await served.post(wire.LOCK_ADD, hold_id=held, locks=[{"name": name}])).status
            for name in ("a/2", "b/2", "c")
        ]
        assert added == [200, 400, 400]


async def test_a_request_that_is_repeated_at_a_node_that_is_set_otherwise() -> None:
    """It is the same request, and has its first outcome."""
    async with serving(allow_no_deadline=["a"]) as served:
        ask = {"name": "a", "no_deadline": True, "owner": "me", "request_id": "0123456789abcdef"}
        first = await served.post(wire.LOCK_ACQUIRE, **ask)
        await served.call("PUT", "/v1/namespaces/a", {"no_deadline": False, "reason": "by hand"})
        again = await served.post(wire.LOCK_ACQUIRE, **ask)
        assert (again.status, again.body["hold_id"], again.body["repeated"]) == (
            200, first.body["hold_id"], True,
        )  # fmt: skip


async def test_on_a_stream(tmp_path: Path) -> None:
    """The refusal says which namespace it is, and which quota."""
    async with streamed(tmp_path) as served, served.stream() as client:
        await served.node.submit(SetNamespace("a", NamespaceSettings(holds=1)), 5)
        client.ask(acquire("a/1"), acquire("a/2"))
        assert (await client.answer(1))[0] == 4
        refused = await client.answer(2)
        assert (refused[0], refused[1], refused[-2:]) == (11, "quota-exceeded", ["a", "holds"])
