"""Namespaces: what holds for the names at and below a prefix, and how much there is."""

from holdfast.wire.operators import NamespaceSetJson
from http_api.server.call import Call, Reply
from http_api.v1 import reads, schema
from lockapi import answers, paging, rights_needed, sight, views
from lockapi.gateway import Gateway
from lockapi.requests.namespaces import RemoveNamespaceRequest, SetNamespaceRequest
from lockstate.reads import listings
from lockstate.words import results


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


async def set_namespace(gateway: Gateway, call: Call) -> Reply:
    """Say what holds for the names at and below a prefix."""
    return await _set(gateway, call, await schema.read(call, SetNamespaceRequest))


async def remove_namespace(gateway: Gateway, call: Call) -> Reply:
    """Remove a namespace."""
    return await _set(gateway, call, await schema.read(call, RemoveNamespaceRequest))


async def _set(gateway: Gateway, call: Call, request: SetNamespaceRequest | RemoveNamespaceRequest) -> Reply:
    command = request.command(call.path_value)
    _, revision, is_repeated = await gateway.submit(command, results.NamespaceSet, call.timeout_s)
    settings = None if command.settings is None else views.settings_of(command.settings)
    answer = NamespaceSetJson(prefix=command.prefix, settings=settings, revision=revision)
    return Reply(answers.told(answer, is_repeated=is_repeated))
