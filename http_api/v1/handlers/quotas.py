"""Quotas: how much each principal may have at a time, and how much it has."""

from holdfast.wire.operators import QuotaSetJson
from http_api.server.call import Call, Reply
from http_api.v1 import reads, schema
from lockapi import answers, views
from lockapi.gateway import Gateway
from lockapi.requests.quotas import RemoveQuotaRequest, SetQuotaRequest, checked_principal
from lockstate.reads import listings
from lockstate.words import results


async def list_quotas(gateway: Gateway, call: Call) -> Reply:
    """Return a page of principals that have a quota or anything, by name."""
    _, after, limit = schema.page(call)
    return await reads.answer(
        gateway,
        call,
        lambda machine: listings.principals(machine.state, after, limit),
        views.quota_page_of,
        name=None,  # it is about principals, which have no place among names: this call is for admins
        is_large=True,
    )


async def get_quota(gateway: Gateway, call: Call) -> Reply:
    """Return what a principal has and may have."""
    principal = checked_principal(call.path_value)
    return await reads.answer(
        gateway,
        call,
        lambda machine: listings.principal(machine.state, principal),
        views.principal_of,
        name=None,
    )


async def set_quota(gateway: Gateway, call: Call) -> Reply:
    """Bound what a principal may have, or with "*" each one without a quota of its own."""
    request = await schema.read(call, SetQuotaRequest)
    return await _set(gateway, call, request, request.reason)


async def remove_quota(gateway: Gateway, call: Call) -> Reply:
    """End the quota of a principal."""
    request = await schema.read(call, RemoveQuotaRequest)
    reason = schema.body_or_query(call, "reason", request.reason)
    return await _set(gateway, call, request, reason)


async def _set(
    gateway: Gateway, call: Call, request: SetQuotaRequest | RemoveQuotaRequest, reason: str
) -> Reply:
    command = request.command(call.path_value, reason)
    _, revision, is_repeated = await gateway.submit(command, results.QuotaSet, call.timeout_s)
    answer = QuotaSetJson(principal=command.principal, quota=views.quota_of(command.quota), revision=revision)
    return Reply(answers.told(answer, is_repeated=is_repeated))
