"""The log lines of a whole cluster: each forced or expired hold leaves one, without a secret."""

from collections.abc import Iterator

import pytest

from holdfast import wire
from scripts.local_cluster import LocalCluster
from tests.process.nodes import LogSince, followers, http_to, node_ids, until

pytestmark = pytest.mark.process


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Give a cluster of its own: expiries of others may have used up the lines of a minute."""
    with LocalCluster.up(tmp_path_factory.mktemp("lines")) as cluster:
        yield cluster


async def test_one_line_in_the_whole_cluster(cluster: LocalCluster) -> None:
    """What was forced or expired is told by one of three nodes, with the reason, and no id is in any log."""
    first, second = followers(cluster)
    logs = [LogSince(cluster, node_id) for node_id in node_ids(cluster)]

    def told(*words: str) -> list[str]:
        return [line for log in logs for line in log.lines(*words)]

    async with http_to(cluster) as http:
        opened = await http.call(first, "POST", wire.SESSIONS, {"ttl_ms": 100})
        session_id = opened.body["session_id"]
        in_session = await http.acquire(second, "told/expired", session_id=session_id, owner="bob")
        held = await http.acquire(first, "told/forced", owner="worker 7")
        body = {"name": "told/forced", "reason": "it's stuck, ask ann"}
        assert (await http.call(second, "POST", wire.LOCK_FORCE_RELEASE, body)).status == 200
        await until(
            lambda: told("event=session-expired") and told("event=expired"),
            "the lines of the session and its lock",
        )
        (forced,) = told("event=forced")
        assert f"name='told/forced' mode=exclusive token={held.body['token']} owner='worker 7'" in forced
        assert forced.endswith('''reason="it's stuck, ask ann"''')
        (expired,) = told("event=expired")
        assert f"name='told/expired' mode=exclusive token={in_session.body['token']} owner='bob'" in expired
        assert len(told("event=session-expired")) == 1
        assert not told("event=granted")
        # All have applied it by now, so whoever would tell it has done so.
        for node_id in node_ids(cluster):
            assert (await http.lock(node_id, "told/forced")).body["state"] == "free"
        assert len(told("event=forced")) == len(told("event=expired")) == 1
    for secret in (session_id, in_session.body["hold_id"], held.body["hold_id"]):
        assert not told(secret)
