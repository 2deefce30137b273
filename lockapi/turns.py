"""Large answers take turns: however many are asked for at once, a node does everything else in between.

To find and show a thousand locks takes a node some milliseconds, in which it does nothing else. So it does
that in steps. Only one such answer is made at a time, from its first step to its last: were all made side by
side, none would be ready in time where there are too many. After each step comes a rest twice as long as that
took. So all of them together get a third of a node's time, and a command that arrives waits for one step.
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
    async def turn(self, deadline_s: float) -> AsyncIterator["AnswerTurn"]:
        """Wait for the turn until `deadline_s` of the loop's clock, and have it until the end of the block.

        The block waits for nothing but the rests between its steps. Raises Overloaded.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._lock.acquire()
        except TimeoutError:
            raise _overloaded() from None
        turn = AnswerTurn(deadline_s, self._rest_s_min)
        try:
            yield turn
        finally:
            loop.call_later(turn.rest_s(), self._lock.release)


class AnswerTurn:
    """The turn of one answer, which makes it step by step."""

    def __init__(self, deadline_s: float, rest_s_min: float) -> None:
        self._deadline_s = deadline_s
        self._rest_s_min = rest_s_min
        self._began_s = time.monotonic()  # the loop's clock stands still while a callback runs

    def rest_s(self) -> float:
        """Return how long the loop is to be free for everything else after the step that ends now."""
        return min(max(RESTS * (time.monotonic() - self._began_s), self._rest_s_min), REST_S_MAX)

    async def rest(self) -> None:
        """End a step, and rest before the next one. Raises Overloaded if its time is over then."""
        await asyncio.sleep(self.rest_s())
        if asyncio.get_running_loop().time() > self._deadline_s:
            raise _overloaded()
        self._began_s = time.monotonic()


def _overloaded() -> Overloaded:
    return Overloaded("this node is making too many large answers; ask for less, or later")
