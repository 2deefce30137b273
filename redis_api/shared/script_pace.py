"""How much of a node's time scripts have: a node does nothing else while one runs, and must keep its lead."""

import asyncio
import time
from typing import Final

from redis_api.protocol.errors import CommandRefused

SHARE: Final = 0.5
"""The part of a node's time that scripts have together."""
BURST_S: Final = 0.05
"""Seconds by which scripts may be ahead of their share: short ones are not to wait for each other."""


class ScriptPace:
    """Lets scripts begin in the order in which they came, and no faster than their share allows."""

    def __init__(self) -> None:
        self._free_s = 0.0
        """When the next one may begin."""
        self._turn = asyncio.Lock()

    async def wait(self, wait_s: float) -> None:
        """Wait until a script may begin; it must do so at once. Raises CommandRefused if that is too late."""
        try:
            async with asyncio.timeout(wait_s), self._turn:
                # Again: a script that runs once more because of a conflict counts, and does not wait.
                while (left_s := self._free_s - time.monotonic()) > 0:  # noqa: ASYNC110 - a time, no event
                    await asyncio.sleep(left_s)
        except TimeoutError:
            raise CommandRefused(
                "this node runs scripts all the time; nothing was applied: ask again, or another node", "BUSY"
            ) from None

    def took(self, seconds: float) -> None:
        """Count what a script has taken."""
        now_s = time.monotonic()
        self._free_s = max(self._free_s, now_s - BURST_S) + seconds / SHARE
