"""A real event loop that runs only when it is told to: for synchronous tests of code that needs one."""

import asyncio
from asyncio import events
from collections.abc import Callable, Coroutine
from typing import ClassVar, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

ROUNDS: Final = 3
"""Rounds of the loop in which everything that a callback leads to has had its turn."""


class HandDrivenLoop:
    """Between two calls nothing happens. Timers go by real time."""

    opened: ClassVar[list["HandDrivenLoop"]] = []
    """Those that are to be closed at the end of a test; see the fixture `closed_loops`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.opened.append(self)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function as if the loop ran; what it puts off waits for `run_callbacks`."""
        events._set_running_loop(self._loop)
        try:
            return function(*args, **kwargs)
        finally:
            events._set_running_loop(None)

    def wait(self, awaitable: Coroutine[object, object, T]) -> T:
        """Run the loop until something has come about."""
        return self._loop.run_until_complete(awaitable)

    def run_callbacks(self) -> None:
        """Do everything that was put off."""

        async def pass_rounds() -> None:
            for _ in range(ROUNDS):
                await asyncio.sleep(0)

        self._loop.run_until_complete(pass_rounds())

    def close(self) -> None:
        """Cancel what still waits and let go of the loop."""

        async def cancel_all() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self._loop.run_until_complete(cancel_all())
        self._loop.close()
