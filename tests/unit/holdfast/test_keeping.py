"""When what is held is renewed, and by whom."""

from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import wire
from holdfast.client import keeping
from holdfast.values.lease import Lease
from tests.unit.holdfast.conftest import NewClient, a_node
from tests.unit.holdfast.scripted import ScriptedNode, Step, answer, problem
from tests.unit.http_api.serving import until


@given(st.floats(0, 1e9), st.integers(50, 86_400_000))
def test_a_lease_is_renewed_at_a_third_of_it_or_a_little_before(asked_at_s: float, ttl_ms: int) -> None:
    """By chance, so that many holds of one moment are not renewed at one moment again."""
    third_s = ttl_ms / 3000
    moments = {keeping._renew_at_s(Lease(asked_at_s, ttl_ms)) - asked_at_s for _ in range(20)}
    slack_s = 1e-6  # of the clock, which counts from the start of the machine
    assert min(moments) >= third_s * (1 - keeping.RENEW_JITTER) - slack_s
    assert max(moments) <= third_s + slack_s
    assert len(moments) > 1 or asked_at_s > 1e6


async def test_one_keepalive_renews_all_that_a_session_holds(
    new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else is sent for its holds, whatever they are."""
    async with a_node() as (served, url), new_client(url) as client, client.session(ttl=0.6) as session:
        holds = [await client.lock(name, session=session).acquire() for name in "abc"]
        holds.append(await client.semaphore("gpu", limit=2, session=session).acquire())
        holds.append(await client.election("primary", session=session).acquire())
        applied: list[str] = []
        apply = served.node._apply

        def note(command: Any) -> Any:
            if command is not None:
                applied.append(type(command).__name__)
            return apply(command)

        monkeypatch.setattr(served.node, "_apply", note)
        await until(lambda: len(applied) > 2)
        assert set(applied) == {"KeepAlive"}
        assert all(hold.is_valid for hold in holds)


@pytest.mark.parametrize("nodes_count", [1, 2])
async def test_a_bound_on_requests_ends_nothing_that_can_be_renewed(nodes_count: int) -> None:
    """Neither when another node has room, nor when the only one has it long before it said so."""
    opened = answer(session_id="s", ttl_ms=3000, expires_in_ms=3000, names=[], revision=1)
    refused = problem("too-many-requests", limit=10, retry_after_ms=60_000)
    script: list[Step] = [refused] * (1 if nodes_count == 1 else 1000)

    async def without_room(request: web.Request) -> web.StreamResponse:
        is_refused = request.path != wire.SESSIONS and script
        return await (script.pop() if is_refused else opened)(request)

    async with ScriptedNode(without_room) as full, ScriptedNode(opened) as other:
        nodes = [full.url, other.url][:nodes_count]
        async with holdfast.Client(nodes, timeout=10) as client:
            client._transport.node = 0
            session = await client.session(ttl=3).open()
            first = session.lease
            await until(lambda: session.lost.is_set() or session.lease is not first)
            assert session.is_valid
            assert len(full.seen) > 1  # it was asked first
            await session.close()
