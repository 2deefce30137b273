"""Large answers take turns: however many are asked for at once, a node does everything else in between.

To find and show a thousand locks takes a node some milliseconds, in which it does nothing else. Only one such
answer is made at a time, and after each step of it the next one rests for twice as long as that took. So all
of them together get a third of a node's time, and a command that arrives waits for one step and not for all.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Final

from cluster.errors import Overloaded

RESTS: Final = 2
"""How many times as long as a step the rest after it is."""
REST_S_MAX: Final = 0.05
"""Seconds of the longest rest. A step that takes longer was disturbed, or has to be made smaller."""


class Turns:
    """The turns of one server. Whoever comes first is served first."""

    def __init__(self, rest_s_min: float = 0.0) -> None:
        """Nobody has the turn. `rest_s_min` is for steps that cost more, to be sent, than they take."""
        self._lock = asyncio.Lock()
        self._rest_s_min = rest_s_min

    @contextlib.asynccontextmanager
    async def turn(self, deadline_s: float) -> AsyncIterator[None]:
        """Wait for the turn until `deadline_s` of the loop's clock, and have it for one step without a wait.

        Raises Overloaded.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._lock.acquire()
        except TimeoutError:
            raise Overloaded(
                "too many large answers are asked of this node; ask for less, or later"
            ) from None
        began_s = time.monotonic()  # the loop's clock stands still while a callback runs
        try:
            yield
        finally:
            rest_s = max(RESTS * (time.monotonic() - began_s), self._rest_s_min)
            loop.call_later(min(rest_s, REST_S_MAX), self._lock.release)
