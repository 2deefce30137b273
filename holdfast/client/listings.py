"""Listings: what there is of a kind, in order, a page at a time, for either client."""

from collections import deque
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Concatenate, Final, Generic, ParamSpec, Self, TypeVar

import msgspec

from holdfast.client.portal import Call
from holdfast.client.twins import ForThreads
from holdfast.operations.operation import Operation, TimedAnswer, ask, decode
from holdfast.transport.transport import Transport
from holdfast.wire.shape import ReadAnswer

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")

PAGE: Final = 100
"""Items that one page has at most, unless the caller says otherwise; nodes give up to 1000."""


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A part of a listing. Pass `next` as `after` for the next page; None at the end.

    `hidden` counts what is left out because the caller may not read it. A node's own, older view (`is_stale`)
    has its `revision`, and the time since the node heard from a leader (`lag_ms`).
    """

    items: tuple[T, ...]
    next: str | None = None
    hidden: int = 0
    revision: int | None = None
    lag_ms: int | None = None


class Listing(Generic[T]):
    """An iterator of a whole listing, which asks for one page after the other.

    Changes during the listing may be missed. `page` reads a single page instead.
    """

    def __init__(self, transport: Transport, ask: Callable[[int, str], Operation[Page[T]]]) -> None:
        """Make a listing: `ask` returns the request for a page of so many items behind a cursor."""
        self._transport = transport
        self._ask = ask
        self._items: deque[T] = deque()
        self._after: str | None = ""

    async def page(self, *, limit: int = PAGE, after: str = "") -> Page[T]:
        """Read one page of up to `limit` items; `after` is the `next` of the page before."""
        return await self._transport.call(self._ask(limit, after))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._items:
            if self._after is None:
                raise StopAsyncIteration
            page = await self.page(after=self._after)
            self._items.extend(page.items)
            self._after = page.next
        return self._items.popleft()


class SyncListing(Generic[T]):
    """An iterator of all that a listing has, for threads. See `Listing`."""

    def __init__(self, twin: Listing[T]) -> None:
        self._twin = twin

    def page(self, *, limit: int = PAGE, after: str = "") -> Page[T]:
        """Read one page of up to `limit` items; `after` is the `next` of the page before."""
        return Call(lambda: self._twin.page(limit=limit, after=after)).run()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            return Call(self._twin.__anext__).run()
        except StopAsyncIteration:
            raise StopIteration from None


def listing(
    call: Callable[Concatenate[A, P], Listing[T]],
) -> Callable[Concatenate[ForThreads[A], P], SyncListing[T]]:
    """Return the call for threads of a call that returns a listing. See `_twins.waiting`."""

    @wraps(call)
    def for_threads(self: ForThreads[A], /, *args: P.args, **options: P.kwargs) -> SyncListing[T]:
        return SyncListing(call(self._twin, *args, **options))

    return for_threads


def pages(
    path: str, field: str, kind: type[T], query: Mapping[str, str]
) -> Callable[[int, str], Operation[Page[T]]]:
    """Return what asks for a page of the listing at `path`, whose answers have their items in `field`."""
    return lambda limit, after: ask(
        path,
        {**query, "limit": str(limit), "after": after},
        lambda answer: page_of(answer, field, kind),
    )


class _Rest(ReadAnswer, frozen=True):
    next: str | None = None


def page_of(answer: TimedAnswer, field: str, kind: type[T]) -> Page[T]:
    """Read an answer that has its items in this field. Raises OutcomeUnknown for another one."""
    items = decode(answer, dict[str, msgspec.Raw]).get(field, msgspec.Raw(b"[]"))
    rest = decode(answer, _Rest)
    found = decode(TimedAnswer(bytes(items), answer.asked_at_s, answer.attempted_at_s), tuple[kind, ...])  # type: ignore[valid-type]
    return Page(items=found, next=rest.next, hidden=rest.hidden, revision=rest.revision, lag_ms=rest.lag_ms)
