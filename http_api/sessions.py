"""Sessions: open, keep alive, look at, close."""

from http_api import answers, bodies_service, reads, schema, views
from http_api.call import Call, Reply
from http_api.host import Node
from http_api.problems import ProblemError, expect
from lockstate import commands, results


async def open_session(node: Node, call: Call) -> Reply:
    """Open a session."""
    request = await schema.read(call, bodies_service.OpenSessionRequest)
    answer = await node.submit(request.command(), call.timeout_s)
    opened = expect(answer.result, results.SessionOpened)
    made = answers.SessionOpened(opened.session_id, opened.ttl_ms, opened.expires_in_ms, answer.revision)
    return Reply(answers.encode(made), status=201)


async def keep_alive(node: Node, call: Call) -> Reply:
    """Start the ttl of a session anew."""
    (await schema.read(call, bodies_service.KeepAliveRequest)).checked_id()
    answer = await node.submit(commands.KeepAlive(schema.session_id(call)), call.timeout_s)
    kept = expect(answer.result, results.SessionKept)
    return Reply(answers.encode(answers.SessionKept(kept.session_id, kept.expires_in_ms, answer.revision)))


async def get_session(node: Node, call: Call) -> Reply:
    """Return a session with its holds and tickets."""
    session_id = schema.session_id(call)
    return await reads.answer(node, call, lambda machine: machine.session(session_id), _shown)


def _shown(view: results.SessionView | None) -> views.Session:
    if view is None:
        raise ProblemError("session-expired", "the session has expired or never was")
    return views.session_of(view)


async def close_session(node: Node, call: Call) -> Reply:
    """End a session, its holds and its waits."""
    request = await schema.read(call, bodies_service.CloseSessionRequest)
    answer = await node.submit(request.command(schema.session_id(call)), call.timeout_s)
    closed = expect(answer.result, results.SessionClosed)
    return Reply(answers.encode(answers.SessionClosed(closed.released, answer.revision)))
