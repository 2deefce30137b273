"""Sessions: open, keep alive, look at, close."""

from api import answers, views
from api.gateway import Gateway
from api.problems import ProblemError
from api.requests.overrides import ForceCloseSessionRequest
from api.requests.service import CloseSessionRequest, KeepAliveRequest, OpenSessionRequest
from http_api.server.call import Call, Reply
from http_api.v1 import reads, schema
from lockstate import listings, results


async def open_session(gateway: Gateway, call: Call) -> Reply:
    """Open a session."""
    request = await schema.read(call, OpenSessionRequest)
    result, revision, is_repeated = await gateway.submit(
        request.command(), results.SessionOpened, call.timeout_s
    )
    return Reply(answers.told(answers.session_opened(result, revision), is_repeated=is_repeated), status=201)


async def list_sessions(gateway: Gateway, call: Call) -> Reply:
    """Return a page of sessions, the oldest first."""
    _, after, limit = schema.page(call)
    whose = schema.whose(call)
    return await reads.answer(
        gateway,
        call,
        lambda machine: listings.sessions(machine.state, whose, after, limit),
        views.session_page_of,
        name=None,  # sessions have no name: this call is for those that may read everything
    )


async def keep_alive(gateway: Gateway, call: Call) -> Reply:
    """Start the ttl of a session anew."""
    command = (await schema.read(call, KeepAliveRequest)).command(call.path_value)
    result, revision, _ = await gateway.submit(command, results.SessionKept, call.timeout_s)
    return Reply(answers.encode(answers.session_kept(result, revision)))


async def get_session(gateway: Gateway, call: Call) -> Reply:
    """Return a session with its holds and tickets."""
    session_id = schema.session_id(call)
    # Whoever knows the id may know what it has.
    return await reads.answer(gateway, call, lambda machine: machine.session(session_id), _shown, name=None)


def _shown(view: results.SessionView | None) -> views.Session:
    if view is None:
        raise ProblemError("session-expired", "the session has expired or never was")
    return views.session_of(view)


async def close_session(gateway: Gateway, call: Call) -> Reply:
    """End a session, its holds and its waits."""
    command = (await schema.read(call, CloseSessionRequest)).command(call.path_value)
    result, revision, is_repeated = await gateway.submit(command, results.SessionClosed, call.timeout_s)
    return Reply(answers.told(answers.SessionClosed(result.released, revision), is_repeated=is_repeated))


async def force_close(gateway: Gateway, call: Call) -> Reply:
    """End somebody else's session, by its public name."""
    request = await schema.read(call, ForceCloseSessionRequest)
    result, revision, is_repeated = await gateway.submit(
        request.command(), results.SessionForced, call.timeout_s
    )
    answer = answers.SessionForced(result.session_name, result.owner, result.released, revision)
    return Reply(answers.told(answer, is_repeated=is_repeated))
