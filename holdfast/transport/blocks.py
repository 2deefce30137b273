"""Which hold belongs to which block: `with lock:` may be entered in one thread or task, and left in another.

A `with` statement enters and leaves from one frame, wherever that runs: a generator's frame goes from thread
to thread, and a coroutine's from task to task. So an open block is known by the frame that entered it, or by
the exit stack. Code that calls `__enter__` by hand, or moves a stack's blocks to another one, enters from one
frame and leaves from another. If only one block of the object is open then, it is that one. If several are,
nothing is guessed: what cannot be told apart ends together, when the last of these blocks is left.
"""

import contextlib
import logging
import weakref
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
A = TypeVar("A", bound="HeldByBlock")

_log = logging.getLogger("holdfast")


Key: TypeAlias = tuple[str, str]
"""A kind and a name."""


class Keyed(Protocol):
    """What a block was entered for."""

    @property
    def mode(self) -> str:
        """How it is held at first."""
        ...

    @property
    def keys(self) -> tuple[Key, ...]:
        """What of it can be held in one mode only."""
        ...

    @property
    def session(self) -> Any:
        """The session that it lives in, if it is not its own."""
        ...


class Block(Generic[T]):
    """One open block: what it is known by, what it holds, and what for (None for a session)."""

    __slots__ = ("__weakref__", "by", "held", "keys", "noted", "what")

    def __init__(self, frame: FrameType, held: T, what: Keyed | None) -> None:
        self.by = _known_by(frame)
        self.held = held
        self.what = what
        self.keys: tuple[Key, ...] = () if what is None else what.keys
        """What it holds that can be held in one mode only."""
        self.noted: weakref.ref[Block[T]] | None = None
        """How the client knows of it, while it is open."""


def _known_by(frame: FrameType) -> object:
    """Return the exit stack that enters or leaves a block, or the frame that does."""
    if frame.f_globals is _OF_STACKS:
        stack = frame.f_locals.get("self")
        if isinstance(stack, contextlib.ExitStack | contextlib.AsyncExitStack):
            return stack
    return frame


class Entered:
    """The open blocks of one client, by the names that they hold.

    It keeps none of them: one that nobody can leave any more, because its object is gone, is collected.
    """

    def __init__(self) -> None:
        self._by_name: dict[Key, list[weakref.ref[Block[Any]]]] = {}

    def add(self, block: Block[Any]) -> None:
        """Note a block that was entered."""
        keys = block.keys
        if keys:
            block.noted = noted = weakref.ref(block, lambda gone: self._forget(gone, keys))
            for name in keys:
                self._by_name.setdefault(name, []).append(noted)

    def remove(self, block: Block[Any]) -> None:
        """Forget a block that was left."""
        if block.noted is not None:
            self._forget(block.noted, block.keys)
            block.noted = None

    def _forget(self, noted: weakref.ref[Block[Any]], keys: tuple[Key, ...]) -> None:
        for name in keys:
            blocks = self._by_name.get(name, [])
            if noted in blocks:
                blocks.remove(noted)
            if not blocks and (late := self._by_name.pop(name, None)):
                self._by_name.setdefault(name, []).extend(late)  # another thread came in between

    def around(self, frame: FrameType | None, keys: Iterable[Key]) -> Iterator[tuple[Any, Keyed]]:
        """Yield what the blocks hold that `frame` runs in, and what for: they end after it, for certain."""
        open_blocks: set[Block[Any]] = set()
        for key in keys:
            if noted := self._by_name.get(key):
                open_blocks |= {block for each in tuple(noted) if (block := each()) is not None}
        while frame is not None and open_blocks:
            for block in open_blocks:
                if block.by is frame and block.what is not None:
                    yield block.held, block.what
            frame = frame.f_back


class Around:
    """The open blocks of one hold, as `with lock.acquire() as hold`."""

    def __init__(self, entered: Entered) -> None:
        self._entered = entered
        self._open: list[Block[Any]] = []

    def enter(self, frame: FrameType, held: Any, what: Keyed) -> None:
        """Note a block that was entered."""
        block = Block(frame, held, what)
        self._open.append(block)
        self._entered.add(block)

    def leave(self, frame: FrameType) -> None:
        """Forget the block that is left from `frame`, or the last one: they all have the same hold."""
        by = _known_by(frame)
        for block in [block for block in tuple(self._open) if block.by is by][-1:] or self._open[-1:]:
            self._entered.remove(block)
            if block in self._open:
                self._open.remove(block)


class Blocks(Generic[T]):
    """The open blocks of one object. Threads and tasks enter and leave them in any order.

    It has no lock: each step is one operation on a list, which threads see as a whole. What looks through a
    list looks through a copy: in one that others shorten meanwhile it would pass over an element.
    """

    def __init__(self, entered: Entered) -> None:
        self._entered = entered
        self._open: list[Block[T]] = []
        self._strays: list[object] = []
        """One for each block that was left and cannot be told from others that are open."""

    def enter(self, block: Block[T]) -> T:
        """Note a block that was entered; return what it holds."""
        self._open.append(block)
        self._entered.add(block)
        return block.held

    def withdraw(self, block: Block[T] | None) -> None:
        """Forget a block that an interrupt kept from beginning, however far it was entered."""
        if block is not None:
            if block in self._open:
                self._open.remove(block)
            self._entered.remove(block)

    def leave(self, frame: FrameType, ended: list[Block[T]]) -> None:
        """Add to `ended` what ends with the block that is left from `frame`: itself, if it can be told.

        An interrupt may leave the last of them open: `withdraw` forgets it. Raises RuntimeError when no block
        is open.
        """
        if not self._open:
            raise RuntimeError("this block was not entered, or was left already")
        by = _known_by(frame)
        mine = [block for block in tuple(self._open) if block.by is by][-1:]
        if mine:
            self._close(mine, ended)
        else:
            self._strays.append(None)
        if self._strays and len(self._strays) >= len(self._open):
            self._close(list(self._open), ended)
            self._strays.clear()
        elif not mine:
            _log.warning(_CANNOT_TELL)

    def _close(self, blocks: list[Block[T]], ended: list[Block[T]]) -> None:
        """Close these, but for those that another thread has closed just now: it ends them."""
        for block in blocks:
            ended.append(block)
            try:
                self._open.remove(block)
            except ValueError:
                ended.remove(block)
            self._entered.remove(block)


class HeldByBlock(Protocol):
    """A hold, as far as the object is concerned that acquired it."""

    @property
    def has_ended(self) -> bool:
        """Whether it was released or lost."""
        ...


class Acquired(Generic[A]):
    """What one object has acquired. What has not ended is kept from being collected: `release` ends it."""

    def __init__(self) -> None:
        self._holds: list[A] = []
        self._prune_at = PRUNE_COUNT_MIN

    @property
    def live(self) -> tuple[A, ...]:
        """What has not ended."""
        return tuple(hold for hold in self._holds if not hold.has_ended)

    def add(self, hold: A) -> None:
        """Note a hold, and forget what has ended once that is likely to be half of all."""
        if len(self._holds) >= self._prune_at:
            self._holds = list(self.live)
            self._prune_at = max(PRUNE_COUNT_MIN, 2 * len(self._holds))
        self._holds.append(hold)

    def only(self, what: object) -> A:
        """Return the only one that lives; if none does, the last one. Raises RuntimeError."""
        live = self.live
        if len(live) > 1:
            text = f"{what} has {len(live)} holds; release the one you mean: acquire has returned it"
            raise RuntimeError(text)
        if not self._holds:
            raise RuntimeError(f"{what} is not held by this object")
        return live[0] if live else self._holds[-1]


PRUNE_COUNT_MIN: Final = 4
"""Holds that an object remembers at least before it looks which of them have ended."""
_OF_STACKS: Final = vars(contextlib)
"""The names of the module that has exit stacks, as its frames see them."""
_CANNOT_TELL: Final = (
    "a block of a shared lock object was left that cannot be told from others that are open: "
    "what they hold is released with the last of them; use `with lock.acquire() as hold:` there"
)
