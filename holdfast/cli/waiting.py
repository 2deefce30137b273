"""Says what a command waits for: who has it, its place in the queue, and for how long it has waited."""

import asyncio
import contextlib
import os
import sys
from types import TracebackType
from typing import Any, Final, Self

from holdfast import wire
from holdfast.cli.inspector import ITEMS, Inspector
from holdfast.cli.printing import Row, printable, say, say_in_place
from holdfast.operations.operation import path_to
from holdfast.values.clock import now_s
from holdfast.values.errors import LockError

FIRST_S: Final = 1.0
"""Seconds until the first words: most waits are over by then."""
LOOK_S: Final = 1.0
"""Seconds between two looks, which are stale reads: they cost the leader nothing."""
COLUMNS: Final = 80
"""The width of a terminal that does not tell its own."""
REMIND_S: Final = 60.0
"""Seconds after which a line says again what has not changed, where lines cannot be replaced."""


class Waiting:
    """Tells people on standard error what is waited for, from `with` until `end` or the end of the block.

    On a terminal one line is updated in place, and is gone at the end. Elsewhere nothing is said, unless
    `is_verbose`: then there is a line whenever something changes.
    """

    def __init__(self, client: Inspector, kind: str, name: str, *, is_verbose: bool) -> None:
        self._client = client
        self._path = path_to(ITEMS[kind], name)
        self._name = name
        self._is_in_place = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._is_silent = not (self._is_in_place or sys.stderr.isatty() or is_verbose)
        self._began_s = now_s()
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._began_s = now_s()
        if not self._is_silent:
            self._task = asyncio.create_task(self._tell())
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Say no more, and clear the line."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        say_in_place("")

    async def _tell(self) -> None:
        """Say it again and again, as long as somebody reads it."""
        await asyncio.sleep(FIRST_S)
        with contextlib.suppress(OSError):
            await self._tell_now()

    async def _tell_now(self) -> None:
        said, said_at_s = "", 0.0
        while True:
            try:
                shown: Row | None = await self._client.read(self._path, {"consistency": wire.STALE})
            except LockError:
                shown = None  # whether the wait itself goes on is for its own request to say
            waited_s = now_s() - self._began_s
            state = describe(self._name, shown, self._client.owner, waited_s)
            text = printable(f"{state}, {spoken(waited_s)}")
            if self._is_in_place:
                # One column less: a full line would wrap, and could not be replaced.
                say_in_place(f"holdfast: {text}"[: _columns() - 1])
            elif state != said or now_s() - said_at_s >= REMIND_S:
                say(text)
                said, said_at_s = state, now_s()
            await asyncio.sleep(LOOK_S)


def _columns() -> int:
    """Return the width of the terminal that standard error is; standard output may be a pipe."""
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or COLUMNS
    return COLUMNS


def describe(name: str, shown: Row | None, owner: str, waited_s: float) -> str:
    """Say who has what is waited for, and our place in its queue, as far as a node has shown it."""
    words = f"waiting for {name!r}"
    if shown is None:
        return f"{words}: no node says who has it"
    holders = shown.get("holders") or [leader for leader in (shown.get("leader"),) if leader]
    parts = []
    if holders:
        more = f" and {len(holders) - 1} more" if len(holders) > 1 else ""
        parts.append(f"held by {holders[0].get('owner')}{more}")
    place = _place(shown.get("queue") or [], owner, waited_s)
    if place:
        parts.append(f"{ordinal(place)} in the queue")
    return f"{words}: {', '.join(parts)}" if parts else words


def _place(queue: list[dict[str, Any]], owner: str, waited_s: float) -> int:
    """Return our place: of those with our owner's name, the one that has waited as long as we have. Or 0."""
    ours = [waiter for waiter in queue if waiter.get("owner") == owner]
    if not ours:
        return 0
    nearest = min(ours, key=lambda waiter: abs(waiter.get("waited_ms", 0) - waited_s * 1000))
    return int(nearest.get("position", 0))


def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, 11th, 21st."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ending}"


def spoken(seconds: float) -> str:
    """Return how long something has lasted: 40 s, 5 min, 3 h."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
