"""What both clients show: listings of every kind, sessions and waits, the audit; at a real node."""

import asyncio

import pytest

import holdfast
from tests.unit.holdfast.conftest import NewClient, a_node

DEADLINE_S = 60


async def test_a_listing_is_read_to_its_end_or_a_page_at_a_time(new_client: NewClient) -> None:
    """The iterator goes on over pages; a page says where the next one begins."""
    async with a_node() as (served, url), new_client(url) as client:
        served.draw(101)
        for index in range(101):
            await client.fence(f"disk/{index:03}").advance(index + 1)
        assert [row.highest_token async for row in client.list_fences("disk/")] == list(range(1, 102))
        first = await client.list_fences("disk/").page(limit=2)
        assert [row.name for row in first.items] == ["disk/000", "disk/001"]
        assert first.next is not None
        second = await client.list_fences("disk/", is_stale=True).page(limit=1, after=first.next)
        assert [row.name for row in second.items] == ["disk/002"]
        assert second.revision is not None
        assert (await client.list_fences("nothing").page()).next is None


async def test_there_is_a_listing_of_each_kind(new_client: NewClient) -> None:
    """Semaphores, elections, rate limits, sessions and holds, with what belongs to each."""
    async with (
        a_node() as (_, url),
        new_client(url, owner="me") as client,
        client.semaphore("gpu", limit=4, permits=3),
        client.election("primary", value="10.0.0.1:80"),
        client.lock("a"),
    ):
        await client.rate_limiter("mail", limit=9, per=60, algorithm="gcra").take()
        (semaphore,) = [row async for row in client.list_semaphores()]
        assert (semaphore.name, semaphore.limit, semaphore.available) == ("gpu", 4, 1)
        (election,) = [row async for row in client.list_elections()]
        assert election.leader is not None
        assert (election.name, election.leader.value) == ("primary", "10.0.0.1:80")
        (rate,) = [row async for row in client.list_rate_limits()]
        assert (rate.name, rate.algorithm, rate.window_ms) == ("mail", "gcra", 60_000)
        holds = [(row.kind, row.name, row.owner) async for row in client.list_holds()]
        assert sorted(holds) == [
            ("election", "primary", "me"),
            ("lock", "a", "me"),
            ("semaphore", "gpu", "me"),
        ]
        assert [row.name async for row in client.list_holds("g", owner="me")] == ["gpu"]
        assert not [row async for row in client.list_holds(held_longer_than=3600)]
        assert not [row async for row in client.list_holds(no_deadline=True)]
        assert len([row async for row in client.list_holds(no_deadline=False)]) == len(holds)
        assert not [info async for info in client.list("a", held_longer_than=3600)]


async def test_a_name_may_be_the_word_of_a_call(new_client: NewClient) -> None:
    """As every other one it is read and written by its path."""
    async with a_node() as (_, url), new_client(url) as client, client.lock("release", ttl=60):
        assert (await client.get_lock("release")).state == "held"
        await client.cells.put("txn", "begun")
        cell = await client.cells.get("txn")
        assert cell is not None
        assert cell.text == "begun"


async def test_sessions_of_others_are_found_and_looked_into(new_client: NewClient) -> None:
    """By owner or label; what one has is told by its public name, and all of one's own by its id."""
    async with a_node() as (_, url), new_client(url, owner="me") as client:
        async with client.session(ttl=60, labels={"host": "rack-3"}) as session, client.session():
            hold = await client.lock("a", session=session).acquire()
            (row,) = [row async for row in client.list_sessions(label=("host", "rack-3"))]
            assert (row.labels, row.holds_count) == ({"owner": "me", "host": "rack-3"}, 1)
            theirs = await client.get_holdings(row.session_name)
            assert [(one.name, one.token, one.kind) for one in theirs.holds] == [("a", hold.token, "lock")]
            assert theirs.tickets == ()
            info = await client.get_session(session)
            assert (info.session_name, info.ttl_ms) == (row.session_name, 60_000)
            assert [one.name for one in info.holds] == ["a"]
            assert [event.event for event in await client.session_audit(session)] == ["granted"]
        with pytest.raises(holdfast.SessionExpired):
            await client.get_session(session.session_id)
        events = await client.session_audit(session.session_id, limit=1)
        assert [event.event for event in events] == ["released"]


async def test_a_wait_is_looked_at_by_its_number(new_client: NewClient) -> None:
    """Others see who waits for what, and where it stands; once it is over, that it is."""
    async with a_node() as (_, url), new_client(url) as client, new_client(url, owner="late") as other:
        async with client.lock("a"):
            waiting = asyncio.ensure_future(other.lock("a", wait=DEADLINE_S).acquire())
            async with asyncio.timeout(DEADLINE_S):
                while not (waits := [row async for row in client.list_waits(owner="late")]):  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            (row,) = waits
            assert (row.kind, row.name, row.position) == ("lock", "a", 1)
            ticket = await client.get_ticket(row.ticket)
            assert (ticket.names, ticket.owner, ticket.position) == (("a",), "late", 1)
            assert ticket.ends_in_ms > 0
        await (await waiting).release()
        with pytest.raises(holdfast.Refused) as caught:
            await client.get_ticket(row.ticket)
        assert caught.value.code == "ticket-ended"


async def test_the_audit_goes_on_behind_a_record(new_client: NewClient) -> None:
    """Records have numbers; what came behind one is told the oldest first."""
    async with a_node() as (_, url), new_client(url) as client:
        async with client.lock("a"):
            pass
        newest, oldest = await client.audit("a")
        assert (newest.event, oldest.event, newest.number) == ("released", "granted", oldest.number + 1)
        assert [event.event for event in await client.audit("a", behind=oldest.number)] == ["released"]
        assert [event.event for event in await client.audit(behind=0, limit=1)] == ["granted"]
        assert await client.audit(by_operators=True) == ()


async def test_a_token_is_checked_for_a_kind(new_client: NewClient) -> None:
    """Each kind has tokens of its own holds."""
    async with a_node() as (_, url), new_client(url) as client, client.lock("a") as hold:
        assert (await client.check_token("a", hold.token, kind="lock")).valid
        assert not (await client.check_token("a", hold.token, kind="semaphore")).valid


async def test_a_ping_says_which_node_answers(new_client: NewClient) -> None:
    """And who leads; without a node it fails."""
    async with a_node() as (_, url), new_client(url) as client:
        pong = await client.ping()
        assert (pong.node_id, pong.leader) == ("n1", "n1")
        assert 0 < pong.seconds < DEADLINE_S
    async with new_client("127.0.0.1:1", timeout=0.1) as client:
        with pytest.raises(holdfast.Unavailable):
            await client.ping()


async def test_what_a_node_knows_itself_may_be_older(new_client: NewClient) -> None:
    """A stale view of a rate limit or a fence is asked of one node; nothing is taken of it."""
    async with a_node() as (served, url), new_client(url) as client:
        served.draw(7)
        await client.fence("disk").advance(7)
        assert await client.fence("disk").highest(is_stale=True) == 7
        limiter = client.rate_limiter("mail", limit=2, per=3600)
        await limiter.take()
        assert (await limiter.peek(is_stale=True)).remaining == 1
        assert (await client.inspect("a", is_stale=True)).revision is not None
        assert (await client.inspect("a")).revision is None


async def test_some_locks_of_a_hold_are_given_back(new_client: NewClient) -> None:
    """The others stay, under the same token; all of them are given back by release alone."""
    async with a_node() as (_, url), new_client(url) as client, client.locks("a", "b", "c") as hold:
        token = hold.token
        await hold.drop("b")
        assert (hold.names, hold.token, hold.is_valid) == (("a", "c"), token, True)
        assert (await client.inspect("b")).state == "free"
        assert (await client.inspect("a")).holders[0].token == token
        for names in ((), ("a", "c")):
            with pytest.raises(ValueError, match="not all"):
                await hold.drop(*names)
        with pytest.raises(holdfast.Refused) as caught:
            await hold.drop("z")
        assert caught.value.code == "not-holder"


async def test_a_session_gets_another_ttl(new_client: NewClient) -> None:
    """With a keepalive that says one; it counts from then on."""
    async with a_node() as (_, url), new_client(url) as client:
        session = await client.session(ttl=5).open()
        await session.keepalive(ttl=90)
        assert 80 < session.remaining <= 90
        assert (await client.get_session(session)).ttl_ms == 90_000
        await session.close()
