"""The audit: what happened last, to all names, to one, or by one session; and what was refused to whom."""

from api import answers, sight, views
from api.gateway import Gateway
from http_api.server.call import Call, Reply
from http_api.server.refusal_trace import RefusalTrace
from http_api.server.routes import Handler
from http_api.v1 import reads, schema
from lockstate import limits


async def get_audit(gateway: Gateway, call: Call) -> Reply:
    """Return what happened last, newest first, to a name or to all."""
    name, limit = schema.name_in_query(call), schema.limit(call, limits.AUDIT_LIMIT_MAX)
    if not name:
        query, shown = sight.audit(gateway.rights, limit)
        return await reads.answer(gateway, call, query, shown, name=None)
    return await reads.answer(
        gateway, call, lambda machine: machine.audit(name=name, limit=limit), views.audit_of, name=name
    )


async def get_session_audit(gateway: Gateway, call: Call) -> Reply:
    """Return what a session did last, newest first; it may have ended long ago."""
    session_id, limit = schema.session_id(call), schema.limit(call, limits.AUDIT_LIMIT_MAX)
    return await reads.answer(
        gateway,
        call,
        lambda machine: machine.audit(session_id=session_id, limit=limit),
        views.audit_of,
        name=None,  # whoever knows the id may know what was done with it
    )


def refusals_handler(trace: RefusalTrace) -> Handler:
    """Return the handler of what was refused by the server that keeps `trace`."""

    async def get_refusals(gateway: Gateway, call: Call) -> Reply:  # noqa: ARG001 - all handlers look alike
        """Return the newest attempts that this node has refused because of who asked."""
        return Reply(answers.encode(trace.newest(schema.limit(call, limits.AUDIT_LIMIT_MAX))))

    return get_refusals
