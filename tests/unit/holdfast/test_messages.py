"""What errors say: who is in the way, where a wait ended, and how things ended; at a real node."""

import logging

import pytest

import holdfast
from tests.support.both_clients import beneath
from tests.unit.holdfast.conftest import NewClient, a_node
from tests.unit.holdfast.scripted import ScriptedNode, answer


async def test_a_wait_in_vain_says_who_has_it_and_where_it_stood(new_client: NewClient) -> None:
    """The holder with its token and what is left of its lease, how long the wait was, and its place."""
    async with (
        a_node() as (_, url),
        new_client(url, owner="web-1:312") as first,
        new_client(url) as second,
    ):
        hold = await first.acquire("report", ttl=60)
        with pytest.raises(holdfast.LockTimeout) as caught:
            await second.lock("report", wait=0.2).acquire()
        problem = caught.value.problem
        assert (problem["position"], problem["queue_length"]) == (1, 0)
        assert isinstance(problem["waited_ms"], int)
        assert problem["waited_ms"] >= 200
        text = str(caught.value)
        assert text.startswith(
            f"'report' is held by web-1:312 (token {hold.token}, 60 s of its lease left); "
        )
        assert text.endswith("; waited 0.2 s, 1st in the queue")


async def test_a_hold_that_is_over_says_how_it_ended(new_client: NewClient) -> None:
    """By force, by whom and why; or released; as long as the audit has it."""
    async with a_node() as (_, url), new_client(url) as client:
        forced = await client.acquire("a", ttl=60, wait=0, renew=False)
        released = await client.acquire("b", ttl=60, wait=0, renew=False)
        await client.admin.force_release("a", reason="the disk is replaced")
        await client.release(released.hold_id)
        with pytest.raises(
            holdfast.LeaseExpired, match=r"ended by force .* s ago: the disk is replaced"
        ) as caught:
            await forced.renew()
        ended = caught.value.problem["ended"]
        assert isinstance(ended, dict)
        assert (ended["event"], ended["reason"]) == ("forced", "the disk is replaced")
        with pytest.raises(holdfast.LeaseExpired, match="the hold was released"):
            await released.renew()
        with pytest.raises(holdfast.LeaseExpired, match="or never existed"):
            await client.release("no-such-hold")


async def test_a_session_that_is_over_says_how_it_ended(new_client: NewClient) -> None:
    """By force, and why; one that its client has closed is only not there."""
    async with a_node() as (_, url), new_client(url) as client:
        session = await client.session(ttl=60, renew=False).open()
        name = (await client.get_session(session)).session_name
        await client.admin.force_close_session(name, reason="stuck")
        with pytest.raises(holdfast.SessionExpired, match=r"the session was ended by force .*: stuck"):
            await session.keepalive()
        with pytest.raises(holdfast.SessionExpired, match="or never existed"):
            await client.get_session("no-such-session")


async def test_a_client_says_that_it_went_to_another_node(
    new_client: NewClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with the reason, under the logger `holdfast`; not for each call."""
    with caplog.at_level(logging.INFO, logger="holdfast"):
        async with a_node() as (_, url), new_client(["http://127.0.0.1:1", url]) as client:
            beneath(client)._transport.node = 0  # it begins at any of them
            for _ in range(3):
                await client.inspect("a")
    messages = [record.getMessage() for record in caplog.records if record.name == "holdfast"]
    said = [message for message in messages if message.startswith("asking")]
    assert said == [f"asking {url} from now on; http://127.0.0.1:1: no connection: Connection refused"]


async def test_nodes_that_do_not_answer_are_named(new_client: NewClient) -> None:
    """Each with its reason, and what to look at."""
    async with new_client(["127.0.0.1:1", "127.0.0.1:2"], timeout=0.3) as client:
        with pytest.raises(holdfast.Unavailable) as caught:
            await client.inspect("a")
    assert str(caught.value) == (
        "not done: http://127.0.0.1:1: no connection: Connection refused; "
        "http://127.0.0.1:2: no connection: Connection refused. "
        "Do nodes run at these URLs, and can this machine reach them?"
    )


async def test_requests_say_which_client_they_come_from(new_client: NewClient) -> None:
    """By a User-Agent with its version."""
    async with ScriptedNode(answer(name="a", state="free")) as node:
        async with new_client(node.url) as client:
            await client.inspect("a")
        assert node.seen[0].agent == f"holdfast-python/{holdfast.__version__}"
