"""Callbacks that are due: as asyncio's own handles, without what a simulation does not need."""

import asyncio
from collections.abc import Callable
from typing import Any


class Call(asyncio.Handle):
    """A callback that is due. asyncio's own does more than a simulation needs, and half of its time."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._callback = callback
        self._args = args
        self._cancelled = False

    def cancel(self) -> None:
        """Do not call it."""
        self._cancelled = True
        self._callback = None  # type: ignore[assignment]
        self._args = ()


class Timer(asyncio.TimerHandle):
    """A callback that is due at a time."""

    __slots__ = ()

    def __init__(self, when: float, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._cancelled = False

    def cancel(self) -> None:
        """Do not call it. It stays in the heap until its time comes."""
        self._cancelled = True
        self._callback = None  # type: ignore[assignment]
        self._args = ()
