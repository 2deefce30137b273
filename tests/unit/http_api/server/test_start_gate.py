"""What clients are told while a node starts."""

import pytest

from holdfast import wire
from http_api.server.start_gate import RETRY_MS, StartGate
from tests.unit.http_api.serving import check_problem, serving, token_line

ANN = token_line("ann", "a-token-of-ann", "read")
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
HOW_FAR = "the node is starting: it has read 7 % of its state"


async def test_a_node_that_starts_is_alive_and_not_ready() -> None:
    """It says how far it is, and when to ask again; the connection ends."""
    async with serving(gate=StartGate(lambda: HOW_FAR)) as served:
        alive = await served.call("GET", wire.LIVEZ)
        assert (alive.status, alive.body) == (200, {"ok": True, "troubles": [HOW_FAR]})
        got = await served.call("GET", wire.READYZ)
        check_problem(got, 503, "not-ready")
        assert (got.body["detail"], got.body["retry_after_ms"]) == (HOW_FAR, RETRY_MS)
        assert got.headers["Connection"] == "close"


@pytest.mark.parametrize("fast_lane", [True, False])
async def test_nothing_reaches_a_node_that_starts(fast_lane: bool) -> None:  # noqa: FBT001
    """No call is served before the gate is open, and then each is, by the fast lane as well."""
    gate = StartGate(lambda: HOW_FAR)
    async with serving(gate=gate, fast_lane=fast_lane) as served:
        check_problem(await served.acquire("a"), 503, "not-ready")
        for path in (
            wire.CLUSTER,
            wire.METRICS,
            wire.LOCKS,
            wire.OPENAPI,
            wire.STREAM,
            f"{wire.WATCH}?prefix=a",
        ):
            check_problem(await served.call("GET", path), 503, "not-ready")
        assert served.node.machine.revision == 0
        gate.open()
        assert (await served.acquire("a")).status == 200
        assert (await served.call("GET", wire.READYZ)).body == {"ok": True}


async def test_a_token_is_asked_for_as_ever() -> None:
    """A stranger hears no more of a node that starts than of one that serves."""
    async with serving(gate=StartGate(lambda: HOW_FAR), tokens=ANN) as served:
        check_problem(await served.acquire("a"), 401, "unauthenticated")


@pytest.mark.parametrize("path", ["/", "/ui", "/ui/"])
async def test_a_browser_sees_a_page_while_the_node_starts(path: str) -> None:
    """It says how far the node is, and looks again by itself. Programs get the same problem as everywhere."""
    gate = StartGate(lambda: "it has read 7 % of <its> state")
    async with serving(gate=gate, tokens=ANN) as served:
        got = await served.call("GET", path, headers=BROWSER)
        page = got.body.decode()
        assert (got.status, got.headers["Content-Type"]) == (503, "text/html; charset=utf-8")
        assert "it has read 7 % of &lt;its&gt; state" in page
        assert '<meta http-equiv="refresh"' in page
        assert got.headers["Cache-Control"] == "no-store"
        check_problem(await served.call("GET", path), 503, "not-ready")
        check_problem(await served.call("GET", wire.OPENAPI, headers=BROWSER), 401, "unauthenticated")
        gate.open()
        assert (await served.call("GET", "/ui", headers=BROWSER)).status == 200
