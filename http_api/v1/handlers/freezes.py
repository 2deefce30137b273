"""Freezes: prefixes at and below which nothing new is granted."""

from holdfast.token_lines import Right
from holdfast.wire.operators import FrozenJson, ThawedJson
from holdfast.wire.shape import UNSET
from http_api.server.call import Call, Reply
from http_api.v1 import reads, schema
from lockapi import answers, paging, rights_needed, sight, views
from lockapi.gateway import Gateway
from lockapi.requests.overrides import FreezeRequest, ThawRequest
from lockstate.reads import freezes
from lockstate.words import results


async def list_freezes(gateway: Gateway, call: Call) -> Reply:
    """Return a page of frozen prefixes."""
    prefix, after, limit = schema.page(call)
    search, shown = sight.listing(
        gateway.rights,
        prefix,
        (after, limit),
        lambda machine, after, limit: freezes.freezes(machine.state, prefix, after, limit),
        views.freeze_page_of,
        shape=paging.named(lambda row: row.name, is_of_one_moment=True),
    )
    return await reads.found(gateway, call, search, shown)


async def get_freeze(gateway: Gateway, call: Call) -> Reply:
    """Return whether a prefix is frozen, and what is left below it, all of which the caller may read."""
    prefix = schema.prefix(call)
    rights_needed.check_below(gateway.rights, Right.READ, prefix)
    return await reads.answer(
        gateway, call, lambda machine: freezes.freeze(machine.state, prefix), views.freeze_of, name=None
    )


async def freeze(gateway: Gateway, call: Call) -> Reply:
    """Grant nothing new at and below a prefix."""
    command = (await schema.read(call, FreezeRequest)).command(call.path_value)
    result, revision, is_repeated = await gateway.submit(command, results.Frozen, call.timeout_s)
    ends_in_ms = UNSET if result.ends_in_ms is None else result.ends_in_ms
    left = views.left_of(result.left)
    answer = FrozenJson(prefix=command.prefix, ends_in_ms=ends_in_ms, left=left, revision=revision)
    return Reply(answers.told(answer, is_repeated=is_repeated))


async def thaw(gateway: Gateway, call: Call) -> Reply:
    """End the freeze of a prefix."""
    request = await schema.read(call, ThawRequest)
    command = request.command(call.path_value, schema.body_or_query(call, "reason", request.reason))
    result, revision, is_repeated = await gateway.submit(command, results.Thawed, call.timeout_s)
    answer = ThawedJson(prefix=command.prefix, thawed=result.was_frozen, revision=revision)
    return Reply(answers.told(answer, is_repeated=is_repeated))
