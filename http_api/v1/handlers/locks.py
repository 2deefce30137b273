"""Locks: acquire one or several, renew, release, convert, force release, look at one, list."""

from typing import Final

from holdfast.wire.answers import (
    DelaysLiftedJson,
    ForceReleasedJson,
    HandedOverJson,
    PutOffJson,
    ReleasedJson,
    RevocationsWithdrawnJson,
    RevokedJson,
)
from http_api.server.call import Call, Reply
from http_api.server.routes import Direct
from http_api.v1 import reads, schema, waiting
from lockapi import answers, paging, views
from lockapi.gateway import Gateway
from lockapi.requests.locks import (
    AcquireRequest,
    ForceReleaseRequest,
    ForcingRequest,
    HandOverRequest,
    ReleaseHoldRequest,
    ReleasePermitsRequest,
    ReleaseRequest,
    RenewRequest,
)
from lockapi.requests.overrides import (
    LiftDelayRequest,
    PutOffRequest,
    RevokeRequest,
    WithdrawRevocationRequest,
)
from lockstate.words import results
from lockstate.words.kinds import HoldKind

ACQUIRE: Final = Direct(AcquireRequest.command, results.Granted, answers.granted)
RENEW: Final = Direct(
    lambda request: request.command(HoldKind.LOCK),
    results.Renewed,
    answers.renewed,
)
RELEASE: Final = Direct(ReleaseRequest.command, results.Released, answers.released)


async def acquire(gateway: Gateway, call: Call) -> Reply:
    """Acquire a lock, or several at once, waiting in the queue if asked to."""
    return await waiting.ACQUIRE.reply(gateway, call)


async def add(gateway: Gateway, call: Call) -> Reply:
    """Add locks to a hold, waiting in their queues if asked to."""
    return await waiting.ADD.reply(gateway, call)


async def convert(gateway: Gateway, call: Call) -> Reply:
    """Change the mode of a hold, waiting ahead of the queue if asked to."""
    return await waiting.CONVERT.reply(gateway, call)


async def withdraw(gateway: Gateway, call: Call) -> Reply:
    """Take back a request that waits, or what it was granted."""
    return await waiting.WITHDRAW.reply(gateway, call)


async def renew(gateway: Gateway, call: Call) -> Reply:
    """Renew the lease of a hold."""
    return await renew_of(gateway, call, HoldKind.LOCK)


async def renew_of(gateway: Gateway, call: Call, kind: HoldKind) -> Reply:
    """Renew the lease of a hold of one kind."""
    request = await schema.read(call, RenewRequest)
    outcome = await gateway.submit(request.command(kind), RENEW.gives, call.timeout_s)
    return Reply(RENEW.encoded(outcome))


async def release(gateway: Gateway, call: Call) -> Reply:
    """Release a hold, or some of its locks."""
    request = await schema.read(call, ReleaseRequest)
    outcome = await gateway.submit(request.command(), RELEASE.gives, call.timeout_s)
    return Reply(RELEASE.encoded(outcome))


async def release_whole(gateway: Gateway, call: Call, kind: HoldKind) -> Reply:
    """Release a hold of a kind that has no parts."""
    request: ReleaseHoldRequest | ReleasePermitsRequest
    if kind is HoldKind.ELECTION:
        request = await schema.read(call, ReleaseHoldRequest)
    else:
        request = await schema.read(call, ReleasePermitsRequest)
    _, revision, is_repeated = await gateway.submit(request.command(kind), results.Released, call.timeout_s)
    return Reply(answers.told(ReleasedJson(released=True, revision=revision), is_repeated=is_repeated))


async def force_release(gateway: Gateway, call: Call) -> Reply:
    """End every hold of a lock, or one of them."""
    request = await schema.read(call, ForceReleaseRequest)
    return await force_end(gateway, call, request, HoldKind.LOCK)


async def force_end(gateway: Gateway, call: Call, request: ForcingRequest, kind: HoldKind) -> Reply:
    """End holds of any kind."""
    result, revision, is_repeated = await gateway.submit(
        request.command(kind), results.ForceReleased, call.timeout_s
    )
    answer = ForceReleasedJson(views.holders_of(result.released), revision)
    return Reply(answers.told(answer, is_repeated=is_repeated))


async def lift_delay(gateway: Gateway, call: Call) -> Reply:
    """End the delays of a lock before their time."""
    return await lift_delay_of(gateway, call, HoldKind.LOCK)


async def lift_delay_of(gateway: Gateway, call: Call, kind: HoldKind) -> Reply:
    """End the delays of a lock or a semaphore before their time."""
    request = await schema.read(call, LiftDelayRequest)
    result, revision, is_repeated = await gateway.submit(
        request.command(kind), results.DelaysLifted, call.timeout_s
    )
    answer = DelaysLiftedJson(result.count, result.left_ms, revision)
    return Reply(answers.told(answer, is_repeated=is_repeated))


async def revoke(gateway: Gateway, call: Call) -> Reply:
    """Ask the holders of a lock to give up."""
    return await revoke_of(gateway, call, HoldKind.LOCK)


async def revoke_of(gateway: Gateway, call: Call, kind: HoldKind) -> Reply:
    """Ask holders of any kind to give up."""
    request = await schema.read(call, RevokeRequest)
    result, revision, is_repeated = await gateway.submit(
        request.command(kind), results.Revoked, call.timeout_s
    )
    answer = RevokedJson(views.holders_of(result.holders), revision, result.left)
    return Reply(answers.told(answer, is_repeated=is_repeated))


async def withdraw_revocation(gateway: Gateway, call: Call) -> Reply:
    """Take back what the holders of a lock were asked."""
    return await withdraw_revocation_of(gateway, call, HoldKind.LOCK)


async def withdraw_revocation_of(gateway: Gateway, call: Call, kind: HoldKind) -> Reply:
    """Take back what holders of any kind were asked."""
    request = await schema.read(call, WithdrawRevocationRequest)
    result, revision, is_repeated = await gateway.submit(
        request.command(kind), results.RevocationsWithdrawn, call.timeout_s
    )
    answer = RevocationsWithdrawnJson(result.count, revision, result.left)
    return Reply(answers.told(answer, is_repeated=is_repeated))


async def hand_over(gateway: Gateway, call: Call) -> Reply:
    """Give a lock to a waiter or a session of the holder's choice."""
    request = await schema.read(call, HandOverRequest)
    result, revision, is_repeated = await gateway.submit(
        request.command(), results.HandedOver, call.timeout_s
    )
    answer = HandedOverJson(token=result.token, owner=result.owner, revision=revision)
    return Reply(answers.told(answer, is_repeated=is_repeated))


async def put_off(gateway: Gateway, call: Call) -> Reply:
    """Let a hold of a lock that is to be given up live for its grace once more."""
    return await put_off_of(gateway, call, HoldKind.LOCK)


async def put_off_of(gateway: Gateway, call: Call, kind: HoldKind) -> Reply:
    """Let a hold of any kind live for its grace once more."""
    request = await schema.read(call, PutOffRequest)
    result, revision, is_repeated = await gateway.submit(
        request.command(kind), results.PutOffTo, call.timeout_s
    )
    answer = PutOffJson(token=result.token, ends_in_ms=result.ends_in_ms, revision=revision)
    return Reply(answers.told(answer, is_repeated=is_repeated))


async def get_lock(gateway: Gateway, call: Call) -> Reply:
    """Return a lock with its holders and its queue."""
    name = schema.name(call)
    return await reads.answer(gateway, call, lambda machine: machine.lock(name), views.lock_of, name=name)


async def list_locks(gateway: Gateway, call: Call) -> Reply:
    """Return a page of the locks that are held, delayed or waited for."""
    longer_than_ms = schema.held_longer_than_ms(call)
    return await reads.page(
        gateway,
        call,
        lambda machine, *page: machine.locks(*page, longer_than_ms),
        views.page_of,
        paging.Shape(
            name_of=lambda lock: lock.name,
            place_of=lambda lock: lock.name,
            name_of_place=str if longer_than_ms else None,
            size_of=lambda lock: 1 + len(lock.holders) + len(lock.queue),
        ),
    )
