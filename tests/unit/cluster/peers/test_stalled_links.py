"""A link on which nothing comes through any more, in one direction only, is replaced by a new connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cluster.config import Address
from cluster.peers import links as links_module
from cluster.peers.link import FrameKind
from tests.unit.cluster.peers.test_links import free_address, node, until

CHUNK_BYTES = 4096


class Throttle:
    """Stands between a dialer and an address, and holds back what comes from one of the two sides."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self._gates: list[dict[str, asyncio.Event]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0

    def stall(self, side: str) -> None:
        """Hold back from now on what this side of the present connections sends; later ones are free."""
        for gates in self._gates:
            gates[side].clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection of the dialer."""
        self.connections += 1
        there, back = await asyncio.open_connection(*self._target)
        gates = {"dialer": asyncio.Event(), "acceptor": asyncio.Event()}
        for gate in gates.values():
            gate.set()
        self._gates.append(gates)
        for source, sink, side in ((reader, back, "dialer"), (there, writer, "acceptor")):
            task = asyncio.get_running_loop().create_task(self._carry(source, sink, gates[side]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        try:
            while data := await source.read(CHUNK_BYTES):
                await gate.wait()
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            return
        finally:
            sink.close()

    async def stop(self) -> None:
        """End all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def throttled(target: Address) -> AsyncIterator[tuple[Throttle, Address]]:
    """Run a throttle before `target`; yield it and where it listens."""
    throttle = Throttle(target)
    server = await asyncio.start_server(throttle.serve, "127.0.0.1", 0)
    try:
        yield throttle, Address(*server.sockets[0].getsockname()[:2])
    finally:
        server.close()
        await throttle.stop()


@pytest.mark.parametrize("side", ["dialer", "acceptor"])
async def test_a_link_that_stalls_in_one_direction_is_replaced(
    monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    """Whoever hears nothing makes a new connection before the silence ends the old one."""
    monkeypatch.setattr(links_module, "PING_S", 0.05)
    monkeypatch.setattr(links_module, "STALLED_S", 0.25)
    monkeypatch.setattr(links_module, "SILENCE_S_MAX", 1000.0)
    a_address, b_address = free_address(), free_address()
    async with (
        throttled(b_address) as (throttle, between),
        node("b", {"a": a_address, "b": b_address}) as (b_links, b),
        node("a", {"a": a_address, "b": between}) as (a_links, a),
    ):
        await until(lambda: a_links.is_up("b") and b_links.is_up("a"))
        throttle.stall(side)
        sender, receiver, host = (a_links, "b", b) if side == "dialer" else (b_links, "a", a)
        count = 0
        while ("RAFT", sender.node_id, "through") not in host.log:
            # What was sent over the old connection is lost with it.
            sender.send(receiver, FrameKind.RAFT, "through")
            await asyncio.sleep(0.01)
            count += 1
            assert count < 2000, "the link was not replaced"


async def test_a_slow_link_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """One on which bytes still come is left alone, however long a frame takes."""
    monkeypatch.setattr(links_module, "PING_S", 0.05)
    a_address, b_address = free_address(), free_address()
    async with (
        throttled(b_address) as (throttle, between),
        node("b", {"a": a_address, "b": b_address}),
        node("a", {"a": a_address, "b": between}) as (a_links, _),
    ):
        await until(lambda: a_links.is_up("b"))
        link = a_links._open["b"]
        now_s = asyncio.get_running_loop().time()
        a_links._renew_if_stalled("b", link, link.bytes_s + links_module.STALLED_S - 0.01)
        assert not a_links._renewals
        # Nothing proven has come for long, but bytes have.
        link.heard_s = now_s - 100.0
        link.bytes_s = now_s
        a_links._renew_if_stalled("b", link, now_s + 1.0)
        assert not a_links._renewals
        a_links._renew_if_stalled("b", link, now_s + links_module.STALLED_S + 0.01)
        assert a_links._renewals
        await until(lambda: throttle.connections == 2 and not a_links._renewals)
