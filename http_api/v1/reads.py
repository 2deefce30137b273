"""How every read is answered: from a state that is new enough or, if asked to, at once and with its age."""

from collections.abc import Callable
from typing import TypeVar

from holdfast.wire.shape import ReadAnswer
from http_api.server.call import Call, Reply
from http_api.v1 import schema
from lockapi import answers, paging, sight
from lockapi.gateway import Gateway, Steps
from lockstate.machine import LockMachine

T = TypeVar("T")
Row = TypeVar("Row")


async def answer(
    gateway: Gateway,
    call: Call,
    query: Callable[[LockMachine], T],
    show: Callable[[T], ReadAnswer],
    *,
    name: str | None,
    is_large: bool = False,
) -> Reply:
    """Answer with what `query` finds about `name`, as `show` shows it. Raises ProblemError, ClusterError.

    Without a name `show` has to leave out what the caller may not read. A large answer waits for its turn.
    """
    view = await gateway.view(
        query, show, call.timeout_s, name=name, is_stale=schema.is_stale(call), is_large=is_large
    )
    return Reply(answers.encode(view))


async def page(
    gateway: Gateway,
    call: Call,
    find: Callable[[LockMachine, str, str, int], paging.Found[Row, str]],
    show: Callable[[paging.Found[Row, str]], ReadAnswer],
    shape: paging.Shape[Row, str],
) -> Reply:
    """Answer with a page of names that begin with the prefix in the query. Raises ProblemError, ClusterError.

    `find` takes prefix, after and limit. It is called several times for a large page, and other things happen
    in between: such a page is not what there was at one moment.
    """
    prefix, after, limit = schema.page(call)
    search, shown = sight.listing(
        gateway.rights,
        prefix,
        (after, limit),
        lambda machine, after, limit: find(machine, prefix, after, limit),
        show,
        shape=shape,
    )
    return await found(gateway, call, search, shown)


async def found(
    gateway: Gateway,
    call: Call,
    search: Steps[T],
    show: Callable[[T], ReadAnswer],
    *,
    name: str | None = None,
) -> Reply:
    """Answer with what `search` finds about `name`, in steps. Raises ProblemError, ClusterError."""
    view = await gateway.page(search, show, call.timeout_s, name=name, is_stale=schema.is_stale(call))
    return Reply(answers.encode(view))
