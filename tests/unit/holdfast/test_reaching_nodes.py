"""Nodes that are not there yet, and names that stand for several addresses."""

import asyncio
import contextlib
import socket
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

import holdfast
from cluster.config import Address
from holdfast.transport import transport
from scripts.lib import ports
from tests.support.tap import tapped
from tests.unit.holdfast.conftest import NewClient, a_node
from tests.unit.holdfast.scripted import ScriptedNode, granted


async def test_a_client_may_be_there_before_the_nodes(new_client: NewClient) -> None:
    """Its calls are repeated until one answers; nothing has to be started in a certain order."""
    (port,) = ports.reserve(1)
    async with a_node() as (served, _), new_client(f"127.0.0.1:{port}", timeout=30) as client:
        acquiring = asyncio.ensure_future(client.lock("a").acquire())
        with pytest.raises(holdfast.Unavailable):
            async with holdfast.Client(f"127.0.0.1:{port}", timeout=0.2) as other:
                await other.lock("a").acquire()
        assert not acquiring.done()
        async with tapped(Address("127.0.0.1", served.port), port):
            hold = await acquiring
            assert hold.is_valid
            await hold.release()


async def test_a_client_that_waits_for_ever_can_be_closed(
    new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its calls wait a year for the nodes; what it only wants to give back, in the end, does not."""
    monkeypatch.setattr(transport, "UNDO_S_MAX", 0.2)
    async with contextlib.AsyncExitStack() as stack, a_node() as (served, _), asyncio.timeout(20):
        async with tapped(Address("127.0.0.1", served.port)) as (_, address):
            url = f"http://{address.host}:{address.port}"
            client = await stack.enter_async_context(new_client(url, timeout=timedelta(days=365)))
            hold = await client.lock("a", ttl=600).acquire()
            session = await client.session(ttl=600).open()
        await stack.aclose()
        assert (hold.reason, session.reason) == ("released", "released")
        assert served.node.machine.state.holds, "nobody could release it"


async def test_a_name_may_stand_for_several_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one has nobody: the next one is tried, within the same attempt."""
    asked: list[str] = []

    async def resolve(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port))
            for address in ("127.0.0.2", "127.0.0.1")
        ]

    async with ScriptedNode(granted()) as node:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        port = urlsplit(node.url).port
        async with holdfast.Client(f"http://nodes.test:{port}", timeout=5) as client:
            assert (await client.acquire("a/b", wait=0, renew=False)).token == 7
    assert set(asked) == {"nodes.test"}
    assert len(node.seen) == 1
