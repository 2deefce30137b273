"""Commands about keys: what each does with the hold that its key is. docs/faces.md has them in one table."""

import logging
from collections.abc import Awaitable
from functools import partial
from typing import Final

from cluster.errors import ClusterError, OutcomeUnknown
from holdfast.token_lines import Right
from lockapi import rights_needed, sight
from lockapi.gateway import Gateway
from lockapi.needs import forbidden
from lockapi.problems import ProblemError
from lockapi.requests.fields import UNSET, check_name
from lockapi.requests.locks import (
    AcquireRequest,
    ForceReleaseRequest,
    ReleaseHoldRequest,
    ReleaseRequest,
    RenewRequest,
    addition,
)
from lockstate.machine import LockMachine
from lockstate.words.ids import HoldId, OwnerName
from lockstate.words.kinds import HoldKind
from lockstate.words.results import ForceReleased, Granted, HoldView, Released, Renewed
from redis_api import spelled
from redis_api.arguments import Condition, TimeUnit, integer
from redis_api.client import Client
from redis_api.errors import CommandRefused, not_supported
from redis_api.left_grants import VALUE_BYTES_MIN, Attempt, GiveBack, Key
from redis_api.scripts import Act, Script

_IN_THE_WAY: Final = frozenset({"lock-held", "frozen"})
"""The refusals of an acquire that mean no more than "not now"."""
_OVER: Final = frozenset({"lease-expired", "not-holder", "wrong-kind", "already-held"})
"""The refusals that mean that there is no such hold."""
_FORCED: Final = "deleted by a client of Redis"
"""The reason that the audit has of a hold that somebody else deleted."""

_SAME_VALUE: Final = (
    "a client asks for a lock that is held with the same value: it sent the command again, or it takes each"
    " node of this cluster for a server of its own (Redlock), and gets no majority: give it one address"
)

logger = logging.getLogger("redis_api")


def name_of(client: Client, key: bytes) -> str:
    """Return the name of the lock that a key is. Raises ProblemError if it is too long."""
    name = spelled.name_of(client.database, key)
    check_name("key", name)
    return name


# -- reads ---------------------------------------------------------------------------------------------------


async def holders(client: Client, names: list[str]) -> list[tuple[HoldView, ...]]:
    """Return who holds each of the names, or a subtree that it is in. Raises ProblemError, ClusterError."""
    rights = client.gateway.rights
    for name in names:
        rights_needed.check_name(rights, Right.READ, name)
    found = await _look(client, names)
    return [sight.seen(rights, each) for each in found]


async def _look(client: Client, names: list[str]) -> list[tuple[HoldView, ...]]:
    """Look at locks without regard to rights: what is found is not shown, or is the caller's own."""

    def look(machine: LockMachine) -> list[tuple[HoldView, ...]]:
        return [machine.lock(name).holders for name in names]

    return await client.gateway.read(look, client.timeout_s)


async def _holders_of(client: Client, name: str) -> list[HoldView]:
    """Return those that hold exactly this name."""
    (found,) = await _look(client, [name])
    return [hold for hold in found if hold.name == name]


def shown_value(found: tuple[HoldView, ...]) -> bytes | None:
    """Return the value of a key with these holders, None if it has none."""
    return spelled.value_of(found[0].value) if found else None


# -- to take -----------------------------------------------------------------------------------------------


async def take(client: Client, key: bytes, value: bytes, ttl_ms: int | None) -> bool:
    """Take a lock, or what an earlier attempt got without hearing of it; return whether it is held.

    Raises ProblemError, ClusterError.
    """
    name, text = name_of(client, key), spelled.value_text(value)
    known = Key(client.principal, name, text, ttl_ms is None)
    if await adopt_left(client, known, value, ttl_ms) is not None:
        return True
    request = AcquireRequest(name=name, value=text, owner=OwnerName(client.owner))
    if ttl_ms is None:
        request.no_deadline = True
    else:
        request.ttl_ms = ttl_ms
    command = request.command()
    give_back = partial(_release, client.gateway, command.hold_id, client.timeout_s)
    attempt = begin_attempt(client, known, value, command.hold_id, give_back)
    is_granted = False
    try:
        await client.gateway.submit(command, Granted, client.timeout_s)
        is_granted = True
    except OutcomeUnknown:
        attempt.give_back()
        raise
    except ProblemError as problem:
        if ttl_ms is None and problem.code == "invalid-request":
            advice = "give it a time: PX, or lock(..., timeout=30) in redis-py"
            raise ProblemError(problem.code, f"{problem.detail}; {advice}") from None
        if problem.code not in _IN_THE_WAY:
            raise
        _tell_same_value(client, name, text, value)
    finally:
        attempt.settle(is_granted=is_granted)
    if is_granted:
        client.took(name, command.hold_id)
    return is_granted


def begin_attempt(client: Client, known: Key, value: bytes, hold_id: HoldId, give_back: GiveBack) -> Attempt:
    """Follow an attempt of which the client is still to hear."""
    client.attempt = client.face.left.begin(known, value, hold_id, give_back)
    return client.attempt


async def adopt_left(client: Client, known: Key, value: bytes, ttl_ms: int | None) -> int | None:
    """Take over a hold of which nobody was told, with a lease from now on; return its token, None if none is.

    Raises ProblemError, ClusterError.
    """
    left = client.face.left.take(known)
    if left is None or not await left.is_granted():
        return None
    give_back = partial(_release, client.gateway, left.hold_id, client.timeout_s)
    attempt = begin_attempt(client, known, value, left.hold_id, give_back)
    token: int | None = None
    try:
        token = await _renew(client, left.hold_id, ttl_ms)
    except ProblemError as problem:
        if problem.code not in _OVER:
            attempt.settle(is_granted=False)
            attempt.give_back()
            raise
    except ClusterError:
        # As unheard of as before: the client asks again, or it is given back.
        client.attempt = None
        attempt.settle(is_granted=True)
        attempt.leave()
        raise
    attempt.settle(is_granted=token is not None)
    if token is not None:
        client.face.left.adopted_count += 1
        client.took(known.name, left.hold_id)
    return token


def _tell_same_value(client: Client, name: str, text: str, value: bytes) -> None:
    """Log once that a lock is refused to the very value that it has: a Redlock over nodes of one cluster."""
    face = client.face
    if face.has_told_same_value or len(value) < VALUE_BYTES_MIN:
        return
    if any(hold.value == text for hold in face.gateway.node.machine.lock(name).holders):
        face.has_told_same_value = True
        logger.warning("event=redis-same-value name=%r detail=%r", name, _SAME_VALUE)


# -- to renew ------------------------------------------------------------------------------------------------


async def _renew(client: Client, hold_id: HoldId, ttl_ms: int | None) -> int:
    """Let a hold last exactly so long from now on; return its token. Raises ProblemError, ClusterError."""
    request = RenewRequest(
        hold_id=hold_id, ttl_ms=UNSET if ttl_ms is None else ttl_ms, exact=ttl_ms is not None
    )
    renewed = await client.gateway.submit(request.command(HoldKind.LOCK), Renewed, client.timeout_s)
    return renewed.result.token


async def expire(client: Client, key: bytes, unit: TimeUnit, text: bytes, only: Condition) -> bool:
    """Let a hold that was taken on this connection last so long; return whether it does."""
    ttl_ms, name = unit.ttl_ms(text), name_of(client, key)
    rights_needed.check_name(client.gateway.rights, Right.ACQUIRE, name)
    found = await _holders_of(client, name)
    if not found:
        return False
    hold_id = client.own.get(name)
    if hold_id is None:
        raise CommandRefused(
            "this lock was not taken on this connection, and only its holder changes its time: compare its"
            " value first, as the scripts of lock clients do; see docs/faces.md",
            "NOPERM",
        )
    left_ms = found[0].expires_in_ms
    if not only.allows(ttl_ms, left_ms):
        return False
    if left_ms is None and ttl_ms > 0:
        raise not_supported(
            "EXPIRE of a lock without a deadline", "give the time when it is taken: SET key value NX PX ms"
        )
    if ttl_ms <= 0:
        changing: Awaitable[object] = _release(client.gateway, hold_id, client.timeout_s)
    else:
        changing = _renew(client, hold_id, ttl_ms)
    is_over = await _is_over(changing)
    if is_over or ttl_ms <= 0:
        del client.own[name]
    return not is_over


async def _is_over(changing: Awaitable[object]) -> bool:
    """Do something with a hold; return whether there was none. Raises ProblemError for other refusals."""
    try:
        await changing
    except ProblemError as problem:
        if problem.code not in _OVER:
            raise
        return True
    return False


# -- to end --------------------------------------------------------------------------------------------------


async def _release(gateway: Gateway, hold_id: HoldId, timeout_s: float) -> None:
    """End a hold by its id. Raises ProblemError, ClusterError."""
    command = ReleaseHoldRequest(hold_id=hold_id).command(HoldKind.LOCK)
    await gateway.submit(command, Released, timeout_s)


async def delete(client: Client, key: bytes) -> bool:
    """End the hold of a key: that of this connection, or with the right to force, anybody's."""
    name = name_of(client, key)
    rights_needed.check_name(client.gateway.rights, Right.ACQUIRE, name)
    own = client.own.get(name)
    if own is not None:
        is_over = await _is_over(_release(client.gateway, own, client.timeout_s))
        del client.own[name]
        if not is_over:
            return True
    found = await _holders_of(client, name)
    if found and not client.gateway.rights.covers(Right.FORCE, name):
        refused = forbidden(Right.FORCE, name)
        refused.detail += ", because the lock was not taken on this connection: compare its value first"
        raise refused
    ended = [await _force(client, name, hold.token) for hold in found]
    return any(ended)


async def _force(client: Client, name: str, token: int) -> bool:
    """End one hold, whoever has it; return whether it was still there."""
    request = ForceReleaseRequest(name=name, reason=_FORCED, token=token)
    command = request.command(HoldKind.LOCK)
    return not await _is_over(client.gateway.submit(command, ForceReleased, client.timeout_s))


# -- scripts -------------------------------------------------------------------------------------------------


async def run(client: Client, script: Script, keys: list[bytes], args: list[bytes]) -> int:
    """Do what a script means. Raises ProblemError, ClusterError, CommandRefused."""
    if len(keys) < script.keys_count or len(args) < script.args_count:
        raise CommandRefused(f"this script needs {script.keys_count} keys and {script.args_count} arguments")
    name, text = name_of(client, keys[0]), spelled.value_text(args[0])
    if script.act is Act.DELETE:
        return script.done if await _release_by_value(client, name, text) else script.other
    if script.act is Act.EXPIRE and not script.endless:
        return await _expire_by_value(client, script, name, text, integer(args[1]) * script.unit_ms)
    held = await _held_with(client, name, text)
    if held is None:
        return script.other
    left_ms = held.expires_in_ms
    if script.act is Act.REMAINING:
        return max(left_ms or 0, 0)
    if left_ms is None:
        return script.endless
    ttl_ms = integer(args[1]) * script.unit_ms
    if script.act is Act.EXTEND and args[2] == b"0":
        command = addition(name, text, ttl_ms)
        is_over = await _is_over(client.gateway.submit(command, Renewed, client.timeout_s))
        return script.other if is_over else script.done
    return await _expire_by_value(client, script, name, text, ttl_ms)


async def _held_with(client: Client, name: str, text: str) -> HoldView | None:
    """Return the caller's own hold of a name with a value: whoever knows that may know the rest."""
    rights_needed.check_name(client.gateway.rights, Right.ACQUIRE, name)
    for hold in await _holders_of(client, name):
        if hold.value == text and hold.principal in ("", client.principal):
            return hold
    return None


async def _release_by_value(client: Client, name: str, text: str) -> bool:
    command = ReleaseRequest(name=name, value=text).command()
    return not await _is_over(client.gateway.submit(command, Released, client.timeout_s))


async def _expire_by_value(client: Client, script: Script, name: str, text: str, ttl_ms: int) -> int:
    """Let the hold with a value last so long from now on, or end now if that is nothing."""
    if ttl_ms <= 0:
        return script.done if await _release_by_value(client, name, text) else script.other
    command = RenewRequest(name=name, value=text, ttl_ms=ttl_ms, exact=True).command(HoldKind.LOCK)
    is_over = await _is_over(client.gateway.submit(command, Renewed, client.timeout_s))
    return script.other if is_over else script.done
