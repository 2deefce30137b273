"""Namespaces: what holds for the names at and below a prefix, and how much there is."""

from holdfast.token_lines import Right
from holdfast.wire.operators import NamespaceInfo, NamespaceSetJson
from http_api.server.call import Call, Reply
from http_api.v1 import reads, schema
from lockapi import answers, paging, rights_needed, sight, views
from lockapi.gateway import Gateway
from lockapi.problems import ProblemError
from lockapi.requests.namespaces import RemoveNamespaceRequest, SetNamespaceRequest
from lockstate.reads import listings
from lockstate.words import results
from lockstate.words.views import NamespaceSummary


async def list_namespaces(gateway: Gateway, call: Call) -> Reply:
    """Return a page of namespaces, by prefix."""
    prefix, after, limit = schema.page(call)
    search, shown = sight.listing(
        rights_needed.of_namespaces(gateway.rights),
        prefix,
        (after, limit),
        lambda machine, after, limit: listings.namespaces(machine.state, prefix, after, limit),
        views.namespace_page_of,
        shape=paging.named(lambda row: row.name, is_of_one_moment=True),
    )
    return await reads.found(gateway, call, search, shown)


async def get_namespace(gateway: Gateway, call: Call) -> Reply:
    """Return a namespace."""
    prefix = schema.prefix(call)
    rights_needed.check_name(rights_needed.of_namespaces(gateway.rights), Right.READ, prefix)
    return await reads.answer(
        gateway, call, lambda machine: listings.namespace(machine.state, prefix), _shown, name=None
    )


def _shown(found: NamespaceSummary | None) -> NamespaceInfo:
    if found is None:
        raise ProblemError("namespace-not-found", "there is no namespace with this prefix")
    return views.namespace_of(found)


async def set_namespace(gateway: Gateway, call: Call) -> Reply:
    """Say what holds for the names at and below a prefix."""
    request = await schema.read(call, SetNamespaceRequest)
    return await _set(gateway, call, request, request.reason)


async def remove_namespace(gateway: Gateway, call: Call) -> Reply:
    """Remove a namespace."""
    request = await schema.read(call, RemoveNamespaceRequest)
    reason = schema.body_or_query(call, "reason", request.reason)
    return await _set(gateway, call, request, reason)


async def _set(
    gateway: Gateway, call: Call, request: SetNamespaceRequest | RemoveNamespaceRequest, reason: str
) -> Reply:
    command = request.command(call.path_value, reason)
    _, revision, is_repeated = await gateway.submit(command, results.NamespaceSet, call.timeout_s)
    settings = None if command.settings is None else views.settings_of(command.settings)
    answer = NamespaceSetJson(prefix=command.prefix, settings=settings, revision=revision)
    return Reply(answers.told(answer, is_repeated=is_repeated))
