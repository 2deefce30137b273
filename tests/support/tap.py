"""Somebody on the path between two nodes, who sees every byte, and may add some, or hold some back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cluster.config import Address

CHUNK_BYTES = 65_536


class Tap:
    """Carries connections to an address, both ways, and keeps what passed."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self._writers: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._gates: list[dict[str, asyncio.Event]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.seen = bytearray()
        self.connections = 0

    def inject(self, data: bytes, *, to_dialer: bool = False) -> None:
        """Add bytes to what one side of the newest connection is sent."""
        back, there = self._writers[-1]
        (back if to_dialer else there).write(data)

    def stall(self, side: str) -> None:
        """Hold back from now on what this side of the present connections sends; later ones are free."""
        for gates in self._gates:
            gates[side].clear()

    def go_on(self) -> None:
        """Hand over what is held back."""
        for gates in self._gates:
            for gate in gates.values():
                gate.set()

    def cut(self) -> None:
        """Break the present connections; what is held back is lost."""
        for task in tuple(self._tasks):
            task.cancel()
        for back, there in self._writers:
            back.transport.abort()
            there.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection of the dialer."""
        self.connections += 1
        try:
            answers, there = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers.append((writer, there))
        gates = {"dialer": asyncio.Event(), "acceptor": asyncio.Event()}
        self._gates.append(gates)
        for source, sink, side in ((reader, there, "dialer"), (answers, writer, "acceptor")):
            gates[side].set()
            task = asyncio.get_running_loop().create_task(self._carry(source, sink, gates[side]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        try:
            while data := await source.read(CHUNK_BYTES):
                self.seen += data
                await gate.wait()
                await self.pass_on(data, sink)
        except ConnectionError:
            return
        finally:
            sink.close()

    async def pass_on(self, data: bytes, sink: asyncio.StreamWriter) -> None:
        """Hand over what was read to whom it is for. Raises ConnectionError to end their connection."""
        sink.write(data)
        await sink.drain()

    async def stop(self) -> None:
        """End all connections."""
        tasks = tuple(self._tasks)
        self.cut()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def tapped(target: Address, port: int = 0) -> AsyncIterator[tuple[Tap, Address]]:
    """Run a tap before `target`; yield it and where it listens."""
    tap = Tap(target)
    async with listening(tap, port) as address:
        yield tap, address


@asynccontextmanager
async def listening(tap: Tap, port: int = 0) -> AsyncIterator[Address]:
    """Let a tap serve; yield where it listens."""
    server = await asyncio.start_server(tap.serve, "127.0.0.1", port)
    try:
        yield Address(*server.sockets[0].getsockname()[:2])
    finally:
        server.close()
        await tap.stop()
