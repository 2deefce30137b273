"""Turns of the transactions of one node that want to change the same key: who came first goes first.

Two transactions that read a key and change it cannot both succeed: one of them runs again. Where many do so
at a time, nearly all would run again and again. In turns, each finds the key as the one before it left it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class NameTurns:
    """The keys for which transactions of this node run in turns."""

    def __init__(self) -> None:
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}
        """The turns of a name, and how many have or want them."""

    def is_taken(self, name: str) -> bool:
        """Whether somebody has a turn with this name."""
        return name in self._turns

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Wait for a turn with a name, and have it in the block."""
        lock, count = self._turns.get(name) or (asyncio.Lock(), 0)
        self._turns[name] = lock, count + 1
        try:
            async with lock:
                yield
        finally:
            _, count = self._turns[name]
            if count > 1:
                self._turns[name] = lock, count - 1
            else:
                del self._turns[name]
