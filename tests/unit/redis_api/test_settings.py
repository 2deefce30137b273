"""CONFIG and WAIT over real sockets."""

import msgspec

from cluster.observing.status import ClusterStatus, PeerStatus
from tests.unit.redis_api.test_server import serving


async def test_settings_are_told_by_pattern() -> None:
    """What nobody here knows is left out, as in Redis; nothing can be set."""
    async with serving() as served, served.client() as client:
        assert await client.ask("CONFIG", "GET", "MAXMEMORY-policy") == [b"maxmemory-policy", b"noeviction"]
        assert await client.ask("CONFIG", "GET", "append*", "save") == [
            *(b"appendfsync", b"always", b"appendonly", b"yes", b"save", b""),
        ]
        assert await client.ask("CONFIG", "GET", "nonsense") == []
        assert (await client.ask("CONFIG", "GET")).startswith(
            "-ERR wrong number of arguments for 'config|get'"
        )
        assert (await client.ask("CONFIG", "SET", "save", "")).startswith("-ERR CONFIG SET is not supported")
        refused = await client.ask("CONFIG", "SET", "notify-keyspace-events", "Ex")
        assert refused.startswith("-ERR notify-keyspace-events is not supported")
        assert "HF.ACQUIRE wait" in refused


async def test_wait_tells_how_many_others_have_a_write() -> None:
    """A majority of those that vote, without the one; no more than that is known."""
    async with serving() as served, served.client() as client:
        assert await client.ask("WAIT", 1, 1_000) == 0
        one: ClusterStatus = served.node.status()
        others = [
            PeerStatus(f"n{number}", "http://n", "n:1", state, 0)
            for number, state in enumerate(("follower", "unreachable", "joining"), 2)
        ]
        several = msgspec.structs.replace(one, nodes=(*one.nodes, *others))
        served.node.status = lambda: several  # type: ignore[method-assign]
        assert await client.ask("WAIT", 0, 0) == 1
        assert (await client.ask("WAIT", -1, 0)).startswith("-ERR value is out of range")
        assert (await client.ask("WAIT", "x", 0)).startswith("-ERR value is not an integer")
