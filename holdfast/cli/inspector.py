"""What the commands that only look ask the nodes: plain reads, answered as JSON objects."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from holdfast import wire
from holdfast.cli.printing import Row
from holdfast.client.client import Client
from holdfast.operations.operation import Operation, TimedAnswer, ask, decode
from holdfast.transport.transport import Transport
from holdfast.values.errors import LockError, OutcomeUnknown

T = TypeVar("T")

PAGE: Final = 1000
"""How many items one page has at most."""

LISTINGS: Final[Mapping[str, tuple[str, str]]] = {
    "locks": (wire.LOCKS, "locks"),
    "semaphores": (wire.SEMAPHORES, "semaphores"),
    "elections": (wire.ELECTIONS, "elections"),
    "rate-limits": (wire.RATES, "rate_limits"),
    "fences": (wire.FENCES, "fences"),
    "cells": (wire.CELLS, "cells"),
    "sessions": (wire.SESSIONS, "sessions"),
    "holds": (wire.HOLDS, "holds"),
}
"""What `list` shows: the path, and the field of the answer."""
_PAGES: Final[Mapping[str, tuple[str, str]]] = {
    **LISTINGS,
    "quotas": (wire.QUOTAS, "quotas"),
    "namespaces": (wire.NAMESPACES, "namespaces"),
    "freezes": (wire.FREEZES, "freezes"),
}

ITEMS: Final[Mapping[str, str]] = {
    "lock": wire.LOCK,
    "semaphore": wire.SEMAPHORE,
    "election": wire.ELECTION,
    "fence": wire.FENCE,
}
"""What can be looked at by its name: the path."""


class InspectedPage:
    """Where a listing is: `next` is the cursor for more, None at the end."""

    def __init__(self, after: str = "") -> None:
        self.next: str | None = after


class Inspector(Client):
    """A client that can also ask for whatever a node shows."""

    @property
    def owner(self) -> str:
        """The name that others see as the holder of what this client holds, or waits for."""
        return self._owner

    async def read(self, path: str, query: Mapping[str, str]) -> Row:
        """Ask a node. Raises LockError, and OutcomeUnknown for what is not a JSON object."""
        return await self._transport.call(ask(path, query, lambda answer: decode(answer, Row)))

    async def told(self, operation: Operation[Any]) -> Row:
        """Carry an operation out, and return the answer as it is, if it is one. Raises LockError."""
        return await self._transport.call(_raw(operation))

    async def told_by_each(
        self, operation: Operation[Any], timeout_s: float
    ) -> tuple[list[Row], list[LockError]]:
        """Ask every node by itself, all at once; return the answers as they are, and why others gave none."""
        return await self.ask_each(_raw(operation), lambda _: False, timeout_s)

    async def rows(
        self,
        kind: str,
        query: Mapping[str, str],
        *,
        limit: int | None = None,
        page: InspectedPage | None = None,
    ) -> AsyncGenerator[Row]:
        """Yield what there is of a kind, up to `limit`; then `page` says where it goes on."""
        path, field = _PAGES[kind]
        page = page or InspectedPage()
        left = limit
        while page.next is not None and left != 0:
            size = PAGE if left is None else min(left, PAGE)
            found = await self.read(path, {**query, "limit": str(size), "after": page.next})
            try:
                rows = msgspec.convert(found.get(field), list[Row])
                page.next = msgspec.convert(found.get("next"), str | None)
            except msgspec.ValidationError as error:
                raise OutcomeUnknown(f"the answer does not come from a Holdfast node: {error}") from error
            if left is not None:
                left -= len(rows)
            for row in rows:
                yield row

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it was told."""
        return tuple(self._transport.nodes)

    def alone(self, url: str, timeout_s: float) -> Transport:
        """Return what asks one node alone, on the connections of this client."""
        ours = self._transport
        return Transport(
            (url,), timeout_s, trust=ours.trust, access=ours.access, connections=ours.connections
        )

    async def ask_each(
        self,
        operation: Operation[T],
        is_enough: Callable[[list[T]], bool],
        timeout_s: float | None = None,
    ) -> tuple[list[T], list[LockError]]:
        """Ask every node by itself, all at once; return their answers, and why others gave none.

        Ends when what has come `is_enough`: then it does not wait for those that are left.
        """
        alone = [self.alone(url, timeout_s or self._transport.timeout_s) for url in self.nodes]
        tasks = [asyncio.create_task(transport.call(operation)) for transport in alone]
        answers: list[T] = []
        failures: list[LockError] = []
        try:
            for done in asyncio.as_completed(tasks):
                try:
                    answers.append(await done)
                except LockError as error:
                    failures.append(error)
                if is_enough(answers):
                    break
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return answers, failures


def _raw(operation: Operation[Any]) -> Operation[Row]:
    """Return an operation whose answer is what came, if it is one of that operation."""

    def read(answer: TimedAnswer) -> Row:
        operation.read(answer)
        return decode(answer, Row)

    return msgspec.structs.replace(operation, read=read, undo=None, numbered=None)
