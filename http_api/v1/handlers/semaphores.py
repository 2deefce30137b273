"""Semaphores: acquire permits, renew and release them, resize, look at one, list."""

from holdfast.wire.answers import ResizedJson
from http_api.server.call import Call, Reply
from http_api.v1 import reads, schema, waiting
from http_api.v1.handlers import locks
from lockapi import answers, paging, views
from lockapi.gateway import Gateway
from lockapi.requests.locks import ForceReleaseRequest
from lockapi.requests.primitives import ResizeRequest
from lockstate.reads import listings
from lockstate.words import results
from lockstate.words.kinds import HoldKind


async def acquire_permits(gateway: Gateway, call: Call) -> Reply:
    """Acquire permits of a semaphore, waiting in its queue if asked to."""
    return await waiting.ACQUIRE_PERMITS.reply(gateway, call)


async def renew_permits(gateway: Gateway, call: Call) -> Reply:
    """Renew the lease of permits."""
    return await locks.renew_of(gateway, call, HoldKind.SEMAPHORE)


async def release_permits(gateway: Gateway, call: Call) -> Reply:
    """Release permits."""
    return await locks.release_whole(gateway, call, HoldKind.SEMAPHORE)


async def force_release_permits(gateway: Gateway, call: Call) -> Reply:
    """End every hold of a semaphore, or one of them."""
    request = await schema.read(call, ForceReleaseRequest)
    return await locks.force_end(gateway, call, request, HoldKind.SEMAPHORE)


async def lift_permits_delay(gateway: Gateway, call: Call) -> Reply:
    """Give back at once the permits that delays withhold."""
    return await locks.lift_delay_of(gateway, call, HoldKind.SEMAPHORE)


async def revoke_permits(gateway: Gateway, call: Call) -> Reply:
    """Ask those that have permits of a semaphore to give them back."""
    return await locks.revoke_of(gateway, call, HoldKind.SEMAPHORE)


async def withdraw_permit_revocation(gateway: Gateway, call: Call) -> Reply:
    """Take back what those that have permits of a semaphore were asked."""
    return await locks.withdraw_revocation_of(gateway, call, HoldKind.SEMAPHORE)


async def put_off_permits(gateway: Gateway, call: Call) -> Reply:
    """Keep permits that are to be given back for the grace once more."""
    return await locks.put_off_of(gateway, call, HoldKind.SEMAPHORE)


async def resize_semaphore(gateway: Gateway, call: Call) -> Reply:
    """Give a semaphore another limit."""
    request = await schema.read(call, ResizeRequest)
    result, revision, is_repeated = await gateway.submit(request.command(), results.Resized, call.timeout_s)
    answer = ResizedJson(request.name, result.limit, result.available, revision)
    return Reply(answers.told(answer, is_repeated=is_repeated))


async def get_semaphore(gateway: Gateway, call: Call) -> Reply:
    """Return a semaphore with its holders and its queue."""
    name = schema.name(call)
    return await reads.answer(
        gateway, call, lambda machine: machine.semaphore(name), views.semaphore_of, name=name
    )


async def list_semaphores(gateway: Gateway, call: Call) -> Reply:
    """Return a page of semaphores, each with the first of its holders."""
    return await reads.page(
        gateway,
        call,
        lambda machine, *page: listings.semaphores(machine.state, *page),
        views.semaphore_page_of,
        paging.named(lambda semaphore: semaphore.name),
    )
