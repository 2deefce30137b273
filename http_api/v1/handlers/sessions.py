"""Sessions: open, keep alive, look at, close."""

from typing import Final

from holdfast.wire.answers import SessionClosedJson, SessionForcedJson
from holdfast.wire.held import SessionInfo
from http_api.server.call import Call, Reply
from http_api.server.routes import Direct
from http_api.v1 import reads, schema
from lockapi import answers, views
from lockapi.gateway import Gateway
from lockapi.problems import ProblemError
from lockapi.requests.overrides import ForceCloseSessionRequest
from lockapi.requests.service import CloseSessionRequest, KeepAliveRequest, OpenSessionRequest
from lockstate.reads import listings
from lockstate.words import results
from lockstate.words.views import SessionView

KEEP_ALIVE: Final = Direct(KeepAliveRequest.command, results.SessionKept, answers.session_kept)


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
        is_large=True,
    )


async def keep_alive(gateway: Gateway, call: Call) -> Reply:
    """Start the ttl of a session anew."""
    request = await schema.read(call, KeepAliveRequest)
    outcome = await gateway.submit(request.command(call.path_value), KEEP_ALIVE.gives, call.timeout_s)
    return Reply(KEEP_ALIVE.encoded(outcome))


async def get_session(gateway: Gateway, call: Call) -> Reply:
    """Return a session with its holds and tickets."""
    session_id = schema.session_id(call)
    # Whoever knows the id of what is theirs may know what it has.
    query = gateway.own(lambda machine: machine.session(session_id), session_id, None)
    return await reads.answer(gateway, call, query, _shown, name=None)


def _shown(view: SessionView | None) -> SessionInfo:
    if view is None:
        raise ProblemError("session-expired", "the session has expired or never existed")
    return views.session_of(view)


async def close_session(gateway: Gateway, call: Call) -> Reply:
    """End a session, its holds and its waits."""
    command = (await schema.read(call, CloseSessionRequest)).command(call.path_value)
    result, revision, is_repeated = await gateway.submit(command, results.SessionClosed, call.timeout_s)
    return Reply(answers.told(SessionClosedJson(result.released, revision), is_repeated=is_repeated))


async def force_close(gateway: Gateway, call: Call) -> Reply:
    """End somebody else's session, by its public name."""
    request = await schema.read(call, ForceCloseSessionRequest)
    result, revision, is_repeated = await gateway.submit(
        request.command(), results.SessionForced, call.timeout_s
    )
    answer = SessionForcedJson(
        session_name=result.session_name, owner=result.owner, names=result.released, revision=revision
    )
    return Reply(answers.told(answer, is_repeated=is_repeated))
