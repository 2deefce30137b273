"""The audit: what happened last, to all names, to one, or by one session; and what was refused to whom."""

from http_api.server.call import Call, Reply
from http_api.server.refusal_trace import RefusalTrace
from http_api.server.routes import Handler
from http_api.v1 import reads, schema
from lockapi import answers, sight
from lockapi.gateway import Gateway
from lockstate.words import limits


async def get_audit(gateway: Gateway, call: Call) -> Reply:
    """Return what happened last, newest first, to a name or to all; or what happened behind a record."""
    name, query = schema.name_in_query(call), schema.audit_query(call)
    show = sight.audit_of(gateway.now_ms)
    if not name:
        return await reads.found(gateway, call, sight.audit(gateway.rights, query), show)
    records = sight.audit_of_name(gateway.rights, name, query)
    return await reads.found(gateway, call, records, show, name=name)


async def get_session_audit(gateway: Gateway, call: Call) -> Reply:
    """Return what a session did last, newest first; it may have ended long ago."""
    session_id, limit = schema.session_id(call), schema.limit(call, limits.AUDIT_LIMIT_MAX)
    asking = gateway.principal.name
    records = sight.audit_of_session(gateway.rights, asking, session_id, limit)
    # Whoever knows the id of what was theirs may know what was done with it, whatever the names are.
    return await reads.found(gateway, call, records, sight.audit_of(gateway.now_ms))


def refusals_handler(trace: RefusalTrace) -> Handler:
    """Return the handler of what was refused by the server that keeps `trace`."""

    async def get_refusals(gateway: Gateway, call: Call) -> Reply:
        """Return the newest attempts that this node has refused because of who asked."""
        shown = trace.newest(
            schema.limit(call, limits.AUDIT_LIMIT_MAX), node_id=gateway.node.status().node_id
        )
        return Reply(answers.encode(shown))

    return get_refusals
