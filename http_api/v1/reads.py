"""How every read is answered: from a state that is new enough or, if asked to, at once and with its age."""

from collections.abc import Callable
from typing import TypeVar

from api import answers
from api.gateway import Gateway
from api.views import Read
from http_api.server.call import Call, Reply
from http_api.v1 import schema
from lockstate.machine import LockMachine

T = TypeVar("T")


async def answer(
    gateway: Gateway, call: Call, query: Callable[[LockMachine], T], show: Callable[[T], Read]
) -> Reply:
    """Answer with what `query` finds, as `show` shows it. Raises ProblemError, ClusterError."""
    view = await gateway.view(query, show, call.timeout_s, is_stale=schema.is_stale(call))
    return Reply(answers.encode(view))
