"""SENTINEL over real sockets: what a node says of itself to clients that look for one that serves."""

from typing import Any

import pytest

from tests.unit.redis_api.test_server import Connected, serving


async def fields(client: Connected, *words: str) -> dict[str, str]:
    """Return what a node says of the master."""
    flat: Any = await client.ask("SENTINEL", *words)
    texts = [text.decode() for text in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))


async def test_a_node_that_serves_is_the_master() -> None:
    """At the address at which the client has reached it."""
    async with serving() as served, served.client() as client:
        address = [b"127.0.0.1", str(served.port).encode()]
        assert await client.ask("SENTINEL", "get-master-addr-by-name", "holdfast") == address
        told = await fields(client, "MASTER", "holdfast")
        assert (told["ip"], told["port"]) == ("127.0.0.1", str(served.port))
        assert (told["name"], told["flags"], told["quorum"]) == ("holdfast", "master", "1")
        ((*row,),) = await client.ask("SENTINEL", "MASTERS")
        assert dict(zip(row[::2], row[1::2], strict=True))[b"flags"] == b"master"
        for word in ("SENTINELS", "REPLICAS", "SLAVES"):
            assert await client.ask("SENTINEL", word, "holdfast") == []
        assert (await client.ask("SENTINEL", "CKQUORUM", "holdfast")).startswith(b"OK 1 usable Sentinels")
        assert await client.ask("SENTINEL", "MYID") == told["runid"].encode()


async def test_a_node_that_does_not_serve_says_so() -> None:
    """The client goes on to the next one."""
    async with serving() as served, served.client() as client:
        served.node.is_ready = False
        assert await client.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "holdfast") is None
        assert (await fields(client, "MASTER", "holdfast"))["flags"] == "master,s_down,o_down"
        assert (await client.ask("SENTINEL", "CKQUORUM", "holdfast")).startswith("-NOQUORUM ")
        served.starting = "50 % of the state is read"
        refused = await client.ask("SENTINEL", "MASTERS")
        assert refused.startswith("-LOADING ")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["MASTER", "mymaster"], "-ERR No such master with that name: here it is holdfast"),
        (["CKQUORUM", "mymaster"], "-ERR No such master with that name"),
        (["MASTERS", "holdfast"], "-ERR wrong number of arguments for 'sentinel|masters' command"),
        (["FAILOVER", "holdfast"], "-ERR SENTINEL FAILOVER is not supported by Holdfast"),
    ],
)
async def test_what_it_does_not_know_is_refused(words: list[str], error: str) -> None:
    """With a reason; only the address of an unknown name is nothing, as in Redis."""
    async with serving() as served, served.client() as client:
        assert (await client.ask("SENTINEL", *words)).startswith(error)
        assert await client.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster") is None
