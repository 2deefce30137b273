"""Locks that are held while a benchmark runs: acquired over a stream, each with a lease of its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from typing import Final

from lab.loads.load import Tally
from lab.peers import ours
from lab.peers.closed_loop import Lean, StuckError, Worker
from lockstate.words.limits import TTL_MS_MAX

WORKERS: Final = 512
"""How many are asked for at a time: they fit into the window of one stream."""
LOOK_S: Final = 0.1
PROGRESS_S: Final = 5.0
STUCK_S: Final = 30.0
"""Seconds without any answer after which this gives up."""

Say = Callable[[str], None]


@contextlib.asynccontextmanager
async def held_locks(url: str, names: Collection[str]) -> AsyncIterator[None]:
    """Hold these locks meanwhile. Raises OSError and StuckError."""
    held = await hold(url, names)
    try:
        yield
    finally:
        await release(url, held)


async def hold(url: str, names: Collection[str], say: Say = lambda _: None) -> list[bytes]:
    """Acquire these locks, each for a day, and return what releases them. Raises OSError and StuckError."""
    held: list[bytes] = []
    left = iter(names)

    def tell() -> str:
        return f"{len(held)} of {len(names)} locks are held"

    await _work(url, lambda tally, lean: Holder(tally, lean, left, held), tell, say)
    if len(held) < len(names):
        raise OSError(f"{tell()}, no more")
    return held


async def release(url: str, held: Sequence[bytes], say: Say = lambda _: None) -> None:
    """Release what `hold` returned. Raises OSError and StuckError."""
    left = list(held)

    def tell() -> str:
        return f"{len(left)} locks are still to be released"

    await _work(url, lambda tally, lean: Releaser(tally, lean, left), tell, say)


async def _work(url: str, make: Callable[[Tally, Lean], Worker], tell: Callable[[], str], say: Say) -> None:
    """Let workers work over one stream until all have ended; `tell` says how far they are."""
    tally = Tally()
    lean = await ours.stream(ours.address(url), 0, TTL_MS_MAX)
    try:
        workers = [make(tally, lean) for _ in range(WORKERS)]
        for worker in workers:
            worker.begin()
        clock = asyncio.get_running_loop().time
        last, moved_s, said_s = tell(), clock(), clock()
        while not all(worker.ended.done() for worker in workers):
            await asyncio.sleep(LOOK_S)
            if (now := tell()) != last:
                last, moved_s = now, clock()
            if clock() - moved_s > STUCK_S:
                raise StuckError(f"no answer for {STUCK_S:.0f} s; {last}; errors: {tally.errors}")
            if clock() - said_s > PROGRESS_S:
                said_s = clock()
                say(last)
    finally:
        lean.close()
    if tally.errors:
        raise OSError(f"{tally.errors_count} errors: {tally.errors}")


class Holder(Worker):
    """Acquires one name after the other, and keeps them."""

    def __init__(self, tally: Tally, lean: Lean, names: Iterator[str], held: list[bytes]) -> None:
        super().__init__(tally, lean, "", 0)
        self._names = names
        self._held = held

    def begin(self) -> None:
        """Ask for the next name, or end when none is left."""
        name = next(self._names, None)
        if name is None:
            self._end()
            return
        self.name = name
        self._lean.acquire(self)

    def acquired(self, held: bytes) -> None:
        """Keep it, and go on."""
        self._held.append(held)
        self.begin()

    def failed(self, text: str) -> None:
        """Count an error, and go on."""
        self._tally.error(text)
        self.begin()


class Releaser(Worker):
    """Releases what is held, one after the other."""

    def __init__(self, tally: Tally, lean: Lean, held: list[bytes]) -> None:
        super().__init__(tally, lean, "", 0)
        self._held = held

    def begin(self) -> None:
        """Release the next one, or end when none is left."""
        if self._held:
            self._lean.release(self, self._held.pop())
        else:
            self._end()

    def released(self) -> None:
        """Go on."""
        self.begin()

    def failed(self, text: str) -> None:
        """Count an error, and go on."""
        self._tally.error(text)
        self.begin()
