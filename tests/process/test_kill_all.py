"""What was acknowledged survives the end of every process at once."""

import asyncio
import signal

import aiohttp
import pytest

from holdfast.values.clock import now_s
from scripts.local_cluster import LocalCluster
from tests.process import history_checkers
from tests.process.load import Load
from tests.process.nodes import Got, Http, exit_code, http_to, node_ids, urls

pytestmark = pytest.mark.process

ROUNDS = 2
REPEATED = 20


def kill_all(cluster: LocalCluster) -> None:
    """End every node at the same moment."""
    for node_id in node_ids(cluster):
        cluster.send_signal(node_id, signal.SIGKILL)
    for node_id in node_ids(cluster):
        assert exit_code(cluster, node_id) == -signal.SIGKILL


def restart_all(cluster: LocalCluster) -> None:
    """Start every node on what its disk has."""
    for node_id in node_ids(cluster):
        cluster.start(node_id)
    cluster.wait_ready()


async def ask_named(http: Http, node_id: str, name: str) -> Got | None:
    """Acquire with the name as request id; None when the connection broke before there was an answer."""
    try:
        return await http.acquire(node_id, name, owner="named", request_id=f"the-request-for-{name}")
    except aiohttp.ClientError:
        return None


async def test_all_killed(compacting: LocalCluster) -> None:
    """After kill -9 of all nodes under load, what was acknowledged is there and nothing else is."""
    cluster = compacting
    for number in range(ROUNDS):
        prefix = f"all-{number}"
        async with (
            http_to(cluster) as http,
            Load(urls(cluster), prefix=prefix, clients=8, keep_every=3) as load,
        ):
            await load.grants(300)
            names = [f"{prefix}-named/{i}" for i in range(REPEATED)]
            # Some of these are answered before the end, others not: either is right, if it stays so.
            asked = [asyncio.create_task(ask_named(http, "n1", name)) for name in names]
            await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.to_thread(kill_all, cluster)
            first = await asyncio.gather(*asked)

            # Taken while no node runs: what clients know. A release that was only tried proves nothing.
            known = list(load.history)
            kept = list(history_checkers.still_held(known).values())
            released = history_checkers.released(known)
            highest = max(grant.token for grant in history_checkers.grants(known))
            killed_s = now_s()

            await asyncio.to_thread(restart_all, cluster)
            await load.grants(50)
            tokens = await http.tokens("n2", f"{prefix}/kept")
            assert len(kept) > 20
            assert not history_checkers.lost_grants(kept, tokens)
            assert not history_checkers.revived_holds(released, await http.tokens("n3", prefix + "/"))

            for name, before in zip(names, first, strict=True):
                again = await http.acquire("n2", name, owner="named", request_id=f"the-request-for-{name}")
                assert again.status == 200
                assert again.body["token"] == await http.token("n3", name)
                if before is None:
                    continue
                assert (before.body["hold_id"], before.body["token"]) == (
                    again.body["hold_id"],
                    again.body["token"],
                )

        assert not history_checkers.violations(load.history)
        assert not history_checkers.errors(load.history)
        later = [grant.token for grant in history_checkers.grants(load.history) if grant.started_s > killed_s]
        assert later
        assert min(later) > highest
        # The hold ids are still good, too.
        async with http_to(cluster) as http:
            for grant in kept:
                assert (await http.release("n1", grant.hold_id)).status == 200
