"""Sessions: open, keep alive, look at, close."""

from api import answers, views
from api.node import ServingNode
from api.problems import ProblemError, expect
from api.requests.service import CloseSessionRequest, KeepAliveRequest, OpenSessionRequest
from http_api.server.call import Call, Reply
from http_api.v1 import reads, schema
from lockstate import commands, results


async def open_session(node: ServingNode, call: Call) -> Reply:
    """Open a session."""
    request = await schema.read(call, OpenSessionRequest)
    answer = await node.submit(request.command(), call.timeout_s)
    opened = expect(answer.result, results.SessionOpened)
    made = answers.SessionOpened(opened.session_id, opened.ttl_ms, opened.expires_in_ms, answer.revision)
    return Reply(answers.encode(made), status=201)


async def keep_alive(node: ServingNode, call: Call) -> Reply:
    """Start the ttl of a session anew."""
    (await schema.read(call, KeepAliveRequest)).checked_id()
    answer = await node.submit(commands.KeepAlive(schema.session_id(call)), call.timeout_s)
    kept = expect(answer.result, results.SessionKept)
    return Reply(answers.encode(answers.SessionKept(kept.session_id, kept.expires_in_ms, answer.revision)))


async def get_session(node: ServingNode, call: Call) -> Reply:
    """Return a session with its holds and tickets."""
    session_id = schema.session_id(call)
    return await reads.answer(node, call, lambda machine: machine.session(session_id), _shown)


def _shown(view: results.SessionView | None) -> views.Session:
    if view is None:
        raise ProblemError("session-expired", "the session has expired or never was")
    return views.session_of(view)


async def close_session(node: ServingNode, call: Call) -> Reply:
    """End a session, its holds and its waits."""
    request = await schema.read(call, CloseSessionRequest)
    answer = await node.submit(request.command(schema.session_id(call)), call.timeout_s)
    closed = expect(answer.result, results.SessionClosed)
    return Reply(answers.encode(answers.SessionClosed(closed.released, answer.revision)))
