"""What is kept of attempts that were refused because of who asked, and who may see it."""

import asyncio
import time
from collections import Counter
from typing import Any

from cluster.peers.strangers import origin_of
from holdfast import wire
from http_api.server.callers import Callers
from http_api.server.refusal_trace import DETAIL_CHARS_MAX, ID_CHARS_MAX, KEPT_MAX, RefusalTrace
from lockapi.problems import ProblemError
from tests.unit.http_api.serving import Served, bearer, serving, token_line

WORKER, ADMIN = "hft_worker-CANARY-4711-".ljust(47, "w"), "hft_admin-CANARY-4711-".ljust(47, "a")
LINES = token_line("worker", WORKER, "read,acquire@mine") + token_line("boss", ADMIN, "admin")


class _From(asyncio.BaseTransport):
    """A connection from an address."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 4711)})


async def traced(served: Served, **query: int) -> Any:
    """Return what the administrator is shown."""
    text = "&".join(f"{name}={value}" for name, value in query.items())
    got = await served.call("GET", f"{wire.REFUSALS}?{text}", headers=bearer(ADMIN))
    assert got.status == 200
    return got.body


def note(
    trace: RefusalTrace,
    principal: str,
    code: str = "forbidden",
    detail: str = "no",
    *,
    request_id: str = "r",
    address: str = "",
) -> None:
    """Let an attempt be refused; without an address its connection is gone."""
    trace.note(
        ProblemError(code, detail),
        _From(address) if address else None,
        principal=principal,
        method="GET",
        route="/v1/locks",
        request_id=request_id,
    )


async def test_what_was_refused_to_whom_is_shown_to_administrators() -> None:
    """By both ways through a server, the newest first: who, from where, what, and why."""
    before_ms = time.time() * 1000
    for fast_lane in (True, False):
        async with serving(tokens=LINES, fast_lane=fast_lane) as served:
            wrong = {"Authorization": f"Bearer {WORKER[:-1]}x", wire.HEADER_REQUEST_ID: "guess-1"}
            await served.call("POST", wire.LOCK_ACQUIRE, {"name": "mine/a", "ttl_ms": 60_000}, headers=wrong)
            mine = {"name": "other/a", "ttl_ms": 60_000, "request_id": "worker-4711-4711-4711"}
            got = await served.call("POST", wire.LOCK_ACQUIRE, mine, headers=bearer(WORKER))
            assert got.status == 403
            force = {"name": "mine/a", "reason": "r"}
            await served.call("POST", wire.LOCK_FORCE_RELEASE, force, headers=bearer(WORKER))
            shown = await traced(served)
        assert (shown["count"], shown["node_id"]) == (3, served.node.status().node_id)
        forced, acquired, guessed = shown["refusals"]
        assert [one["number"] for one in shown["refusals"]] == [3, 2, 1]
        assert (guessed["code"], guessed["principal"], guessed["request_id"]) == (
            "unauthenticated",
            "",
            "guess-1",
        )
        assert (acquired["code"], acquired["principal"]) == ("forbidden", "worker")
        assert (acquired["method"], acquired["route"]) == ("POST", wire.LOCK_ACQUIRE)
        assert acquired["detail"] == got.body["detail"]
        assert acquired["request_id"] == "worker-4711-4711-4711"
        assert forced["route"] == wire.LOCK_FORCE_RELEASE
        assert {one["address"] for one in shown["refusals"]} == {"127.0.0.1"}
        assert before_ms <= guessed["unix_ms"] <= forced["unix_ms"] <= time.time() * 1000 + 1
        assert "CANARY" not in str(shown)


async def test_what_is_wrong_or_held_is_not_traced() -> None:
    """Only what is about who asks is."""
    async with serving(tokens=LINES) as served:
        for body in (
            {"name": "mine/a", "ttl_ms": 60_000},
            {"name": "mine/a", "ttl_ms": 60_000},
            {"name": ""},
        ):
            await served.call("POST", wire.LOCK_ACQUIRE, body, headers=bearer(WORKER))
        await served.call("GET", "/nowhere", headers=bearer(WORKER))
        shown = await traced(served)
        assert (shown["refusals"], shown["count"]) == ([], 0)


async def test_it_takes_the_right_of_an_administrator() -> None:
    """And who asks without it is in it."""
    async with serving(tokens=LINES) as served:
        got = await served.call("GET", wire.REFUSALS, headers=bearer(WORKER))
        assert (got.status, got.body["code"]) == (403, "forbidden")
        (shown,) = (await traced(served))["refusals"]
        assert (shown["principal"], shown["route"]) == ("worker", wire.REFUSALS)
        bad = await served.call("GET", f"{wire.REFUSALS}?limit=0", headers=bearer(ADMIN))
        assert (bad.status, bad.body["code"]) == (400, "invalid-request")


async def test_a_web_page_is_traced_before_it_has_a_route() -> None:
    """Whoever asks with a foreign `Origin` or `Host`; without tokens, too."""
    async with serving(callers=Callers(hosts=frozenset({"n1"}))) as served:
        await served.call("POST", wire.LOCK_ACQUIRE, {"name": "a"}, headers={"Origin": "http://evil.example"})
        shown = (await served.call("GET", wire.REFUSALS)).body["refusals"]
        assert [(one["code"], one["method"], one["route"]) for one in shown] == [
            ("forbidden-origin", "-", "-")
        ]


def test_strangers_do_not_wash_away_what_principals_tried() -> None:
    """Of both the newest are kept, and all are counted."""
    trace = RefusalTrace()
    note(trace, "worker")
    for _ in range(KEPT_MAX + 5):
        note(trace, "", "unauthenticated")
    shown = trace.newest(2 * KEPT_MAX)
    assert shown.count == KEPT_MAX + 6
    assert len(shown.refusals) == KEPT_MAX + 1
    assert shown.refusals[-1].principal == "worker"
    assert [one.number for one in trace.newest(3).refusals] == [shown.count, shown.count - 1, shown.count - 2]


def test_one_principal_does_not_wash_away_what_another_tried() -> None:
    """Who is refused all the time has the room that others leave, and gives it back."""
    trace = RefusalTrace()
    note(trace, "quiet", detail="the one that matters")
    for _ in range(3 * KEPT_MAX):
        note(trace, "loud")
    for _ in range(KEPT_MAX // 2):
        note(trace, "other")
    by = Counter(one.principal for one in trace.newest(2 * KEPT_MAX).refusals)
    assert by == {"quiet": 1, "loud": KEPT_MAX - 1 - KEPT_MAX // 2, "other": KEPT_MAX // 2}
    assert trace.newest(2 * KEPT_MAX).refusals[-1].detail == "the one that matters"


def test_one_address_does_not_wash_away_what_came_from_another() -> None:
    """However many IPv6 addresses one machine has: they are one."""
    trace = RefusalTrace()
    trace.origin_of = origin_of
    note(trace, "", "unauthenticated", address="10.0.0.9")
    for number in range(3 * KEPT_MAX):
        note(trace, "", "unauthenticated", address=f"2001:db8:1:2::{number % 5000:x}")
    shown = trace.newest(2 * KEPT_MAX).refusals
    assert len(shown) == KEPT_MAX
    assert shown[-1].address == "10.0.0.9"
    assert shown[0].address == f"2001:db8:1:2::{3 * KEPT_MAX - 1:x}"


async def test_a_server_counts_addresses_by_machines() -> None:
    """As it does for connections."""
    async with serving(tokens=LINES) as served:
        assert served.authentication.trace.origin_of("2001:db8:1:2:3::4") == "2001:db8:1:2::/64"


def test_nothing_grows_with_what_a_client_sends() -> None:
    """What it chooses is cut; another exception, and a problem of another kind, are not kept."""
    trace = RefusalTrace()
    note(trace, "", "forbidden-host", "h" * 10_000, request_id="i" * 10_000)
    trace.note(ValueError("x"), None, principal="", method="-", route="-", request_id="r")
    note(trace, "worker", "lock-held")
    (shown,) = trace.newest(10).refusals
    assert (len(shown.detail), len(shown.request_id)) == (DETAIL_CHARS_MAX, ID_CHARS_MAX)
    assert shown.address == ""
