"""How every read is answered: from a state that is new enough, or at once, with its age."""

from collections.abc import Callable
from typing import TypeVar

from api import answers, problems
from api.node import ServingNode
from api.problems import ProblemError
from api.views import Read
from http_api.server.call import Call, Reply
from http_api.v1 import schema
from lockstate.machine import LockMachine

T = TypeVar("T")


async def answer(
    node: ServingNode, call: Call, query: Callable[[LockMachine], T], shown: Callable[[T], Read]
) -> Reply:
    """Answer with what `query` finds, as `shown` shows it. Raises ProblemError, ClusterError."""
    if not schema.consistency(call):
        return Reply(answers.encode(shown(await node.read(query, call.timeout_s))))
    found = query(node.machine)
    revision, lag_ms = node.machine.revision, node.status().lag_ms
    try:
        made = shown(found)
    except ProblemError as missed:
        raise problems.as_of(missed, revision, lag_ms) from missed
    made.revision, made.lag_ms = revision, lag_ms
    return Reply(answers.encode(made))
