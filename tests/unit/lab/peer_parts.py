"""What tests of `scripts/bench peers` share: a client without a server, and ways of asking it."""

import asyncio
from collections.abc import Sequence

from lab.peers.closed_loop import Lean, Worker
from lab.peers.system import Way


class Echo:
    """A lean client without a server: it answers in the next turn of the loop, or never."""

    def __init__(self, *, is_mute: bool = False, fails_count: int = 0) -> None:
        self.is_mute = is_mute
        self.fails_count = fails_count
        self.held: list[bytes] = []
        self.is_closed = False

    def acquire(self, worker: Worker) -> None:
        """Grant, or refuse as often as told."""
        loop = asyncio.get_running_loop()
        if self.fails_count:
            self.fails_count -= 1
            loop.call_soon(worker.failed, "refused")
        elif not self.is_mute:
            loop.call_soon(worker.acquired, worker.name.encode())

    def release(self, worker: Worker, held: bytes) -> None:
        """Remember what is given back."""
        self.held.append(held)
        asyncio.get_running_loop().call_soon(worker.released)

    def close(self) -> None:
        """Remember that."""
        self.is_closed = True


def way(*clients: Echo, is_contended: bool = False) -> Way:
    """Return a way of asking them."""

    async def connect(_: int) -> Sequence[Lean]:
        return clients

    return Way("echo", "Echo", connect, is_contended)
