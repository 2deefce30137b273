"""A lock is handed over on three real nodes: to the one that was chosen, past the one that came before."""

import asyncio

import pytest

import holdfast
from scripts.local_cluster import LocalCluster
from tests.process.nodes import followers, http_to, until

pytestmark = pytest.mark.process


async def test_the_chosen_waiter_has_it_next_and_then_the_one_before_it(cluster: LocalCluster) -> None:
    """A hands to B past C, each at a node of its own; B has a higher token than A, and C comes next."""
    name = "process/handed"
    at_leader, (at_one, at_other) = cluster.leader(), followers(cluster)
    async with (
        http_to(cluster) as http,
        holdfast.Client(cluster.node(at_one).http, owner="A") as a,
        holdfast.Client(cluster.node(at_other).http, owner="B") as b,
        holdfast.Client(cluster.node(at_leader).http, owner="C") as c,
    ):
        hold = await a.lock(name, ttl=30).acquire()

        async def wait_behind(client: holdfast.Client, count: int) -> "asyncio.Task[holdfast.Hold]":
            async def is_queued() -> bool:
                return await http.queue_length(at_leader, name) == count

            waiting = asyncio.create_task(client.lock(name, ttl=30).acquire())
            await until(is_queued, f"{count} wait")
            return waiting

        of_c, of_b = await wait_behind(c, 1), await wait_behind(b, 2)
        queue = (await a.inspect(name)).queue
        assert [waiter.owner for waiter in queue] == ["C", "B"]
        token = await hold.hand_over(to_ticket=queue[1].ticket)
        given = await of_b
        assert given.token == token > hold.token
        assert (hold.reason, hold.lost.is_set()) == ("released", False)
        assert [holder.owner for holder in (await c.inspect(name)).holders] == ["B"]
        fence = b.fence(name)
        await fence.advance(given.token)
        with pytest.raises(holdfast.StaleToken):
            await a.fence(name).advance(hold.token)
        assert not of_c.done()
        await given.release()
        last = await of_c
        assert last.token > given.token
        await last.release()
