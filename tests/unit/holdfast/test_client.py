"""The client against servers that fail: what it repeats, what it tells its caller."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

import holdfast
from cluster import config
from holdfast import wire
from holdfast.operations import exchange
from lockstate.words import limits
from scripts import cluster_command
from scripts.lib.ports import of_cluster
from tests.unit.holdfast.scripted import (
    ScriptedNode,
    Step,
    answer,
    granted,
    problem,
    released,
    renewed,
    reset,
    silence,
    status,
)


@pytest.mark.parametrize(
    "failure",
    [
        reset,
        problem("no-leader", retry_after_ms=1),
        problem("shutting-down"),
        problem("outcome-unknown"),
        problem("overloaded", retry_after_ms=1),
        problem("queue-full"),
        status(503),
        status(502),
    ],
)
async def test_a_failed_attempt_is_repeated_byte_for_byte(failure: Step) -> None:
    """After a lost answer, 429, 502, 503 or 504 the same body, request_id included, goes to the next node."""
    async with ScriptedNode(failure, granted()) as one, ScriptedNode(failure, granted()) as two:
        async with holdfast.Client([one.url, two.url]) as client:
            hold = await client.acquire("a/b", ttl=30, wait=0.04, renew=False)
        seen = [*one.seen, *two.seen]
        assert hold.token == 7
        assert len(one.seen) >= 1
        assert len(two.seen) >= 1
        assert len({request.body for request in seen}) == 1
        assert len(seen[0].fields["request_id"]) == 32
        assert seen[0].fields["wait_ms"] == 40


async def test_a_node_that_dies_over_a_change_may_have_made_it() -> None:
    """The library sends a DELETE again when its connection breaks; that nobody listens then says little."""
    left = answer(members=[{"id": "n1", "peer": "10.0.0.1:7800", "state": "voter"}], revision=12)
    async with ScriptedNode(left) as node, holdfast.Client([node.url], timeout=0.5) as client:
        await client.admin.remove_member("n2", reason="by hand")
        node.then(node.reset_and_go)
        with pytest.raises(holdfast.OutcomeUnknown):
            await client.admin.remove_member("n2", reason="by hand")
        with pytest.raises(holdfast.Unavailable):
            await client.admin.remove_member("n2", reason="by hand")
        assert len(node.seen) == 2


async def test_a_node_that_is_down_is_passed_over() -> None:
    """A refused connection leads to the next node, and the client then stays with the one that works."""
    async with ScriptedNode(granted()) as gone:
        dead_url = gone.url
    async with (
        ScriptedNode(granted()) as alive,
        holdfast.Client([dead_url, alive.url, dead_url]) as client,
    ):
        for _ in range(3):
            await client.acquire("a/b", ttl=30, wait=0, renew=False)
        assert len(alive.seen) == 3
        assert client._transport.node == 1


async def test_a_silent_node_is_given_up_in_time() -> None:
    """A node that takes the request and says nothing costs one share of the deadline, not all of it."""
    async with ScriptedNode(silence) as hung, ScriptedNode(granted()) as alive:
        async with holdfast.Client([hung.url, alive.url], timeout=1.0) as client:
            client._transport.node = 0
            hold = await client.acquire("a/b", ttl=30, wait=0, renew=False)
        assert hold.token == 7
        assert [request.body for request in hung.seen] == [request.body for request in alive.seen]
        assert hung.seen[0].timeout_ms == 500


async def test_a_long_wait_leaves_a_node_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the answer that a request still waits is missing, the same request moves on."""
    monkeypatch.setattr(exchange, "SLICE_S", 0.05)
    async with ScriptedNode(silence) as hung, ScriptedNode(granted(), renewed()) as alive:
        hung.is_hung = True
        async with holdfast.Client([hung.url, alive.url]) as client, asyncio.timeout(10):
            client._transport.node = 0
            hold = await client.acquire("a/b", ttl=30, wait=60, renew=False)
        assert hold.token == 7
        assert hung.seen[0].body == alive.seen[0].body


async def test_a_long_wait_stays_with_a_node_that_lives() -> None:
    """A node that says that the request still waits is asked again, with the same request."""
    async with ScriptedNode(status(202), status(202), granted()) as node, ScriptedNode(status(500)) as other:
        async with holdfast.Client([node.url, other.url]) as client:
            client._transport.node = 0
            await client.acquire("a/b", ttl=30, wait=60, renew=False)
        assert len({request.fields["request_id"] for request in node.seen}) == 1
        assert len(node.seen) == 3
        assert other.seen == []


async def test_new_calls_have_new_request_ids() -> None:
    """Two acquires of one client are two requests to the cluster."""
    async with ScriptedNode(granted()) as node, holdfast.Client([node.url]) as client:
        await client.acquire("a/b", ttl=30, wait=0, renew=False)
        await client.acquire("a/b", ttl=30, wait=0, renew=False)
        assert node.seen[0].fields["request_id"] != node.seen[1].fields["request_id"]


async def test_surely_not_applied_is_unavailable() -> None:
    """When every attempt was refused before it had an effect the client says so."""
    async with (
        ScriptedNode(problem("no-leader")) as node,
        holdfast.Client([node.url], timeout=1.0) as client,
    ):
        with pytest.raises(holdfast.Unavailable) as caught:
            await client.acquire("a/b", ttl=30, wait=0, renew=False)
        assert caught.value.code == "no-leader"
        assert len(node.seen) > 1


async def test_one_lost_answer_makes_the_outcome_unknown() -> None:
    """A later refusal to serve does not undo that an earlier attempt may have been applied."""
    script = (reset, problem("no-leader"))
    async with ScriptedNode(*script) as node, holdfast.Client([node.url], timeout=0.3) as client:
        with pytest.raises(holdfast.OutcomeUnknown) as caught:
            await client.acquire("a/b", ttl=30, wait=0, renew=False)
        assert caught.value.request_id == node.seen[0].fields["request_id"]


async def test_a_lost_read_leaves_no_doubt() -> None:
    """A read changes nothing, so the worst about it is Unavailable."""
    async with ScriptedNode(reset) as node, holdfast.Client([node.url], timeout=0.3) as client:
        with pytest.raises(holdfast.Unavailable):
            await client.get_lock("a/b")


async def test_an_internal_error_is_not_repeated() -> None:
    """A node's own mistake is reported at once, as an outcome that is not known."""
    async with ScriptedNode(problem("internal")) as node, holdfast.Client([node.url]) as client:
        with pytest.raises(holdfast.OutcomeUnknown):
            await client.acquire("a/b", ttl=30, wait=0, renew=False)
        assert len(node.seen) == 1


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("lock-held", holdfast.LockHeld),
        ("session-expired", holdfast.SessionExpired),
        ("lease-expired", holdfast.LeaseExpired),
        ("invalid-request", holdfast.InvalidRequest),
        ("ttl-out-of-range", holdfast.InvalidRequest),
        ("not-found", holdfast.Refused),
    ],
)
async def test_a_refusal_is_raised_at_once(code: str, error: type[holdfast.Refused]) -> None:
    """What the cluster decides is not asked again; the problem document comes with the exception."""
    async with (
        ScriptedNode(problem(code, holders=[{"owner": "eve"}])) as node,
        holdfast.Client([node.url]) as client,
    ):
        with pytest.raises(error) as caught:
            await client.acquire("a/b", ttl=30, wait=0, renew=False)
        assert caught.value.code == code
        assert caught.value.problem["holders"] == [{"owner": "eve"}]
        assert len(node.seen) == 1


async def test_a_late_grant_is_renewed_before_it_is_handed_out() -> None:
    """After a wait as long as a third of the lease the validity counts from a renewal, not from the grant."""

    async def late(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.2)
        return await granted(expires_in_ms=500)(request)

    async with (
        ScriptedNode(late, renewed(expires_in_ms=500)) as node,
        holdfast.Client([node.url]) as client,
    ):
        hold = await client.acquire("a/b", ttl=0.5, wait=5, renew=False)
        assert [request.path for request in node.seen] == ["/v1/locks/acquire", "/v1/locks/renew"]
        assert hold.is_valid


async def test_a_late_grant_that_nobody_confirms_was_applied_perhaps() -> None:
    """No node answers when it is to be renewed, nor when it is given back: it is held until its lease ends.

    So it must not be said to be surely not applied, which is what the renewal was.
    """

    async def late_and_last(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.2)
        return await node.answer_and_go(granted(expires_in_ms=500), request)

    async with (
        ScriptedNode(late_and_last) as node,
        holdfast.Client([node.url], timeout=0.3) as client,
    ):
        with pytest.raises(holdfast.OutcomeUnknown, match="granted too late") as caught:
            await client.acquire("a/b", ttl=0.5, wait=5, renew=False)
        assert isinstance(caught.value.__cause__, holdfast.Unavailable)
        assert [request.path for request in node.seen] == ["/v1/locks/acquire"]


async def test_a_grant_that_is_over_is_lost() -> None:
    """A hold that ended before its grant was heard of is LeaseLost, never a Hold."""
    script = (granted(expires_in_ms=0), problem("lease-expired"))
    async with ScriptedNode(*script) as node, holdfast.Client([node.url]) as client:
        with pytest.raises(holdfast.LeaseLost):
            await client.acquire("a/b", ttl=0.5, wait=0, renew=False)


async def test_sessions_own_locks() -> None:
    """A lock acquired for a session names the session and no ttl; keepalive and close name it in the path."""
    opened = answer(session_id="s/1", ttl_ms=5_000, expires_in_ms=5_000, revision=1)
    kept = answer(session_id="s/1", expires_in_ms=5_000, revision=3)
    closed = answer(names=["a/b"], revision=4)
    async with ScriptedNode(opened, granted(), kept, closed) as node, holdfast.Client([node.url]) as client:
        session = await client.session(ttl=5, labels={"app": "x"}, renew=False).open()
        await client.acquire("a/b", session=session, wait=0, renew=False)
        await session.keepalive()
        assert session.is_valid
        assert await session.close() == ("a/b",)
        assert node.seen[1].fields["session_id"] == "s/1"
        assert "ttl_ms" not in node.seen[1].fields
        assert [(request.method, request.path) for request in node.seen[2:]] == [
            ("POST", "/v1/sessions/s%2F1/keepalive"),
            ("DELETE", "/v1/sessions/s%2F1"),
        ]


async def test_closing_a_session_is_repeated_with_its_request_id() -> None:
    """When the answer to a close was lost the repetition gets the first outcome: the names released."""
    opened = answer(session_id="s", ttl_ms=5_000, expires_in_ms=5_000, revision=1)
    script = (opened, reset, answer(names=["a/b"], revision=4))
    async with ScriptedNode(*script) as node, holdfast.Client([node.url]) as client:
        session = await client.session(ttl=5, renew=False).open()
        assert await session.close() == ("a/b",)
        assert node.seen[1] == node.seen[2]
        assert node.seen[1].fields["request_id"]


async def test_reads_are_decoded_and_names_are_encoded() -> None:
    """A lock's name is one encoded part of the path, whatever is in it."""
    holder = {"owner": "me", "mode": "exclusive", "token": 3, "expires_in_ms": 10, "note": "", "new_field": 1}
    body = answer(name="a/b c?", state="held", holders=[holder], queue=[])
    async with ScriptedNode(body) as node, holdfast.Client([node.url]) as client:
        info = await client.get_lock("a/b c?", is_stale=True)
        assert info.holders[0].token == 3
        assert node.seen[0].path == "/v1/locks/a%2Fb%20c%3F?consistency=stale"


async def test_an_answer_of_no_node_is_an_unknown_outcome() -> None:
    """A 200 that is not an answer of ours proves nothing."""
    async with ScriptedNode(status(200)) as node, holdfast.Client([node.url]) as client:
        with pytest.raises(holdfast.OutcomeUnknown):
            await client.acquire("a/b", ttl=0.5, wait=0, renew=False)


async def test_release_takes_a_hold_or_its_id() -> None:
    """A client that kept only the hold id can release the lock."""
    async with ScriptedNode(granted(), released) as node, holdfast.Client([node.url]) as client:
        hold = await client.acquire("a/b", ttl=30, wait=0, renew=False)
        await hold.release()
        await client.release(hold.hold_id)
        assert node.seen[1].fields["hold_id"] == node.seen[2].fields["hold_id"] == hold.hold_id


@pytest.mark.parametrize(
    "nodes", [[], "", ",", [""], ["ftp://x"], "http://", "a:port", "http://a:99999", "::1", ["a:7700", "b:0"]]
)
def test_a_wrong_node_is_told_at_once(nodes: str | list[str]) -> None:
    """A client that could never reach anything is not made."""
    with pytest.raises(ValueError, match="http"):
        holdfast.Client(nodes)


@pytest.mark.parametrize(
    ("nodes", "urls"),
    [
        ("http://a:1/", ["http://a:1"]),
        ("http://a:1, https://b", ["http://a:1", "https://b"]),
        (["a:7701", "[::1]:7702", "c"], ["http://a:7701", "http://[::1]:7702", "http://c:7700"]),
        (iter(["a:1"]), ["http://a:1"]),
    ],
)
def test_nodes_are_given_as_people_write_them(nodes: str | list[str], urls: list[str]) -> None:
    """One string or a list, URLs or HOST:PORT."""
    assert list(holdfast.Client(nodes)._transport.nodes) == urls


def test_nodes_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client without nodes takes those of HOLDFAST_NODES, and without it those of this machine."""
    monkeypatch.setenv("HOLDFAST_NODES", "a:1,b:2")
    assert holdfast.Client()._transport.nodes == ("http://a:1", "http://b:2")
    monkeypatch.setenv("HOLDFAST_NODES", "")
    local = holdfast.Client()._transport.nodes
    monkeypatch.delenv("HOLDFAST_NODES")
    assert holdfast.Client()._transport.nodes == local


def test_default_ports_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default clients look where a node, and the three of `scripts/cluster up`, listen by default."""
    monkeypatch.delenv("HOLDFAST_NODES", raising=False)
    http = config.load([], {}).http
    assert http is not None
    ports = [int(url.rpartition(":")[2]) for url in holdfast.Client()._transport.nodes]
    assert ports == [http for http, _ in of_cluster(cluster_command.DEFAULT_BASE_PORT, 3)]
    assert ports[0] == http.port


async def test_a_session_that_is_awaited_says_how_it_is_opened() -> None:
    """Its user may take it for an acquire, which can be awaited."""
    async with holdfast.Client("http://127.0.0.1:1") as client:
        session: Any = client.session(ttl=5)
        with pytest.raises(TypeError, match=r"async with client\.session\(\.\.\.\)"):
            await session


async def test_acquire_takes_a_lease_or_a_session() -> None:
    """Both is a mistake of the caller, found before anything is sent; neither means a lease of 30 s."""
    opened = answer(session_id="s", ttl_ms=5_000, expires_in_ms=5_000, revision=1)
    async with ScriptedNode(opened, granted()) as node, holdfast.Client(node.url) as client:
        session = await client.session(ttl=5, renew=False).open()
        with pytest.raises(ValueError, match="ttl or session"):
            await client.acquire("a/b", ttl=5, session=session, wait=0, renew=False)
        await client.acquire("a/b", wait=0, renew=False)
        assert [request.fields["ttl_ms"] for request in node.seen] == [5_000, 30_000]
        assert "wait_ms" not in node.seen[1].fields


async def test_a_wait_without_an_end_goes_beyond_that_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the longest wait that a request may have is over the client asks anew."""
    monkeypatch.setattr(wire, "WAIT_MS_MAX", 50)

    async def late(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.06)
        return await problem("lock-held")(request)

    script = (late, granted(), problem("lock-held"))
    async with ScriptedNode(*script) as node, holdfast.Client(node.url) as client:
        assert (await client.acquire("a/b", wait=None, renew=False)).token == 7
        with pytest.raises(holdfast.LockHeld):
            await client.acquire("a/b", wait=None, renew=False)
        assert len({request.fields["request_id"] for request in node.seen}) == 3
        assert [request.fields["wait_ms"] for request in node.seen] == [50] * 3


async def test_the_longest_wait_is_that_of_the_cluster() -> None:
    """The bound that the client knows is the one that the state machine has."""
    assert wire.WAIT_MS_MAX == limits.WAIT_MS_MAX
