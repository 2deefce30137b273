"""Turns of the transactions of one node that want to change the same key: first come, first served.

Two transactions that read a key and change it cannot both succeed: one of them runs again. Where many do so
at a time, nearly all would run again and again. In turns, each finds the key as the one before it left it.
Between two turns there is a rest, about as long as the turn took: other nodes get a chance to change the key.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

REST_S_MAX: Final = 0.05
"""Seconds of a turn that count for the rest behind it."""


class NameTurns:
    """The keys for which transactions of this node run in turns."""

    def __init__(self) -> None:
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}
        """The turns of a name, and how many have or want them."""

    def is_taken(self, name: str) -> bool:
        """Whether somebody has a turn with this name."""
        return name in self._turns

    @asynccontextmanager
    async def turn(self, name: str, wait_s: float, *, is_contended: bool) -> AsyncIterator[None]:
        """Wait for a turn with a name, and have it in the block. Raises TimeoutError.

        There is a rest behind it if others want one: of this node, or of other nodes (`is_contended`).
        """
        lock, count = self._turns.get(name) or (asyncio.Lock(), 0)
        self._turns[name] = lock, count + 1
        try:
            async with asyncio.timeout(wait_s):
                await lock.acquire()
        except BaseException:
            self._leave(name)
            raise
        began_s = time.monotonic()
        try:
            yield
        finally:
            rest_s = random.uniform(0, 2) * min(time.monotonic() - began_s, REST_S_MAX)  # noqa: S311
            if is_contended or self._turns[name][1] > 1:
                asyncio.get_running_loop().call_later(rest_s, self._pass_on, name, lock)
            else:
                self._pass_on(name, lock)

    def _pass_on(self, name: str, lock: asyncio.Lock) -> None:
        lock.release()
        self._leave(name)

    def _leave(self, name: str) -> None:
        lock, count = self._turns[name]
        if count > 1:
            self._turns[name] = lock, count - 1
        else:
            del self._turns[name]
